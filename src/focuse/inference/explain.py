"""Explain a prediction: training triples that support or oppose it, similar triples, and rules that imply it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812

from focuse.data.graph import Graph
from focuse.data.weights import in_unit_range
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError, printable
from focuse.inference.discover import discovery_predictor
from focuse.inference.influence import Influence
from focuse.inference.link_search import check_count
from focuse.inference.local_loss import TrainedObjective
from focuse.inference.predict import ENTITY_ADVICE, RELATION_ADVICE, predict
from focuse.results import ResultTable
from focuse.rules.grammar import Atom, Rule, read_rules
from focuse.rules.grounding import FactIndex, Proof, prove
from focuse.rules.mining import mine

if TYPE_CHECKING:
    from focuse.api import Run

MIN_IMPLIED = 0.01  # confidence from which the summary mentions a rule
PREDICTED_FRACTION = 0.1  # of all tails, among which a predicted link ranks
OPPOSING_FRACTION = 0.5  # of the strongest support that an opposing triple needs to be in the summary
MIN_SUPPORT, MIN_CONFIDENCE, MAX_PATHS = 10, 0.3, 1_000_000  # for mining rules, which takes a second
MIN_BODY = 0.01  # truth of a rule's body
Ids = tuple[int, int, int]
Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RuleStep:
    """A triple in the body of a rule; `weight` is None for a negated triple that the graph does not have."""

    head: str
    relation: str
    tail: str
    weight: float | None
    negated: bool = False

    def __str__(self) -> str:
        weight = "" if self.weight is None else f" ({self.weight:.3g})"
        return _name((self.head, self.relation, self.tail), self.negated) + weight


@dataclass(frozen=True)
class ImplyingRule:
    """A rule whose head is the explained triple, with its strongest grounding.

    `confidence` is that of the rule and `soft_confidence` its confidence on the training graph, None for a given rule.
    `body` is the truth of the body and `implied` that of the head: max(0, body + confidence − 1). `steps` are the
    triples of the body, with weights in [0, 1], and `groundings` counts all bodies that exist.
    """

    rule: str
    confidence: float
    soft_confidence: float | None
    body: float
    implied: float
    groundings: int
    steps: tuple[RuleStep, ...]


@dataclass(frozen=True)
class Explanation:
    """An explanation of the score of one triple; `print` shows it as text.

    Attributes
    ----------
    prediction : row of `Run.predict`
        The triple with its score, its rank among all tails, its probability and its weight.
    entities : int
        Number of entities of the graph.
    supporting, opposing : ResultTable
        Training triples at head and tail without which the score would fall or rise, the strongest first: `change` is
        the estimated change of the score, `scaled_weight` the weight in [0, 1] that training used, `end` the end that
        the triple shares ('head', 'tail' or 'both') and `known_negative` whether it is known to be false.
    own_change : float or None
        Estimated change without the triple itself, if it is a training triple.
    similar, same_head, same_tail : ResultTable
        Training triples of the same relation to compare with; `similarity` is the cosine similarity of the ends that
        differ, the mean of both ends in `similar`.
    rules : tuple of ImplyingRule
    candidates : int
        Number of training triples at head and tail.
    notes : tuple of str
    discovery_probability : float or None
        Probability of a missing link among links of its kind, as `Run.discover` gives it.
    """

    prediction: Any
    entities: int
    supporting: ResultTable
    opposing: ResultTable
    own_change: float | None
    similar: ResultTable
    same_head: ResultTable
    same_tail: ResultTable
    rules: tuple[ImplyingRule, ...] = ()
    candidates: int = 0
    notes: tuple[str, ...] = ()
    discovery_probability: float | None = None

    @property
    def triple(self) -> tuple[str, str, str]:
        return self.prediction.head, self.prediction.relation, self.prediction.tail

    @property
    def is_predicted(self) -> bool:
        """Whether the tail ranks among the best tenth of all entities."""
        return bool(self.prediction.rank <= max(1, PREDICTED_FRACTION * self.entities))

    @property
    def tables(self) -> dict[str, ResultTable]:
        """The tables that have rows, by their headings."""
        tables = {
            "Supporting triples (change of the score without them)": self.supporting,
            "Opposing triples (change of the score without them)": self.opposing,
            "Similar triples (mean cosine similarity of both ends)": self.similar,
            "Same head, other tails": self.same_head,
            "Same tail, other heads": self.same_tail,
        }
        return {title: table for title, table in tables.items() if len(table)}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, with the summary under 'summary'."""
        tables = ("supporting", "opposing", "similar", "same_head", "same_tail")
        return {
            **self.prediction._asdict(),
            "summary": self.summary(),
            "entities": self.entities,
            **{name: getattr(self, name).to_dicts() for name in tables},
            "own_change": self.own_change,
            "rules": [asdict(rule) for rule in self.rules],
            "candidates": self.candidates,
            "notes": list(self.notes),
            "discovery_probability": self.discovery_probability,
        }

    def summary(self) -> str:
        """Return a short paragraph."""
        return " ".join(part for part in (self._prediction_text(), self._support_text(), self._rule_text()) if part)

    def _prediction_text(self) -> str:
        row, parts = self.prediction, []
        if row.known and row.weight is not None:
            parts.append(f"a known triple of weight {row.weight:.3g}")
        if row.probability is not None:
            parts.append(f"probability {row.probability:.2f}")
        if self.discovery_probability is not None:
            parts.append(f"probability {self.discovery_probability:.2g} among missing links of its kind")
        if not row.known and row.weight_mean is not None:
            parts.append(f"predicted weight {row.weight_mean:.3g}")
            if row.weight_low is not None and row.weight_high is not None:
                parts.append(f"90 % interval {row.weight_low:.3g} to {row.weight_high:.3g}")
        parts.append(f"rank {row.rank:,} of {self.entities:,} tails")
        return f"{_name(self.triple)}: {', '.join(parts)}."

    def _support_text(self) -> str:
        start = "" if self.is_predicted else "The model does not predict it: it ranks below the best tenth. "
        if not self.supporting:
            return f"{start}No training triple at its head or tail supports it."
        strongest = "; ".join(_weighted_name(row) for row in self.supporting[:3])
        text = f"{start}Its score depends most on: {strongest}."
        if self.opposing and self.opposing[0].change >= OPPOSING_FRACTION * -self.supporting[0].change:
            text += f" The strongest triple against it is {_weighted_name(self.opposing[0])}."
        return text

    def _rule_text(self) -> str:
        if not self.rules or self.rules[0].implied < MIN_IMPLIED:
            return ""
        best = self.rules[0]
        path = " and ".join(_name((step.head, step.relation, step.tail), step.negated) for step in best.steps)
        verb = "imply" if len(best.steps) > 1 else "implies"
        return f"By the rule {printable(best.rule)}, {path} {verb} it with confidence {best.implied:.2f}."

    def __str__(self) -> str:
        parts = [self.summary(), *(f"{title}\n{table}" for title, table in self.tables.items())]
        if self.own_change is not None:
            score = self.prediction.score
            parts.append(f"Without the triple itself, its score of {score:.3f} would change by {self.own_change:+.3f}.")
        if self.rules:
            lines = ["Rules that imply it (triples with their weights in [0, 1])"]
            for one in self.rules:
                soft = "" if one.soft_confidence is None else f", soft confidence {one.soft_confidence:.2f}"
                more = f", and {one.groundings - 1:,} weaker groundings" if one.groundings > 1 else ""
                body = " and ".join(map(str, one.steps))
                lines += [f"  {printable(one.rule)}{soft}", f"    implies it with {one.implied:.2f} by {body}{more}"]
            parts.append("\n".join(lines))
        return "\n\n".join([*parts, *(f"note: {note}" for note in self.notes)])


