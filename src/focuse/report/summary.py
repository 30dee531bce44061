"""The first answers of a run: how good it is next to a ranking without a model, and its most probable new links.

Everything here takes seconds, also on a graph of millions of edges: a sample of the test triples is ranked, and no
estimator of weights is fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from focuse.data.graph import AlignedGraph
from focuse.data.triple_index import relevant_triple_index
from focuse.errors import FocuseError, printable
from focuse.evaluation.evaluate import evaluate, evaluate_baselines
from focuse.evaluation.metrics import FloatArray, Keys, format_number, json_value
from focuse.evaluation.preference import LIKELY
from focuse.inference.discover import EXPENSIVE
from focuse.inference.link_search import SAMPLE_SIZE
from focuse.results import ResultTable

if TYPE_CHECKING:
    from focuse.api import Run

# At most this many triples are ranked, and fewer if there are many entities, but at least the smaller number.
MAX_TRIPLES, MIN_TRIPLES, MAX_RANKED = 5_000, 500, 1e8
MAX_LINKS = 5e8  # scored in search of new ones; in a larger graph, only links between popular entities are
MIN_COMPARED = 20  # triples; the noise of fewer cannot be estimated
FAVORED = " (soft labels favor strong edges; --weight-mode none treats all alike)"
NOT_MEASURED = "no test triples: how good the run is was not measured"
NAME_LENGTH = 60  # of printed names


@dataclass(frozen=True)
class Comparison:
    """The MRR of a model and of a baseline on the same triples; `margin` is two standard errors of the difference."""

    triples: int
    mrr: float
    baseline_mrr: float
    margin: float

    @classmethod
    def measure(cls, model: FloatArray, baseline: FloatArray, share: FloatArray, keys: Keys) -> Comparison:
        """Compare mean reciprocal ranks [n] of triples of which the shares [n] in [0, 1] count.

        Triples with equal `keys` [n], the two directions of an undirected edge, are one observation.

        >>> Comparison.measure(np.array([0.5, 0.75]), np.array([0.25, 0.25]), np.ones(2), np.arange(2))
        Comparison(triples=2, mrr=0.625, baseline_mrr=0.25, margin=0.25)
        """
        weight = share / share.sum()
        residual = model - baseline - weight @ (model - baseline)
        each = np.unique(keys, return_inverse=True)[1]
        part, error = np.bincount(each, weights=weight), np.bincount(each, weights=weight * residual)
        variance = float(error @ error) / max(1 - float(part @ part), 1e-9)
        return cls(round(share.sum()), float(weight @ model), float(weight @ baseline), 2 * math.sqrt(variance))

    @property
    def difference(self) -> float:
        """How much higher the MRR of the model is."""
        return self.mrr - self.baseline_mrr

    @property
    def verdict(self) -> str:
        """Whether the model is 'better', 'worse', or 'no better', if the difference may be due to chance."""
        if self.triples < MIN_COMPARED:
            return "too few triples"
        return "better" if self.difference > self.margin else "worse" if self.difference < -self.margin else "no better"

    def to_dict(self) -> dict[str, Any]:
        """Return the figures and the verdict."""
        return {**vars(self), "difference": self.difference, "verdict": self.verdict}

    def __str__(self) -> str:
        difference = f"{self.difference:+.3f} ± {self.margin:.3f}".replace("-", "−")
        return f"MRR {self.mrr:.3f} against {self.baseline_mrr:.3f} ({difference})"


@dataclass(frozen=True)
class Quality:
    """How well a run ranks triples of a split next to the better of the baselines.

    At most `MAX_TRIPLES` of the `available` triples were ranked. `strongest` compares the tenth of highest weight; None
    without weights. `sampled` is the number of entities that are ranked by an expensive model, by default all.
    """

    split: str
    available: int
    baseline: str
    every: Comparison
    strongest: Comparison | None
    sampled: int | None
    soft_labels: bool

    def __str__(self) -> str:
        count, strong = self.every.triples, self.strongest
        of = "" if count == self.available else f" of {self.available:,}"
        ranked = f"{count:,}{of} {self.split} triple{'s' * (self.available > 1)}"
        ranked += "" if self.sampled is None else f" (among {self.sampled:,} sampled entities)"
        if count < MIN_COMPARED:
            return f"{ranked}: too few to compare with ranking by {self.baseline}; {self.every}"
        text = f"{self.every.verdict} than ranking by {self.baseline} on {ranked}: {self.every}"
        if strong is not None:
            verdict = "" if strong.verdict == self.every.verdict else f"{strong.verdict} "
            text += f"; {verdict}on the strongest 10 %: {strong}"
            text += FAVORED if self.soft_labels and strong.verdict == "better" != self.every.verdict else ""
        return text

    @property
    def useful(self) -> bool:
        """Whether the run is better than the baseline, or at least may be, on all triples or on the strongest."""
        parts = [part for part in (self.every, self.strongest) if part is not None]
        return any(part.verdict in ("better", "too few triples") for part in parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as data that JSON can represent."""
        return {name: json_value(part) for name, part in vars(self).items()}


