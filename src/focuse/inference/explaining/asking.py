"""The part of a `Run` that explains its predictions."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812

from focuse.config import Config
from focuse.data.graph import Graph
from focuse.data.splits import Splits
from focuse.data.weights import Normalizer, in_unit_range
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.inference.explaining.explanation import Explanation, Implied, Like, Step, Support
from focuse.inference.explaining.influence import Influence
from focuse.inference.explaining.local import TrainedObjective
from focuse.inference.fitted import FittedCache
from focuse.inference.predict import A_RELATION, AN_ENTITY, Prediction, predict
from focuse.inference.weight_predictor import WeightPredictor
from focuse.rules.grammar import Atom, Rule, read_rules
from focuse.rules.grounding import FactIndex, Proof, prove
from focuse.rules.mining import mine


class ExplanationMethods:
    """The part of a `Run` that says why."""

    settings: Config
    splits: Splits
    normalizer: Normalizer
    scorer: TableScorer
    history: list[dict[str, Any]]
    fitted: FittedCache

    def weight_predictor(self, full: bool = False) -> WeightPredictor:
        raise NotImplementedError  # of the run

    def _looking(self, anywhere: bool) -> WeightPredictor:
        raise NotImplementedError  # of the run

    def explain(self, head: str, relation: str, tail: str, top: int = 5, *, rules: Any = None) -> Explanation:
        """Why a triple is predicted, known or not: the facts it rests on, facts like it, and rules that imply it.

        `top` is how many of each to name. `rules` are your own (a file, or what `focuse.rules.grammar.parse_rules`
        makes of a text); else rules are mined from the training graph, once a run.

        `print(run.explain("Ward Nurse", "requires skill", "triage"))` tells it in words; `to_dict()` and `svg()` of the
        result are for programs and for the eye.
        """
        if isinstance(top, bool) or not isinstance(top, int) or top < 1:
            raise FocuseError(f"top {top!r}: give a whole number of at least 1")
        names = self.splits.train
        h, t = (names.entities.id(end, "entity", A_RELATION) for end in (head, tail))
        r = names.relations.id(relation, "relation", AN_ENTITY)
        logic = self._logic(rules)
        graphs = [self.splits.train, self.splits.valid, self.splits.test]
        [asked] = predict(self.scorer, graphs, head, relation, tail, 1, False, self.weight_predictor(full=True))
        return self._explained(asked, (h, r, t), top, logic)

    def _explained(self, asked: Prediction, ids: tuple[int, int, int], top: int, logic: Logic) -> Explanation:
        learnt = self._learnt()
        influence = Influence(learnt, self.scorer, *ids)
        rows, change = influence.changes()
        own = _is(learnt.graph, rows, ids)
        itself = float(change[own][0]) if own.any() else None
        rows, change = rows[~own], change[~own]
        order = np.argsort(change, kind="stable")
        facts = [self._support(learnt, int(rows[place]), float(change[place]), ids) for place in order[:top]]
        contrary = [self._support(learnt, int(rows[one]), float(change[one]), ids) for one in order[::-1][:top]]
        near, alike = similar_facts(self.splits.train, self.scorer, *ids, top)
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
        predictor = None if asked.known else self._looking(False)
        if predictor is None or predictor.probability is None:
            return None
        head, relation, tail = (np.array([one]) for one in ids)
        return float(predictor.probable(head, relation, tail)[0])

    def _learnt(self) -> TrainedObjective:
        if self.fitted.trained_objective is None:
            epochs = len(self.history)
            self.fitted.trained_objective = TrainedObjective.build(
                self.settings, self.splits, self.normalizer, epochs, self.scorer.device
            )
        return self.fitted.trained_objective

    def _logic(self, rules: Any) -> Logic:
        normalize = "none" if self.splits.merger is not None else self.settings.weight_scaling
        if rules is not None:
            return Logic.given(self._logic(None).facts, rules)
        if self.fitted.mined_rules is None:
            self.fitted.mined_rules = Logic.mined(self.splits.train, normalize)
        return self.fitted.mined_rules

    def _support(self, learnt: TrainedObjective, row: int, change: float, ids: tuple[int, int, int]) -> Support:
        graph = learnt.graph
        ends = {int(graph.head[row]), int(graph.tail[row])}
        touched = [name for name, one in (("head", ids[0]), ("tail", ids[2])) if one in ends]
        end = touched[0] if len(touched) == 1 else "both"
        names = graph.entities[graph.head[row]], graph.relations[graph.relation[row]], graph.entities[graph.tail[row]]
        return Support(
            *names, float(graph.weight[row]), change, float(learnt.unit_weights[row]), end, row >= learnt.facts
        )

    def _like(self, row: int, similarity: float) -> Like:
        graph = self.splits.train
        names = graph.entities[graph.head[row]], graph.relations[graph.relation[row]], graph.entities[graph.tail[row]]
        return Like(*names, float(graph.weight[row]), similarity)

    def _beside(self, ids: tuple[int, int, int], end: str, top: int) -> tuple[Like, ...]:
        """Facts that share the relation and one end; how close the other end is to the asked one."""
        graph, (head, _, tail) = self.splits.train, ids
        rows = same_end(graph, *ids, end, top)
        near = closeness(self.scorer, tail if end == "head" else head)
        others = graph.tail[rows] if end == "head" else graph.head[rows]
        return tuple(self._like(int(row), float(near[one])) for row, one in zip(rows, others, strict=True))


def _is(graph: Graph, rows: Any, ids: tuple[int, int, int]) -> Any:
    """Which rows are the triple with these ids; bool [n]."""
    return (graph.head[rows] == ids[0]) & (graph.relation[rows] == ids[1]) & (graph.tail[rows] == ids[2])


# ---- rules that would imply an asked triple, mined from the training graph or given ----------------------------------

MINED_SUPPORT, MINED_CONFIDENCE = 10, 0.3  # of rules that are mined for explanations
MINED_PATHS = 1_000_000  # that mining walks: a second
LEAST_BODY = 0.01  # least truth of a body: all that says anything


@dataclass(frozen=True, eq=False)
class Logic:
    """Rules with their soft confidences, by their head's relation, over the facts of train."""

    facts: FactIndex
    rules: dict[str, list[tuple[Rule, float | None]]]
    notes: tuple[str, ...] = ()

    @classmethod
    def mined(cls, graph: Graph, normalize: str | None) -> Logic:
        """Those that train suggests."""
        if normalize == "none" and in_unit_range(graph.weight):
            normalize = None
        elif normalize in (None, "none"):
            normalize = "relation"
        found = mine(
            graph,
            minimum_support=MINED_SUPPORT,
            minimum_confidence=MINED_CONFIDENCE,
            limit=MINED_PATHS,
            weight_scaling=normalize,
        )
        return cls(FactIndex(graph, normalize), _by_head([(one.rule, one.soft_confidence) for one in found]))

    @classmethod
    def given(cls, facts: FactIndex, rules: Any) -> Logic:
        """Those of the user; unknown relations are an error."""
        if isinstance(rules, str | PathLike):
            rules = read_rules(Path(rules))
        rules = [rules] if isinstance(rules, Rule) else list(rules)
        if not all(isinstance(rule, Rule) for rule in rules):
            raise FocuseError("rules: give a file of them, or what focuse.rules.grammar.parse_rules makes of a text")
        for rule in rules:
            for name in rule.relations:
                try:
                    facts.graph.relations.id(name, "relation")
                except FocuseError as error:
                    raise FocuseError(f"{rule.where}: {error}") from None
        return cls(facts, _by_head([(rule, None) for rule in rules]))

    def implied(self, head: int, relation: int, tail: int, top: int) -> tuple[Implied, ...]:
        """The rules that imply a triple, the most confident first."""
        found = []
        for rule, soft in self.rules.get(self.facts.graph.relations[relation], []):
            proof = prove(self.facts, rule, head, tail, LEAST_BODY)
            if len(proof):
                found.append(self._told(proof, soft))
        found.sort(key=lambda one: (-one.implied, -one.confidence * one.body, one.rule))
        return tuple(found[:top])

    def _told(self, proof: Proof, soft: float | None) -> Implied:
        bound = {name: int(column[0]) for name, column in proof.bindings.items()}
        # Of several ways to be true ('|') the one that is truest here.
        steps = max(
            ([self._step(atom, bound) for atom in part] for part in proof.rule.body),
            key=lambda part: sum(-1.0 if one.negated else (one.weight or 0.0) - 1.0 for one in part),
        )
        body, implied = float(proof.body[0]), float(proof.confidence[0])
        return Implied(str(proof.rule), proof.rule.truth, soft, body, implied, len(proof), tuple(steps))

    def _step(self, atom: Atom, bound: dict[str, int]) -> Step:
        graph = self.facts.graph
        first, second = bound[atom.first], bound[atom.second]
        ends = np.array([first], np.int32), np.array([second], np.int32)
        weight, seen = self.facts.weight(ends[0], graph.relations.id(atom.relation), ends[1])
        value = float(weight[0]) if seen[0] else None
        return Step(graph.entities[first], atom.relation, graph.entities[second], value, atom.negated)


