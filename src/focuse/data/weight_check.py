"""A check of the weights of a graph: what their distribution means for training, one line per finding."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from focuse.data.graph import Graph, Ids, Mask, Weights
from focuse.data.weights import MAX_EXAMINED, MIN_EDGES_FOR_RANGE, heavy_tails, is_heavy_tailed, relation_ranges
from focuse.errors import counted

MOST = 0.5  # what holds for relations with this fraction of the edges is a finding about the graph
MANY_CONSTANT = 0.1  # fraction of the edges whose relations have a single weight
MOSTLY_NEGATIVE = 0.9  # fraction of weights below 0 from which they are likelier energies than known negatives
CENSORED = 0.7  # fraction of the weights at the end of the range
MIN_DISTINCT = 5  # weights besides the end of the range, without which they are labels
# Headings in which small numbers mean strong edges, as words in lower case, and what their numbers must be.
P_VALUE = re.compile(r"\b([pq] ?val(ue)?s?|p ?adj(ust(ed)?)?|adj(usted)? ?p|(empirical|gwas|perm) p|fdr|fwer)\b")
AFFINITY = re.compile(r"\b(([ieag]|gi) ?c? ?50|k ?[id]|(affinity|potency|concentration) [a-z ]*[nu]m)\b")
OTHER_SMALL = re.compile(
    r"\b(e ?val(ue)?s?|dist(ances?)?|path length|hops|rmsd|rmse|costs?|error|dissimilarity|euclidean|levenshtein"
    r"|travel time|latency)\b"
)
LOG = re.compile(r"\b(log(10|2)?|ln)\b|\b(log(10|2)?|ln) ?(?=[ieag]c50|k[id]\b)")
RANK = re.compile(r"\brank(ing)?\b")
# Words that turn the meaning of the others around, or leave it open.
OPEN = re.compile(r"\b(log(10|2)?|ln|neg|minus|score|similarity|sim|inv|inverse|page|fraction|count|num|n|number)\b")
STRENGTH = re.compile(r"score|conf|prob|freq|strength|importance|rank|sim|share")  # headings of what is strong if high
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

    `scaling` is the given weight_scaling, None if it is chosen automatically. Of several weight columns, each is
    checked by itself.

    >>> from focuse.data.readers import read
    >>> trust = read([(str(n), "trusts", "b", n % 21 - 10) for n in range(100)])
    >>> [finding.kind for finding in check_weights(trust)]
    ['signed']
    """
    if not graph.weighted or not len(graph):
        return []
    if graph.columns is not None:
        return [finding for name in graph.columns.names for finding in _check_column(graph, name, scaling)]
    if graph.weight.min() == graph.weight.max():
        return []
    signed = None if graph.lower_is_better else signed_finding(graph.weight)
    if len(graph) > MAX_EXAMINED:  # a part of the edges shows the distribution as well
        rows = np.random.default_rng(0).integers(0, len(graph), MAX_EXAMINED)
        graph = graph.select(np.unique(rows))
    heading = None if graph.lower_is_better else heading_finding(graph.weight_name, graph.weight)
    heading = heading or (None if graph.lower_is_better else p_value_finding(graph))
    labels = two_valued_finding(graph)
    censored = None if labels else censored_finding(graph)
    found = [heading, signed, labels, constant_finding(graph), censored, heavy_tail_finding(graph, scaling)]
    return [finding for finding in found if finding is not None]


def _check_column(graph: Graph, name: str, scaling: str | None) -> list[Finding]:
    """Return what is unusual about one of several weight columns."""
    columns = graph.columns
    assert columns is not None
    values = columns.values[:, columns.index(name)]
    present = ~np.isnan(values)
    single = replace(
        replace(graph, columns=None).select(present),
        weight=values[present],
        weight_name=name,
        lower_is_better=name in columns.lower_is_better,
    )
    found = check_weights(single, scaling)
    return [Finding(each.kind, f"{name}: {each.text.replace(LOWER, f'--lower-is-better {name}')}") for each in found]


# ---- small means strong ---------------------------------------------------------------------------------------------


def heading_finding(heading: str, weight: Weights) -> Finding | None:
    """Return a finding if the heading names what is strong when it is small, and the weights [n] can be that.

    >>> heading_finding("p_value", np.array([0.01, 0.9])).kind, heading_finding("-log10 p", np.array([2.0, 0.05]))
    ('lower-is-better', None)
    """
    words = " ".join(re.findall(r"[a-z]+[0-9]*", re.sub(r"(?<=[a-z]{2})(?=[A-Z])", " ", heading).lower()))
    if not len(weight) or heading.lstrip().startswith("-"):
        return None
    bare = LOG.sub("", words)
    affinity = AFFINITY.search(bare) and not OPEN.search(bare)  # also logarithms of affinities, which may be negative
    if not affinity and (weight.min() < 0 or OPEN.search(words)):
        return None
    p_value = P_VALUE.search(words) and weight.max() <= 1
    rank = RANK.search(words) and (weight == np.round(weight)).all()
    if not (affinity or p_value or rank or OTHER_SMALL.search(words)):
        return None
    return Finding(
        "lower-is-better",
        f"the weights are called {heading!r}, of which small ones often mean strong edges, but large ones count as "
        f"strong; if small is strong, train with {LOWER}",
    )


