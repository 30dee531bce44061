"""focuse: embeddings of knowledge graphs whose edges carry numbers."""

__version__ = "0.1.0"