def _by_head(rules: list[tuple[Rule, float | None]]) -> dict[str, list[tuple[Rule, float | None]]]:
    found: dict[str, list[tuple[Rule, float | None]]] = {}
    for rule, soft in rules:
        found.setdefault(rule.head.relation, []).append((rule, soft))
    return found


# ---- known facts that are like an asked triple: same relation, both ends close in the embedding space ----------------

Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@torch.no_grad()
def closeness(scorer: TableScorer, entity: int) -> Floats:
    """The cosine of every entity's row with that of one; float64 [E]."""
    found = [
        F.cosine_similarity(block, scorer.rows("entity", _id_tensor(entity, scorer))) for _, block in scorer.blocks()
    ]
    whole = torch.cat(found).double().cpu().numpy()
    whole[entity] = 1.0
    return np.asarray(whole, np.float64)


def _id_tensor(entity: int, scorer: TableScorer) -> torch.Tensor:
    return torch.tensor([entity], device=scorer.device)


def similar_facts(
    graph: Graph, scorer: TableScorer, head: int, relation: int, tail: int, top: int
) -> tuple[Places, Floats]:
    """Rows of `graph` of the same relation, the most alike first, and how alike: the mean of both ends' cosines.

    The asked triple itself is left out; a repeated one comes once.
    """
    rows = np.flatnonzero(graph.relation == relation)
    rows = rows[(graph.head[rows] != head) | (graph.tail[rows] != tail)]
    alike = (closeness(scorer, head)[graph.head[rows]] + closeness(scorer, tail)[graph.tail[rows]]) / 2
    order = np.argsort(-alike, kind="stable")
    kept = first_of_each(graph, rows[order])[:top]
    return rows[order][kept], alike[order][kept]


def same_end(graph: Graph, head: int, relation: int, tail: int, end: str, top: int) -> Places:
    """Rows with the same relation and the same 'head' or 'tail' as the asked triple, without it; heaviest first."""
    rows = np.flatnonzero((graph.relation == relation) & (getattr(graph, end) == (head if end == "head" else tail)))
    rows = rows[(graph.head[rows] != head) | (graph.tail[rows] != tail)]
    weight = graph.weight[rows] if graph.lower_is_better else -graph.weight[rows]
    rows = rows[np.argsort(weight, kind="stable")]
    found: Places = rows[first_of_each(graph, rows)][:top]
    return found


def first_of_each(graph: Graph, rows: Places) -> Places:
    """Places in `rows` at which a triple occurs first, in their order."""
    keys = graph.keys_of(graph.head[rows], graph.relation[rows], graph.tail[rows])
    return np.sort(np.unique(keys, return_index=True)[1]).astype(np.int64)
