"""Likely and strong links of one training: the same questions, asked twice.

    python examples/likely_strong.py [GRAPH]

Without GRAPH the embedded careers graph is used.
"""

import sys

import focuse
from focuse.data.datasets import careers


def main() -> None:
    graph = focuse.read(sys.argv[1]) if len(sys.argv) > 1 else careers()
    run = focuse.train(graph, dim=50, epochs=20, progress=False)

    for name, found in run.evaluate().compared.items():
        print(
            f"{name:18}  MRR {found.all.mrr:.3f}  strongest tenth {found.top.mrr:.3f}  weakest {found.bottom.mrr:.3f}"
        )

    head, relation = graph.entities[int(graph.head[0])], graph.relations[int(graph.relation[0])]
    for prefer in ("likely", "strong", 0.5):  # 0.5 is halfway between the two
        links = run.predict(head=head, relation=relation, new_only=True, top=3, prefer=prefer)
        print(f"{prefer}: {head} {relation}", *(f"{link.tail} ({link.weight_mean:.2f})" for link in links), sep=" | ")


if __name__ == "__main__":
    main()
