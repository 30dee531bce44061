"""Reading weighted graphs from text and Parquet files, frames and NetworkX graphs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from focuse.errors import FocuseError, counted, nearest
from focuse.graph.annotations import Options
from focuse.graph.cache import remember, scratch_folder
from focuse.graph.columns import Columns
from focuse.graph.diagnosis import MISSING, NOT_A_NUMBER, first_fault, weight_fault
from focuse.graph.graph import Graph, from_columns, join
from focuse.graph.graphml import is_graphml, read_graphml
from focuse.graph.iris import BASE
from focuse.graph.layout import Layout, choose_places, detect
from focuse.graph.memory import free_memory
from focuse.graph.opening import open_bytes, packing, parquet_file, parquet_table
from focuse.graph.rdf import rdf_kind, read_rdf
from focuse.graph.sql import data_base, is_sql, read_sql
from focuse.graph.streaming import stream
from focuse.graph.tables import from_networkx, from_table, table_blocks, to_column
from focuse.graph.vocabulary import Vocabulary

SAMPLE_BYTES = 1 << 16
# Large blocks mean few partial dictionaries to unify: 16 MiB measured fastest on 5 million rows.
BLOCK_BYTES = 1 << 24
STREAMED_BYTES = 1 << 28  # larger text goes to disk column by column and is never whole in memory; a quarter if packed
CACHED_BYTES = 1 << 20  # smaller text is read sooner than it is worth the room; packed a quarter of it
Chosen = tuple[Any, Any]  # the user's columns and weights


def read(
    source: Any,
    *,
    columns: Sequence[str | int] | None = None,
    weights: Sequence[str | int] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    relation_weights: Mapping[str, float] | str | Path | None = None,
    query: str | None = None,
    missing: float | str | None = None,
    literals: str = "skip",
    shorten: bool = False,
    base: str = BASE,
    cache: bool = True,
) -> Graph:
    """Read a weighted graph: head, relation, tail and (optionally) weight.

    `source` is a file (TSV, CSV, plain or gzip or zstd; Parquet; RDF; GraphML), a data base (sqlite:///…, duckdb:///…,
    postgresql://…, with a `query`), a pandas or polars frame, an Arrow table, a NetworkX graph, rows of tuples, or a
    function that gives one of these.
    Delimiter, header and compression are found by looking. `columns` names the three or four columns to use, by heading
    or counted from 1. Without a weight column every weight is 1. `weights` names several weight columns (or `columns`
    has more than four entries): then a number may be missing. `relation_weights` gives one weight a relation instead: a
    dict, or a two-column file. A large file is kept encoded in the cache, from where it comes at once the next time;
    `cache=False` leaves that alone.

    In RDF, `weights` names properties noted on triples (default: all that are numbers), `missing` is the weight of
    facts without one (or 'drop'; also for GraphML), `literals='keep'` makes entities of literals, `shorten` keeps the
    last part of IRIs, and `base` is what names were minted from.

    >>> read([("MLEngineer", "requiresSkill", "Python", 0.98), ("MLEngineer", "requiresSkill", "Perl", 0.13)])
    Graph(rows: 2 edges, 3 entities, 1 relation)
    """
    source = source() if callable(source) else source
    if isinstance(source, Graph):
        graph = source
    elif is_sql(source):
        graph = read_sql(source, query, columns, weights)  # never kept: a data base changes without a trace
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        special = _linked_data(path, (columns, weights), missing, literals, shorten, base, cache)
        graph = _read_file(path, (columns, weights), delimiter, header, cache) if special is None else special
    elif hasattr(source, "edges") and hasattr(source, "is_directed"):
        graph = from_networkx(source, weights)
    elif hasattr(source, "__arrow_c_stream__") or hasattr(source, "__dataframe__"):
        graph = from_table(to_arrow(source), columns, "frame", weights)
    elif isinstance(source, Iterable):
        table = _rows_to_arrow(cast(Iterable[Sequence[Any]], source))
        if columns is None and weights is None and table.num_columns > 4:
            columns = range(1, table.num_columns + 1)
        graph = from_table(table, columns, "rows", weights)
    else:
        raise FocuseError(f"cannot read a graph from {type(source).__name__}: give a file, a frame or rows")
    if not len(graph) and graph is not source:
        raise FocuseError(f"{graph.source}: no edges; expected rows of head, relation, tail and weight")
    return graph if relation_weights is None else _weigh_relations(graph, relation_weights)


def _linked_data(
    path: Path,
    chosen: Chosen,
    missing: float | str | None,
    literals: str,
    shorten: bool,
    base: str,
    cache: bool,
) -> Graph | None:
    """The graph of an RDF or GraphML file; None for other files."""
    graphml, rdf = is_graphml(path), rdf_kind(path)
    if not graphml and rdf is None:
        return None
    _, packed, size = look_at(path)
    columns, weights = chosen
    if columns is not None or isinstance(weights, str):
        raise FocuseError(f"{path}: it has no columns; name its weights in a list with weights (--weight-columns)")
    names = None if weights is None else tuple(map(str, weights))
    options = Options(names, literals, missing, shorten, base)

    def fresh() -> Graph:
        if graphml:
            with open_bytes(path) as stream:
                return read_graphml(path, stream, weights, missing, open_bytes)
        return read_rdf(path, options, open_bytes)

    return _kept(path, ("graphml" if graphml else rdf, options), fresh, size, packed) if cache else fresh()


def _read_file(path: Path, chosen: Chosen, delimiter: str | None, header: bool | None, cache: bool) -> Graph:
    parquet, packed, size = look_at(path)

    def fresh() -> Graph:
        return _read_parquet(path, chosen) if parquet else _read_text(path, chosen, delimiter, header)

    return _kept(path, (parquet, *chosen, delimiter, header), fresh, size, packed) if cache else fresh()


def _kept(path: Path, options: Iterable[object], fresh: Callable[[], Graph], size: int, packed: bool) -> Graph:
    """A graph from the cache, or `fresh` if its file is small."""
    if size < (CACHED_BYTES // 4 if packed else CACHED_BYTES):
        return fresh()
    return remember(path, options, fresh)


def look_at(path: Path) -> tuple[bool, bool, int]:
    """Whether a file is Parquet, whether it is packed, and its size in bytes; an error if it cannot be read."""
    where = str(path)
    try:
        where.encode("utf-8")
    except UnicodeEncodeError:
        raise FocuseError(f"{where!a}: the path is not UTF-8 text; rename the file") from None
    try:
        # A file is opened several times, which would eat the first rows of a pipe.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise FocuseError(f"{where}: not a file but a pipe or device; save it to a file first")
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(-min(4, len(start)), os.SEEK_END)
            end = file.read()
            size = file.tell()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FocuseError(f"{where}: {reason}; give the path of a readable file") from None
    # Text may begin with PAR1 as well: it is the name of a protein.
    parquet = start == b"PAR1" and (end == b"PAR1" or path.suffix == ".parquet")
    return parquet, parquet or packing(start) is not None, size


def _read_parquet(path: Path, chosen: Chosen) -> Graph:
    columns, weights = chosen
    if is_large(path, packed=True):
        with parquet_file(path) as file:
            headings = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
            places = choose_places(headings, True, columns, str(path), weights)
            if len(places) <= 4 and file.metadata.num_rows:
                blocks = table_blocks(map(_valid, file.iter_batches(columns=headings)), columns, str(path), weights)
                return stream(blocks, str(path), len(places) == 4, scratch_folder())
    return from_table(parquet_table(path), columns, str(path), weights)


def _valid(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What is called text is text; ArrowInvalid else."""
    batch.validate(full=True)
    return batch


def is_large(path: Path, packed: bool) -> bool:
    """Whether a file's graph is encoded on disk instead of in memory."""
    free = free_memory()
    least = STREAMED_BYTES if free is None else min(STREAMED_BYTES, free // 8)
    return path.stat().st_size >= (least // 4 if packed else least)


def _text_blocks(path: Path, layout: Layout) -> Iterator[Sequence[pa.Array]]:
    """A text's columns, some megabytes at a time."""
    try:
        with open_bytes(path) as stream, arrow_csv.open_csv(stream, **_how(layout)) as blocks:
            for block in blocks:
                empty = any(pc.any(pc.equal(column.dictionary, "")).as_py() for column in block.columns[:3])
                finite = block.num_columns < 4 or pc.all(pc.is_finite(block.column(3))).as_py() is not False
                if empty or not finite:
                    raise explain(path, layout, "a name is empty or a weight not finite")
                yield block.columns
    except (pa.ArrowException, OSError, EOFError) as error:
        raise explain(path, layout, _one_line(error)) from None


def _read_text(path: Path, chosen: Chosen, delimiter: str | None, header: bool | None) -> Graph:
    where = str(path)
    layout = detect(first_lines(path), where, delimiter, header, *chosen)
    if is_large(path, look_at(path)[1]) and not layout.names:
        return stream(_text_blocks(path, layout), where, len(layout.places) == 4, scratch_folder())
    table = parse_text(path, layout)
    weight = join(table.column(3).chunks) if len(layout.places) == 4 and len(table) else None
    if weight is not None and not np.isfinite(weight).all():
        raise explain(path, layout, "a weight is not finite")
    columns = _several(table, layout) if layout.names and len(table) else None
    if columns is not None and (np.isinf(columns.values).any() or not columns.present.any(axis=1).all()):
        raise explain(path, layout, "a weight is not finite, or all of an edge are missing")
    head, relation, tail = table.columns[:3]
    graph = from_columns(head, relation, tail, weight, where, columns)
    if any(_has_empty(names) for names in (graph.entities, graph.relations)):
        raise explain(path, layout, "a name is empty")
    return graph


def _several(table: pa.Table, layout: Layout) -> Columns:
    """The weight columns of a parsed text, null and NaN both missing."""
    each = [pc.fill_null(column, np.nan) for column in table.columns[3:]]
    return Columns(layout.names, np.stack([join(column.chunks) for column in each], axis=1))


def parse_text(path: Path, layout: Layout) -> pa.Table:
    """The columns in the order of the layout's places; names dictionary-encoded while parsing."""
    try:
        return _parse(path, layout)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise explain(path, layout, _one_line(error)) from None


def _parse(path: Path, layout: Layout) -> pa.Table:
    with open_bytes(path) as stream:
        return arrow_csv.read_csv(stream, **_how(layout))


def _how(layout: Layout) -> dict[str, Any]:
    """Options of Arrow's parser."""
    texts = len(layout.roles) - 1
    named = [f"c{place}" for place in range(layout.width)]
    wanted = [named[place] for place in layout.places]
    name_type = pa.dictionary(pa.int32(), pa.string())
    return {
        "read_options": arrow_csv.ReadOptions(column_names=named, skip_rows=layout.skip, block_size=BLOCK_BYTES),
        "parse_options": arrow_csv.ParseOptions(
            delimiter=layout.delimiter,
            quote_char='"' if layout.quoted else False,
            newlines_in_values=layout.quoted,
        ),
        "convert_options": arrow_csv.ConvertOptions(
            column_types=dict(zip(wanted, [name_type] * texts + [pa.float64()] * (len(wanted) - texts), strict=True)),
            include_columns=wanted,
            null_values=list(MISSING) if layout.may_miss else [],
            strings_can_be_null=False,
        ),
    }


def first_lines(path: Path) -> str:
    """The first whole lines of a file."""
    try:
        with open_bytes(path) as stream:
            data: bytes = stream.read(SAMPLE_BYTES)
    except (pa.ArrowException, OSError) as error:
        raise FocuseError(f"{path}: damaged compressed file: {_one_line(error)}") from None
    if told := data_base(data, path):
        raise FocuseError(f"{path}: {told}")
    if data.startswith(b"PK\x03\x04"):
        raise FocuseError(f"{path}: a zip archive or a spreadsheet; unpack it, or save it as CSV, and give that file")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in data:
        raise FocuseError(f"{path}, line 1: not UTF-8 text (UTF-16 or binary); save the file as UTF-8")
    if len(data) == SAMPLE_BYTES and b"\n" in data:
        data = data[: data.rindex(b"\n") + 1]
    return data.decode("utf-8-sig", errors="replace")


def _has_empty(names: Vocabulary) -> bool:
    return bool(pc.min(pc.binary_length(names.column)).as_py() == 0)


def explain(path: Path, layout: Layout, problem: str) -> FocuseError:
    """The error that names the first faulty line."""
    with open_bytes(path) as stream:
        fault = first_fault(cast(BinaryIO, stream), layout, str(path))
    return fault or FocuseError(f"{path}: {problem}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def to_arrow(frame: Any) -> pa.Table:
    """A pandas or polars frame, or an Arrow table, as such."""
    try:
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
        return pa.interchange.from_dataframe(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        if isinstance(error, pa.ArrowException) and type(frame).__name__ == "DataFrame" and hasattr(frame, "items"):
            return _mixed_to_arrow(frame)
        raise FocuseError(f"frame: cannot be read as a table: {_one_line(error)}") from None


def _mixed_to_arrow(frame: Any) -> pa.Table:
    """A pandas frame with columns of mixed kinds, which Arrow refuses: those become text."""
    return pa.table(
        {
            str(name): to_column(column.astype(object).where(column.notna(), None).tolist(), "frame")
            for name, column in frame.items()
        }
    )


def _rows_to_arrow(rows: Iterable[Sequence[Any]]) -> pa.Table:
    listed = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, str | bytes | Mapping) or not isinstance(row, Iterable):
            raise FocuseError(f"rows, row {number}: {row!r:.60} is not a tuple of head, relation, tail and weight")
        listed.append(tuple(row))
    widths = {len(row) for row in listed}
    if not listed:
        raise FocuseError("rows: no edges; expected tuples of head, relation, tail and weight")
    if len(widths) != 1 or min(widths) < 3:
        odd = next(i for i, row in enumerate(listed) if len(row) < 3 or len(row) != len(listed[0]))
        raise FocuseError(f"rows, row {odd + 1}: {len(listed[odd])} values; give every row 3 or 4, or as many weights")
    width = len(listed[0])
    columns = [to_column([row[place] for row in listed], "rows") for place in range(width)]
    numbers = ["weight"] if width <= 4 else [f"w{number}" for number in range(1, width - 2)]
    return pa.table(dict(zip(("head", "relation", "tail", *numbers), columns, strict=False)))


def _weigh_relations(graph: Graph, weights: Mapping[str, float] | str | Path) -> Graph:
    """Every edge gets its relation's weight (the paper's predicate-level case)."""
    table = weights if isinstance(weights, Mapping) else _read_relation_weights(Path(weights))
    for name, value in table.items():
        fault = weight_fault(value)
        if fault:
            raise FocuseError(f"relation weights, {str(name)!r}: {fault}")
    # The table may know more relations than this graph (valid and test seldom have all); a misspelt one is missed here.
    numbers = {str(name): float(value) for name, value in table.items()}
    missing = [name for name in graph.relations if name not in numbers]
    if missing:
        offered = nearest(missing[0], numbers)
        raise FocuseError(
            f"relation weights: no number for {counted(len(missing), 'relations')} of {graph.source}, "
            f"such as {missing[0]!r}{offered}; give every one"
        )
    per_relation: npt.NDArray[np.float64] = np.array([numbers[name] for name in graph.relations])
    return replace(graph, weight=per_relation[graph.relation], weighted=True, columns=None)


def _read_relation_weights(path: Path) -> dict[str, float]:
    """A small text file: relation and weight on each line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise FocuseError(f"{path}: {_one_line(error)}") from None
    table: dict[str, float] = {}
    first = next((number for number, line in enumerate(lines, 1) if line.strip()), 0)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        delimiter = next((mark for mark in ("\t", ",", ";", " ") if mark in line), None)
        name, _, value = line.rpartition(delimiter) if delimiter else ("", "", line)
        fault = weight_fault(value.strip()) if name else "expected a relation and its weight"
        if fault.endswith(NOT_A_NUMBER) and number == first:
            continue  # a heading
        name = name.strip()
        if delimiter != "\t" and len(name) > 1 and name[0] == name[-1] == '"':
            name = name[1:-1].replace('""', '"')
        if not fault and name in table:
            fault = f"the relation {name!r} has a weight already; remove one"
        if fault:
            raise FocuseError(f"{path}, line {number}: {fault}")
        table[name] = float(value.strip())  # of signs that float itself does not strip
    return table