def _name(triple: tuple[str, str, str], negated: bool = False) -> str:
    return "not " * negated + " ".join(map(printable, triple))


def _weighted_name(row: Any) -> str:
    return f"{_name((row.head, row.relation, row.tail))} (weight {row.weight:.3g})"


def explain(run: Run, head: str, relation: str, tail: str, top: int = 5, *, rules: Any = None) -> Explanation:
    """Explain the score of a triple, known or not.

    Parameters
    ----------
    run
        A trained run.
    head, relation, tail
        Names of the triple.
    top
        Number of triples and rules of each kind.
    rules
        A file of rules, or rules from `focuse.rules.grammar.parse_rules`; by default rules are mined from the training
        graph, once per run.
    """
    check_count("top", top)
    graph = run.graph
    h, t = (graph.entities.id(end, "entity", RELATION_ADVICE) for end in (head, tail))
    ids = h, graph.relations.id(relation, "relation", ENTITY_ADVICE), t
    rule_base = _rule_base(run, rules)
    [prediction] = predict(run, (head, relation, tail), 1, False)
    trained = _trained_objective(run)
    influence = Influence(trained, run.scorer, *ids)
    rows, change = influence.changes()
    own = _is_triple(trained.graph, rows, ids)
    own_change = float(change[own][0]) if own.any() else None
    rows, change = rows[~own], change[~own]
    order = np.argsort(change, kind="stable")
    supporting = [place for place in order[:top] if change[place] < 0]
    opposing = [place for place in order[::-1][:top] if change[place] > 0]
    return Explanation(
        prediction,
        len(graph.entities),
        _influence_table(trained, rows[supporting], change[supporting], ids),
        _influence_table(trained, rows[opposing], change[opposing], ids),
        own_change,
        _similarity_table(graph, *similar_triples(graph, run.scorer, ids, top)),
        _similarity_table(graph, *triples_at_same_end(graph, run.scorer, ids, "head", top)),
        _similarity_table(graph, *triples_at_same_end(graph, run.scorer, ids, "tail", top)),
        rule_base.implying(ids, top),
        len(rows),
        influence.notes,
        None if prediction.known else _discovery_probability(run, ids),
    )


