"""Ranking on a GPU: distances between all queries and all rows, and how many rivals stand before a target.

A matrix product is left to torch. Nothing here waits for the GPU.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from focuse.engines.base import FORM_CODES

L1 = tl.constexpr(FORM_CODES["l1"])
QUERIES, ROWS = 16, 512  # of a tile: 64 sums a thread, 20 numbers to read for each 64 terms of them
UNROLLED = 4  # columns whose numbers are asked for together, so that the sums wait but once for memory
SCORES = 1024  # of a query that a program looks at together


@triton.jit
def _distance_kernel(
    queries, rows, out, query_count, row_count, sign,
    width: tl.constexpr, form: tl.constexpr,
    tile_queries: tl.constexpr, tile_rows: tl.constexpr, unrolled: tl.constexpr,
) -> None:  # fmt: skip
    """One tile. A pair's terms are added in the order of the columns, so equal rows are equally far to the last bit.

    Both tables come transposed, [width, …]: what neighbouring threads read lies together.
    """
    q = tl.program_id(0) * tile_queries + tl.arange(0, tile_queries)
    r = tl.program_id(1) * tile_rows + tl.arange(0, tile_rows)
    of_query, of_row = queries + q, rows + r
    total = tl.zeros([tile_queries, tile_rows], dtype=tl.float32)
    for start in range(0, width, unrolled):
        for step in tl.static_range(unrolled):
            within = start + step < width  # beyond it both are 0, and so is their distance
            query = tl.load(of_query, mask=(q < query_count) & within, other=0.0)
            row = tl.load(of_row, mask=(r < row_count) & within, other=0.0)
            of_query += query_count
            of_row += row_count
            apart = query[:, None] - row[None, :]
            if form == L1:
                total += tl.abs(apart)
            else:
                total += apart * apart
    if form != L1:
        total = tl.sqrt(total)
    place = q.to(tl.int64)[:, None] * row_count + r[None, :]
    tl.store(out + place, sign * total, mask=(q < query_count)[:, None] & (r < row_count)[None, :])


@triton.jit
def _count_kernel(
    scores, query_of, targets, starts, stops, facts, counts, entities: tl.constexpr, block: tl.constexpr
) -> None:  # fmt: skip
    """One target against all scores of its query, then against those of the known answers."""
    place = tl.program_id(0).to(tl.int64)
    query = tl.load(query_of + place)
    target = tl.load(targets + place)
    row = scores + query * entities
    own = tl.load(row + target)
    higher = tl.zeros([block], dtype=tl.int32)
    same = tl.zeros([block], dtype=tl.int32)
    bad = tl.zeros([block], dtype=tl.int32)
    for begin in range(0, entities, block):
        e = begin + tl.arange(0, block)
        inside = e < entities
        score = tl.load(row + e, mask=inside, other=0.0)
        higher += (inside & (score > own)).to(tl.int32)
        same += (inside & (score == own) & (e != target)).to(tl.int32)
        bad += (inside & ~(tl.abs(score) < float("inf"))).to(tl.int32)  # NaN is not below it either
    known_higher = tl.zeros([block], dtype=tl.int32)
    known_same = tl.zeros([block], dtype=tl.int32)
    stop = tl.load(stops + query)
    begin = tl.load(starts + query)
    while begin < stop:
        f = begin + tl.arange(0, block)
        inside = f < stop
        e = tl.load(facts + f, mask=inside, other=0) % entities
        score = tl.load(row + e, mask=inside, other=0.0)
        known_higher += (inside & (score > own)).to(tl.int32)
        known_same += (inside & (score == own) & (e != target)).to(tl.int32)
        begin += block
    finite = tl.sum(bad) == 0
    all_higher, all_same = tl.sum(higher), tl.sum(same)
    into = counts + place * 4
    tl.store(into, tl.where(finite, all_higher, -1).to(tl.int64))
    tl.store(into + 1, tl.where(finite, all_same, -1).to(tl.int64))
    tl.store(into + 2, tl.where(finite, all_higher - tl.sum(known_higher), -1).to(tl.int64))
    tl.store(into + 3, tl.where(finite, all_same - tl.sum(known_same), -1).to(tl.int64))


def distances(queries: Tensor, rows: Tensor, form: str, sign: float = 1.0) -> Tensor:
    """As `focuse.engines.ranking.distances`: [B, d], [E, d] -> [B, E]."""
    out = queries.new_empty(len(queries), len(rows))
    grid = (triton.cdiv(len(queries), QUERIES), triton.cdiv(len(rows), ROWS))
    if out.numel():
        _distance_kernel[grid](
            queries.mT.contiguous(), rows.mT.contiguous(), out, len(queries), len(rows), float(sign),
            rows.shape[1], FORM_CODES[form], QUERIES, ROWS, UNROLLED, num_warps=4,
        )  # fmt: skip
    return out


def count_rivals(scores: Tensor, first: Tensor, target: Tensor, start: Tensor, stop: Tensor, facts: Tensor) -> Tensor:
    """As `focuse.engines.ranking.count_rivals`: scores [Q, E] -> int64 [n, 4]."""
    counts = target.new_empty(len(target), 4)
    every = torch.arange(len(scores), device=scores.device)
    query = torch.repeat_interleave(every, first.diff(), output_size=len(target))
    if len(target):
        _count_kernel[(len(target),)](
            scores.contiguous(), query, target.contiguous(), start.contiguous(), stop.contiguous(), facts.contiguous(),
            counts, scores.shape[1], SCORES, num_warps=4,
        )  # fmt: skip
    return counts
