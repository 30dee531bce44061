"""Rule mining: which simple rules hold in a graph, how often and how strongly.

An edge can be walked both ways, so it makes two arcs. The label of the forward arc is the relation's id, that of the
backward arc is the id plus the number of relations. A composition is a path of two arcs from x over y to z, together
with an edge from x to z. Paths are built as columns, for one label of the first arc at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from focuse.data.graph import Graph, Ids, Weights, find_all_sorted
from focuse.errors import FocuseError
from focuse.option_strings import choose
from focuse.results import ResultTable, TableExport, attribute_columns
from focuse.rules.grammar import Atom, Rule, quoted
from focuse.rules.grounding import FactIndex, Indices
from focuse.storage.atomic import replace_file

SHAPES = ("symmetry", "inverse", "transitivity", "composition")
DEFAULT_SUPPORT = 10
DEFAULT_CONFIDENCE = 0.5
DEFAULT_LIMIT = 20_000_000
TRUTH_DIGITS = 4  # of a mined rule


@dataclass(frozen=True)
class MinedRule:
    """A rule that a graph suggests; its truth is its confidence.

    Attributes
    ----------
    pairs : int
        The number of distinct (x, z) for which the body holds.
    support : int
        How many of these have the head in the graph.
    soft_confidence : float
        The sum of min(body, head) divided by the sum of body, each pair with its strongest body.
    """

    rule: Rule
    shape: str
    support: int
    pairs: int
    soft_confidence: float

    @property
    def confidence(self) -> float:
        return self.support / self.pairs


@dataclass(frozen=True)
class MinedRules(TableExport):
    """Mined rules, the best first, and notes on what was left out to stay within the limit."""

    rules: list[MinedRule]
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rules)

    def __iter__(self) -> Iterator[MinedRule]:
        return iter(self.rules)

    def __getitem__(self, index: int) -> MinedRule:
        return self.rules[index]

    def text(self) -> str:
        """Return the text of a rules file: every rule with its metrics in a comment."""
        return "".join(
            f"{mined.rule}  # {mined.shape}: {mined.support} of {mined.pairs} pairs, "
            f"soft confidence {mined.soft_confidence:.4f}\n"
            for mined in self.rules
        )

    def to_arrow(self) -> pa.Table:
        """Return one row per rule, with its text and its metrics."""
        metrics = attribute_columns(self.rules, "shape", "support", "pairs", "confidence", "soft_confidence")
        return ResultTable({"rule": [str(mined.rule) for mined in self.rules], **metrics}).to_arrow()

    def write(self, path: str | Path) -> Path:
        """Write the rules to a file that `read_rules` reads. It appears only when it is complete."""
        if not self.rules:
            raise FocuseError(f"{path}: no rules to write; lower the support or the confidence asked for")
        with replace_file(Path(path)) as temporary:
            temporary.write_text(self.text(), encoding="utf-8")
        return Path(path)


def mine(
    graph: Graph,
    *,
    shapes: Sequence[str] = SHAPES,
    minimum_support: int = DEFAULT_SUPPORT,
    minimum_confidence: float = DEFAULT_CONFIDENCE,
    limit: int = DEFAULT_LIMIT,
    weight_scaling: str | None = None,
) -> MinedRules:
    """Return the rules of the given shapes that hold often enough, by decreasing confidence and support.

    Support and confidence count triples, whatever their weight. If a graph has more than `limit` paths, only the
    strongest edges of its largest relations begin paths, as many as fit. A note says which, and the metrics of such
    rules are those of the paths that were walked.

    >>> from focuse.data.readers import read
    >>> rows = [("a", "knows", "b", 0.9), ("b", "knows", "a", 0.8), ("a", "knows", "c", 0.5)]
    >>> [found] = mine(read(rows), shapes=["symmetry"], minimum_support=2)
    >>> print(found.rule, found.support, found.pairs)
    knows(x, y) -> knows(y, x) : 0.6667 2 3
    """
    for shape in shapes:
        choose("shape", shape, SHAPES)
    if minimum_support < 1 or not 0.0 < minimum_confidence <= 1.0 or limit < 1:
        raise FocuseError(
            "mining needs a support and a limit of at least 1 and a confidence above 0 and at most 1, not "
            f"{minimum_support}, {limit} and {minimum_confidence:g}"
        )
    miner = _Miner(FactIndex(graph, weight_scaling), minimum_support, minimum_confidence, limit)
    if "symmetry" in shapes or "inverse" in shapes:
        miner.inverses([shape for shape in ("symmetry", "inverse") if shape in shapes])
    if "transitivity" in shapes:
        miner.transitivity()
    if "composition" in shapes:
        miner.compositions()
    best = sorted(
        miner.found, key=lambda mined: (-mined.confidence, -mined.support, -mined.soft_confidence, str(mined.rule))
    )
    return MinedRules(best, miner.notes)


def _arcs(graph: Graph, both_ways: bool) -> Graph:
    """Return the arcs of a graph as another graph, sorted by where they start; its relations are labels.

    Loops are left out, because a path over a loop says only that an edge implies itself.
    """
    graph = graph.select(graph.head != graph.tail)
    if both_ways:
        graph = replace(
            graph,
            head=np.concatenate([graph.head, graph.tail]),
            relation=np.concatenate([graph.relation, graph.relation + np.int32(len(graph.relations))]),
            tail=np.concatenate([graph.tail, graph.head]),
            weight=np.concatenate([graph.weight, graph.weight]),
            columns=None,
        )
    return graph.select(np.argsort(graph.head, kind="stable"))


def _fair_share(total: Indices, limit: int) -> int:
    """Return the largest c for which the sum of min(total, c) stays within the limit, if the sum of `total` does not.

    >>> _fair_share(np.array([2, 50, 10, 90]), 40)
    14
    """
    ascending = np.sort(total)
    # What is left for each of the labels from here on, once the smaller ones have all they need.
    left = (limit - (np.cumsum(ascending) - ascending)) // np.arange(len(ascending), 0, -1)
    return int(left[np.argmax(ascending > left)])


class _Miner:
    """Counts the rules of one graph."""

    def __init__(self, facts: FactIndex, support: int, confidence: float, limit: int) -> None:
        self.facts, self.graph = facts, facts.graph
        self.support, self.confidence, self.limit = support, confidence, limit
        self.entities, self.relations = max(len(self.graph.entities), 1), max(len(self.graph.relations), 1)
        if self.entities**2 * self.relations * 2 >= 2**63:
            raise FocuseError(f"{self.graph.source}: too many entities and relations to mine in 64-bit keys")
        self.found: list[MinedRule] = []
        self.notes: list[str] = []
        order = np.argsort(self._pair_key(self.graph.head, self.graph.tail), kind="stable")
        self.by_pair = self.graph.select(order)
        self.pair_keys = self._pair_key(self.by_pair.head, self.by_pair.tail)

    def _pair_key(self, first: Ids, second: Ids) -> Indices:
        return first.astype(np.int64) * self.entities + second

    def inverses(self, shapes: Sequence[str]) -> None:
        """r(x, y) -> s(y, x); with s = r it is symmetry."""
        for r, s, counts in self._supported(self.graph.relation, self.graph.tail, self.graph.head, self.graph.weight):
            shape = "symmetry" if r == s else "inverse"
            if shape in shapes:
                self._propose(shape, [self._atom(r, "x", "y")], self._atom(s, "y", "x"), *counts)

    def transitivity(self) -> None:
        """r(x, y) & r(y, z) -> r(x, z), one relation after the other."""
        arcs = _arcs(self.graph, both_ways=False)
        for relation in range(self.relations):
            same = arcs.select(arcs.relation == relation)
            self._compose(relation, self._within_limit(same), same, "transitivity")

    def compositions(self) -> None:
        """a(x, y) & b(y, z) -> t(x, z) for all relations, walked forward or backward."""
        arcs = _arcs(self.graph, both_ways=True)
        first = self._within_limit(arcs)
        for label in np.unique(first.relation):
            self._compose(int(label), first.select(first.relation == label), arcs, "composition")

    def _compose(self, first: int, left: Graph, right: Graph, shape: str) -> None:
        """Propose rules from paths of a `left` arc and a `right` arc that continues at its end."""
        for b, t, counts in self._supported(*self._paths(left, right)):
            if (b == first == t) == (shape == "transitivity"):
                atoms = [self._atom(first, "x", "y"), self._atom(b, "y", "z")]
                self._propose(shape, atoms, self._atom(t, "x", "z"), *counts)

    def _paths(self, left: Graph, right: Graph) -> tuple[Ids, Ids, Ids, Weights]:
        """Return the distinct (second label, x, z) of all paths and the truth of the strongest; [p] each."""
        first_arc, second_arc = find_all_sorted(right.head, left.tail)
        pair = self._pair_key(left.head[first_arc], right.tail[second_arc])
        key = right.relation[second_arc] * np.int64(self.entities**2) + pair
        body = np.maximum(0.0, left.weight[first_arc] + right.weight[second_arc] - 1.0)
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        strongest = np.maximum.reduceat(body[order], first) if len(key) else body
        label, pair = np.divmod(key[first], self.entities**2)
        x, z = np.divmod(pair, self.entities)
        return label.astype(np.int32), x.astype(np.int32), z.astype(np.int32), strongest

    def _supported(
        self, label: Ids, x: Ids, z: Ids, body: Weights
    ) -> Iterator[tuple[int, int, tuple[int, int, float]]]:
        """Count the bodies (label, x, z) [p] with their truth whose head t(x, z) is in the graph, for all relations t.

        Yield label, t and (support, pairs, soft confidence) of rules with enough support and confidence.
        """
        pairs = np.bincount(label, minlength=2 * self.relations)
        mass = np.bincount(label, weights=body, minlength=2 * self.relations)
        row, edge = find_all_sorted(self.pair_keys, self._pair_key(x, z))
        key = label[row] * np.int64(self.relations) + self.by_pair.relation[edge]
        distinct, group, support = np.unique(key, return_inverse=True, return_counts=True)
        shared = np.bincount(group, np.minimum(body[row], self.by_pair.weight[edge]), len(distinct))
        labels, heads = np.divmod(distinct, self.relations)
        kept = (support >= self.support) & (support >= self.confidence * pairs[labels])
        for b, t, number, total in zip(labels[kept], heads[kept], support[kept], shared[kept], strict=True):
            yield int(b), int(t), (int(number), int(pairs[b]), float(total / mass[b]) if mass[b] > 0 else 0.0)

    def _within_limit(self, arcs: Graph) -> Graph:
        """Return arcs that together begin no more than `limit` paths.

        Labels share the limit evenly. One that needs less leaves the rest to the others, and one that needs more begins
        with its strongest arcs only, so that a few large relations cannot displace the others.
        """
        cost = np.bincount(arcs.head, minlength=self.entities)[arcs.tail]
        total = np.zeros(2 * self.relations, np.int64)
        np.add.at(total, arcs.relation, cost)
        if total.sum() <= self.limit:
            return arcs
        share = _fair_share(total, self.limit)
        order = np.lexsort((-arcs.weight, arcs.relation))
        spent, label = np.cumsum(cost[order]), arcs.relation[order]
        kept = spent - (np.cumsum(total) - total)[label] <= share
        short = np.argsort(-total, kind="stable")[: int((total > share).sum())]
        names = dict.fromkeys(self.graph.relations[int(one) % self.relations] for one in short)
        self.notes.append(
            f"{self.graph.source}: {total.sum():,} paths of two edges exceed the limit of {self.limit:,}; those over "
            f"{', '.join(map(quoted, list(names)[:3]))}{f' or {len(names) - 3} more' * (len(names) > 3)} "
            f"begin with the strongest edges only, which are {kept.mean():.1%} of all edges"
        )
        return arcs.select(np.sort(order[kept]))

    def _atom(self, label: int, start: str, end: str) -> Atom:
        """Return the atom of an arc: its relation's name, with swapped variables for a backward arc."""
        backward, relation = divmod(label, self.relations)
        ends = (end, start) if backward else (start, end)
        return Atom(self.graph.relations[relation], *ends)

    def _propose(self, shape: str, atoms: list[Atom], head: Atom, support: int, pairs: int, soft: float) -> None:
        truth = max(round(support / pairs, TRUTH_DIGITS), 10.0**-TRUTH_DIGITS)
        self.found.append(MinedRule(Rule((tuple(atoms),), head, truth), shape, support, pairs, soft))
