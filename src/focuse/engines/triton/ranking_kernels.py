"""Ranking on a GPU: distances between all queries and all rows, and the number of competitors of each target.

Matrix products are computed by torch. No function synchronizes with the GPU.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from focuse.engines.base import SIMILARITY_CODES
from focuse.engines.scorer import Targets

L1 = tl.constexpr(SIMILARITY_CODES["l1"])
QUERIES, ROWS = 16, 512  # size of a tile; each thread has 64 sums and reads 20 values for 64 terms
UNROLLED = 4  # columns that are loaded together, so that the sums wait for memory only once
SCORES = 1024  # scores of a query that a program reads at once


@triton.jit
def _distance_kernel(
    queries, rows, out, query_count, row_count, sign,
    width: tl.constexpr, similarity: tl.constexpr,
    tile_queries: tl.constexpr, tile_rows: tl.constexpr, unrolled: tl.constexpr,
) -> None:  # fmt: skip
    """Compute one tile of distances.

    The terms of a pair are added in the order of the columns, so that equal rows have bitwise equal distances. Both
    inputs are transposed, [width, …], so that neighboring threads read adjacent values.
    """
    q = tl.program_id(0) * tile_queries + tl.arange(0, tile_queries)
    r = tl.program_id(1) * tile_rows + tl.arange(0, tile_rows)
    query_pointer, row_pointer = queries + q, rows + r
    total = tl.zeros([tile_queries, tile_rows], dtype=tl.float32)
    for start in range(0, width, unrolled):
        for step in tl.static_range(unrolled):
            within = start + step < width  # beyond the width both values are 0 and add nothing
            query = tl.load(query_pointer, mask=(q < query_count) & within, other=0.0)
            row = tl.load(row_pointer, mask=(r < row_count) & within, other=0.0)
            query_pointer += query_count
            row_pointer += row_count
            difference = query[:, None] - row[None, :]
            if similarity == L1:
                total += tl.abs(difference)
            else:
                total += difference * difference
    if similarity != L1:
        total = tl.sqrt(total)
    cell = q.to(tl.int64)[:, None] * row_count + r[None, :]
    tl.store(out + cell, sign * total, mask=(q < query_count)[:, None] & (r < row_count)[None, :])


@triton.jit
def _count_kernel(
    scores, query_of, targets, starts, stops, answers, counts, entities: tl.constexpr, block: tl.constexpr
) -> None:  # fmt: skip
    """Compare one target with all scores of its query, then with the scores of the known answers."""
    i = tl.program_id(0).to(tl.int64)
    query = tl.load(query_of + i)
    target = tl.load(targets + i)
    row = scores + query * entities
    target_score = tl.load(row + target)
    higher = tl.zeros([block], dtype=tl.int32)
    same = tl.zeros([block], dtype=tl.int32)
    bad = tl.zeros([block], dtype=tl.int32)
    for begin in range(0, entities, block):
        e = begin + tl.arange(0, block)
        inside = e < entities
        score = tl.load(row + e, mask=inside, other=0.0)
        higher += (inside & (score > target_score)).to(tl.int32)
        same += (inside & (score == target_score) & (e != target)).to(tl.int32)
        bad += (inside & ~(tl.abs(score) < float("inf"))).to(tl.int32)  # NaN is not below it either
    known_higher = tl.zeros([block], dtype=tl.int32)
    known_same = tl.zeros([block], dtype=tl.int32)
    stop = tl.load(stops + query)
    begin = tl.load(starts + query)
    while begin < stop:
        f = begin + tl.arange(0, block)
        inside = f < stop
        e = tl.load(answers + f, mask=inside, other=0) % entities
        score = tl.load(row + e, mask=inside, other=0.0)
        known_higher += (inside & (score > target_score)).to(tl.int32)
        known_same += (inside & (score == target_score) & (e != target)).to(tl.int32)
        begin += block
    finite = tl.sum(bad) == 0
    all_higher, all_same = tl.sum(higher), tl.sum(same)
    into = counts + i * 4
    tl.store(into, tl.where(finite, all_higher, -1).to(tl.int64))
    tl.store(into + 1, tl.where(finite, all_same, -1).to(tl.int64))
    tl.store(into + 2, tl.where(finite, all_higher - tl.sum(known_higher), -1).to(tl.int64))
    tl.store(into + 3, tl.where(finite, all_same - tl.sum(known_same), -1).to(tl.int64))


def distances(queries: Tensor, rows: Tensor, similarity: str, sign: float = 1.0) -> Tensor:
    """Compute `focuse.engines.scorer.distances` on a GPU: [B, d], [E, d] -> [B, E]."""
    out = queries.new_empty(len(queries), len(rows))
    grid = (triton.cdiv(len(queries), QUERIES), triton.cdiv(len(rows), ROWS))
    if out.numel():
        _distance_kernel[grid](
            queries.mT.contiguous(), rows.mT.contiguous(), out, len(queries), len(rows), float(sign),
            rows.shape[1], SIMILARITY_CODES[similarity], QUERIES, ROWS, UNROLLED, num_warps=4,
        )  # fmt: skip
    return out


def count_competitors(scores: Tensor, targets: Targets) -> Tensor:
    """Compute `focuse.engines.scorer.count_competitors` on a GPU: scores [Q, E] -> int64 [n, 4]."""
    count, query = len(targets.target), targets.query
    counts = targets.target.new_empty(count, 4)
    if count:
        _first, target, start, stop, answers = targets.arrays()
        _count_kernel[(count,)](
            scores.contiguous(), query, target, start, stop, answers, counts, scores.shape[1], SCORES, num_warps=4
        )
    return counts
