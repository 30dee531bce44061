"""What does a graph lack, and who is like whom? Missing links, neighbours, groups, near-duplicates, an analogy.

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

    links = run.discover(top=200, per_head=3)
    links.write("links.tsv")
    print(f"{links.scored:,} links scored; the most probable ones:")
    for link in links[:5]:
        print(
            f"  {link.head} | {link.relation} | {link.tail}: {link.probability:.2f}, weight {link.expected_weight:.2f}"
        )

    head, tail = (graph.entities[int(ids[0])] for ids in (graph.head, graph.tail))
    near = run.similar(head, top=3)
    print(f"like {head}: {', '.join(row.neighbour for row in near)}")

    groups = run.clusters(8)
    groups.write("clusters.tsv")
    print(f"the largest of {len(groups)} groups: {', '.join(groups[0].central)}")

    print(run.duplicates(top=3))
    print(run.analogies(head, tail, near[0].neighbour, top=3))

    queries = [(row.neighbour, graph.relations[int(graph.relation[0])], None) for row in near]
    for answer in run.predict_batch(queries, top=1, new_only=True):
        print(f"query {answer.query}: {answer.head} | {answer.relation} | {answer.tail}")


if __name__ == "__main__":
    main()
