"""The C++ loops of ranking as functions of tensors; each is None where it was not built or does not serve."""

from __future__ import annotations

from ctypes import c_float, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from focuse.engines.base import FORM_CODES
from focuse.engines.native import address, library

SMALL = 1 << 16  # numbers to look at; for fewer it takes longer to start a thread than to go without


def distances(queries: Tensor, rows: Tensor, form: str, out: Tensor | None = None, sign: float = 1.0) -> Tensor | None:
    """`sign` · distance of every query to every row: [B, d], [E, d] -> [B, E], written to `out` if given.

    `form` is 'l1' or 'l2'. Nothing larger than the result is held, and equal rows are equally far to the last bit.
    """
    native = library()
    if native is None or not _plain(queries, rows):
        return None
    size = (len(queries), len(rows))
    out = queries.new_empty(size) if out is None else out
    if queries.shape[1:] != rows.shape[1:] or out.shape != size or not _plain(out):
        raise ValueError(f"{tuple(queries.shape)} to {tuple(rows.shape)} do not give {tuple(out.shape)} {out.dtype}")
    queries, rows = queries.contiguous(), rows.contiguous()
    native.distances(
        c_void_p(address(queries)), c_void_p(address(rows)), *map(c_int64, (*size, rows.shape[1])),
        c_int(FORM_CODES[form]), c_float(sign), c_void_p(address(out)), c_int(_threads(out.numel() * rows.shape[1])),
    )  # fmt: skip
    return out


def count_rivals(
    scores: Tensor, first: Tensor, target: Tensor, start: Tensor, stop: Tensor, facts: Tensor
) -> Tensor | None:
    """As `focuse.evaluation.counting.count_rivals`, of scores in main memory."""
    native = library()
    if native is None or not _plain(scores):
        return None
    queries, entities = scores.shape
    counts = target.new_empty(len(target), 4)
    # Kept until the call is over: a copy that `contiguous` made would else be gone before it.
    arrays = [array.contiguous() for array in (first, target, start, stop, facts, counts)]
    scores = scores.contiguous()
    native.count_rivals(
        c_void_p(address(scores)), c_int64(queries), c_int64(entities), *(c_void_p(address(array)) for array in arrays),
        c_int(_threads(len(target) * entities)),
    )  # fmt: skip
    return counts


def _plain(*tensors: Tensor) -> bool:
    return all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)


def _threads(work: int) -> int:
    return torch.get_num_threads() if work > SMALL else 1