def _trained_objective(run: Run) -> TrainedObjective:
    if run.fitted.trained_objective is None:
        run.fitted.trained_objective = TrainedObjective.build(run)
    return run.fitted.trained_objective


def _discovery_probability(run: Run, ids: Ids) -> float | None:
    predictor = discovery_predictor(run)
    if predictor.probability is None:
        return None
    head, relation, tail = (np.array([one]) for one in ids)
    return float(predictor.probable(head, relation, tail)[0])


def _is_triple(graph: Graph, rows: Rows, ids: Ids) -> npt.NDArray[np.bool_]:
    """Return which rows [n] of a graph are the triple with these ids."""
    same = (graph.head[rows] == ids[0]) & (graph.relation[rows] == ids[1]) & (graph.tail[rows] == ids[2])
    return np.asarray(same, np.bool_)


# ---- tables of triples -----------------------------------------------------------------------------------------------


def _triple_columns(graph: Graph, rows: Rows) -> dict[str, Any]:
    return {
        "head": [graph.entities[one] for one in graph.head[rows]],
        "relation": [graph.relations[one] for one in graph.relation[rows]],
        "tail": [graph.entities[one] for one in graph.tail[rows]],
        "weight": graph.weight[rows].astype(np.float64),
    }


def _influence_table(trained: TrainedObjective, rows: Rows, change: Floats, ids: Ids) -> ResultTable:
    graph = trained.graph
    at_head, at_tail = (np.isin(graph.head[rows], one) | np.isin(graph.tail[rows], one) for one in (ids[0], ids[2]))
    columns = {
        **_triple_columns(graph, rows),
        "change": change,
        "scaled_weight": trained.unit_weights[rows],
        "end": np.where(at_head & at_tail, "both", np.where(at_head, "head", "tail")).tolist(),
        "known_negative": rows >= trained.num_positives,
    }
    return ResultTable(columns, printed=["head", "relation", "tail", "weight", "change"])


def _similarity_table(graph: Graph, rows: Rows, similarity: Floats) -> ResultTable:
    return ResultTable({**_triple_columns(graph, rows), "similarity": similarity})


@torch.no_grad()
def cosine_similarities(scorer: TableScorer, entity: int) -> Floats:
    """Return the cosine similarity of every entity's embedding with that of one entity; float64 [E]."""
    row = scorer.rows("entity", torch.tensor([entity], device=scorer.device))
    similarities = F.cosine_similarity(scorer.encoded_tables()["entity"], row)
    found = similarities.double().cpu().numpy()
    found[entity] = 1.0
    return np.asarray(found, np.float64)


def similar_triples(graph: Graph, scorer: TableScorer, ids: Ids, top: int) -> tuple[Rows, Floats]:
    """Return the most similar triples of the same relation, as rows of the graph, and the similarity of each.

    The similarity is the mean of the cosine similarities of both ends. The triple itself is left out.
    """
    rows = np.flatnonzero(graph.relation == ids[1])
    rows = rows[~_is_triple(graph, rows, ids)]
    by_head, by_tail = (cosine_similarities(scorer, one) for one in (ids[0], ids[2]))
    similarity = (by_head[graph.head[rows]] + by_tail[graph.tail[rows]]) / 2
    order = np.argsort(-similarity, kind="stable")
    kept = order[_first_occurrences(graph, rows[order])][:top]
    return rows[kept], similarity[kept]


