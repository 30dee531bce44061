"""Files as other tools write them, and one table as a file and in memory: each is read the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.errors import FocuseError

TABLES = Path(__file__).parent.parent / "fixtures" / "tables"


def first(graph: Graph) -> tuple[Any, ...]:
    return tuple(graph.to_arrow().to_pylist()[0].values())


# File: edges, entities, relations, first edge, whether edges are undirected, and what the notes say.
EXPECTED: dict[str, tuple[Any, ...]] = {
    "graphrag_relationships.parquet": (
        5, 5, 1, ("ADA LOVELACE", "graphrag_relationships", "ANALYTICAL ENGINE", 9.0), False, "'combined_degree'",
    ),
    "lightrag.graphml": (5, 5, 1, ("Ada Lovelace", "related", "Analytical Engine", 9.0), True, "'keywords'"),
    "igraph.graphml": (5, 5, 1, ("Ada Lovelace", "related", "Analytical Engine", 9.0), False, "names or labels"),
    "networkx_node_link.json": (7, 5, 1, ("Valjean", "networkx_node_link", "Fantine", 9.0), True, "list 'links'"),
    "pandas_records.jsonl": (3, 3, 2, ("P04637", "binds", "Q00987", 0.999), False, ""),
    "pandas_columns.json": (3, 3, 2, ("P04637", "binds", "Q00987", 0.999), False, ""),
    "pandas.xlsx": (3, 3, 2, ("P04637", "binds", "Q00987", 0.999), False, "sheet 'links' was read, not 'proteins'"),
    "scipy_general.mtx": (4, 4, 1, ("1", "scipy_general", "2", 0.5), False, "numbered from 1"),
    "scipy_symmetric.mtx": (4, 3, 1, ("1", "scipy_symmetric", "2", 3.0), True, "--separate-ids"),
    "scipy_pattern.mtx": (3, 6, 1, ("row 1", "scipy_pattern", "column 5", 1.0), False, "--same-ids merges them"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_other_tools_are_read(name: str) -> None:
    *sizes, edge, undirected, note = EXPECTED[name]
    graph = read(TABLES / name)
    assert [len(graph), len(graph.entities), len(graph.relations)] == sizes
    assert first(graph) == edge
    assert graph.undirected is (True if undirected else None)
    assert note in " ".join(graph.notes)


def test_every_file_of_other_tools_is_described_and_tested() -> None:
    text = (TABLES / "README.md").read_text(encoding="utf-8")
    names = {path.name for path in TABLES.iterdir()} - {"README.md"}
    assert names == {*EXPECTED}
    assert [name for name in names if f"`{name}`" not in text] == []


def test_the_keywords_of_lightrag_can_be_relations() -> None:
    graph = read(TABLES / "lightrag.graphml", relation="keywords")
    assert first(graph)[1] == "programming,notes"


# ---- one table in several forms -------------------------------------------------------------------------------------
HEADED = pandas.DataFrame(
    {
        "userId": [1, 2, 3, 1, 2],
        "movieId": [1, 10, 2, 2, 1],
        "rating": [4.5, 3.0, 2.5, 5.0, 1.0],
        "timestamp": [964982703, 964981247, 964982224, 964983815, 964982931],
    }
)
TEXT = pandas.DataFrame({"weight": [0.5, 0.25], "target": ["b", "c"], "source": ["a", "b"], "label": ["r", "s"]})
FORMS: dict[str, Callable[[pandas.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: polars.from_pandas(frame),
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "array": lambda frame: frame.to_records(index=False),
    "dicts": lambda frame: frame.to_dict("records"),
}
FILES: dict[str, Callable[[pandas.DataFrame, Path], Any]] = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "parquet": lambda frame, path: frame.to_parquet(path),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "json": lambda frame, path: frame.to_json(path),
    "xlsx": lambda frame, path: frame.to_excel(path, index=False),
}
ASKED: list[dict[str, Any]] = [
    {},
    {"relation_name": "likes", "same_ids": True},
    {"same_ids": False},
    {"weight": "none"},
]


def comparable(graph: Graph, where: str) -> tuple[Any, ...]:
    """What was read, and the notes with the place and the way to write options of a file."""
    notes = [note.replace(f"{where}: ", "") for note in graph.notes]
    options = {"--same-ids": "same_ids=True", "--separate-ids": "same_ids=False", "--relation-name": "relation_name"}
    for option, keyword in {
        **options,
        **{f"--{name}": name for name in ("head", "relation", "tail", "weight")},
    }.items():
        notes = [note.replace(option, keyword) for note in notes]
    names = [list(graph.entities), list(graph.relations), graph.weight_name, graph.one_relation]
    return (
        *names,
        *(np.asarray(getattr(graph, each)).tolist() for each in ("head", "tail", "relation", "weight")),
        notes,
    )


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("frame", [HEADED, TEXT], ids=["ratings", "text"])
def test_a_frame_is_read_like_the_same_table_in_a_file(frame: Any, asked: dict[str, Any], tmp_path: Path) -> None:
    if frame is TEXT and "relation_name" in asked:
        asked = {"relation": "none", **asked}
    found = {}
    for suffix, write in FILES.items():
        path = tmp_path / f"edges.{suffix}"  # a name that gives no relation
        write(frame, path)
        found[suffix] = comparable(read(path, **asked), str(path))
    for name, make in FORMS.items():
        found[name] = comparable(read(make(frame), **asked), {"array": "array", "dicts": "rows"}.get(name, "frame"))
    for name, reading in found.items():
        assert reading == found["csv"], name


@pytest.mark.parametrize("make", FORMS.values(), ids=FORMS)
def test_columns_of_tables_in_memory_are_named_by_keywords(make: Any) -> None:
    frame = pandas.DataFrame({"a": ["x", "y"], "b": ["y", "z"], "c": ["r", "s"], "n": [1, 2], "m": [0.5, 0.25]})
    graph = read(make(frame), head="b", tail="a", relation="c", weight="m")
    assert [tuple(row.values()) for row in graph.to_arrow().to_pylist()] == [
        ("y", "r", "x", 0.5),
        ("z", "s", "y", 0.25),
    ]
    with pytest.raises(FocuseError, match="no column 'q'"):
        read(make(frame), head="q")
