"""What ranking spends its time on, by the fastest means at hand: C++ on a CPU, Triton on a GPU, else torch."""

from __future__ import annotations

import functools
from importlib.util import find_spec

import torch
from torch import Tensor

from focuse.engines.native import ranking as native


def distances(queries: Tensor, rows: Tensor, form: str, sign: float = 1.0) -> Tensor | None:
    """`sign` · distance of every query to every row, 'l1' or 'l2': [B, d], [E, d] -> [B, E]; None: not by us.

    Equal rows are equally far to the last bit, and nothing larger than the result is held.
    """
    if _on_gpu(queries):
        from focuse.engines.triton.ranking import distances as by_triton

        return by_triton(queries, rows, form, sign)
    return native.distances(queries, rows, form, sign=sign)


def count_rivals(scores: Tensor, first: Tensor, target: Tensor, start: Tensor, stop: Tensor, facts: Tensor) -> Tensor:
    """Rivals of each target among all scores of its query: [Q, E], targets [n] -> int64 [n, 4].

    Query q has the targets first[q] to first[q + 1] ([Q + 1], from 0 to n) and the known answers start[q] to stop[q]
    of `facts`, ascending keys whose remainder by E is an entity. The counts: higher and same among all, higher and
    same among those not known. All are -1 where a score of the query is not finite.

    >>> score, nobody = torch.tensor([[0.5, 0.1, 0.5, 0.9]]), torch.tensor([0])
    >>> count_rivals(score, torch.tensor([0, 1]), torch.tensor([2]), nobody, nobody + 1, torch.tensor([3])).tolist()
    [[1, 1, 0, 1]]
    """
    asked = (scores, first, target, start, stop, facts)
    if _on_gpu(scores):
        from focuse.engines.triton.ranking import count_rivals as by_triton

        return by_triton(*asked)
    counts = native.count_rivals(*asked)
    return _by_torch(*asked) if counts is None else counts


def count_apart(
    scores: Tensor,
    own: Tensor,
    query: Tensor,
    target: Tensor,
    start: Tensor,
    stop: Tensor,
    facts: Tensor,
    first: int,
    entities: int,
) -> Tensor:
    """The same among some entities, `first` and those that follow it: [Q, n] of `entities`, targets [m] -> [m, 4].

    The targets' scores `own` [m] to the queries `query` [m] are given, for they may stand elsewhere.

    >>> score, nobody = torch.tensor([[0.5, 0.9]]), torch.tensor([0])
    >>> known = nobody, nobody + 1, torch.tensor([3])
    >>> count_apart(score, torch.tensor([0.5]), torch.tensor([0]), torch.tensor([0]), *known, 2, 4).tolist()
    [[1, 1, 0, 1]]
    """
    higher, same = torch.empty_like(target), torch.empty_like(target)
    place = target - first
    itself = ((place >= 0) & (place < scores.shape[1])).long()
    size = max(len(scores), 1)  # as below
    for begin in range(0, len(target), size):
        some = slice(begin, begin + size)
        rivals, mine = scores[query[some]], own[some, None]
        higher[some], same[some] = (rivals > mine).sum(1), (rivals == mine).sum(1)
    same -= itself
    which, where = spread(start[query], stop[query])
    place = facts[where] % entities - first
    inside = (place >= 0) & (place < scores.shape[1])
    which, place = which[inside], place[inside]
    found, mine = scores[query[which], place], own[which]
    known_higher = torch.zeros_like(higher).index_add_(0, which, (found > mine).long())
    equal = (found == mine) & (place + first != target[which])
    known_same = torch.zeros_like(same).index_add_(0, which, equal.long())
    return torch.stack([higher, same, higher - known_higher, same - known_same], dim=1)


def spread(start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
    """Ranges written out: [n], [n] -> for each number in them the range it is of [m], and itself [m]."""
    count = stop - start
    which = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
    before = torch.repeat_interleave(start - (count.cumsum(0) - count), count)
    return which, before + torch.arange(len(which), device=count.device)


def _by_torch(scores: Tensor, first: Tensor, target: Tensor, start: Tensor, stop: Tensor, facts: Tensor) -> Tensor:
    query, _ = spread(first[:-1], first[1:])
    own = scores[query, target]
    higher, same = torch.empty_like(target), torch.empty_like(target)
    size = max(len(scores), 1)  # queries with several targets are copied for each: so many that memory does but double
    for begin in range(0, len(target), size):
        some = slice(begin, begin + size)
        rivals, mine = scores[query[some]], own[some, None]
        higher[some], same[some] = (rivals > mine).sum(1), (rivals == mine).sum(1) - 1
    which, place = spread(start[query], stop[query])
    entity = facts[place] % scores.shape[1]
    found, mine = scores[query[which], entity], own[which]
    known_higher = torch.zeros_like(higher).index_add_(0, which, (found > mine).long())
    equal = (found == mine) & (entity != target[which])
    known_same = torch.zeros_like(same).index_add_(0, which, equal.long())
    counts = torch.stack([higher, same, higher - known_higher, same - known_same], dim=1)
    counts[~torch.isfinite(scores).all(1)[query]] = -1
    return counts


def _on_gpu(tensor: Tensor) -> bool:
    return tensor.is_cuda and tensor.dtype == torch.float32 and _has_triton()


@functools.cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
