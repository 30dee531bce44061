"""The C++ library of the fused CPU engine and of ranking, called through ctypes with plain arrays."""

from __future__ import annotations

import ctypes
import functools
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch

SWITCH = "FOCUSE_NATIVE"  # environment variable; the value 'off' disables the library


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the library for this processor, or None if it was not built (no C++ compiler) or is disabled."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no"):
        return None
    capability = torch.backends.cpu.get_cpu_capability().lower()
    for level in (capability, "default"):
        for suffix in EXTENSION_SUFFIXES:
            path = Path(__file__).parent / f"{level}{suffix}"
            if path.exists():
                return ctypes.CDLL(str(path))
    return None
