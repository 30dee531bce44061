"""A is to B as C is to …: by the relations that link A to B, or by adding the difference of embeddings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F  # noqa: N812

from focuse.data.graph import Graph, find_sorted
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError, printable
from focuse.evaluation.metrics import FloatArray
from focuse.inference.answers import write_table
from focuse.inference.calibration import plain_probability
from focuse.inference.discovery.likeness import nearest_rows, unit_rows
from focuse.inference.discovery.scope import Ids
from focuse.inference.weight_predictor import WeightPredictor
from focuse.models.base import Side
from focuse.option_strings import choose

METHODS = ("relations", "offset")
LINKS = 3  # relations between A and B that are followed
ENOUGH = 0.5  # of the strongest link's strength that another one must have
POOL = 200  # answers a relation that are compared by probability


@dataclass(frozen=True)
class Analogy:
    """An answer, best first by `strength`; `relation` and `direction` ('forward': C → answer) say by which link.

    With relations, `strength` is how sure the link from A to B is, times how sure the one from C to the answer; with
    offset, the cosine with B − A + C. `known` marks answers that are facts of the graph.
    """

    rank: int
    answer: str
    strength: float
    relation: str | None = None
    direction: str | None = None
    probability: float | None = None
    known: bool | None = None


class Analogies(list[Analogy]):
    """Answers, best first; `links` are the relations taken from A to B: (relation, direction, strength, known).

    `pool` are all that were compared, of which these are the first `top`.
    """

    def __init__(
        self,
        pool: list[Analogy],
        asked: tuple[str, str, str],
        links: list[tuple[str, str, float, bool]],
        method: str,
        top: int,
    ) -> None:
        super().__init__(pool[:top])
        self.pool, self.asked, self.links, self.method, self.top = pool, asked, links, method, top

    def new_only(self) -> Analogies:
        """As many answers that are no known facts, with their ranks among all: `run.analogies(a, b, c).new_only()`."""
        if self.method == "offset":
            raise FocuseError("analogies by offset have no link that could be new; use the method relations (--new)")
        new = [row for row in self.pool if not row.known]
        return Analogies(new, self.asked, self.links, self.method, self.top)

    def to_dict(self) -> dict[str, Any]:
        names = ("relation", "direction", "strength", "known")
        return {
            "asked": list(self.asked),
            "method": self.method,
            "links": [dict(zip(names, link, strict=True)) for link in self.links],
            "analogies": [asdict(row) for row in self],
        }

    def to_arrow(self) -> pa.Table:
        kinds = {"rank": pa.int64(), "answer": pa.string(), "strength": pa.float64(), "relation": pa.string()}
        kinds |= {"direction": pa.string(), "probability": pa.float64(), "known": pa.bool_()}
        return pa.table({name: pa.array([getattr(row, name) for row in self], kind) for name, kind in kinds.items()})

    def write(self, path: str | Path) -> None:
        """Write to .tsv, .csv (with a header) or .parquet, whole or not at all."""
        write_table(self.to_arrow(), Path(path))

    def __str__(self) -> str:
        a, b, c = map(printable, self.asked)
        lines = [f"{a} is to {b} as {c} is to:"]
        for name, direction, strength, known in self.links:
            ends = (a, b) if direction == "forward" else (b, a)
            sure = "known" if known else f"strength {strength:.2f}"
            lines.append(f"  by {ends[0]} – {printable(name)} → {ends[1]} ({sure})")
        width = max((len(printable(row.answer)) for row in self), default=0)
        for row in self:
            how = "" if row.relation is None else f"  by {printable(row.relation)}"
            how += " (back)" if row.direction == "back" else ""
            mark = {True: "  known", False: "  new", None: ""}[row.known]
            lines.append(f"{row.rank:>4}  {printable(row.answer):{width}}  {row.strength:7.4f}{how}{mark}")
        return "\n".join(lines)


def find_analogies(
    scorer: TableScorer,
    graphs: list[Graph],
    predictor: WeightPredictor,
    asked: tuple[str, str, str],
    top: int = 10,
    method: str = "relations",
) -> Analogies:
    """What stands to C as B stands to A. `graphs` hold the known facts, train first."""
    choose("method", method, METHODS)
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise FocuseError(f"top {top!r}: give at least 1")
    names = graphs[0]
    a, b, c = (names.entities.id(name, "entity") for name in asked)
    if method == "offset":
        return Analogies(_by_offset(scorer, names, a, b, c, top), asked, [], method, top)
    facts = np.unique(np.concatenate([graph.keys for graph in graphs]))
    links = _links(names, predictor, facts, a, b)
    rows: dict[int, tuple[float, Analogy]] = {}
    for kind, forward, strength, _ in links:
        answers, sure, known = _answers(scorer, names, predictor, facts, c, kind, forward)
        for answer, one, fact in zip(answers.tolist(), sure.tolist(), known.tolist(), strict=True):
            if answer in (a, c) or (answer in rows and rows[answer][0] >= strength * one):
                continue
            way = "forward" if forward else "back"
            chance = one if predictor.probability is not None else None
            name, relation = names.entities[answer], names.relations[kind]
            rows[answer] = strength * one, Analogy(0, name, strength * one, relation, way, chance, fact)
    ordered = sorted(rows.items(), key=lambda item: (-item[1][0], item[0]))
    found = [Analogy(**{**asdict(row), "rank": rank}) for rank, (_, (_, row)) in enumerate(ordered, 1)]
    told = [(names.relations[kind], "forward" if ahead else "back", sure, fact) for kind, ahead, sure, fact in links]
    return Analogies(found, asked, told, method, top)


def _links(names: Graph, predictor: WeightPredictor, facts: Ids, a: int, b: int) -> list[tuple[int, bool, float, bool]]:
    """How A is linked to B: (relation, forward, strength, known), the strongest few; known ones have strength 1."""
    kinds = np.tile(np.arange(len(names.relations)), 2)
    forward = np.repeat([True, False], len(names.relations))
    head, tail = np.where(forward, a, b), np.where(forward, b, a)
    known = _known(names, facts, head, kinds, tail)
    sure = np.where(known, 1.0, _sure(predictor, head, kinds, tail))
    # A relation that never had such ends is no likely one, whatever the model believes.
    usual = np.concatenate([_usual(names, a, b), _usual(names, b, a)])
    order = np.lexsort((~forward, -sure, -usual, ~known))[:LINKS]
    order = order[(sure[order] >= ENOUGH * sure[order[0]]) & (known[order] | (usual[order] == usual.max()))]
    order = order[known[order]] if known[order].any() else order
    return [(int(kinds[at]), bool(forward[at]), float(sure[at]), bool(known[at])) for at in order]


def _usual(names: Graph, head: int, tail: int) -> Any:
    """For each relation [R], on how many of its sides train has these entities: 0, 1 or 2."""
    every = np.arange(len(names.relations))
    sides = names.relation[names.head == head], names.relation[names.tail == tail]
    return sum(np.isin(every, side).astype(np.int64) for side in sides)


def _known(names: Graph, facts: Ids, head: Any, kind: Any, tail: Any) -> Any:
    return find_sorted(facts, names.keys_of(head, kind, tail))[1]


def _answers(
    scorer: TableScorer, names: Graph, predictor: WeightPredictor, facts: Ids, c: int, kind: int, forward: bool
) -> tuple[Ids, FloatArray, Any]:
    """Who completes C's link of a kind: ids [n], how sure each is [n], whether known [n]; the best by score.

    Only entities that train has on that side of the relation.
    """
    side: Side = "tail" if forward else "head"
    one = torch.tensor([c], device=scorer.device)
    scores = scorer.score_all(one, torch.tensor([kind], device=scorer.device), side)[0]
    usual = torch.from_numpy(np.unique(getattr(names, side)[names.relation == kind]).astype(np.int64)).to(scores.device)
    ids = usual[torch.topk(scores[usual], min(POOL, len(usual))).indices].cpu().numpy()
    mine = np.full(len(ids), c)
    head, tail = (mine, ids) if forward else (ids, mine)
    kinds = np.full(len(ids), kind)
    return ids, _sure(predictor, head, kinds, tail), _known(names, facts, head, kinds, tail)


def _sure(predictor: WeightPredictor, head: Any, kind: Any, tail: Any) -> FloatArray:
    """The probability [n] of links, or what stands in for it where the run has none."""
    if predictor.probability is not None:
        return predictor.probable(head, kind, tail)
    score = predictor.score(head, kind, tail)
    confident = predictor.scorer.model.confidence_head is not None
    return predictor.confidence(score, kind) if confident else plain_probability(score)


def _by_offset(scorer: TableScorer, names: Graph, a: int, b: int, c: int, top: int) -> list[Analogy]:
    rows = unit_rows(scorer)
    query = F.normalize((rows[b] - rows[a] + rows[c])[None], dim=1)
    value, place = nearest_rows(query, rows, top + 3)
    found = [(at, one) for at, one in zip(place[0].tolist(), value[0].tolist(), strict=True) if at not in (a, b, c)]
    return [Analogy(rank, names.entities[at], one) for rank, (at, one) in enumerate(found[:top], 1)]
