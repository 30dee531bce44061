"""What would a missing link weigh? A weight from any model, and how good it is.

    python examples/weights.py [GRAPH]

Without GRAPH the embedded careers graph is used.
"""

import sys

import focuse
from focuse.data.datasets import careers


def main() -> None:
    graph = focuse.read(sys.argv[1]) if len(sys.argv) > 1 else careers()
    run = focuse.train(graph, dim=20, epochs=6, eval_every=3, progress=False)

    head, relation = graph.entities[int(graph.head[0])], graph.relations[int(graph.relation[0])]
    for link in run.predict(head=head, relation=relation, top=5, new_only=True):
        print(f"{link.head} | {link.relation} | {link.tail}: ", end="")
        print(f"would weigh {link.weight_mean:.2f} as a fact; confidence {link.confidence:.2f}")

    for method in ("isotonic", "platt"):
        run.calibrate(method)
        rows = run.evaluate_weights().rows
        ours, mean = rows[f"complex, {method}"]["positives"], rows["relation mean"]["positives"]
        print(f"{method}: MSE {ours.errors.mse:.4f}, by the relation's mean alone {mean.errors.mse:.4f}")


if __name__ == "__main__":
    main()
