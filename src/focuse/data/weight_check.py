"""A check of the weights of a graph: what their distribution means for training, one line per finding."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from focuse.data.graph import Graph, Ids, Mask, Weights
from focuse.data.weights import MAX_EXAMINED, MIN_EDGES_FOR_RANGE, is_heavy_tailed, relation_ranges
from focuse.errors import counted

MOST = 0.5  # what holds for relations with this fraction of the edges is a finding about the graph
MANY_CONSTANT = 0.1  # fraction of the edges whose relations have a single weight
CENSORED = 0.7  # fraction of the weights at the end of the range
MIN_DISTINCT = 5  # weights besides the end of the range, without which they are labels
# Headings in which small numbers mean strong edges, as words in lower case, and what their numbers must be.
P_VALUE = re.compile(r"\b([pq] ?val(ue)?s?|p ?adj|adj ?p|fdr)\b")
OTHER_SMALL = re.compile(
    r"\b(e ?val(ue)?s?|dist(ances?)?|path length|hops|rmsd|rmse|costs?|error|dissimilarity|[ieg]c50|k[id]"
    r"|(affinity|potency|concentration) [a-z ]*nm)\b"
)
RANK = re.compile(r"\brank(ing)?\b")
# Words that turn the meaning of the others around, or leave it open.
OPEN = re.compile(r"\b(log(10|2)?|ln|neg|minus|score|similarity|sim|inv|inverse|page|fraction|count|num|n|number)\b")
LOWER = "--lower-is-better true"


@dataclass(frozen=True)
class Finding:
    """What a check found: its `kind`, and one line on what that means for training."""

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


def check_weights(graph: Graph, scaling: str | None = None) -> list[Finding]:
    """Return what is unusual about the weights of a graph, the most serious finding first; none if all are equal.

    `scaling` is the given weight_scaling, None if it is chosen automatically. A graph with several weight columns is
    checked for headings only.

    >>> from focuse.data.readers import read
    >>> trust = read([(str(n), "trusts", "b", n % 21 - 10) for n in range(100)])
    >>> [finding.kind for finding in check_weights(trust)]
    ['signed']
    """
    if not graph.weighted or not len(graph):
        return []
    if graph.columns is not None:
        wrong = sorted(set(graph.columns.names) - graph.columns.lower_is_better)
        found = [heading_finding(name, graph.columns.values[:, graph.columns.index(name)], name) for name in wrong]
        return [finding for finding in found if finding is not None]
    if graph.weight.min() == graph.weight.max():
        return []
    signed = None if graph.lower_is_better else signed_finding(graph.weight)
    if len(graph) > MAX_EXAMINED:  # a part of the edges shows the distribution as well
        graph = graph.select(np.arange(0, len(graph), len(graph) // MAX_EXAMINED))
    heading = None if graph.lower_is_better else heading_finding(graph.weight_name, graph.weight, LOWER)
    heading = heading or (None if graph.lower_is_better else p_value_finding(graph))
    labels = two_valued_finding(graph)
    censored = None if labels else censored_finding(graph)
    found = [heading, signed, labels, constant_finding(graph), censored, heavy_tail_finding(graph, scaling)]
    return [finding for finding in found if finding is not None]


# ---- small means strong ---------------------------------------------------------------------------------------------


def heading_finding(heading: str, weight: Weights, column: str = LOWER) -> Finding | None:
    """Return a finding if the heading names what is strong when it is small, and the weights [n] can be that.

    >>> heading_finding("p_value", np.array([0.01, 0.9])).kind, heading_finding("-log10 p", np.array([2.0, 0.05]))
    ('lower-is-better', None)
    """
    words = " ".join(re.findall(r"[a-z]+[0-9]*", re.sub(r"(?<=[a-z]{2})(?=[A-Z][a-z])", " ", heading).lower()))
    weight = weight[~np.isnan(weight)]
    if not len(weight) or weight.min() < 0 or heading.lstrip().startswith("-") or OPEN.search(words):
        return None
    p_value = P_VALUE.search(words) and weight.max() <= 1
    rank = RANK.search(words) and (weight == np.round(weight)).all()
    if not (p_value or rank or OTHER_SMALL.search(words)):
        return None
    advice = LOWER if column == LOWER else f"--lower-is-better {column}"
    return Finding(
        "lower-is-better",
        f"the weights are called {heading!r}, of which small ones often mean strong edges, but large ones count as "
        f"strong; if small is strong, give {advice}",
    )


def p_value_finding(graph: Graph) -> Finding | None:
    """Return a finding if weights without a telling heading are distributed like p-values.

    That is: all in [0, 1], from below a millionth, and most of them below .05; and either cut at a usual level of
    significance, or with a flat upper half.
    """
    weight = graph.weight
    positive = weight[weight > 0]
    if weight.min() < 0 or weight.max() > 1 or len(weight) < 100 or positive.min() > 1e-6:
        return None
    top = float(weight.max())
    cut = any(0.9 * level < top <= level for level in (0.1, 0.05, 0.01, 0.001))
    third, fourth = (float(np.mean((weight > low) & (weight <= low + 0.25))) for low in (0.5, 0.75))
    flat = third > 0.01 and fourth > 0.01 and 0.5 < third / fourth < 2
    if np.mean(weight < 0.05) < 0.3 or not (cut or flat):
        return None
    return Finding(
        "lower-is-better",
        f"the weights pile up near 0 ({positive.min():.2g} to {top:.2g}) like p-values, but large ones count as "
        f"strong; if small is strong, give {LOWER}",
    )


# ---- signs, labels, limits ------------------------------------------------------------------------------------------


def signed_finding(weight: Weights) -> Finding | None:
    """Return a finding if some of the weights [n] are negative: those may mark links that are false."""
    below = int((weight < 0).sum())
    if not below:
        return None
    if weight.max() <= 0:
        return Finding(
            "negative",
            f"no weight is above 0, and the closest to 0 counts as the strongest; if the lowest ones are the strong "
            f"ones, like energies, give {LOWER}",
        )
    return Finding(
        "signed",
        f"{counted(below, 'weights', 'are')} below 0, counting as the weakest positives; if they mark known negatives, "
        "give --negative-weights known-negative",
    )


def two_valued_finding(graph: Graph) -> Finding | None:
    """Return a finding if all weights are one of two: a label rather than a number."""
    low, high = graph.weight.min(), graph.weight.max()
    lowest, highest = graph.weight == low, graph.weight == high
    if len(graph) < MIN_EDGES_FOR_RANGE or not (lowest | highest).all():
        return None
    zero = "; if 0 marks known negatives, give --zero-weights known-negative" if low == 0 else ""
    return Finding(
        "two-valued",
        f"the weights have only two values, {low:g} ({lowest.mean():.0%}) and {high:g}: a label rather than a number, "
        f"so a predicted weight says how likely each is{zero}",
    )


def constant_finding(graph: Graph) -> Finding | None:
    """Return a finding if relations with many of the edges have a single weight each, and others do not."""
    count, (low, high) = _count(graph), relation_ranges(graph)
    constant = (low == high) & (count >= MIN_EDGES_FOR_RANGE)
    share = count[constant].sum() / len(graph)
    if share < MANY_CONSTANT or not (low < high).any():
        return None
    return Finding(
        "constant",
        f"{_relations(graph, constant)} ({share:.0%} of the edges): there, weights cannot matter",
    )


def censored_finding(graph: Graph) -> Finding | None:
    """Return a finding if most of the weights of a relation equal its lowest or highest one, in most relations.

    Whole numbers of which most are the lowest one are not censored, but counts.
    """
    count, counts = _count(graph), bool((graph.weight == np.round(graph.weight)).all())
    for name, end, words in zip(("lowest", "highest"), relation_ranges(graph), ("at most", "at least"), strict=True):
        at_end = graph.weight == end[graph.relation]
        share = _count(graph, at_end) / np.maximum(count, 1)
        rows = (share >= CENSORED) & (share < 1) & (count >= MIN_EDGES_FOR_RANGE)
        if count[rows].sum() < MOST * len(graph) or (counts and name == "lowest"):
            continue
        inside = rows[graph.relation] & ~at_end
        if len(np.unique(graph.weight[inside])) < MIN_DISTINCT:
            continue
        value = f"{end[rows][0]:g}, the {name} one" if rows.sum() == 1 else f"the {name} of their relation"
        part = at_end[rows[graph.relation]].mean()
        meaning = f"if they are the limit of a measurement, such a predicted weight means {words!r}"
        if not end[rows].any():
            meaning = "if 0 marks known negatives, give --zero-weights known-negative"
        text = f"{part:.0%} of the weights are {value}: training learns no order among them; {meaning}"
        return Finding("censored", text)
    return None


def heavy_tail_finding(graph: Graph, scaling: str | None) -> Finding | None:
    """Return a finding if min-max would put nearly all weights close to one end of [0, 1]."""
    if not is_heavy_tailed(graph):
        return None
    low, median, high = np.quantile(graph.weight, (0.0, 0.5, 1.0), method="lower")
    size = f"the weights have a heavy tail ({low:g} to {high:g}, median {median:g})"
    if scaling in ("relation", "global"):
        return Finding(
            "heavy-tailed", f"{size}: scaled by {scaling!r}, most are nearly equal; 'quantile' sets them apart"
        )
    use = "training and predictions use their" if scaling == "log" else "training uses their ranks, predictions their"
    return Finding("heavy-tailed", f"{size}: {use} logarithms (--weight-scaling relation uses them as they are)")


def _count(graph: Graph, rows: Mask | None = None) -> Ids:
    """Return the number of edges of each relation [R], of the rows of a mask [n] if it is given."""
    relation = graph.relation if rows is None else graph.relation[rows]
    return np.bincount(relation, minlength=len(graph.relations)).astype(np.int32)


def _relations(graph: Graph, rows: Mask) -> str:
    """Return which relations have a single weight."""
    names = [graph.relations[int(index)] for index in np.flatnonzero(rows)]
    if len(names) == 1:
        return f"relation {names[0]!r} has a single weight"
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return f"{len(names)} of {len(graph.relations)} relations have a single weight each: {shown}"
