"""Explain a prediction: training triples that support or oppose it, similar triples, and rules that imply it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from focuse.data.graph import Graph, triple_columns
from focuse.data.weights import in_unit_range
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError, printable
from focuse.inference.influence import Influence, TrainedObjective
from focuse.inference.predict import ENTITY_ADVICE, RELATION_ADVICE, predict
from focuse.inference.similarity import entity_rows
from focuse.option_strings import check_count
from focuse.results import ResultTable
from focuse.rules.grammar import Atom, Rule, as_rules
from focuse.rules.grounding import FactIndex, Proof, prove, relation_ids
from focuse.rules.mining import mine

if TYPE_CHECKING:
    from focuse.api import Run

MIN_IMPLIED = 0.01  # confidence from which the summary mentions a rule
PREDICTED_FRACTION = 0.1  # of all tails, among which a predicted link ranks
OPPOSING_FRACTION = 0.5  # of the strongest support that an opposing triple needs to be in the summary
MIN_SUPPORT, MIN_CONFIDENCE, MAX_PATHS = 10, 0.3, 1_000_000  # for mining rules, which takes a second
MIN_BODY = 0.01  # truth of a rule's body
RULE_COLUMNS = ("rule", "confidence", "soft_confidence", "body", "implied", "groundings", "steps")
Ids = tuple[int, int, int]
Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


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
    rules : ResultTable
        Rules whose head is the explained triple, each with its strongest grounding, the most confident first:
        `confidence` is that of the rule and `soft_confidence` its confidence on the training graph (missing for a given
        rule), `body` the truth of the body, `implied` that of the head, max(0, body + confidence − 1), `steps` the
        triples of the body with their weights in [0, 1], and `groundings` counts all bodies that exist.
    candidates : int
        Number of training triples at head and tail.
    notes : tuple of str
    """

    prediction: Any
    entities: int
    supporting: ResultTable
    opposing: ResultTable
    own_change: float | None
    similar: ResultTable
    same_head: ResultTable
    same_tail: ResultTable
    rules: ResultTable
    candidates: int = 0
    notes: tuple[str, ...] = ()

    @property
    def triple(self) -> tuple[str, str, str]:
        return self.prediction.head, self.prediction.relation, self.prediction.tail

    @property
    def tables(self) -> dict[str, ResultTable]:
        """The tables that have rows, by their headings."""
        tables = {
            "Supporting triples (change of the score without them)": self.supporting,
            "Opposing triples (change of the score without them)": self.opposing,
            "Similar triples (mean cosine similarity of both ends)": self.similar,
            "Same head, other tails": self.same_head,
            "Same tail, other heads": self.same_tail,
            "Rules that imply it (triples with their weights in [0, 1])": self.rules,
        }
        return {title: table for title, table in tables.items() if len(table)}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, with the summary under 'summary'."""
        values = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "prediction"}
        values = {name: one.to_dicts() if isinstance(one, ResultTable) else one for name, one in values.items()}
        return {**self.prediction._asdict(), "summary": self.summary(), **values}

    def summary(self) -> str:
        """Return a short paragraph."""
        return " ".join(part for part in (self._prediction_text(), self._support_text(), self._rule_text()) if part)

    def _prediction_text(self) -> str:
        row, parts = self.prediction, []
        if row.known and row.weight is not None:
            parts.append(f"a known triple of weight {row.weight:.3g}")
        if row.probability is not None:
            parts.append(f"probability {row.probability:.2g}")
        if not row.known and row.weight_mean is not None:
            parts.append(f"predicted weight {row.weight_mean:.3g}")
            if row.weight_low is not None and row.weight_high is not None:
                parts.append(f"90 % interval {row.weight_low:.3g} to {row.weight_high:.3g}")
        parts.append(f"rank {row.rank:,} of {self.entities:,} tails")
        return f"{printable(' '.join(self.triple))}: {', '.join(parts)}."

    def _support_text(self) -> str:
        is_predicted = self.prediction.rank <= max(1, PREDICTED_FRACTION * self.entities)
        start = "" if is_predicted else "The model does not predict it: it ranks below the best tenth. "
        if not self.supporting:
            return f"{start}No training triple at its head or tail supports it."
        strongest = "; ".join(_weighted_name(row) for row in self.supporting[:3])
        text = f"{start}It is supported most by {strongest}."
        if self.opposing and self.opposing[0].change >= OPPOSING_FRACTION * -self.supporting[0].change:
            text += f" The strongest triple against it is {_weighted_name(self.opposing[0])}."
        return text

    def _rule_text(self) -> str:
        if not self.rules or self.rules[0].implied < MIN_IMPLIED:
            return ""
        rule, steps, implied = printable(self.rules[0].rule), printable(self.rules[0].steps), self.rules[0].implied
        return f"By the rule {rule}, it follows from {steps} with confidence {implied:.2f}."

    def __str__(self) -> str:
        parts = [self.summary(), *(f"{title}\n{table}" for title, table in self.tables.items())]
        if self.own_change is not None:
            score = self.prediction.score
            parts.append(f"Without the triple itself, its score of {score:.3f} would change by {self.own_change:+.3f}.")
        return "\n\n".join([*parts, *(f"note: {note}" for note in self.notes)])


def _weighted_name(row: Any) -> str:
    return f"{printable(row.head)} {printable(row.relation)} {printable(row.tail)} (weight {row.weight:.3g})"


def explain(run: Run, head: str, relation: str | None, tail: str, top: int = 5, *, rules: Any = None) -> Explanation:
    """Explain the score of a triple, known or not.

    Parameters
    ----------
    run
        A trained run.
    head, relation, tail
        Names of the triple; the relation may be None if the graph has only one.
    top
        Number of triples and rules of each kind.
    rules
        A file of rules, or rules from `focuse.rules.grammar.parse_rules`; by default rules are mined from the training
        graph, once per run.
    """
    check_count("top", top)
    graph = run.graph
    h, t = (graph.entities.id(end, "entity", RELATION_ADVICE) for end in (head, tail))
    if relation is None and len(graph.relations) == 1:
        relation = graph.relations[0]
    if relation is None:
        raise FocuseError(f"explain: the graph has {len(graph.relations):,} relations; name one")
    ids = h, graph.relations.id(relation, "relation", ENTITY_ADVICE), t
    rule_base = _rule_base(run)
    given = None if rules is None else [(rule, None) for rule in as_rules(rules)]
    for rule, _ in given or ():
        relation_ids(graph, rule)  # before anything is computed
    [prediction] = predict(run, (head, relation, tail), 1, False, any_type=True)
    if run.fitted.trained_objective is None:
        run.fitted.trained_objective = TrainedObjective.build(run)
    trained = run.fitted.trained_objective
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
        *comparable_triples(graph, run.scorer, ids, top),
        rule_base.implying(ids, top, given),
        len(rows),
        influence.notes,
    )


def _is_triple(graph: Graph, rows: Rows, ids: Ids) -> npt.NDArray[np.bool_]:
    """Return which rows [n] of a graph are the triple with these ids."""
    same = (graph.head[rows] == ids[0]) & (graph.relation[rows] == ids[1]) & (graph.tail[rows] == ids[2])
    return np.asarray(same, np.bool_)


# ---- tables of triples -----------------------------------------------------------------------------------------------


def _triple_columns(graph: Graph, rows: Rows) -> dict[str, Any]:
    names = triple_columns(graph, graph.head[rows], graph.relation[rows], graph.tail[rows])
    return {**names, "weight": graph.weight[rows].astype(np.float64)}


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


@torch.no_grad()
def comparable_triples(
    graph: Graph, scorer: TableScorer, ids: Ids, top: int
) -> tuple[ResultTable, ResultTable, ResultTable]:
    """Return other triples of the same relation: the most similar ones, and the strongest with the same head or tail.

    The similarity is the cosine similarity of the ends that differ, the mean of both ends for the most similar ones.
    """
    rows = np.flatnonzero(graph.relation == ids[1])
    rows = rows[~_is_triple(graph, rows, ids)]
    head, tail = graph.head[rows], graph.tail[rows]
    unit = entity_rows(scorer).double()
    by_head, by_tail = ((unit @ unit[end]).cpu().numpy()[ends] for end, ends in ((ids[0], head), (ids[2], tail)))
    mean, keys = (by_head + by_tail) / 2, graph.keys_of(head, graph.relation[rows], tail)
    strongest_first = graph.weight[rows] if graph.lower_is_better else -graph.weight[rows]

    def first(order: Floats, similarity: Floats, places: Rows) -> ResultTable:
        places = places[np.argsort(order[places], kind="stable")]
        places = places[np.sort(np.unique(keys[places], return_index=True)[1])[:top]]  # a repeated triple once
        return ResultTable({**_triple_columns(graph, rows[places]), "similarity": similarity[places]})

    same_head, same_tail = np.flatnonzero(head == ids[0]), np.flatnonzero(tail == ids[2])
    similar = first(-mean, mean, np.arange(len(rows)))
    return similar, first(strongest_first, by_tail, same_head), first(strongest_first, by_head, same_tail)


# ---- rules -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RuleBase:
    """The triples of train as rules see them, and the rules that are mined from them when they are first needed."""

    index: FactIndex

    @cached_property
    def mined(self) -> list[tuple[Rule, float | None]]:
        """The mined rules and their soft confidences."""
        limits = {"minimum_support": MIN_SUPPORT, "minimum_confidence": MIN_CONFIDENCE, "limit": MAX_PATHS}
        found = mine(self.index.graph, **limits)  # type: ignore[arg-type]
        return [(one.rule, one.soft_confidence) for one in found]

    def implying(self, ids: Ids, top: int, given: list[tuple[Rule, None]] | None = None) -> ResultTable:
        """Return the given or the mined rules that imply a triple, the most confident first."""
        head, relation, tail = ids
        found: list[tuple[Any, ...]] = []
        for rule, soft_confidence in self.mined if given is None else given:
            if rule.head.relation == self.index.graph.relations[relation]:
                proof = prove(self.index, rule, head, tail, MIN_BODY)
                if len(proof):
                    body, implied, steps = float(proof.body[0]), float(proof.confidence[0]), self._steps(proof)
                    found.append((str(rule), rule.truth, soft_confidence, body, implied, len(proof), steps))
        found.sort(key=lambda row: (-row[4], -row[1] * row[3], row[0]))
        columns = {name: [row[place] for row in found[:top]] for place, name in enumerate(RULE_COLUMNS)}
        return ResultTable(columns, printed=("rule", "soft_confidence", "implied", "steps", "groundings"))

    def _steps(self, proof: Proof) -> str:
        """Return the strongest grounding of a rule; of alternatives in its body ('|'), the one that is most true."""
        alternatives = []
        for part in proof.rule.body:
            steps = [self._step(atom, proof) for atom in part]
            alternatives.append((sum(truth for truth, _ in steps), " and ".join(text for _, text in steps)))
        return max(alternatives, key=lambda alternative: alternative[0])[1]

    def _step(self, atom: Atom, proof: Proof) -> tuple[float, str]:
        """Return how far the truth of a triple of the body is below 1, and its text."""
        graph = self.index.graph
        first, second = (proof.bindings[name][:1].astype(np.int32) for name in (atom.first, atom.second))
        weight, exists = self.index.weight(first, graph.relations.id(atom.relation), second)
        text = f"{graph.entities[int(first[0])]} {atom.relation} {graph.entities[int(second[0])]}"
        text = "not " * atom.negated + text + (f" ({weight[0]:.3g})" if exists[0] else "")
        return -1.0 if atom.negated else float(weight[0]) * bool(exists[0]) - 1.0, text


def _rule_base(run: Run) -> RuleBase:
    """Return the rules of a run, which are kept with it."""
    if run.fitted.rule_base is None:
        scaling: str | None = run.settings.weight_scaling or "relation"
        if run.splits.merger is not None or scaling == "none":
            scaling = None if in_unit_range(run.graph.weight) else "relation"
        run.fitted.rule_base = RuleBase(FactIndex(run.graph, scaling))
    return run.fitted.rule_base
