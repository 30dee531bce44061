"""Read weighted graphs from text and Parquet files, frames and rows.

Readers of other formats (RDF, GraphML, JSON, Excel) are registered by file suffix, and those of the objects of other
libraries (NetworkX, SciPy) by the library's name, see `register_reader`. They are imported when they are needed.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from focuse.data.graph import (
    ALL_WEIGHTS_MISSING,
    BASE_IRI,
    Graph,
    WeightColumns,
    concatenate_blocks,
    from_columns,
)
from focuse.data.out_of_core import encode_blocks, scratch_folder
from focuse.data.roles import (
    MISSING_WEIGHTS,
    Asked,
    ColumnNames,
    ColumnSample,
    Roles,
    TableSample,
    choose_roles,
    relation_name,
)
from focuse.data.sniffer import (
    MISSING_ADVICE,
    NOT_A_NUMBER,
    ROLES,
    TableLayout,
    detect_layout,
    first_fault,
    first_rows,
    join_words,
    weight_column_names,
    weight_fault,
)
from focuse.errors import FocuseError, counted, nearest
from focuse.system import format_size, free_memory, used_memory

SAMPLE_BYTES = 1 << 17  # cells as long as this are what the csv module reads
# Large blocks have few partial dictionaries to unify; 16 MiB was fastest for 5 million rows.
BLOCK_BYTES = 1 << 24
STREAMED_BLOCK_BYTES = 1 << 20  # as fast, and takes less memory, where blocks are encoded on disk one by one
STREAMING_BYTES = 1 << 28  # memory required to read a large file; about 80 % of it was measured
OUT_OF_CORE_BYTES = 1 << 28  # larger text is encoded on disk, block by block; a quarter of it if compressed

BATCH_ROWS = 1 << 20  # rows of a Parquet file in memory at once, if its graph is large
INDEX_PREFIX = "__index_level_"  # of columns in which pandas stores the index of a frame

SAMPLE_ROWS = 20_000  # of a table that has types, as many as of a text file
Block = Sequence[pa.Array]  # head, relation, tail and the weights, if any, of some edges


@dataclass(frozen=True)
class ReadOptions(Asked):
    """The keyword arguments of `read`; every reader uses those that apply to its format."""

    delimiter: str | None = None
    header: bool | None = None
    missing_weight: float | str | None = None
    literals: str = "skip"
    short_names: bool = False
    base_iri: str = BASE_IRI
    undirected: bool | None = None


def read(
    source: Any,
    *,
    head: str | int | None = None,
    relation: str | int | None = None,
    tail: str | int | None = None,
    weight: str | int | None = None,
    columns: ColumnNames | None = None,
    weight_columns: ColumnNames | None = None,
    relation_name: str | None = None,
    same_ids: bool | None = None,
    undirected: bool | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    relation_weights: Mapping[str, float] | str | Path | None = None,
    missing_weight: float | str | None = None,
    literals: str = "skip",
    short_names: bool = False,
    base_iri: str = BASE_IRI,
) -> Graph:
    """Read a weighted graph: head, tail, and optionally relation and weight.

    The columns of a table are recognized by their headings and by what they hold. How it was read is in the notes of
    the graph, unless it is the usual way.

    Parameters
    ----------
    source
        A file (TSV or CSV, plain or compressed by gzip or zstd; Parquet; JSON; Excel; Matrix Market; RDF; GraphML), a
        pandas or polars frame, an Arrow table, a NumPy array, a SciPy sparse matrix, a graph of NetworkX, igraph or
        PyTorch Geometric, rows of tuples or dicts, or a function that returns one of these.
    head, relation, tail, weight : str or int
        Columns by heading or counted from 1. The relation or the weight can be 'none': then all edges have one
        relation, or the weight 1.
    columns : sequence of str or int
        The short form of head, relation, tail and weight. With two columns, these are head and tail.
    weight_columns : sequence of str or int
        Several weight columns, in which numbers may be missing. `columns` with more than four entries does the same.
        In RDF: properties that annotate triples (default: all that are numbers).
    relation_name : str
        The name of the relation of a table without a relation column; by default the heading of the weight, or the
        name of the file.
    same_ids : bool
        Whether equal numbers in the columns of heads and tails are the same entity. By default, they are not if the
        headings name different things, such as userId and movieId.
    undirected : bool
        Whether each pair of entities is one fact. By default, relations that list every pair in both directions with
        the same weight are recognized when a graph is split at random.
    delimiter, header
        The layout of a text file, which is detected by default, like the compression.
    relation_weights : mapping or path
        One weight per relation instead of one per edge: a dict or a file with two columns.
    missing_weight : float or 'drop'
        The weight of edges without one, or 'drop' to leave them out. By default, they are an error.
    literals : 'skip' or 'keep'
        'keep' makes entities of RDF literals.
    short_names : bool
        Keep only the last part of IRIs.
    base_iri : str
        The IRI that names were appended to when the RDF file was written.

    >>> read([("MLEngineer", "requiresSkill", "Python", 0.98), ("MLEngineer", "requiresSkill", "Perl", 0.13)])
    Graph(rows: 2 edges, 3 entities, 1 relation)
    >>> read([("Python", "NumPy", 0.98), ("Python", "Perl", 0.13)], relation_name="is used with").relations[0]
    'is used with'
    """
    options = ReadOptions(
        columns, weight_columns, head, relation, tail, weight, relation_name, same_ids, delimiter, header,
        missing_weight, literals, short_names, base_iri, undirected,
    )  # fmt: skip
    options.check()
    check_missing_weight(missing_weight)
    if not isinstance(undirected, bool | None):
        raise FocuseError(f"undirected {undirected!r}: give True, False or None")
    graph = _read_source(source, options)
    if not len(graph) and graph is not source:
        raise FocuseError(f"{graph.source}: no edges; expected rows of head, relation, tail and weight")
    graph = graph if undirected is None else replace(graph, undirected=undirected)
    return graph if relation_weights is None else _with_relation_weights(graph, relation_weights)


def _read_source(source: Any, options: ReadOptions) -> Graph:
    if callable(source) and registered_object_reader(source) is None:  # PyTorch Geometric's Data can be called
        source = source()
    if isinstance(source, Graph):
        return source
    if isinstance(source, str) and _URL_SCHEME.match(source):
        scheme = source.partition("://")[0]  # the rest may contain a password
        raise FocuseError(f"{scheme}://…: cannot read a URL; give a file, or of a database {QUERY_RESULT}")
    if isinstance(source, str | os.PathLike):
        return _read_path(Path(source), options)
    if hasattr(source, "collect_schema") and hasattr(source, "collect"):  # a lazy frame of polars
        source = source.collect()
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__dataframe__"):
        return graph_from_table(frame_to_arrow(source), options, "frame")
    if object_reader := registered_object_reader(source):
        return object_reader(source, options)
    if isinstance(source, list | tuple) and source and all(isinstance(row, dict) for row in source):
        return graph_from_table(records_to_arrow(source, "rows"), options, "rows")
    if isinstance(source, Mapping):
        raise FocuseError("cannot read a graph from a dict: give rows, such as [(*edge, weight) for edge, weight in …]")
    if isinstance(source, Iterable):
        table = rows_to_arrow(cast(Iterable[Sequence[Any]], source))
        names = [pa.types.is_string(kind) for kind in table.schema.types[:3]]
        if not options.names_columns and len(names) == 3 and all(names):
            options = replace(options, columns=range(1, table.num_columns + 1))
        return graph_from_table(table, options, "rows", header=False)
    raise FocuseError(f"cannot read a graph from {type(source).__name__}: give a file, a frame or rows")


def _read_path(path: Path, options: ReadOptions) -> Graph:
    suffix = format_suffix(path)
    reader = None if suffix in PLAIN_SUFFIXES else registered_reader(suffix)
    if reader is not None:
        return reader(path, options)
    return _read_parquet(path, options) if inspect_file(path).is_parquet else _read_text(path, options)


# ---- readers of other formats ---------------------------------------------------------------------------------------

PLAIN_SUFFIXES = ("", ".tsv", ".csv", ".txt", ".parquet")  # formats that need no registered reader
# The last key, so that it is not one of a nested object.
JSON_WEIGHT = r'[{,] ?"weight": ?(?P<weight>-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?) ?\}$'
INTEGRATIONS = "focuse.integrations"  # registers its readers and writers when it is imported
READERS: dict[str, str] = {}  # by suffix
OBJECT_READERS: dict[str, str] = {}  # by the name of a library
_URL_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
QUERY_RESULT = "the result of a query: focuse.read(pandas.read_sql(query, connection))"

Reader = Callable[[Path, ReadOptions], Graph]
ObjectReader = Callable[[Any, ReadOptions], Graph]


def register_reader(suffixes: Iterable[str], function: str, libraries: Iterable[str] = ()) -> None:
    """Register a reader for file suffixes such as ".nt", or for objects of libraries such as "networkx".

    `function` is "module:name" of a function (path or object, ReadOptions) -> Graph. Its module is imported when the
    first such file or object is read.
    """
    READERS.update(dict.fromkeys(suffixes, function))
    OBJECT_READERS.update(dict.fromkeys(libraries, function))


def registered_reader(suffix: str) -> Reader | None:
    """Return the reader registered for a suffix, None if there is none."""
    import_module(INTEGRATIONS)
    return cast(Reader, import_function(READERS[suffix])) if suffix in READERS else None


def registered_object_reader(source: Any) -> ObjectReader | None:
    """Return the reader of the library that an object's class, or a class that it extends, comes from."""
    import_module(INTEGRATIONS)
    libraries = [each.__module__.partition(".")[0] for each in type(source).__mro__]
    if "torch" in libraries and not hasattr(source, "detach"):  # a dataset, and no tensor
        return None
    found = next((OBJECT_READERS[name] for name in libraries if name in OBJECT_READERS), None)
    return None if found is None else import_function(found)


