"""The part of a `Run` that explains its predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from focuse.engines import ReferenceEngine
from focuse.errors import FocuseError
from focuse.graph.graph import Graph
from focuse.graph.splits import Splits
from focuse.graph.weights import Normaliser
from focuse.inference.explaining.explanation import Explanation, Like, Support
from focuse.inference.explaining.implied import Logic
from focuse.inference.explaining.influence import Influence
from focuse.inference.explaining.local import Learnt
from focuse.inference.explaining.similar import closeness, same_end, similar_facts
from focuse.inference.predict import A_RELATION, AN_ENTITY, Prediction, predict
from focuse.inference.weigh import Weigher
from focuse.training.settings import Settings


class ExplanationMethods:
    """The part of a `Run` that says why."""

    settings: Settings
    splits: Splits
    normaliser: Normaliser
    engine: ReferenceEngine
    history: list[dict[str, Any]]
    _fitted: dict[str, Any]

    def weigher(self, full: bool = False) -> Weigher:
        raise NotImplementedError  # of the run

    def _looking(self, anywhere: bool) -> Weigher:
        raise NotImplementedError  # of the run

    def explain(self, head: str, relation: str, tail: str, top: int = 5, *, rules: Any = None) -> Explanation:
        """Why a triple is predicted, known or not: the facts it rests on, facts like it, and rules that imply it.

        `top` is how many of each to name. `rules` are your own (a file, or what `focuse.ukge.parse_rules` makes of a
        text); else rules are mined from the training graph, once a run.

        `print(run.explain("Ward Nurse", "requires skill", "triage"))` tells it in words; `to_dict()` and `svg()` of the
        result are for programs and for the eye.
        """
        if isinstance(top, bool) or not isinstance(top, int) or top < 1:
            raise FocuseError(f"top {top!r}: give a whole number of at least 1")
        names = self.splits.train
        h, t = (names.entities.id(end, "entity", A_RELATION) for end in (head, tail))
        r = names.relations.id(relation, "relation", AN_ENTITY)
        logic = self._logic(rules)
        graphs = [self.splits.train, self.splits.valid.graph, self.splits.test.graph]
        [asked] = predict(self.engine, graphs, head, relation, tail, 1, False, self.weigher(full=True))
        return self._explained(asked, (h, r, t), top, logic)

    def _explained(self, asked: Prediction, ids: tuple[int, int, int], top: int, logic: Logic) -> Explanation:
        learnt = self._learnt()
        influence = Influence(learnt, self.engine, *ids)
        rows, change = influence.changes()
        own = _is(learnt.graph, rows, ids)
        itself = float(change[own][0]) if own.any() else None
        rows, change = rows[~own], change[~own]
        order = np.argsort(change, kind="stable")
        facts = [self._support(learnt, int(rows[place]), float(change[place]), ids) for place in order[:top]]
        contrary = [self._support(learnt, int(rows[one]), float(change[one]), ids) for one in order[::-1][:top]]
        near, alike = similar_facts(self.splits.train, self.engine, *ids, top)
        return Explanation(
            asked,
            len(self.splits.train.entities),
            tuple(one for one in facts if one.change < 0),
            tuple(one for one in contrary if one.change > 0),
            itself,
            tuple(self._like(int(row), float(value)) for row, value in zip(near, alike, strict=True)),
            self._beside(ids, "head", top),
            self._beside(ids, "tail", top),
            logic.implied(*ids, top),
            len(rows),
            influence.method,
            (*influence.notes, *logic.notes),
            self._chance(asked, ids),
        )

    def _chance(self, asked: Prediction, ids: tuple[int, int, int]) -> float | None:
        """The probability of a missing link as discovery tells it."""
        weigher = None if asked.known else self._looking(False)
        if weigher is None or weigher.probability is None:
            return None
        head, relation, tail = (np.array([one]) for one in ids)
        return float(weigher.probable(head, relation, tail)[0])

    def _learnt(self) -> Learnt:
        if "learnt" not in self._fitted:
            epochs = len(self.history)
            self._fitted["learnt"] = Learnt.of(self.settings, self.splits, self.normaliser, epochs, self.engine)
        found: Learnt = self._fitted["learnt"]
        return found

    def _logic(self, rules: Any) -> Logic:
        normalize = "none" if self.splits.merger is not None else self.settings.normalize
        if rules is not None:
            return Logic.given(self._logic(None).facts, rules)
        if "logic" not in self._fitted:
            self._fitted["logic"] = Logic.mined(self.splits.train, normalize)
        found: Logic = self._fitted["logic"]
        return found

    def _support(self, learnt: Learnt, row: int, change: float, ids: tuple[int, int, int]) -> Support:
        graph = learnt.graph
        ends = {int(graph.head[row]), int(graph.tail[row])}
        touched = [name for name, one in (("head", ids[0]), ("tail", ids[2])) if one in ends]
        end = touched[0] if len(touched) == 1 else "both"
        names = graph.entities[graph.head[row]], graph.relations[graph.relation[row]], graph.entities[graph.tail[row]]
        return Support(*names, float(graph.weight[row]), change, float(learnt.shares[row]), end, row >= learnt.facts)

    def _like(self, row: int, similarity: float) -> Like:
        graph = self.splits.train
        names = graph.entities[graph.head[row]], graph.relations[graph.relation[row]], graph.entities[graph.tail[row]]
        return Like(*names, float(graph.weight[row]), similarity)

    def _beside(self, ids: tuple[int, int, int], end: str, top: int) -> tuple[Like, ...]:
        """Facts that share the relation and one end; how close the other end is to the asked one."""
        graph, (head, _, tail) = self.splits.train, ids
        rows = same_end(graph, *ids, end, top)
        near = closeness(self.engine, tail if end == "head" else head)
        others = graph.tail[rows] if end == "head" else graph.head[rows]
        return tuple(self._like(int(row), float(near[one])) for row, one in zip(rows, others, strict=True))


def _is(graph: Graph, rows: Any, ids: tuple[int, int, int]) -> Any:
    """Which rows are the triple with these ids; bool [n]."""
    return (graph.head[rows] == ids[0]) & (graph.relation[rows] == ids[1]) & (graph.tail[rows] == ids[2])
