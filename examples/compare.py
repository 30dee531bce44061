"""Does the number on an edge matter in training? The same model without weights, with FocusE and with soft labels.

    python examples/compare.py [GRAPH]

Without GRAPH the embedded careers graph is used.
"""

import sys

import focuse
from focuse.data.datasets import careers
from focuse.demo import FOCUSED, LABELS, PLAIN

MODELS = {"plain": PLAIN, "FocusE": FOCUSED, "soft labels": LABELS}


def main() -> None:
    graph = focuse.read(sys.argv[1]) if len(sys.argv) > 1 else careers()
    for name, settings in MODELS.items():
        result = focuse.train(graph, progress=False, **settings).evaluate()
        mrr = f"MRR {result.all.mrr:.3f}  top {result.top.mrr:.3f}  bottom {result.bottom.mrr:.3f}"
        print(f"{name:11}  {mrr}  ΔMRR {result.delta_mrr:.3f}")


if __name__ == "__main__":
    main()
