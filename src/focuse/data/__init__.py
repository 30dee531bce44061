"""Weighted graphs: reading, writing, weights, splits and the index of known triples."""