@dataclass(frozen=True)
class Summary:
    """The first answers of a run: its quality, None without held-out triples, and its most probable new links."""

    quality: Quality | None
    new_links: ResultTable
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [NOT_MEASURED if self.quality is None else str(self.quality)]
        probable = len(self.new_links) and self.new_links[0].probability is not None
        lines.append(f"new links{', with the probability that they are true' if probable else ''}:")
        lines[-1] += "" if len(self.new_links) else " none found"
        for *names, probability in self.new_links:
            text = " | ".join(map(_shortened, names))
            lines.append(f"  {text}  {format_number(probability)}" if probable else f"  {text}")
        return "\n".join([*lines, *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as data that JSON can represent."""
        return {name: json_value(part) for name, part in vars(self).items()} | {"new_links": self.new_links.to_dicts()}


def _shortened(name: str) -> str:
    name = printable(name)
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"


def summarize(run: Run, top: int = 5) -> Summary:
    """Return the first answers of a run; see `Run.summary`."""
    notes: list[str] = []
    quality, links = None, ResultTable({name: np.empty(0) for name in ("head", "relation", "tail", "probability")})
    try:
        quality = measure_quality(run)
        links = find_links(run, top)
    except FocuseError as error:  # scores that are not finite, for example
        notes.append(str(error))
    return Summary(quality, links, tuple(notes))


def measure_quality(run: Run) -> Quality | None:
    """Compare the run with the better of the baselines on its test triples, or else on validation triples."""
    splits, train = run.splits, run.graph
    split, held = ("test", splits.test) if len(splits.test) else ("validation", splits.valid)
    if not len(held):
        return None
    count = min(len(held), MAX_TRIPLES, max(MIN_TRIPLES, int(MAX_RANKED / len(train.entities))))
    rows = np.sort(np.random.default_rng(run.settings.seed).choice(len(held), count, replace=False))
    ranked = AlignedGraph(held.select(rows))
    graphs, device = [train, splits.valid, splits.test], run.scorer.device
    found = evaluate(run.scorer, ranked, train, relevant_triple_index(graphs, ranked.graph, device))
    sampled = found.settings.get("candidates")
    candidates = None if sampled is None else int(sampled)  # a query has the same candidates for every scorer
    others = evaluate_baselines(train, splits.valid, ranked, graphs, device, candidates)
    best = max(others, key=lambda name: others[name].all.mrr)
    model, baseline = ((1 / one.ranks).mean(axis=1) for one in (found, others[best]))
    keys = ranked.graph.pair_keys
    every = Comparison.measure(model, baseline, np.ones(count), keys)
    weighted = np.ptp(ranked.graph.weight) > 0 and count >= 10 * MIN_COMPARED
    strongest = Comparison.measure(model, baseline, found.top_share, keys) if weighted else None
    soft_labels = run.settings.weight_mode == "soft-labels"
    return Quality(split, len(held), best, every, strongest, candidates, soft_labels)


def find_links(run: Run, top: int) -> ResultTable:
    """Return the most probable links that the graph lacks; in a large graph, those between popular entities."""
    limit = MAX_LINKS / (EXPENSIVE if run.scorer.expensive_to_rank else 1)
    try:
        found = run.discover(top=top, weights=False, prefer=LIKELY, max_scores=MAX_LINKS)
    except FocuseError:  # more links than are scored
        size = max(2, min(SAMPLE_SIZE, int(math.sqrt(limit / len(run.graph.relations)))))
        found = run.discover(top=top, weights=False, prefer=LIKELY, strategy="popular", sample_size=size)
    return ResultTable(found.to_arrow().select(["head", "relation", "tail", "probability"]))
