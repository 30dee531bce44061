"""A career that training has never seen: five of its edges are enough for predictions."""

from __future__ import annotations

import numpy as np

import focuse
from focuse.data.datasets import careers

graph = careers()
graph = graph.select(np.arange(0, len(graph), 3))
unseen = graph.entities.id("Geneticist")
mine = (graph.head == unseen) | (graph.tail == unseen)
edges = graph.select(mine)

run = focuse.train(graph.select(~mine), dim=20, epochs=10, label_exponent=1.0, progress=False)
known, rest = edges.select(np.arange(5)), edges.select(np.arange(5, len(edges)))
wider = focuse.extend(run, known, progress=False)

print("given:")
for row in known.to_arrow().to_pylist():
    print("  ", *row.values())
print("predicted:")
print(wider.predict(head="Geneticist", relation=known.relations[int(known.relation[0])], top=5, new_only=True))
print(f"MRR of its other {len(rest)} edges: {wider.evaluate(rest).all.mrr:.3f}")
print("extended:", wider.extended[0])
