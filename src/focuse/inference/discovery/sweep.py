"""The passes over links: every pair of the scope in blocks, or pairs that the graph itself proposes.

Both keep but the best `size` of each relation, by the model's score. Known facts are masked by look-ups in sorted
keys; nothing as large as all scores is ever held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focuse.data.triple_index import TripleIndex
from focuse.engines.scorer import TableScorer
from focuse.inference.discovery.blocks import Relation, check_finite, cut
from focuse.inference.discovery.pool import NOTHING, Pool
from focuse.inference.discovery.scope import Ids, Scope
from focuse.inference.discovery.watching import Watch

SCORES_IN_CACHE = 1 << 21  # of a block on a CPU: 8 MB
SCORES_AT_ONCE = 1 << 25  # on a GPU: 128 MB
TAILS_AT_ONCE = 1 << 14  # of a block: queries of so many are held for a sided model
HUB = 512  # edges beyond which an entity's neighbours are not each other's: a hub links everything with everything
PAIRS_AT_ONCE = 1 << 18
LEAST = torch.finfo(torch.float32).min  # what is left out has −∞, below it


@dataclass(frozen=True)
class Found:
    """The best links of each relation by score, ids int64 [n] each, and how many were scored."""

    head: Ids
    relation: Ids
    tail: Ids
    scored: int


@torch.no_grad()
def sweep(
    scorer: TableScorer, scope: Scope, known: TripleIndex, size: int, watch: Watch, a_head: int | None = None
) -> Found:
    """Score every pair of the scope; keep the `size` best of each relation, at most `a_head` of them of one head."""
    kept: list[tuple[int, Ids]] = []
    scored = 0
    for relation in scope.relations.tolist():
        heads, tails = (torch.from_numpy(ids).to(scorer.device) for ids in scope.ends(relation))
        pool = Pool(size)
        for tile in cut(tails, TAILS_AT_ONCE) if len(heads) else ():
            if watch.stopped or not len(tile):
                break
            scored += _tile(scorer, relation, heads, tile, known, bool(scope.loops[relation]), pool, watch, a_head)
        kept.append((relation, pool.best()[1].cpu().numpy()))
    return _found(kept, known.entities, scored)


def _tile(
    scorer: TableScorer,
    relation: int,
    heads: Tensor,
    tails: Tensor,
    known: TripleIndex,
    loops: bool,
    pool: Pool,
    watch: Watch,
    a_head: int | None,
) -> int:
    """One relation's heads by some of its tails; how many pairs were scored."""
    asked = Relation(scorer, relation, tails)
    column = torch.full((known.entities,), -1, dtype=torch.int64, device=scorer.device)
    column[tails] = torch.arange(len(tails), device=scorer.device)
    at_once = SCORES_IN_CACHE if scorer.device.type == "cpu" else SCORES_AT_ONCE
    scored = 0
    for some in cut(heads, max(1, at_once // len(tails))):
        if watch.stopped:
            break
        scores = asked.scores(some)
        rows, facts = known.known_answers(some, torch.full_like(some, relation), "tail")
        place = column[facts]
        scores[rows[place >= 0], place[place >= 0]] = NOTHING
        if not loops:
            own = column[some]
            scores[torch.nonzero(own >= 0)[:, 0], own[own >= 0]] = NOTHING
        _keep(pool, scores, some, tails, known.entities, a_head)
        scored += scores.numel()
        watch.advance(scores.numel())
    return scored


def _keep(pool: Pool, scores: Tensor, heads: Tensor, tails: Tensor, entities: int, a_head: int | None) -> None:
    """Put into the pool what reaches its bar."""
    best = scores.amax(1)
    check_finite(best)
    if pool.bar == NOTHING and scores.numel() > 4 * pool.size:  # of the first block most cannot stay
        least = max(float(torch.topk(scores.flatten(), pool.size).values[-1]), LEAST)
    else:
        least = max(pool.bar, LEAST)
    rows = torch.nonzero(best >= least)[:, 0]  # after the first blocks, few rows
    if not len(rows):
        return
    scores = scores if len(rows) == len(scores) else scores.index_select(0, rows)
    if a_head is not None and a_head < len(tails):
        scores, column = torch.topk(scores, a_head, dim=1)
    reached = _reaching(scores, least)
    row, place = reached // scores.shape[1], reached % scores.shape[1]
    tail = tails[place if a_head is None or a_head >= len(tails) else column[row, place]]
    pool.add(scores[row, place], heads[rows[row]] * entities + tail)


def _reaching(scores: Tensor, least: float) -> Tensor:
    """Places [n] in the flattened scores of what is at least so high."""
    mask = (scores >= least).flatten()
    if scores.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))  # eight times as fast as torch's
    return torch.nonzero(mask)[:, 0]


