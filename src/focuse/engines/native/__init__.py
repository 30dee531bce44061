"""The loops of the CPU engine, written in C++ and called by ctypes: plain arrays in, plain arrays out."""

from __future__ import annotations

import ctypes
import functools
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch

SWITCH = "FOCUSE_NATIVE"  # 'off': do as if nothing had been built


@functools.cache
def library() -> ctypes.CDLL | None:
    """The library for this processor, None if it was not built (no C++ compiler) or is switched off."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no"):
        return None
    capability = torch.backends.cpu.get_cpu_capability().lower()
    for level in (capability, "default"):
        for suffix in EXTENSION_SUFFIXES:
            path = Path(__file__).parent / f"{level}{suffix}"
            if path.exists():
                return ctypes.CDLL(str(path))
    return None


def address(tensor: torch.Tensor | None) -> int | None:
    """Where a contiguous tensor's numbers lie; None is a null pointer."""
    if tensor is None:
        return None
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError(f"a contiguous tensor in main memory is needed, not {tuple(tensor.shape)} on {tensor.device}")
    return tensor.data_ptr()
