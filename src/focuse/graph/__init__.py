"""Weighted graphs: reading and writing, names, weights, splits, audit."""

from focuse.graph.graph import Aligned, Graph, Unseen, from_columns
from focuse.graph.reading import read
from focuse.graph.vocabulary import Vocabulary

__all__ = ["Aligned", "Graph", "Unseen", "Vocabulary", "from_columns", "read"]