def import_function(path: str) -> Callable[..., Any]:
    """Import the function with the path "module:name"."""
    module, _, name = path.partition(":")
    return cast(Callable[..., Any], getattr(import_module(module), name))


def format_suffix(path: Path) -> str:
    """Return the suffix that names a file's format, in lower case and without .gz or .zst.

    >>> format_suffix(Path("graph.NT.gz")), format_suffix(Path("graph"))
    ('.nt', '')
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".zst"):
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


# ---- files ----------------------------------------------------------------------------------------------------------


COMPRESSION_BY_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class FileInfo(NamedTuple):
    """Properties of a file that its first and last bytes show; `compression` is None, "gzip" or "zstd"."""

    is_parquet: bool
    compression: str | None


def inspect_file(path: Path) -> FileInfo:
    """Return the kind of a file by its bytes, not by its name; raise an error if it cannot be read."""
    where = str(path)
    try:
        where.encode("utf-8")
    except UnicodeEncodeError:
        raise FocuseError(f"{where!a}: the path is not UTF-8 text; rename the file") from None
    try:
        # A file is opened several times, which would lose the first rows of a pipe.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise FocuseError(f"{where}: not a file but a pipe or device; save it to a file first")
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(-min(4, len(start)), os.SEEK_END)
            end = file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FocuseError(f"{where}: {reason}; give the path of a readable file") from None
    # Text may begin with PAR1 as well: it is the name of a protein.
    is_parquet = start == b"PAR1" and (end == b"PAR1" or path.suffix == ".parquet")
    compressions = (name for magic, name in COMPRESSION_BY_MAGIC.items() if start.startswith(magic))
    return FileInfo(is_parquet, next(compressions, None))


def open_decompressed(path: Path) -> Any:
    """Open the decompressed bytes of a file."""
    return pa.input_stream(str(path), compression=inspect_file(path).compression)


def is_large(path: Path, compressed: bool) -> bool:
    """Return whether a file's graph is encoded on disk instead of in memory; raise an error if neither is possible."""
    free = free_memory()
    min_bytes = min(OUT_OF_CORE_BYTES, free // 8)
    large = path.stat().st_size >= (min_bytes // 4 if compressed else min_bytes)
    if large and free < STREAMING_BYTES:
        raise FocuseError(
            f"{path}: reading it takes about {format_size(STREAMING_BYTES)} of memory, but {format_size(free)} are "
            f"free ({format_size(used_memory())} in use); raise memory_limit, or free memory"
        )
    return large


def check_missing_weight(value: float | str | None) -> None:
    """Raise FocuseError for a missing_weight that is neither a finite number nor 'drop'."""
    if value not in (None, "drop") and (isinstance(value, bool) or weight_fault(value)):
        raise FocuseError(f"missing_weight {value!r}: give a number, or 'drop' to leave such edges out")


def _read_parquet(path: Path, options: ReadOptions) -> Graph:
    with open_parquet(path) as file:
        nested = _nested_columns(file.schema_arrow)
        flat = [name for name in file.schema_arrow.names if name not in nested]
        headings = [name for name in flat if not name.startswith(INDEX_PREFIX)]
        _refuse_empty(str(path), len(headings), file.metadata.num_rows)
        first = next(file.iter_batches(SAMPLE_ROWS, columns=headings), None)
        if first is None:  # a damaged file may count rows that it does not have
            raise ValueError("its rows are missing")
        sample = sample_table(pa.table(first.select(headings)), str(path))
        names = [headings[index] for index in _columns_of(choose_roles(sample, options))]
        batches = (batch.select(names) for batch in file.iter_batches(BATCH_ROWS, columns=names))
        graph = _graph_from_batches(batches, sample, options, is_large(path, compressed=True))
        return _note_nested(graph, nested)


def _read_text(path: Path, options: ReadOptions) -> Graph:
    where = str(path)
    layout, roles, sample = detect_layout(
        first_lines(path), where, options.delimiter, options.header, options, options.missing_weight
    )
    large = is_large(path, inspect_file(path).compression is not None) and not layout.weight_names
    return _finish(_text_blocks(path, layout, stream=large), sample, roles, options, layout.weight_names, large)


def _finish(
    blocks: Iterable[Block],
    sample: TableSample,
    roles: Roles,
    options: ReadOptions,
    weight_names: tuple[str, ...],
    large: bool = False,
) -> Graph:
    """Encode the chosen columns of a table, in blocks, as a graph with notes on how it was read."""
    dropped = [0]
    name = relation_name(sample, roles, options)
    if options.relation_name is not None and roles.relation is not None:
        raise FocuseError(f"{sample.where}: relation_name has no effect with a column of relations; leave it out")
    triples = (_as_triples(block, roles, name, options.missing_weight, dropped) for block in blocks)
    graph = _encode(triples, sample.where, len(roles.weights), weight_names, large)
    notes = [f"{sample.where}: {roles.note}"] if roles.note else []
    if dropped[0]:
        notes.append(f"{sample.where}: {counted(dropped[0], 'edges')} without a weight left out")
    if sample.count is not None and sample.count != len(graph):
        notes.append(f"{sample.where}: line 1 gives {sample.count:,} triples, but {len(graph):,} follow")
    heading = sample.columns[roles.weights[0]].heading if len(roles.weights) == 1 and not roles.json else ""
    unnamed = roles.relation is None and options.relation_name is None
    return replace(graph, notes=tuple(notes), weight_name=heading, one_relation=unnamed)


def _as_triples(
    block: Block, roles: Roles, relation: str, missing_weight: float | str | None, dropped: list[int]
) -> Block:
    """Return head, relation, tail and weights of a block of names and weights, without the edges to leave out."""
    names, numbers = list(block[: len(roles.names)]), list(block[len(roles.names) :])
    if roles.kinds is not None:
        names[0], names[-1] = (_prefixed(names[at], word) for at, word in zip((0, -1), roles.kinds, strict=True))
    if roles.relation is None:
        ids = pa.array(np.zeros(len(names[0]), np.int32))
        names.insert(1, pa.DictionaryArray.from_arrays(ids, pa.array([relation])))
    if len(numbers) == 1 and missing_weight is not None:
        missing = pc.is_nan(numbers[0])
        if missing_weight == "drop":
            dropped[0] += pc.sum(missing).as_py() or 0
            names, numbers = ([column.filter(pc.invert(missing)) for column in part] for part in (names, numbers))
        else:
            numbers = [pc.if_else(missing, float(missing_weight), numbers[0])]
    return [*names, *numbers]


def _prefixed(names: pa.Array, word: str) -> pa.Array:
    """Return names that begin with a word, such as 'user 1'."""
    if isinstance(names, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(names.indices, _prefixed(names.dictionary, word))
    return pc.binary_join_element_wise(word, names, " ")


def _text_blocks(path: Path, layout: TableLayout, stream: bool) -> Iterator[Block]:
    """Yield the columns of a text file in blocks of a few megabytes, each checked.

    With `stream` only one block is in memory, else all of the file, which is parsed by all cores.
    """
    if not stream:
        for block in parse_text(path, layout).to_batches():
            yield _checked(block.columns, path, layout)
        return
    try:
        options = _csv_options(layout, STREAMED_BLOCK_BYTES)
        with open_text(path, layout) as source, arrow_csv.open_csv(source, **options) as blocks:
            for block in blocks:
                yield _checked(block.columns, path, layout)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise parse_error(path, layout, _one_line(error)) from None


def _checked(columns: list[pa.Array], path: Path, layout: TableLayout) -> Block:
    """Return the columns of a block, with NaN for missing weights; raise an error for the first faulty line."""
    count = len(layout.roles) - 1
    names, numbers = columns[:count], columns[count:]
    if layout.json_weight:
        numbers = [pc.struct_field(pc.extract_regex(numbers[0], JSON_WEIGHT), 0).cast(pa.float64())]
    numbers = [pc.fill_null(column, np.nan) for column in numbers]
    finite = [np.isfinite(np.from_dlpack(column)) for column in numbers]
    if len(numbers) > 1:  # a weight may be missing, but not all weights of an edge
        infinite = any(pc.any(pc.is_inf(column)).as_py() for column in numbers)
        faulty = infinite or not np.any(finite, axis=0).all()
    elif layout.missing_weight is not None:
        faulty = any(pc.any(pc.is_inf(column)).as_py() for column in numbers)
    else:
        faulty = not all(mask.all() for mask in finite)
    if layout.blanks_follow:
        quotes = [pc.any(pc.starts_with(pc.utf8_ltrim(column.dictionary, " "), '"')).as_py() for column in names]
        faulty = faulty or any(quotes)
        names = [_trimmed(column) for column in names]
    if faulty or any(pc.any(pc.equal(column.dictionary, "")).as_py() for column in names):
        raise parse_error(path, layout, "a name is empty or a weight not finite")
    return [*names, *numbers]


def _trimmed(names: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return names without blanks at their ends."""
    distinct = pc.utf8_trim(names.dictionary, " ").dictionary_encode()
    indices = distinct.indices.take(names.indices)
    return pa.DictionaryArray.from_arrays(indices, distinct.dictionary)


def _encode(blocks: Iterable[Block], where: str, num_weights: int, weight_names: Sequence[str], large: bool) -> Graph:
    """Encode blocks of names and weights as a graph, whose columns are files if it is large."""
    if large and num_weights <= 1:
        return encode_blocks(blocks, where, num_weights == 1, scratch_folder())
    columns = list(zip(*blocks, strict=True)) or [()] * (3 + num_weights)
    head, relation, tail = (pa.chunked_array(column, None if column else pa.string()) for column in columns[:3])
    numbers = [concatenate_blocks(column) if column else np.empty(0) for column in columns[3:]]
    several = WeightColumns(tuple(weight_names), np.stack(numbers, axis=1)) if num_weights > 1 else None
    return from_columns(head, relation, tail, numbers[0] if num_weights == 1 else None, where, several)


def parse_text(path: Path, layout: TableLayout) -> pa.Table:
    """Parse the columns of the layout, in its order; names are dictionary-encoded while parsing."""
    try:
        with open_text(path, layout) as stream:
            return arrow_csv.read_csv(stream, **_csv_options(layout))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise parse_error(path, layout, _one_line(error)) from None


def _csv_options(layout: TableLayout, block_bytes: int = BLOCK_BYTES) -> dict[str, Any]:
    """Return the options of Arrow's CSV parser."""
    text_columns = len(layout.roles) - 1
    number = pa.string() if layout.json_weight else pa.float64()
    missing = [blank + mark for mark in MISSING_WEIGHTS for blank in ("", " ")]
    file_columns = [f"c{number}" for number in range(layout.width)]
    wanted = [file_columns[index] for index in layout.columns]
    types = [pa.dictionary(pa.int32(), pa.string())] * text_columns + [number] * (len(wanted) - text_columns)
    return {
        "read_options": arrow_csv.ReadOptions(
            column_names=file_columns, skip_rows=layout.header_lines, block_size=block_bytes
        ),
        "parse_options": arrow_csv.ParseOptions(
            delimiter=layout.delimiter,
            quote_char='"' if layout.quoted else False,
            newlines_in_values=layout.quoted,
        ),
        "convert_options": arrow_csv.ConvertOptions(
            column_types=dict(zip(wanted, types, strict=True)),
            include_columns=wanted,
            decimal_point="," if layout.decimal_comma else ".",
            null_values=missing if layout.allows_missing else [],
            strings_can_be_null=False,
        ),
    }


def open_text(path: Path, layout: TableLayout) -> Any:
    """Open the decompressed bytes of a text file with delimiters of one byte: '::' becomes a tab, and blanks one."""
    stream = open_decompressed(path)
    if not (layout.blanks_repeat or layout.colons):
        return stream
    last = b"\n" if layout.blanks_repeat else b""

    def squeeze(data: pa.Buffer) -> bytes:
        nonlocal last
        text = re.sub(rb" *([\r\n]) *| +", lambda found: found[1] or b" ", last + bytes(data))
        last = text[-2:] if text.endswith(b" ") else text[-1:]  # the next block may begin with a line end
        return text[1:].removesuffix(b" ")

    def replace_colons(data: pa.Buffer) -> bytes:
        nonlocal last
        text = (last + bytes(data)).replace(b"::", b"\t")
        last = b":" if len(data) and text.endswith(b":") else b""  # the next block may go on with a colon
        return text.removesuffix(last)

    return pa.TransformInputStream(stream, squeeze if layout.blanks_repeat else replace_colons)


def first_lines(path: Path) -> str:
    """Return the first complete lines of a text file, at most SAMPLE_BYTES."""
    try:
        with open_decompressed(path) as stream:
            data: bytes = stream.read(SAMPLE_BYTES)
    except (pa.ArrowException, OSError) as error:
        raise FocuseError(f"{path}: damaged compressed file: {_one_line(error)}") from None
    if data.startswith(b"PK\x03\x04"):
        raise FocuseError(f"{path}: a zip archive or a spreadsheet; unpack it, or save it as CSV, and give that file")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in data:
        if data.startswith(b"SQLite format 3") or data[8:12] == b"DUCK":
            raise FocuseError(f"{path}: a database; give {QUERY_RESULT}")
        raise FocuseError(f"{path}, line 1: not UTF-8 text (UTF-16 or binary); save the file as UTF-8")
    if len(data) == SAMPLE_BYTES and b"\n" in data:
        data = data[: data.rindex(b"\n") + 1]
    return data.decode("utf-8-sig", errors="replace")


def parse_error(path: Path, layout: TableLayout, problem: str) -> FocuseError:
    """Return the error that names the first faulty line of a text file, or `problem` if no line is faulty."""
    with open_text(path, layout) as stream:
        fault = first_fault(cast(BinaryIO, stream), layout, str(path))
    return fault or FocuseError(f"{path}: {problem}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


@contextmanager
def open_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; errors of reading it become one line."""
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:  # of headings that are no text, or repeated
        raise FocuseError(f"{path}: not a readable Parquet file: {_one_line(error)}") from None


def read_parquet_table(path: Path) -> pa.Table:
    """Read the columns of a Parquet file that are not nested, checking that text is UTF-8."""
    with open_parquet(path) as file:
        nested = _nested_columns(file.schema_arrow)
        table = file.read([name for name in file.schema_arrow.names if name not in nested])
        table.validate(full=True)
        return table


# ---- tables in memory: Arrow (and so pandas and polars) and rows ----------------------------------------------------


def graph_from_table(
    table: pa.Table, options: ReadOptions, where: str, header: bool = True, first_row: int = 1
) -> Graph:
    """Encode a table as a graph; its columns are chosen as in a file, by heading only with `header`.

    `first_row` is the number of its first row, for errors.
    """
    table = without_index_columns(table, where)
    nested = _nested_columns(table.schema) if header else []
    table = table.select([name for name in table.column_names if name not in nested]) if nested else table
    _refuse_empty(where, table.num_columns, table.num_rows)
    sample = sample_table(table.slice(0, SAMPLE_ROWS), where, header)
    chosen = _columns_of(choose_roles(sample, options))
    graph = _graph_from_batches(table.select(chosen).to_batches(), sample, options, first_row=first_row)
    return _note_nested(graph, nested)


def _nested_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the columns of lists and of structures; those called head or weight are faults."""
    return [field.name for field in schema if pa.types.is_nested(field.type) and field.name not in ROLES]


def _note_nested(graph: Graph, names: Sequence[str]) -> Graph:
    """Return a graph with a note on the nested columns of its table."""
    shown = f"{', '.join(map(repr, names[:8]))}{' …' if len(names) > 8 else ''}"
    note = f"{graph.source}: not used, because they hold lists or objects: {shown}"
    return replace(graph, notes=(*graph.notes, note)) if names else graph


def _columns_of(roles: Roles) -> list[int]:
    return [*roles.names, *roles.weights]


def sample_table(table: pa.Table, where: str, header: bool = True) -> TableSample:
    """Return the headings and the cells of the first rows of a table."""
    table.validate(full=True)  # also checks that text is UTF-8
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        # Numbers of floating point are written with a point, so that they are not taken for ids.
        values = column.to_pylist()
        cells = ["" if value is None else str(value) for value in values]
        columns.append(ColumnSample(name if header else "", cells))
    return TableSample(columns, header, where, in_memory=not Path(where).suffix, typed=True)


def _graph_from_batches(
    batches: Iterable[pa.RecordBatch],
    sample: TableSample,
    options: ReadOptions,
    large: bool = False,
    first_row: int = 1,
) -> Graph:
    """Encode batches of the chosen columns of a table as a graph."""
    roles = choose_roles(sample, options)
    blocks = _table_blocks(batches, sample.where, roles, options.missing_weight is not None, first_row)
    headings = [column.heading for column in sample.columns] if sample.header else None
    return _finish(blocks, sample, roles, options, weight_column_names(headings, roles.weights), large)


def _table_blocks(
    batches: Iterable[pa.RecordBatch], where: str, roles: Roles, allow_missing: bool, first_row: int
) -> Iterator[Block]:
    """Yield the names and weights of batches of the chosen columns."""
    several = len(roles.weights) > 1
    kinds = ROLES[:3] if roles.relation is not None else ("head", "tail")
    for batch in batches:
        batch.validate(full=True)  # also checks that text is UTF-8
        columns = [pa.chunked_array([column]) for column in batch.columns]
        texts = [text_column(column, role, where, first_row) for role, column in zip(kinds, columns, strict=False)]
        weights = columns[len(kinds) :]
        numbers = [number_column(column, where, several or allow_missing, first_row=first_row) for column in weights]
        empty = np.flatnonzero(np.isnan(numbers).all(axis=0)) if several else np.empty(0)
        if len(empty):
            raise FocuseError(f"{where}, row {int(empty[0]) + first_row}: {ALL_WEIGHTS_MISSING}")
        yield [*(text.combine_chunks() for text in texts), *map(pa.array, numbers)]
        first_row += len(batch)


def without_index_columns(table: pa.Table, where: str, roles: Sequence[str] = ROLES) -> pa.Table:
    """Drop the index columns that pandas stores in addition to a frame's own; an empty table is an error."""
    table = table.drop_columns([name for name in table.column_names if name.startswith(INDEX_PREFIX)])
    _refuse_empty(where, table.num_columns, table.num_rows, roles)
    return table


def _refuse_empty(where: str, columns: int, rows: int, roles: Sequence[str] = ROLES) -> None:
    if not columns or not rows:
        raise FocuseError(f"{where}: the table is empty; expected columns {join_words(roles)}")


def text_column(column: pa.ChunkedArray, role: str, where: str, first_row: int = 1) -> pa.ChunkedArray:
    """Return the names [n] of a column, none of them empty; `first_row` is the number of its first row, for errors."""
    try:
        text = _cast(column, pa.string())
    except pa.ArrowException:
        raise FocuseError(f"{where}: the {role} column holds {column.type}, not names; convert it to text") from None
    bad = pc.fill_null(pc.equal(text, ""), True)
    if pc.any(bad).as_py():
        row = pc.index(bad, True).as_py() + first_row
        raise FocuseError(f"{where}, row {row}: the {role} is empty; give it a name or remove the row")
    return text


def number_column(
    column: pa.ChunkedArray, where: str, allow_missing: bool = False, role: str = "weight", first_row: int = 1
) -> npt.NDArray[np.float64]:
    """Return the numbers [n] of a column of any type; with `allow_missing`, empty values and NaN become NaN."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_null(column.type):
        column = column.cast(pa.float64())
    numbers: npt.NDArray[np.float64]
    try:
        numbers = pc.fill_null(_cast(column, pa.float64()), np.nan).to_numpy()
    except pa.ArrowException:
        values = ["" if value is None else value for value in column.to_pylist()]
        numbers = np.array([np.nan if weight_fault(value) else float(str(value)) for value in values])
    bad = ~np.isfinite(numbers)
    if allow_missing and bad.any():
        shown = ["" if value is None else str(value).strip(" \t") for value in column.filter(pa.array(bad)).to_pylist()]
        bad[bad] = [value not in MISSING_WEIGHTS for value in shown]
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        value = column[row].as_py()
        advice = MISSING_ADVICE if role == "weight" and str(value).strip() in (*MISSING_WEIGHTS, "None") else ""
        fault = weight_fault("" if value is None else value, role)
        raise FocuseError(f"{where}, row {row + first_row}: {fault}{advice}")
    return numbers


def _cast(column: pa.ChunkedArray | pa.Array, data_type: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Cast a column; dictionaries by their values, because Arrow cannot cast those that polars makes."""
    if pa.types.is_dictionary(column.type):
        parts = [_cast(chunk.dictionary, data_type).take(chunk.indices) for chunk in column.chunks]
        return pa.chunked_array(parts, data_type)
    if data_type != pa.float64():
        return column.cast(data_type)
    if pa.types.is_string_view(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type):
        column = pc.ascii_trim(column, " \t")  # as in a text file
    return column.cast(data_type, safe=False)  # a count beyond 2**53 may lose its last digits


def to_arrow_column(values: list[Any], where: str) -> pa.Array:
    """Return Python values as a column; values of mixed types as text."""
    try:
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError):
            missing = [str(value) in ("None", "nan", "<NA>", "NaT") and not isinstance(value, str) for value in values]
            return pa.array([str(value) for value in values], pa.string(), mask=np.array(missing))
    except UnicodeEncodeError as error:
        row = [str(value) for value in values].index(error.object) + 1
        raise FocuseError(f"{where}, row {row}: {error.object!r} is not Unicode text; correct it") from None


def frame_to_arrow(frame: Any) -> pa.Table:
    """Return a pandas or polars frame, or an Arrow table, as an Arrow table."""
    try:
        return pa.table(frame) if hasattr(frame, "__arrow_c_stream__") else pa.interchange.from_dataframe(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise FocuseError(f"frame: cannot be read as a table: {_one_line(error)}") from None


def records_to_arrow(records: Sequence[Any], where: str) -> pa.Table:
    """Return rows that are dicts as a table; values that are lists or dicts become empty lists."""
    for number, record in enumerate(records, 1):
        if not isinstance(record, Mapping):
            raise FocuseError(f"{where}, row {number}: {record!r:.60} is not an object with names and values")
    names = list(dict.fromkeys(name for record in records for name in record))
    to_arrow_column(list(map(str, names)), f"{where}, names of columns")  # refuses what is not Unicode text
    columns = {str(name): [record.get(name) for record in records] for name in names}
    empty = pa.array([[]] * len(records), pa.list_(pa.null()))
    nested = {name for name, values in columns.items() if any(isinstance(value, list | dict) for value in values)}
    return pa.table(
        {name: empty if name in nested else to_arrow_column(values, where) for name, values in columns.items()}
    )


def rows_to_arrow(rows: Iterable[Sequence[Any]], where: str = "rows", roles: Sequence[str] = ROLES) -> pa.Table:
    """Return rows of tuples as a table, whose columns are named by their roles; further columns are weights."""
    listed = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, str | bytes | Mapping) or not isinstance(row, Iterable):
            raise FocuseError(f"{where}, row {number}: {row!r:.60} is not a tuple of {join_words(roles)}")
        listed.append(tuple(row))
        least = 2 if roles == ROLES else 3
        if len(listed[-1]) < least or len(listed[-1]) != len(listed[0]):
            raise FocuseError(f"{where}, row {number}: {len(listed[-1])} values; give every row {join_words(roles)}")
    if not listed:
        raise FocuseError(f"{where}: no rows; expected tuples of {join_words(roles)}")
    width = len(listed[0])
    names = roles[:width] if width <= 4 else [*roles[:3], *(f"w{number}" for number in range(1, width - 2))]
    columns = [to_arrow_column([row[index] for row in listed], where) for index in range(width)]
    return pa.table(columns, [*names, *(f"column {number}" for number in range(len(names) + 1, width + 1))])


# ---- one weight per relation ----------------------------------------------------------------------------------------


def _with_relation_weights(graph: Graph, weights: Mapping[str, float] | str | Path) -> Graph:
    """Give every edge the weight of its relation (the paper's predicate-level case)."""
    table = weights if isinstance(weights, Mapping) else _read_relation_weights(Path(weights))
    for name, value in table.items():
        if fault := weight_fault(value):
            raise FocuseError(f"relation weights, {str(name)!r}: {fault}")
    # The table may have more relations than this graph, because valid and test seldom have all of them.
    numbers = {str(name): float(value) for name, value in table.items()}
    missing = [name for name in graph.relations if name not in numbers]
    if missing:
        raise FocuseError(
            f"relation weights: no number for {counted(len(missing), 'relations')} of {graph.source}, "
            f"such as {missing[0]!r}{nearest(missing[0], numbers)}; give every one"
        )
    per_relation: npt.NDArray[np.float64] = np.array([numbers[name] for name in graph.relations])
    return replace(graph, weight=per_relation[graph.relation], weighted=True, columns=None)


def _read_relation_weights(path: Path) -> dict[str, float]:
    """Read a small text file with a relation and its weight on each line, with or without a header."""
    roles = ("relation", "weight")
    try:
        with open_decompressed(path) as stream:
            stream.read().decode("utf-8")  # Arrow does not look at the lines that it skips
    except UnicodeDecodeError:
        raise FocuseError(f"{path}: not UTF-8 text; convert it to UTF-8") from None
    found = first_rows(first_lines(path), str(path), None, roles)
    first = found.rows[0]
    header_lines = found.ends[0] if first[-1] and weight_fault(first[-1]).endswith(NOT_A_NUMBER) else found.skipped
    layout = TableLayout(found.delimiter, header_lines, 2, (0, 1), roles=roles, quoted=found.quoted)
    table = parse_text(path, layout)
    if not pc.all(pc.is_finite(table.column(1))).as_py():
        raise parse_error(path, layout, "a weight is not finite")
    names = table.column(0).cast(pa.string()).to_pylist()
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise FocuseError(f"{path}: the relation {repeated[0]!r} has several weights; remove all but one")
    return dict(zip(names, table.column(1).to_pylist(), strict=True))