def triples_at_same_end(graph: Graph, scorer: TableScorer, ids: Ids, end: str, top: int) -> tuple[Rows, Floats]:
    """Return the triples with the same relation and the same 'head' or 'tail', strongest first, without the triple.

    The similarity is that of the other end with the triple's.
    """
    other, same, wanted = ("tail", ids[0], ids[2]) if end == "head" else ("head", ids[2], ids[0])
    rows = np.flatnonzero((graph.relation == ids[1]) & (getattr(graph, end) == same))
    rows = rows[~_is_triple(graph, rows, ids)]
    rows = rows[np.argsort(graph.weight[rows] if graph.lower_is_better else -graph.weight[rows], kind="stable")]
    rows = rows[_first_occurrences(graph, rows)][:top]
    return rows, cosine_similarities(scorer, wanted)[getattr(graph, other)[rows]]


def _first_occurrences(graph: Graph, rows: Rows) -> Rows:
    """Return the positions in `rows` at which a triple occurs first, in their order."""
    keys = graph.keys_of(graph.head[rows], graph.relation[rows], graph.tail[rows])
    return np.sort(np.unique(keys, return_index=True)[1]).astype(np.int64)


# ---- rules -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RuleBase:
    """Rules and their soft confidences, over the triples of train."""

    index: FactIndex
    rules: list[tuple[Rule, float | None]]

    @classmethod
    def mine(cls, graph: Graph, scaling: str | None) -> RuleBase:
        """Return the rules that are mined from a graph."""
        if scaling in (None, "none"):
            scaling = None if scaling == "none" and in_unit_range(graph.weight) else "relation"
        limits = {"minimum_support": MIN_SUPPORT, "minimum_confidence": MIN_CONFIDENCE, "limit": MAX_PATHS}
        found = mine(graph, weight_scaling=scaling, **limits)  # type: ignore[arg-type]
        return cls(FactIndex(graph, scaling), [(one.rule, one.soft_confidence) for one in found])

    def implying(self, ids: Ids, top: int) -> tuple[ImplyingRule, ...]:
        """Return the rules that imply a triple, the most confident first."""
        head, relation, tail = ids
        found = []
        for rule, soft_confidence in self.rules:
            if rule.head.relation == self.index.graph.relations[relation]:
                proof = prove(self.index, rule, head, tail, MIN_BODY)
                if len(proof):
                    found.append(self._strongest(proof, soft_confidence))
        found.sort(key=lambda one: (-one.implied, -one.confidence * one.body, one.rule))
        return tuple(found[:top])

    def _strongest(self, proof: Proof, soft_confidence: float | None) -> ImplyingRule:
        """Return the strongest grounding of a rule; of alternatives in its body ('|'), the one that is most true."""
        bound = {name: int(column[0]) for name, column in proof.bindings.items()}
        steps = max(
            ([self._step(atom, bound) for atom in part] for part in proof.rule.body),
            key=lambda part: sum(-1.0 if one.negated else (one.weight or 0.0) - 1.0 for one in part),
        )
        body, implied = float(proof.body[0]), float(proof.confidence[0])
        return ImplyingRule(str(proof.rule), proof.rule.truth, soft_confidence, body, implied, len(proof), tuple(steps))

    def _step(self, atom: Atom, bound: dict[str, int]) -> RuleStep:
        graph = self.index.graph
        first, second = bound[atom.first], bound[atom.second]
        ends = np.array([first], np.int32), np.array([second], np.int32)
        weight, exists = self.index.weight(ends[0], graph.relations.id(atom.relation), ends[1])
        value = float(weight[0]) if exists[0] else None
        return RuleStep(graph.entities[first], atom.relation, graph.entities[second], value, atom.negated)


def _rule_base(run: Run, rules: Any) -> RuleBase:
    """Return the given rules, or those mined from the training graph, which are kept with the run."""
    if run.fitted.mined_rules is None:
        scaling = "none" if run.splits.merger is not None else run.settings.weight_scaling
        run.fitted.mined_rules = RuleBase.mine(run.graph, scaling)
    mined = run.fitted.mined_rules
    if rules is None:
        return mined
    if isinstance(rules, str | PathLike):
        rules = read_rules(Path(rules))
    rules = [rules] if isinstance(rules, Rule) else list(rules)
    if not all(isinstance(rule, Rule) for rule in rules):
        raise FocuseError("rules: give a file of rules, or what focuse.rules.grammar.parse_rules returns")
    for rule in rules:
        for name in rule.relations:
            try:
                run.graph.relations.id(name, "relation")
            except FocuseError as error:
                raise FocuseError(f"{rule.where}: {error}") from None
    return RuleBase(mined.index, [(rule, None) for rule in rules])
