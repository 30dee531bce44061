"""Why does a model believe in a link? Train on the careers graph, take its best new suggestion, and explain it.

    python examples/explain.py [GRAPH HEAD RELATION]

Without arguments the embedded careers graph is used.
"""

import sys

import focuse
from focuse.paper.demo import careers


def main() -> None:
    graph, head, relation = sys.argv[1:4] if len(sys.argv) > 3 else (careers(), "Ward Nurse", "requires skill")
    run = focuse.train(graph, dim=40, epochs=15, label_exponent=2.0, progress=False)
    best = run.predict(head=head, relation=relation, top=1, new_only=True)[0]
    found = run.explain(best.head, best.relation, best.tail, top=3)
    print(found)
    strongest = found.supporting[0]
    print(f"\nwithout {strongest.tail!r} the score would change by {strongest.change:+.2f}")


if __name__ == "__main__":
    main()
