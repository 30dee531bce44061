"""How often are links true, by the probability that is given for them?

    python benchmarks/reliability.py RUN TEST

RUN was trained with validation triples and does not know the triples of TEST. Three tables show bins of the probability
with the number of new links, the mean probability and the share of true ones:

- `predict`: the ten best new completions of random queries (head, relation, ?) and (?, relation, tail) of train,
  whether or not these have answers in TEST;
- `discover`: the 5,000 most probable new links;
- the explorer: the same queries as `predict`, a sample of them over HTTP, whose numbers must be equal.

A link counts as true if TEST has it. Probabilities are those of a graph that lacks as many links as validation holds.
If TEST has more or fewer, each of its links counts as if it had as many; the plain share is the last column. Bins of
100 links and more whose share differs from the mean probability by more than .05 are marked with '!', and the last
line counts them.
"""

import argparse
from itertools import pairwise

import numpy as np
import smoke

import focuse
from focuse.data.graph import Graph
from focuse.results import ResultTable

EDGES = (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.001)
QUERIES, ANSWERS, LINKS, ASKED = 1_500, 10, 5_000, 20
MIN_LINKS, TOLERANCE = 100, 0.05


def queries(train: Graph, random: np.random.Generator) -> list[tuple[str | None, str, str | None]]:
    """Random queries of train for tails and for heads, each distinct one as likely."""
    asked: list[tuple[str | None, str, str | None]] = []
    for side in ("head", "tail"):
        pairs = np.unique(np.stack([getattr(train, side), train.relation], axis=1), axis=0)
        for entity, relation in pairs[random.permutation(len(pairs))[:QUERIES]].tolist():
            name, kind = train.entities[entity], train.relations[relation]
            asked.append((name, kind, None) if side == "head" else (None, kind, name))
    return asked


def links(found: ResultTable, train: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The keys of distinct links [n] and their probabilities."""
    table = found.to_arrow()
    ends = (train.entities.ids(table["head"].combine_chunks()), train.entities.ids(table["tail"].combine_chunks()))
    keys = train.keys_of(ends[0], train.relations.ids(table["relation"].combine_chunks()), ends[1])
    keys, first = np.unique(keys, return_index=True)
    return keys, table["probability"].to_numpy()[first]


def table(name: str, keys: np.ndarray, chance: np.ndarray, test: np.ndarray, size: float) -> int:
    """Print the table of a command, and return the number of bins that differ too much."""
    true, differing = np.isin(keys, test), 0
    print(f"\n| {name} | links | probability | true | in test |\n| --- | ---: | ---: | ---: | ---: |")
    for low, high in pairwise(EDGES):
        rows = (chance >= low) & (chance < high)
        count = int(rows.sum())
        if not count:
            continue
        mean, plain = float(chance[rows].mean()), float(true[rows].mean())
        differs = count >= MIN_LINKS and abs(mean - size * plain) > TOLERANCE
        differing += differs
        mark = " !" if differs else ""
        print(f"| {low:g} to {min(high, 1):g} | {count:,} | {mean:.3f} | {size * plain:.3f}{mark} | {plain:.3f} |")
    return differing


def explored(run: focuse.Run, asked: list[tuple[str | None, str, str | None]]) -> float:
    """The largest difference of the explorer's probabilities, over HTTP, from those of `predict`."""
    from starlette.testclient import TestClient

    from focuse.explorer.app import make_app
    from focuse.explorer.service import Explorer, Service

    largest = 0.0
    with TestClient(make_app(Service([Explorer(run, "run")])), base_url="http://127.0.0.1") as client:
        for head, relation, tail in asked:
            parts = {"head": head, "relation": relation, "tail": tail}
            question = {part: name for part, name in parts.items() if name is not None}
            answer = client.post("/api/predict", json=question | {"top": ANSWERS, "new_only": True}).json()
            said = {(row["head"], row["tail"]): row["probability"] for row in answer["links"]}
            for row in run.predict(head, relation, tail, ANSWERS, new_only=True):
                largest = max(largest, abs(said[row.head, row.tail] - row.probability))
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a trained run")
    parser.add_argument("test", metavar="TEST", help="a file of true links that the run does not know")
    parser.add_argument("--seed", type=int, default=0, help="of the queries")
    options = smoke.parse(parser)
    run = smoke.train() if options.smoke else focuse.load(options.run, "cpu")
    train, valid = run.graph, run.splits.valid
    test = run.splits.test if options.smoke else focuse.read(options.test).align(train).graph
    known = np.concatenate([train.keys, valid.keys])
    truth, held = np.setdiff1d(test.keys, known), np.setdiff1d(valid.keys, train.keys)
    size = len(held) / len(truth)
    print(f"{len(held):,} new links in validation, {len(truth):,} in test")
    asked = queries(train, np.random.default_rng(options.seed))
    predicted = links(run.predict_batch(asked, ANSWERS, new_only=True), train)
    found = links(run.discover(top=LINKS), train)
    differing = table("predict", *predicted, truth, size) + table("discover", *found, truth, size)
    difference = explored(run, asked[:: max(1, len(asked) // ASKED)])
    print(f"\nlargest difference of the explorer from predict: {difference:.1e}")
    print(f"bins of {MIN_LINKS} links and more that differ by more than {TOLERANCE:g}: {differing}")


if __name__ == "__main__":
    main()
