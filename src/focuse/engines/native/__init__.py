"""The C++ library of the fused CPU engine and of ranking, called through ctypes with plain arrays.

The structures have the same fields in the same order as those of step.hpp and shared_pool.hpp.
"""

from __future__ import annotations

import ctypes
import functools
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch

SWITCH = "FOCUSE_NATIVE"  # environment variable; the value 'off' disables the library
POINTER, LONG, INT, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float


def _fields(**groups: str) -> list[tuple[str, type]]:
    types = {"pointer": POINTER, "long": LONG, "int": INT, "float": FLOAT}
    # A type may be numbered to appear twice: pointer, long, pointer2.
    return [(name, types[group.rstrip("0123456789")]) for group, names in groups.items() for name in names.split()]


class TableStruct(ctypes.Structure):
    """`Table` of step.hpp: an embedding table, the optimizer's moments, and the regularizer."""

    _fields_ = _fields(
        pointer="values moment1 moment2", long="rows width", int="power scope components spans", float="strength"
    )


class ObjectiveStruct(ctypes.Structure):
    """`Objective` of objective.hpp."""

    _fields_ = _fields(int="loss nonlinearity", float="shift margin temperature beta scale gain offset")


class OptimizerStruct(ctypes.Structure):
    """`Optimizer` of optimizer.hpp."""

    _fields_ = _fields(int="method whole", float="lr beta1 beta2 eps bias1 bias2")


class StepStruct(ctypes.Structure):
    """`Step` of step.hpp, where the shapes of all arrays are described."""

    _fields_ = [
        ("entities", TableStruct),
        ("relations", TableStruct),
        *_fields(
            pointer="head relation tail weight",
            long="positives auxiliary",
            pointer2="negatives replaces_tail mask",
            long2="negatives_per_positive block_columns pool_piece",
            pointer3="pool pool_gradient",
            long3="pool_size inverse_offset",
            pointer4="queries precomputed_queries query_gradient raw_score negative_gradient entity_gradient"
            " relation_gradient loss scale_gradient sort_buffer",
        ),
        ("objective", ObjectiveStruct),
        *_fields(float="auxiliary_weight", int="query_operation similarity threads groups sum_relations"),
        ("optimizer", OptimizerStruct),
    ]


class PoolStruct(ctypes.Structure):
    """`SharedPool` of shared_pool.hpp."""

    _fields_ = _fields(
        pointer="entities",
        long="size",
        pointer2="target mask known_rows known_entities",
        long2="known_count",
        pointer3="gradient",
        int="replaces_tail same_as_previous",
    )


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the library for this processor, or None if it was not built (no C++ compiler) or is disabled."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no"):
        return None
    levels = torch.backends.cpu.get_cpu_capability().lower(), "default"
    names = [level + suffix for level in levels for suffix in EXTENSION_SUFFIXES]
    path = next((path for path in map(Path(__file__).parent.joinpath, names) if path.exists()), None)
    if path is None:
        return None
    native = ctypes.CDLL(str(path))
    native.size_of_step.restype = native.size_of_pool.restype = native.pool_workspace_size.restype = LONG
    for struct, size in ((StepStruct, native.size_of_step), (PoolStruct, native.size_of_pool)):
        found, expected = size(), ctypes.sizeof(struct)
        if found != expected:  # it would read and write at wrong addresses
            raise RuntimeError(
                f"the C++ library is from another version ({found} bytes, not {expected}): "
                "run python setup.py build_ext --inplace"
            )
    return native
