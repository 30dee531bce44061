"""Every target by its name, and the share of the cases that it gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzzing import folders, formats, structured, text, words

Call = Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """`make` prepares a folder and returns what reads a case, with seeds: valid files, and bad ones known."""

    make: Callable[[Path], tuple[Call, list[bytes]]]
    share: float


TARGETS = {
    "text": Target(text.texts, 16),
    "packed": Target(text.packed, 8),
    "graphs": Target(structured.graphs_target, 6),  # hostile names, written and read again
    "numbers": Target(text.numbers, 6),
    "relation_weights": Target(text.relation_weights, 4),
    "questions": Target(text.questions, 4),
    "parquet": Target(formats.parquet, 6),
    "rdf": Target(formats.rdf, 12),
    "graphml": Target(formats.graphml, 8),
    "tables": Target(formats.tables, 6),  # JSON, Matrix Market and Excel
    "rules": Target(words.rules, 8),
    "settings": Target(words.settings, 5),
    "words": Target(words.words, 4),
    "spaces": Target(words.spaces, 3),
    "lists": Target(words.lists, 3),
    "archives": Target(folders.archives, 4),
    "runs": Target(folders.runs, 1.5),
}