def p_value_finding(graph: Graph) -> Finding | None:
    """Return a finding if weights without a telling heading are distributed like p-values.

    That is: all in [0, 1], from below a millionth, and most of them below .05; and either cut at a usual level of
    significance, or with a flat upper half.
    """
    weight = graph.weight
    positive = weight[weight > 0]
    if weight.min() < 0 or weight.max() > 1 or min(len(weight), len(positive)) < 100 or positive.min() > 1e-6:
        return None
    if STRENGTH.search(graph.weight_name.lower()):
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
        f"strong; if small is strong, train with {LOWER}",
    )


# ---- signs, labels, limits ------------------------------------------------------------------------------------------


def signed_finding(weight: Weights) -> Finding | None:
    """Return a finding if some of the weights [n] are negative: those may mark links that are false."""
    below = int((weight < 0).sum())
    if not below:
        return None
    if below >= MOSTLY_NEGATIVE * len(weight):
        few = "no weight" if weight.max() <= 0 else f"{1 - below / len(weight):.1%} of the weights"
        return Finding(
            "negative",
            f"{few} {'is' if weight.max() <= 0 else 'are'} above 0, and the highest counts as the strongest; if the "
            f"lowest ones are the strong ones, like energies, train with {LOWER}",
        )
    return Finding(
        "signed",
        f"{counted(below, 'weights', 'are')} below 0, counting as the weakest positives; if they mark known negatives, "
        "train with --negative-weights known-negative",
    )


def two_valued_finding(graph: Graph) -> Finding | None:
    """Return a finding if all weights are one of two: a label rather than a number."""
    low, high = graph.weight.min(), graph.weight.max()
    lowest, highest = graph.weight == low, graph.weight == high
    if len(graph) < MIN_EDGES_FOR_RANGE or not (lowest | highest).all():
        return None
    zero = "; if 0 marks known negatives, train with --zero-weights known-negative" if low == 0 else ""
    return Finding(
        "two-valued",
        f"the weights have only two values, {low:g} ({100 * lowest.mean():.2g}%) and {high:g}: a label rather than a "
        f"number, so a predicted weight says how likely each is{zero}",
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

    Whole numbers of which most are 1, the lowest one, are not censored, but counts. A value between the lowest and the
    highest that most weights have is named, too.
    """
    count, counts = _count(graph), bool((graph.weight == np.round(graph.weight)).all())
    for name, end, words in zip(("lowest", "highest"), relation_ranges(graph), ("at most", "at least"), strict=True):
        at_end = graph.weight == end[graph.relation]
        share = _count(graph, at_end) / np.maximum(count, 1)
        rows = (share >= CENSORED) & (share < 1) & (count >= MIN_EDGES_FOR_RANGE)
        if count[rows].sum() < MOST * len(graph) or (counts and name == "lowest" and (end[rows] == 1).all()):
            continue
        inside = rows[graph.relation] & ~at_end
        if len(np.unique(graph.weight[inside])) < MIN_DISTINCT:
            continue
        value = f"{end[rows][0]:g}, the {name} one" if rows.sum() == 1 else f"the {name} of their relation"
        part = at_end[rows[graph.relation]].mean()
        meaning = f"if they are the limit of a measurement, such a predicted weight means {words!r}"
        if not end[rows].any():
            meaning = "if 0 marks known negatives, train with --zero-weights known-negative"
        text = f"{part:.0%} of the weights are {value}: training learns no order among them; {meaning}"
        return Finding("censored", text)
    values, times = np.unique(graph.weight, return_counts=True)
    share, value_ = times.max() / len(graph), values[times.argmax()]
    if share < CENSORED or len(values) < MIN_DISTINCT or (counts and value_ == 1) or len(graph) < MIN_EDGES_FOR_RANGE:
        return None
    text = f"{share:.0%} of the weights are {value_:g}: training learns no order among them"
    return Finding("censored", f"{text}; if that is a default, leave those weights out")


def heavy_tail_finding(graph: Graph, scaling: str | None) -> Finding | None:
    """Return a finding if min-max would put nearly all weights close to one end of [0, 1]."""
    heavy = heavy_tails(graph)
    if not is_heavy_tailed(graph):
        share = heavy[graph.relation].mean()
        names = [repr(graph.relations[int(index)]) for index in np.flatnonzero(heavy)[:3]]
        text = (
            f"the weights of {', '.join(names)} ({share:.0%} of the edges) have a heavy tail: scaled by their range, "
        )
        text += "most are nearly equal; --weight-scaling quantile sets them apart"
        unused = scaling not in (None, "relation", "global") or share < MANY_CONSTANT
        return None if unused else Finding("heavy-tailed", text)
    low, median, high = np.quantile(graph.weight[heavy[graph.relation]], (0.0, 0.5, 1.0), method="lower")
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
