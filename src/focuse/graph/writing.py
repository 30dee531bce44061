"""Writing a graph back to text, Parquet, RDF or GraphML: whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from focuse.errors import FocuseError, NoRoomError
from focuse.graph.graph import Graph
from focuse.graph.graphml import NOT_XML, graphml_lines
from focuse.graph.iris import BASE
from focuse.graph.rdf_writing import SUFFIXES, Triples, lines_of
from focuse.graph.spreadsheets import headings, text_table
from focuse.signals import undisturbed

COMPRESSION = {".gz": "gzip", ".zst": "zstd"}
FORMS = (".tsv", ".csv", ".parquet", *SUFFIXES, ".graphml")
CHUNK_ROWS = 1 << 17
FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", None))  # Windows knows no quota
RUN = (
    "checkpoint", "checkpoint.previous", "model", "splits", "normaliser", "columns", "numbers", "calibration",
    "weights", "probability",
)  # fmt: skip
RUN_FILES = ("entities.parquet", "relations.parquet", *(f"{name}.safetensors" for name in RUN))


def check_form(path: Path) -> tuple[str, str | None]:
    """The form that a file's name asks for and its compression; an error for others."""
    packed = COMPRESSION.get(path.suffix)
    kind = Path(path.stem).suffix if packed else path.suffix
    if kind not in FORMS or (packed and kind == ".parquet"):
        raise FocuseError(
            f"{path}: cannot write {path.suffix or 'a file without suffix'}; use .tsv, .csv or .parquet, "
            ".nt, .nq, .ttl or .trig (RDF), or .graphml"
        )
    spare(path)
    return kind, packed


def spare(path: Path, *inputs: str | Path | None) -> None:
    """Raise where a file that is to be written is one of those that are read, or a part of a run."""
    if not path.exists():
        return
    if path.is_dir():
        raise FocuseError(f"{path}: is a folder; give a file")
    if any(given is not None and os.path.exists(given) and path.samefile(given) for given in inputs):
        raise FocuseError(f"{path}: that is the file that is read; choose another one to write")
    if path.name in RUN_FILES and (path.absolute().parent / "run.toml").is_file():
        raise FocuseError(f"{path}: that is a part of the run itself; choose another file")


def write(graph: Graph, path: Path, base: str = BASE) -> None:
    """The columns head, relation, tail, weight. TSV has no header and no quotes, CSV has both.

    Several weights have a header in TSV, too: their names would be lost without. In RDF weights are notes on triples,
    and names that are no IRIs are minted from `base`.
    """
    kind, packed = check_form(path)
    if kind == ".parquet":
        with replacing(path) as temporary:
            pq.write_table(graph.to_arrow(), temporary, compression="zstd")
        return
    if kind not in (".tsv", ".csv"):
        _write_pieces(graph, path, kind, packed, base)
        return
    if kind == ".tsv":
        _refuse(graph, path, "[\t\r\n]", "a tab or line end; write .csv or .parquet instead")
        _refuse(graph, path, "^\ufeff", "a byte order mark; write .csv or .parquet instead")
    _refuse(graph, path, r"\x00", "a zero byte; write .parquet instead")  # readers take it for UTF-16
    with replacing(path) as temporary, pa.output_stream(str(temporary), compression=packed) as stream:
        if kind == ".csv":
            arrow_csv.write_csv(text_table(graph.to_arrow()), stream)
        else:
            _write_tsv(graph, stream)


def _write_pieces(graph: Graph, path: Path, kind: str, packed: str | None, base: str) -> None:
    """RDF and GraphML, which name every entity once more often than they have edges."""
    head, relation, tail = (pa.array(column) for column in (graph.head, graph.relation, graph.tail))
    names = graph.entities.column, graph.relations.column
    numbers = graph.numbers() if graph.weighted else {}
    if kind == ".graphml":
        _refuse(graph, path, NOT_XML, "a letter that XML cannot carry; write .csv or .parquet instead")
        pieces = graphml_lines(head, relation, tail, names, numbers)
    else:
        pieces = lines_of(Triples(head, relation, tail, *names, numbers), kind, base)
    with replacing(path) as temporary, pa.output_stream(str(temporary), compression=packed) as stream:
        for piece in pieces:
            stream.write(piece)


def _write_tsv(graph: Graph, stream: pa.NativeFile) -> None:
    """Lines without quoting, by hand: Arrow's writer refuses names that hold quotes."""
    if graph.columns is not None:
        stream.write(("\t".join(headings(["head", "relation", "tail", *graph.columns.names])) + "\n").encode())
    for start in range(0, len(graph), CHUNK_ROWS):
        table = text_table(graph.select(np.arange(start, min(start + CHUNK_ROWS, len(graph)))).to_arrow())
        columns = [pc.fill_null(column.combine_chunks().cast(pa.string()), "") for column in table.columns]
        lines = pc.binary_join_element_wise(pc.binary_join_element_wise(*columns, "\t"), "", "\n")
        # The text of an Arrow column lies in one piece: here it is the lines themselves.
        stream.write(lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py()))


def _refuse(graph: Graph, path: Path, pattern: str, fault: str) -> None:
    """An error if a name holds what the format cannot carry."""
    headings = pa.array(graph.columns.names if graph.columns is not None else [], pa.string())
    for names in (graph.entities.column, graph.relations.column, headings):
        odd = pc.match_substring_regex(names, pattern)
        if pc.any(odd).as_py():
            name = names[pc.index(odd, True).as_py()].as_py()
            raise FocuseError(f"{path}: the name {name!r} holds {fault}")


@contextmanager
def replacing(path: Path, durable: bool = False) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place only when the block ends well.

    A `durable` one is on the disk before it does, so that a power cut leaves the old file or the new one.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:  # from before it is made: an interrupt that waits is heard just after
        try:
            temporary.touch()
            mode = temporary.stat().st_mode
        except OSError as error:
            if error.errno in FULL:
                raise
            advice = "choose a folder that exists and is writable"
            raise FocuseError(f"{path}: {error.strerror or error}; {advice}") from None
        yield temporary
        temporary.chmod(mode)  # some writers make files that only their owner can read
        if durable:
            flush(temporary)
        os.replace(temporary, path)
        if durable:
            flush(path.parent)
    except OSError as error:
        if error.errno is None or error.errno not in FULL:
            raise
        raise NoRoomError(path, os.strerror(error.errno)) from None
    finally:
        with undisturbed(), suppress(OSError):
            temporary.unlink()


def flush(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk now; Windows does so with folders by itself."""
    if sys.platform == "win32" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # Windows flushes only what may be written
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
