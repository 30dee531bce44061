"""How often are missing links facts, by the probability that is said of them?

    python benchmarks/chances.py RUN

Draws links of every relation between entities that stand where train has them, all of them or 40,000, leaves out what
train and validation hold, and adds every test fact, standing for all that was held out. Prints a Markdown table of bins
of the usual probability (`focuse predict`) and of discovery's: how many links, what was said of them on average, and
which share of them are facts.
"""

import argparse
from itertools import pairwise

import numpy as np
import smoke

import focuse
from focuse.inference.discover import discovery_predictor
from focuse.inference.link_search import CandidateSpace

MOST = 40_000
BINS = (0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.01)


def links(run: focuse.Run) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Heads, relations, tails, how many links each stands for, and whether it is a fact; [n] each."""
    graph, random = run.graph, np.random.default_rng(0)
    space = CandidateSpace(graph, np.arange(len(graph.relations)))
    ends = [space.ends(kind) for kind in range(len(graph.relations))]
    pairs = np.array([len(heads) * len(tails) for heads, tails in ends])
    share = min(MOST / pairs.sum(), 1.0)
    counts = np.maximum((pairs * share).astype(int), 1)
    head = np.concatenate([random.choice(heads, count) for (heads, _), count in zip(ends, counts, strict=True)])
    tail = np.concatenate([random.choice(tails, count) for (_, tails), count in zip(ends, counts, strict=True)])
    relation = np.repeat(np.arange(len(counts)), counts)
    weight = np.repeat(pairs / counts, counts)
    valid, test = run.splits.valid, run.splits.test
    known = np.concatenate([part.keys for part in (graph, valid, test)])
    new = ~np.isin(graph.keys_of(head, relation, tail), known) & (head != tail)
    stands_for = (len(valid) + len(test)) / len(test)
    columns = zip((head, relation, tail), (test.head, test.relation, test.tail), strict=True)
    head, relation, tail = (np.concatenate([drawn[new], facts]) for drawn, facts in columns)
    weight = np.concatenate([weight[new], np.full(len(test), stands_for)])
    return head, relation, tail, weight, np.arange(len(head)) >= new.sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a trained run")
    options = smoke.parse(parser)
    run = smoke.train() if options.smoke else focuse.load(options.run, "cpu")
    *ids, weight, true = links(run)
    said = {
        "usual": run.weight_predictor(full=True).probable(*ids),
        "discovery": discovery_predictor(run).probable(*ids),
    }
    print("| said | " + " | ".join(f"{name}: links | {name}: said, true" for name in said) + " |")
    print("| --- |" + " ---: | ---: |" * len(said))
    for low, high in pairwise(BINS):
        cells = [f"{low:g} to {min(high, 1):g}"]
        for chance in said.values():
            rows = (chance >= low) & (chance < high)
            many = weight[rows].sum()
            cells.append(f"{many:,.0f}")
            mean = [f"{np.average(part[rows], weights=weight[rows]):.3f}" for part in (chance, true)] if many else [""]
            cells.append(", ".join(mean))
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
