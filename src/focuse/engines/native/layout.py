"""The C++ loops' structures as ctypes knows them: the same fields in the same order as in step.hpp and pool.hpp."""

from __future__ import annotations

import ctypes
import functools

from focuse.engines.native import library

POINTER, LONG, INT, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float


def _fields(**groups: str) -> list[tuple[str, type]]:
    kinds = {"pointer": POINTER, "long": LONG, "int": INT, "float": FLOAT}
    # A key may be numbered to appear twice: pointer, long, pointer2.
    return [(name, kinds[kind.rstrip("0123456789")]) for kind, names in groups.items() for name in names.split()]


class TableLayout(ctypes.Structure):
    _fields_ = _fields(
        pointer="values first second", long="rows width", int="power scope parts spans", float="strength"
    )


class ObjectiveLayout(ctypes.Structure):
    _fields_ = _fields(int="loss nonlinearity", float="shift margin temperature beta scale slope offset")


class OptimiserLayout(ctypes.Structure):
    _fields_ = _fields(int="method whole", float="lr first second tiny first_bias second_bias")


class StepLayout(ctypes.Structure):
    _fields_ = [
        ("entity", TableLayout),
        ("relation", TableLayout),
        *_fields(
            pointer="head kind tail weight",
            long="positives hints",
            pointer2="corruptions tails mask",
            long2="count columns piece",
            pointer3="pool pool_gradient",
            long3="pooled",
            pointer4="query given of_query comparison slope of_end of_relation loss of_scale sorted",
        ),
        ("objective", ObjectiveLayout),
        *_fields(float="hint_weight", int="turn form threads groups summed sided"),
        ("optimiser", OptimiserLayout),
    ]


class PoolLayout(ctypes.Structure):
    _fields_ = _fields(
        pointer="entities",
        long="size",
        pointer2="target mask fact_rows facts",
        long2="known",
        pointer3="gradient",
        int="tails shares",
    )


@functools.cache
def checked() -> ctypes.CDLL:
    """The loops, once both sides' structures were compared: those of another version would read and write elsewhere."""
    native = library()
    assert native is not None
    for layout, function in ((StepLayout, "size_of_step"), (PoolLayout, "size_of_pool")):
        native[function].restype = LONG
        found, expected = native[function](), ctypes.sizeof(layout)
        if found != expected:
            raise RuntimeError(f"the built loops are of another version ({found} bytes, not {expected}): build again")
    native["room_of_pools"].restype = LONG
    return native
