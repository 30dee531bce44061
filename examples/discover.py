"""Missing links of a graph, similar entities, clusters, near-duplicates, an analogy and a batch of queries.

    python examples/discover.py [GRAPH]

Without GRAPH a third of the embedded careers graph is used. Writes links.tsv and clusters.tsv.
"""

import sys

import numpy as np

import focuse
from focuse.data.datasets import careers


def main() -> None:
    graph = focuse.read(sys.argv[1]) if len(sys.argv) > 1 else careers().select(np.arange(0, 10_000, 3))
    run = focuse.train(graph, dim=20, epochs=6, eval_every=3, progress=False)

    links = run.discover(top=200, max_per_head=3)
    links.write("links.tsv")
    print(f"{links.scored:,} links scored; the most probable ones:")
    print(links[:5])

    head, tail = (graph.entities[int(ids[0])] for ids in (graph.head, graph.tail))
    near = run.similar(head, top=3)
    print(f"similar to {head}: {', '.join(row.neighbor for row in near)}")

    clusters = run.clusters(8)
    clusters.write("clusters.tsv")
    print(clusters.summary)

    print(run.duplicates(top=3))
    print(run.analogies(head, tail, near[0].neighbor, top=3))

    queries = [(row.neighbor, graph.relations[int(graph.relation[0])], None) for row in near]
    print(run.predict_batch(queries, top=1, new_only=True))


if __name__ == "__main__":
    main()
