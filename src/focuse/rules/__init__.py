"""Soft logic: rules over a weighted graph, what they infer, and which ones a graph suggests."""
