"""Does the number on an edge matter? Train the same model plain and focused, and compare.

    python examples/compare.py [GRAPH]

Without GRAPH the embedded careers graph is used.
"""

import sys

import focuse
from focuse.data.datasets import careers
from focuse.demo import MODELS


def main() -> None:
    graph = focuse.read(sys.argv[1]) if len(sys.argv) > 1 else careers()
    for name, settings in MODELS.items():
        result = focuse.train(graph, progress=False, **settings).evaluate()
        print(f"{name:16} top {result.top.mrr:.3f}  bottom {result.bottom.mrr:.3f}  ΔMRR {result.delta_mrr:.3f}")


if __name__ == "__main__":
    main()
