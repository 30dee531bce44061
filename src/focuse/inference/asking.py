"""What a run says of weights: its maps, fitted when first asked for and stored in its folder, and answers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from focuse.engines import ReferenceEngine
from focuse.errors import FocuseError, choose
from focuse.evaluation.baselines import AnyIds
from focuse.evaluation.probabilities import ProbabilityTable, judge_probability
from focuse.evaluation.weighing import draw_negatives
from focuse.graph import Graph, read
from focuse.graph.graph import Aligned
from focuse.graph.holding import LARGE
from focuse.graph.memory import free_memory
from focuse.graph.merging import Merger
from focuse.graph.splits import Held, Splits, hold
from focuse.graph.weights import Normaliser
from focuse.inference import keeping
from focuse.inference.answers import Weighed, Weighings, answers
from focuse.inference.calibrate import LAYOUT, METHODS, Calibration, fingerprint
from focuse.inference.estimate import Estimator
from focuse.inference.intervals import COVERAGE, check_coverage
from focuse.inference.probability import BASE_RATE, Probability, check_base_rate, fit_probability, plain_probability
from focuse.inference.weigh import STRONG, Weigher, WeightEvaluation
from focuse.training.preparing import held_out
from focuse.training.settings import Settings

FEWEST_STEPS = 500  # facts from which steps (isotonic) are chosen before a line of two numbers (Platt)
EDGE_BYTES = 500  # of memory that forests take to learn from an edge's surroundings
FEWEST_NEGATIVES = 10  # of one's own; probabilities of fewer would be made up
NO_VALIDATION = "the run has no validation triples to calibrate on; train with some (--valid-share)"


def held_parts(valid: Graph, stopping_share: float, seed: int) -> tuple[Held, tuple[str, ...]]:
    """Validation in disjoint parts, with a note where all of it has stopped the training."""
    held = hold(valid, stopping_share, seed)
    if not len(valid) or (len(held.calibration) and len(held.conformal)):
        return held, ()
    note = "maps and intervals are fitted on the rows that also stopped the training (stopping_share leaves no others)"
    return hold(valid, 0.0, seed), (note,)


class WeightMethods:
    """The part of a `Run` that answers about weights and probabilities."""

    settings: Settings
    splits: Splits
    normaliser: Normaliser
    engine: ReferenceEngine
    folder: Path | None
    tables: str
    calibration_stored: bool
    _calibration: Calibration | None
    _fitted: dict[str, Any]
    before_fitting: Callable[[], None] | None = None  # called before what may take minutes, the first time only

    # ---- answers --------------------------------------------------------------------------------------------------

    def weight(
        self, head: str, relation: str, tail: str, *, coverage: float = COVERAGE, column: str | None = None
    ) -> Weighed:
        """What one triple would weigh: expected and typical weight, an interval, and the probability that it is a fact.

        `run.weight("MLEngineer", "requiresSkill", "Python").expected` is in the graph's own units. `column` as for
        `weights`.
        """
        names = self.splits.train
        h, t = names.entities.id(head, "entity"), names.entities.id(tail, "entity")
        ids = np.array([h]), np.array([names.relations.id(relation, "relation")]), np.array([t])
        return self._answers(*ids, check_coverage(coverage), column)[0]

    def weights(self, triples: Any, *, coverage: float = COVERAGE, column: str | None = None) -> Weighings:
        """The same for many: a graph, a file, or rows (head, relation, tail) with or without a weight.

        Rows with names that train has never seen are left out; `notes` of the result says so. Of a run with several
        weight columns it is the merged weight, in [0, 1], or that of one `column`, in its own units.
        """
        check_coverage(coverage)
        graph = _read_triples(triples)
        aligned = graph.align(self.splits.train)
        if not len(aligned.graph):
            self._name_unknown(aligned)
            raise FocuseError(f"{graph.source}: no triples to weigh")
        rows = aligned.graph
        weighed = self._answers(rows.head, rows.relation, rows.tail, coverage, column)
        weighed.notes = (*((str(aligned),) if str(aligned) else ()), *weighed.notes)
        if graph.weighted and self.splits.merger is None:
            weighed.truth = rows.weight
        return weighed

    def _name_unknown(self, aligned: Aligned) -> None:
        """Raise for the first name that train has never seen, with what comes nearest to it."""
        names = self.splits.train
        for name in aligned.unseen.relation_examples[:1]:
            names.relations.id(name, "relation")
        for name in aligned.unseen.entity_examples[:1]:
            names.entities.id(name, "entity")

    def _answers(self, head: AnyIds, relation: AnyIds, tail: AnyIds, coverage: float, column: str | None) -> Weighings:
        whole = self.weigher(full=True)
        asked = whole if column is None else self._column_weigher(column)
        weighed = answers(asked, head, relation, tail, coverage)
        if column is not None and whole.probability is not None:  # that of a link, whichever number is asked for
            weighed.columns["probability"] = whole.probable(head, relation, tail)
        return weighed

    def weigh(
        self,
        test: Any = None,
        *,
        negatives: Any = None,
        queries: Any = None,
        threshold: float = STRONG,
        coverage: float = COVERAGE,
        forests: bool = True,
    ) -> WeightEvaluation:
        """How well weights are predicted: errors by protocol beside trivial rows, intervals, calibration, nDCG.

        `negatives` are triples of weight 0 (rows of another weight are passed over, so UKGE's `test_with_neg` files
        serve as they are; drawn if not given), `queries` the facts of nDCG's queries (else test's, with all their
        known tails), `threshold` the weight above which a fact is strong, `coverage` what intervals promise.
        Without `forests` only the model itself and its calibration are judged, which takes seconds.
        """
        if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise FocuseError(f"threshold {threshold!r}: give a weight in [0, 1]")
        check_coverage(coverage)
        aligned = self._test(test)
        false = None if negatives is None else self._negatives(negatives)
        asked = None if queries is None else held_out(queries, self.settings, self.splits)
        if asked is not None and not len(asked.graph):
            raise FocuseError(f"{asked.graph.source}: no query with names that train has")
        return self.weigher(full=forests).judge(aligned, false, asked, threshold, coverage=coverage)

    def probabilities(self, test: Any = None, *, negatives: Any = None, seed: int = 0) -> ProbabilityTable:
        """Brier score, calibration error and reliability of the probability that a triple is a fact, before and after.

        `negatives` as for `weigh`. Judged at the share of facts that test and negatives have together. `svg()` of the
        result draws the diagram.
        """
        aligned, weigher = self._test(test), self.weigher(full=True)
        facts = aligned.graph
        given = None if negatives is None else self._negatives(negatives)
        false = draw_negatives(facts, weigher.known_keys(), seed) if given is None else given.graph
        false = false if given is None else false.select(false.weight == 0)
        rate = len(facts) / (len(facts) + len(false))
        head, relation, tail = (
            np.concatenate([getattr(part, name) for part in (facts, false)]) for name in ("head", "relation", "tail")
        )
        truth = np.repeat([1.0, 0.0], [len(facts), len(false)])
        score = weigher.score(head, relation, tail)
        rows = {"before: logistic of the score": judge_probability(plain_probability(score), truth)}
        if weigher.probability is None:
            raise FocuseError(NO_VALIDATION)
        made = weigher.probability.at(rate)
        rows[f"after: {made.method}"] = judge_probability(weigher.probable(head, relation, tail, made), truth)
        notes = [str(part) for part in (aligned, given) if part is not None and part.unseen.rows]
        notes.append("negatives of test are given" if given is not None else "negatives of test are random corruptions")
        notes.append(f"calibrated on {'random corruptions' if made.negatives == 'drawn' else made.negatives}")
        return ProbabilityTable(rows, len(facts), len(false), rate, tuple(notes))

    def weigh_columns(self, test: Any = None, *, coverage: float = COVERAGE) -> dict[str, WeightEvaluation]:
        """`weigh` of every weight column by itself, in its own units, on the rows of test that have it."""
        aligned = self._test(test)
        found = {}
        for name in self._merger().names:
            one, weigher = replace(aligned, graph=aligned.graph.column(name)), self._column_weigher(name)
            known = weigher.calibration is not None or (weigher.estimator is not None and weigher.estimator.forests)
            if len(one.graph) and known:  # a column of a few edges may be missing in every part of validation
                found[name] = weigher.judge(one, None, None, STRONG, coverage=coverage)
        return found

    # ---- what is fitted -------------------------------------------------------------------------------------------

    def _merger(self) -> Merger:
        if self.splits.merger is None:
            raise FocuseError("the run has one weight an edge; only one with several weight columns tells them apart")
        return self.splits.merger

    def _column_weigher(self, name: str) -> Weigher:
        """What the run says of one weight column, by forests and intervals of its own."""
        choose("weight column", name, self._merger().names)
        key = f"column {name}"
        if key not in self._fitted:
            train, valid, test = (
                graph.column(name) for graph in (self.splits.train, self.splits.valid.graph, self.splits.test.graph)
            )
            splits = replace(self.splits, train=train, valid=Aligned(valid), test=Aligned(test), merger=None)
            # The run's own parts: those of the rows that have this column would be others.
            whole = self._plain_weigher()
            held = Held(*(getattr(whole.parts, part.name).column(name) for part in fields(Held)))
            known = replace(whole, splits=splits, held=held, one_of_many=True)
            known = replace(known, calibration=known.fit("isotonic"))
            self._fitted[key] = replace(known, estimator=known.fit_estimator(self.settings.seed))
        found: Weigher = self._fitted[key]
        return found

    def weigher(self, full: bool = False) -> Weigher:
        """What the run says of weights; what it needs is fitted when first asked for, and stored in its folder.

        `full` also has the forests behind expected weights and intervals, and the probability.
        """
        if full and not self.can_weigh():
            raise FocuseError(
                f"what {len(self.splits.train):,} edges say of weights takes about {self._weighing_bytes() / 1e9:.3g} "
                "GB of memory to learn, more than is free; predict and evaluate go without"
            )
        plain = self._plain_weigher()
        if self._calibration is None and self.folder is not None and self.tables:
            self._calibration = Calibration.load(self.folder, self.tables, len(self.splits.train.relations))
        found = self._calibration
        # In the first layout shares were of one range for the whole graph: where they no longer are, it says nothing.
        if found is None or (found.layout < LAYOUT and not plain.units.common):
            self._calibration = plain.fit("isotonic" if found is None else found.method)
            self._keep_calibration()
        known = replace(plain, calibration=self._calibration)
        if not full:
            return known
        made = self._estimator(known)
        if known.calibration is None and not made.forests:  # neither validation nor edges enough to learn from
            return known
        known = replace(known, estimator=made)
        return replace(known, probability=self._probability(known))

    def can_weigh(self) -> bool:
        """Whether memory allows to learn what weights depend on; without, predictions have scores alone."""
        free = free_memory() if len(self.splits.train) >= LARGE else None
        return free is None or "estimator" in self._fitted or self._weighing_bytes() <= free

    def _weighing_bytes(self) -> int:
        return EDGE_BYTES * len(self.splits.train)

    def calibrate(
        self, method: str | None = None, *, negatives: Any = None, base_rate: float = BASE_RATE
    ) -> Calibration:
        """Fit the maps from scores to weights and to probabilities anew, by 'isotonic' or 'platt', and store them.

        Left alone, weights are by steps (isotonic), and probabilities, too, where there are facts enough for them.
        `negatives` are triples known to be false (those of weight 0 where a file has others too, else all; known facts
        are left out); without them random corruptions stand in. `base_rate` is the share of facts among the triples
        that will be asked about. `calibration_stored` says whether storing was possible.
        """
        if method is not None:
            choose("calibration", method, METHODS)
        check_base_rate(base_rate)
        plain = self._plain_weigher()
        false = None if negatives is None else self._false(negatives, plain.fitting_keys())
        made = plain.fit(method or "isotonic")
        if made is None:
            raise FocuseError(NO_VALIDATION)
        known = replace(plain, calibration=made)
        learnt = self._fitted.get("estimator") or self._stored_estimator(known, None)
        self._calibration = made
        self._keep_calibration()
        self._fitted["estimator"] = known.fit_estimator(self.settings.seed, learnt)
        self._keep("estimator")
        known = replace(known, estimator=self._estimator(known))
        self._fitted["probability"] = self._fit_probability(known, method, false, base_rate)
        self._keep("probability")
        return made

    def _plain_weigher(self) -> Weigher:
        held, notes = held_parts(self.splits.valid.graph, self.settings.stopping_share, self.settings.seed)
        return Weigher(self.settings.model, self.engine, self.splits, self.normaliser, held=held, notes=notes)

    def _estimator(self, known: Weigher) -> Estimator:
        if "estimator" not in self._fitted:
            curves = "" if known.calibration is None else known.calibration.digest()
            found = self._stored_estimator(known, curves)
            if found is None and self.before_fitting is not None:
                self.before_fitting()
            self._fitted["estimator"] = found or known.fit_estimator(self.settings.seed)
            if found is None:
                self._keep("estimator")
        made: Estimator = self._fitted["estimator"]
        return made

    def _stored_estimator(self, known: Weigher, curves: str | None) -> Estimator | None:
        if self.folder is None or not self.tables:
            return None
        parts = known.estimator_parts()
        return keeping.load_estimator(self.folder, self.tables, curves, *parts, common=known.units.common)

    def _probability(self, known: Weigher) -> Probability | None:
        if "probability" not in self._fitted:
            found = None
            if self.folder is not None and self.tables:
                found = keeping.load_probability(self.folder, self.tables, len(self.splits.train.relations))
            self._fitted["probability"] = found or self._fit_probability(known, None, None, BASE_RATE)
            if found is None:
                self._keep("probability")
        made: Probability | None = self._fitted["probability"]
        return made

    def _fit_probability(
        self, known: Weigher, method: str | None, false: Graph | None, rate: float
    ) -> Probability | None:
        facts = known.parts.calibration
        if not len(facts):
            return None
        rows = draw_negatives(facts, known.fitting_keys(), self.settings.seed + 1) if false is None else false
        source = "drawn" if false is None else f"{len(rows):,} of {rows.source}"
        method = method or ("isotonic" if len(facts) >= FEWEST_STEPS else "platt")
        if not len(rows):  # a graph so dense that no corruption of it is false
            return None
        return fit_probability(facts, rows, known.score, known.estimator, method, rate, source)

    def _test(self, test: Any) -> Aligned:
        aligned = self.splits.test if test is None else held_out(test, self.settings, self.splits)
        if not len(aligned.graph):
            raise FocuseError(str(aligned) or "the run has no test split; give a test graph")
        return aligned

    def _negatives(self, given: Any) -> Aligned:
        """Triples in train's ids, some of which have the weight 0."""
        false = read(given).align(self.splits.train)
        if not (false.graph.weight == 0).any():
            raise FocuseError(f"{false.graph.source}: no triple of weight 0 with names that train has; give negatives")
        return false

    def _false(self, given: Any, known: AnyIds) -> Graph:
        """One's own negatives in train's ids: rows of weight 0, or all where none has it, without the known facts."""
        aligned = _read_triples(given).align(self.splits.train)
        rows = aligned.graph
        nothing = rows.weight == 0
        rows = rows.select(nothing) if nothing.any() else rows
        left = rows.select(~np.isin(rows.keys, known))
        if len(np.unique(left.keys)) >= FEWEST_NEGATIVES:
            return left
        why = f"{len(rows) - len(left):,} stand in the graph as facts, {aligned.unseen.rows:,} have unknown names"
        raise FocuseError(
            f"{rows.source}: {len(np.unique(left.keys)):,} negatives left ({why}); give {FEWEST_NEGATIVES} or more"
        )

    # ---- storing --------------------------------------------------------------------------------------------------

    def _storable(self) -> Path | None:
        # Of an unfinished run the scores still change, and another process may have trained this one further.
        if self.folder is None or not self.tables or fingerprint(self.folder) != self.tables:
            return None
        return self.folder

    def _keep_calibration(self) -> None:
        self.calibration_stored = False
        folder = self._storable()
        if self._calibration is None or folder is None:
            return
        with suppress(OSError, FocuseError, SafetensorError):  # a folder that cannot be written: it is fitted each time
            self._calibration.save(folder, self.tables)
            self.calibration_stored = True

    def _keep(self, what: str) -> None:
        folder, made = self._storable(), self._fitted.get(what)
        if folder is None or made is None:
            return
        with suppress(OSError, FocuseError, SafetensorError):  # what is told of single columns is fitted each time
            if what == "estimator":
                curves = "" if self._calibration is None else self._calibration.digest()
                keeping.save_estimator(made, folder, self.tables, curves)
            elif what == "probability":
                keeping.save_probability(made, folder, self.tables)


def _read_triples(given: Any) -> Graph:
    """Triples with or without weights, from whatever `read` takes; one triple of names is a list of one."""
    if isinstance(given, Graph | str | PathLike) or not isinstance(given, Iterable):
        return read(given)
    rows = given
    if isinstance(given, tuple) and len(given) in (3, 4) and all(isinstance(part, str) for part in given[:3]):
        rows = [given]
    return read(rows)
