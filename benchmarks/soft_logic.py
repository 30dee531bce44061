"""Transitivity grounded by us against the soft-logic files that UKGE shipped with its benchmark graphs.

    FOCUSE_DATA=folder python benchmarks/soft_logic.py [ppi5k nl27k cn15k]

Prints two Markdown tables: the comparison, and times of grounding and mining.
"""

import argparse
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import smoke

import focuse
from focuse.rules.augmentation import read_soft_logic
from focuse.rules.grammar import parse_rules, quoted
from focuse.rules.grounding import ground
from focuse.rules.mining import mine


@dataclass(frozen=True)
class Recipe:
    """How a shipped file was made, as far as its numbers tell."""

    truth: float  # of the rule
    edges_above: float  # both body edges weigh more than this
    least: float  # inferred confidence
    digits: int  # of the shipped numbers that are compared


RECIPES = {
    "ppi5k": Recipe(1.0, 0.9, 0.8, 3),
    "nl27k": Recipe(1.0, 0.9, 0.8, 3),
    "cn15k": Recipe(0.5, 0.85, 0.3, 6),
}


@dataclass(frozen=True)
class Comparison:
    """One relation of one file. A row is a triple with its confidence; both sides may hold it several times."""

    data: str
    relation: str
    shipped: int  # rows of the file
    shipped_triples: int
    all_edges: int  # our groundings that are at least as confident as the file's weakest, whatever their edges
    ours: int  # our groundings by the recipe
    ours_triples: int
    missing: int  # shipped rows that we do not have
    missing_of_repeats: int  # … that we would have, had we kept every weight of a repeated triple
    extra: int  # our rows that are not shipped
    extra_through_repeats: int  # … whose body uses a triple that train repeats
    ours_through_repeats: int


def compare(name: str) -> list[Comparison]:
    """Every relation of a shipped file: what we infer by transitivity against what it holds."""
    train = focuse.datasets.load(name).train
    shipped = read_soft_logic(focuse.datasets.path(name) / "softlogic.tsv.gz", train).graph
    return [
        _compare(name, train, shipped.select(shipped.relation == relation)) for relation in np.unique(shipped.relation)
    ]


def _compare(name: str, train: focuse.Graph, shipped: focuse.Graph) -> Comparison:
    recipe, kind = RECIPES[name], int(shipped.relation[0])
    relation = train.relations[kind]
    atom = quoted(relation)
    rules = parse_rules(f"{atom}(x, y) & {atom}(y, z) -> {atom}(x, z) : {recipe.truth}")
    body = recipe.least + 1.0 - recipe.truth
    [found] = ground(train.select(train.weight > recipe.edges_above), rules, minimum=body)
    weakest = float(shipped.weight.min()) + 1.0 - recipe.truth
    [unlimited] = ground(train, rules, minimum=weakest, limit=10_000_000)
    theirs = _rows(shipped.head, shipped.tail, shipped.weight, recipe.digits)
    ours = _rows(found.head, found.tail, found.confidence, recipe.digits)
    own = train.select((train.relation == kind) & (train.weight > recipe.edges_above))
    x, y, z, confidence = _every_weight(own, recipe)
    counts = Counter(train.keys[train.relation == kind].tolist())
    repeated = np.array(
        [
            max(counts[left], counts[right]) > 1
            for left, right in zip(
                train.keys_of(x, np.full(len(x), kind), y).tolist(),
                train.keys_of(y, np.full(len(x), kind), z).tolist(),
                strict=True,
            )
        ]
    )
    once = _rows(x[~repeated], z[~repeated], confidence[~repeated], recipe.digits)
    through_repeats = ours - once
    return Comparison(
        name,
        relation,
        len(shipped),
        len(np.unique(shipped.keys)),
        len(unlimited),
        len(found),
        found.num_triples,
        (theirs - ours).total(),
        ((theirs - ours) & _rows(x, z, confidence, recipe.digits)).total(),
        (ours - theirs).total(),
        (through_repeats - theirs).total(),
        through_repeats.total(),
    )


def _rows(head: np.ndarray, tail: np.ndarray, confidence: np.ndarray, digits: int) -> Counter:
    return Counter(zip(head.tolist(), tail.tolist(), np.round(confidence, digits).tolist(), strict=True))


def _every_weight(edges: focuse.Graph, recipe: Recipe) -> tuple[np.ndarray, ...]:
    """x, y, z and confidence of all paths, repeated triples with each of their weights: a plain join of its own."""
    order = np.argsort(edges.head, kind="stable")
    heads = edges.head[order]
    low, high = np.searchsorted(heads, edges.tail, "left"), np.searchsorted(heads, edges.tail, "right")
    left = np.repeat(np.arange(len(edges)), high - low)
    right = order[np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])]
    confidence = edges.weight[left] + edges.weight[right] - 2.0 + recipe.truth
    kept = confidence >= recipe.least - 1e-9
    left, right = left[kept], right[kept]
    return edges.head[left], edges.tail[left], edges.tail[right], confidence[kept]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(RECIPES))
    given = smoke.parse(parser)
    if given.smoke:
        smoke_run()
    names = given.names
    headings = (
        "| data | relation | shipped rows (triples) | weakest upward, any edges | edges above | ours (triples) "
        "| shipped, not ours | … from a repeat's other weight | ours, not shipped | … through a repeat |"
    )
    print(headings)
    print("| --- " * headings.count(" | ") + "| --- |")
    for name in names:
        for one in compare(name):
            print(
                f"| {name} | {one.relation} | {one.shipped:,} ({one.shipped_triples:,}) | {one.all_edges:,} "
                f"| {RECIPES[name].edges_above:g} | {one.ours:,} ({one.ours_triples:,}) | {one.missing:,} "
                f"| {one.missing_of_repeats:,} | {one.extra:,} "
                f"| {one.extra_through_repeats:,} of {one.ours_through_repeats:,} |"
            )
    print("\n| data | grounding, s | mining, s | symmetry | inverse | transitivity | composition | first steps taken |")
    print("| --- " * 8 + "|")
    for name in names:
        print(_times(name, focuse.datasets.load(name).train), flush=True)


def smoke_run() -> None:
    """Both tables of a chain, whose transitive edge stands for a shipped file."""
    train = focuse.read([("a", "r", "b", 0.95), ("b", "r", "c", 0.95), ("a", "r", "c", 0.9)])
    print(_compare("ppi5k", train, train.select(train.weight < 0.95)))
    print(_times("chain", train))
    smoke.missing("files that UKGE shipped (FOCUSE_DATA)")


def _times(name: str, train: focuse.Graph) -> str:
    largest = quoted(train.relations[int(np.bincount(train.relation).argmax())])
    start = time.perf_counter()
    ground(train, f"{largest}(x, y) & {largest}(y, z) -> {largest}(x, z)")
    grounding = time.perf_counter() - start
    start = time.perf_counter()
    mined = mine(train)
    mining = time.perf_counter() - start
    shapes = Counter(one.shape for one in mined)
    counted = " | ".join(str(shapes[shape]) for shape in ("symmetry", "inverse", "transitivity", "composition"))
    walked = mined.notes[-1].rsplit("only, ", 1)[1].split()[0] if mined.notes else "all"
    return f"| {name} | {grounding:.2f} | {mining:.1f} | {counted} | {walked} |"


if __name__ == "__main__":
    main()