@torch.no_grad()
def sweep_near(
    scorer: TableScorer, scope: Scope, known: TripleIndex, size: int, watch: Watch, a_head: int | None = None
) -> Found:
    """Score the pairs of the scope that have a neighbour in common, or are neighbours by another relation."""
    pools = {relation: Pool(size) for relation in scope.relations.tolist()}
    ends = {relation: _masks(scope, relation) for relation in pools}
    scored = 0
    for head, tail in near_pairs(scope):
        if watch.stopped:
            break
        for relation, pool in pools.items():
            of_heads, of_tails = ends[relation]
            some = of_heads[head] & of_tails[tail]
            if not scope.loops[relation]:
                some &= head != tail
            h, t = (torch.from_numpy(ids[some]).to(scorer.device) for ids in (head, tail))
            kind = torch.full_like(h, relation)
            new = ~known.contains(h, kind, t)
            h, kind, t = h[new], kind[new], t[new]
            for part in cut(torch.arange(len(h), device=scorer.device), PAIRS_AT_ONCE):
                _keep_pairs(scorer, pool, h[part], kind[part], t[part], known.entities, a_head)
            scored += len(h)
        watch.advance(len(np.unique(head)))
    kept = [(relation, pool.best()[1].cpu().numpy()) for relation, pool in pools.items()]
    return _found(kept, known.entities, scored)


def _keep_pairs(
    scorer: TableScorer, pool: Pool, head: Tensor, kind: Tensor, tail: Tensor, entities: int, a_head: int | None
) -> None:
    if not len(head):
        return
    scores = scorer.score(head, kind, tail)
    check_finite(scores)
    if a_head is not None:
        order = torch.argsort(scores, descending=True, stable=True)
        order = order[torch.argsort(head[order], stable=True)]
        count = torch.unique_consecutive(head[order], return_counts=True)[1]
        first = torch.repeat_interleave(count.cumsum(0) - count, count)
        order = order[torch.arange(len(order), device=order.device) - first < a_head]
        scores, head, tail = scores[order], head[order], tail[order]
    high = scores >= max(pool.bar, LEAST)
    pool.add(scores[high], (head * entities + tail)[high])


def near_pairs(scope: Scope) -> Iterator[tuple[Ids, Ids]]:
    """Pairs of entities one or two steps apart in train, direction aside, in blocks: ids [m] each.

    No step leads over an entity of more than 512 edges.
    """
    near = _adjacency(scope)
    over = near.copy()
    over.data[np.diff(near.indptr)[near.indices] > HUB] = 0
    over.eliminate_zeros()
    reach = np.asarray(over @ np.diff(near.indptr)[:, None]).ravel() + np.diff(near.indptr)
    entities = near.shape[0] if scope.heads is None else scope.heads
    heads = np.arange(entities) if isinstance(entities, int) else entities
    blocks = np.cumsum(reach[heads]) // SCORES_IN_CACHE
    for rows in np.split(heads, np.flatnonzero(np.diff(blocks)) + 1):
        both = (over[rows] @ near + near[rows]).tocoo()
        yield rows[both.row].astype(np.int64), both.col.astype(np.int64)


def near_work(scope: Scope) -> int:
    """Not more than so many pairs come out of `near_pairs`."""
    near = _adjacency(scope)
    degree = np.diff(near.indptr)
    few = np.where(degree > HUB, 0, degree)
    reach = np.asarray(near @ few[:, None]).ravel() + degree
    return int(reach.sum() if scope.heads is None else reach[scope.heads].sum())


def _adjacency(scope: Scope) -> Any:
    """Entities by entities, 1 where train links them in either direction."""
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

    train, entities = scope.train, len(scope.train.entities)
    ends = np.concatenate([train.head, train.tail]), np.concatenate([train.tail, train.head])
    made = sparse.csr_matrix((np.ones(len(ends[0]), np.int32), ends), shape=(entities, entities))
    made.data[:] = 1  # edges that repeat are summed
    return made


def _masks(scope: Scope, relation: int) -> tuple[Any, Any]:
    """Which entities [E] may be heads, and which tails."""
    made = []
    for ids in scope.ends(relation):
        mask = np.zeros(len(scope.train.entities), bool)
        mask[ids] = True
        made.append(mask)
    return made[0], made[1]


def _found(kept: list[tuple[int, Ids]], entities: int, scored: int) -> Found:
    relation = np.repeat([r for r, _ in kept], [len(keys) for _, keys in kept]).astype(np.int64)
    keys = np.concatenate([keys for _, keys in kept]) if kept else np.empty(0, np.int64)
    return Found(keys // entities, relation, keys % entities, scored)
