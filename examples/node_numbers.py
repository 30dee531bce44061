"""Numbers on nodes: years of birth tell who may have taught whom, where the graph itself says little.

    python examples/node_numbers.py [GRAPH NUMBERS]

Without files a small world of painters is made up: a master is 25 to 30 years older than a pupil.
"""

import random
import sys

import focuse

SETTINGS = {
    "dim": 16,
    "epochs": 16,
    "negative_sampling": "all",
    "regularizer": "l3:0.1",
    "eval_every": 4,
    "progress": False,
}


def painters(count: int = 300) -> tuple[list[tuple[str, str, str, float]], list[tuple[str, str, float]]]:
    """Edges (master, taught, pupil, years together) and numbers (painter, born, year); a few years are unknown."""
    chance = random.Random(0)
    born = {f"painter {number}": chance.uniform(1500, 1700) for number in range(count)}
    edges = []
    for master, year in born.items():
        pupils = [pupil for pupil, other in born.items() if 25 < other - year < 30]
        for pupil in chance.sample(pupils, min(2, len(pupils))):
            edges.append((master, "taught", pupil, float(chance.randint(1, 7))))
    return edges, [(name, "born", year) for name, year in born.items() if chance.random() < 0.9]


def main() -> None:
    graph, numbers = (sys.argv[1], sys.argv[2]) if len(sys.argv) > 2 else painters()
    for model in ("distmult", "kblrn"):
        given = {"node_attributes": numbers} if model == "kblrn" else {}
        found = focuse.train(graph, model=model, weight_mode="focuse", **given, **SETTINGS).evaluate()
        print(f"{model:9} MRR {found.all.mrr:.3f}, mean rank {found.all.mr:.0f}, ΔMRR {found.delta_mrr:.3f}")


if __name__ == "__main__":
    main()
