"""The C++ structures of step.hpp and shared_pool.hpp for ctypes: the same fields in the same order."""

from __future__ import annotations

import ctypes
import functools

from focuse.engines.native import library

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
def checked_library() -> ctypes.CDLL:
    """Return the C++ library after checking that the structures have the same size in Python and in C++.

    A library of another version would read and write at wrong addresses.
    """
    native = library()
    assert native is not None
    for struct, function in ((StepStruct, "size_of_step"), (PoolStruct, "size_of_pool")):
        native[function].restype = LONG
        found, expected = native[function](), ctypes.sizeof(struct)
        if found != expected:
            raise RuntimeError(
                f"the C++ library is from another version ({found} bytes, not {expected}): "
                "run python setup.py build_ext --inplace"
            )
    native["pool_workspace_size"].restype = LONG
    return native
