"""Section on the data: how large its parts are, what their weights look like, and what an audit finds in them."""

from __future__ import annotations

import numpy as np

from focuse.data.graph import Graph
from focuse.data.statistics import GraphStatistics, Leakage
from focuse.errors import counted
from focuse.report.charts import bars
from focuse.report.gathered import Gathered, Reported
from focuse.report.page import bullets, figure, heading, isolated, paragraph, percent, table

BINS = 40
FEW = 10  # facts of a relation, or of an entity, from which little can be learnt


def data(run: Reported, figures: Gathered) -> str:
    """The parts and their weights, a histogram, what the audit found, and what leaks from train."""
    graph, splits = run.graph, run.splits
    tested = splits.test if figures.test is None else figures.test.graph
    parts = {"train": graph, "validation": splits.valid, "test": tested}
    parts |= {
        name: part
        for name, part in (("inferred", splits.inferred), ("false", splits.known_negatives))
        if part is not None
    }
    rows = [[name, *_numbers(part)] for name, part in parts.items() if len(part)]
    text = f"{len(graph.entities):,} entities, {len(graph.relations):,} relations, from {isolated(graph.source)}."
    if not graph.weighted:
        text += " No weights were given: each is taken for 1."
    found = [] if figures.audit is None else findings(figures.audit, graph)
    heads = ["part", "triples", "least weight", "mean weight", "greatest weight"]
    return "".join([
        heading("Data"), paragraph(text), table(heads, rows, caption="Parts of the graph"),
        _histogram(graph), heading("What an audit finds", 3) if found else "", bullets(found),
        "" if figures.audit is None else _leakage(figures.audit.leakage),
        *(paragraph(f"Note: {note}", "note") for note in figures.notes),
    ])  # fmt: skip


def _numbers(graph: Graph) -> list[str]:
    weight = graph.weight
    mean = float((weight / len(weight)).sum())  # divided before the sum, which may overflow
    return [f"{len(graph):,}", f"{weight.min():.4g}", f"{mean:.4g}", f"{weight.max():.4g}"]


def _histogram(graph: Graph) -> str:
    """The weights of train in equal bins; nothing where they are all the same."""
    weight = graph.weight
    low, high = float(weight.min()), float(weight.max())
    span = high / 2 - low / 2  # halves: the span of numbers near ±1e308 would overflow
    if not graph.weighted or not 0 < span < 1e300:
        return ""
    share = (weight / 2 - low / 2) / span
    counts = np.bincount(np.minimum((share * BINS).astype(np.int64), BINS - 1), minlength=BINS).tolist()
    told = "Facts of train by weight. The table of relations has the same for each of them, from its least to its most."
    return figure([bars("Weights of train", counts, low, high)], told)


def findings(audit: GraphStatistics, graph: Graph) -> list[str]:
    """What the audit's numbers mean, one sentence each."""
    return [*_about_weights(audit, graph), *_about_rows(audit), *_about_sizes(audit, graph), *_about_leaks(audit)]


def _share(part: int, whole: int) -> str:
    """'12 of 345 (3.5 %)'."""
    return f"{part:,} of {whole:,} ({percent(part / max(whole, 1), 1)})"


def _about_weights(audit: GraphStatistics, graph: Graph) -> list[str]:
    if not audit.weighted:
        return ["There are no weights: training sees every fact alike, and deciles by weight say nothing."]
    if audit.all_weights_equal:
        return [f"All weights are {audit.weight_min:g}: they can guide nothing."]
    single = sum(one.weight_min == one.weight_max for one in audit.per_relation)
    lines = []
    if single:
        lines.append(f"In {_share(single, audit.relations)} relations all weights are the same.")
    ranges = [one.weight_max - one.weight_min for one in audit.per_relation if one.weight_max > one.weight_min]
    if len(ranges) > 1 and max(ranges) > 20 * min(ranges) and max(ranges) > 1:
        lines.append("Relations differ widely in the range of their weights: each is taken by its own range.")
    if graph.lower_is_better:
        lines.append("Lower weights are the stronger ones.")
    return lines


def _about_rows(audit: GraphStatistics) -> list[str]:
    lines = []
    if audit.repeated_rows:
        other = f", {audit.repeated_with_other_weight:,} triples with different weights"
        other = other if audit.repeated_with_other_weight else ", always with the same weight"
        lines.append(f"{_share(audit.repeated_rows, audit.edges)} rows of train repeat a triple{other}.")
    else:
        lines.append("No triple of train is repeated.")
    if audit.rows_with_inverse:
        same = audit.rows_with_same_relation_inverse
        lines.append(
            f"{_share(audit.rows_with_inverse, audit.edges)} rows of train have an edge back from tail to head, "
            f"{same:,} of them by the same relation."
        )
    else:
        lines.append("No edge of train has one back.")
    if audit.self_loops:
        lines.append(f"{counted(audit.self_loops, 'edges', 'lead')} from an entity to itself.")
    return lines


def _about_sizes(audit: GraphStatistics, graph: Graph) -> list[str]:
    degree = np.bincount(np.concatenate([graph.head, graph.tail]), minlength=audit.entities)
    lines = []
    if audit.relations > 1:
        first, few = audit.per_relation[0], sum(one.edges < FEW for one in audit.per_relation)
        small = f" {counted(few, 'relations', 'have')} fewer than {FEW} facts." if few else ""
        lines.append(
            f"The most frequent relation, {isolated(first.name)}, has {percent(first.edges / audit.edges, 1)} of "
            f"the facts.{small}"
        )
    once = int((degree == 1).sum())
    rare = f"; {_share(once, audit.entities)} stand in but one" if once else ""
    lines.append(
        f"An entity stands in {np.median(degree):g} facts of train (median), at most in {degree.max():,}{rare}."
    )
    return lines


def _about_leaks(audit: GraphStatistics) -> list[str]:
    lines = []
    for name, found in audit.leakage.items():
        same, back, total = found.same_triple, found.inverse_edge, found.rows
        if not same and not back:
            lines.append(f"Nothing of {name} can be looked up in train: no same triple, and no edge back.")
            continue
        clean = f"{_share(found.neither_duplicate_nor_inverse, total)} are free of both"
        lines.append(
            f"Of {name}, {counted(same, 'triples', 'stand')} in train, and {back:,} have an edge back there; {clean}."
        )
    return lines


def _leakage(found: dict[str, Leakage]) -> str:
    if not found:
        return ""
    names = {
        "triples": "rows",
        "the same triple in train": "same_triple",
        "the same triple with the same weight": "same_triple_and_weight",
        "an edge back, by any relation": "inverse_edge",
        "an edge back, by the same relation": "inverse_of_same_relation",
        "the same pair by another relation": "same_pair_other_relation",
        "neither the same triple nor an edge back": "neither_duplicate_nor_inverse",
    }
    rows = [[text, *(f"{getattr(part, key):,}" for part in found.values())] for text, key in names.items()]
    rows.append(["left out: names that train lacks", *(f"{part.unseen.rows:,}" for part in found.values())])
    return table(["", *found], rows, caption="What of the held-out triples train gives away")
