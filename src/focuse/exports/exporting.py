"""`run.export`: embeddings and their names in the forms that other tools read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from safetensors import SafetensorError

from focuse.config import Config
from focuse.data.splits import Splits
from focuse.data.writers import COMPRESSION
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError, nearest
from focuse.exports.formats import (
    WHAT,
    Table,
    check_names,
    finished_tables,
    plain_tensors,
    to_pyg,
    write_delimited,
    write_numpy,
    write_parquet,
    write_projector,
    write_safetensors,
    write_word2vec,
)
from focuse.models.base import components_of
from focuse.option_strings import choose
from focuse.storage.atomic import refuse_overwrite, replace_file

SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".vec": "word2vec",
    ".w2v": "word2vec",
    ".txt": "word2vec",
    ".npz": "numpy",
    ".safetensors": "safetensors",
    ".pt": "pyg",
}
FORMATS = ("parquet", "csv", "tsv", "word2vec", "projector", "numpy", "safetensors", "pyg")
ONE_TABLE = ("parquet", "csv", "tsv", "word2vec")  # a file holds one table
TEXT = ("csv", "tsv", "word2vec")


def check_export(path: Path, form: str | None, what: str) -> str:
    """The form to write; an error before any work is done."""
    choose("export", what, WHAT)
    packed = path.suffix in COMPRESSION
    suffix = (Path(path.stem).suffix if packed else path.suffix).lower()
    if form is not None:
        choose("format", form, FORMATS)
    elif suffix in SUFFIXES:
        form = SUFFIXES[suffix]
    elif not path.suffix:
        form = "projector"
    else:
        offered = nearest(suffix, SUFFIXES)
        raise FocuseError(
            f"{path}: cannot export to {path.suffix}{offered}; use {', '.join(SUFFIXES)}, a folder for TensorBoard's "
            f"projector, or say which format it is (--format {'|'.join(FORMATS)})"
        )
    if packed and form not in TEXT:
        raise FocuseError(f"{path}: {form} is not written packed; leave out {path.suffix}")
    if not path.absolute().parent.is_dir():
        raise FocuseError(f"{path}: there is no folder {path.parent}; make it first")
    if form == "projector" and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FocuseError(f"{path}: exists already; give a new folder")
    if form != "projector" and path.is_dir():
        raise FocuseError(f"{path}: is a folder; give a file")
    refuse_overwrite(path)
    return form


class ExportMethods:
    """The part of a `Run` that hands its embeddings to other tools."""

    settings: Config
    splits: Splits
    scorer: TableScorer

    def export(self, path: str | Path, format: str | None = None, what: str = "entities") -> list[Path]:
        """Write embeddings with their names, whole or not at all; the files.

        `format` (default: by the suffix) is parquet, csv, tsv, word2vec (.vec, .w2v, .txt), numpy (.npz), safetensors,
        pyg (.pt: both tables and the training edges) or projector (a folder for TensorBoard). `what` is entities,
        relations or both; forms that hold one table then get two files, FILE.entities.SUFFIX and FILE.relations.SUFFIX.
        A row of complex numbers has all real parts first and then all imaginary ones.
        """
        path = Path(path)
        form = check_export(path, format, what)
        if form == "pyg":
            with replace_file(path) as temporary, _room(path):
                torch.save(plain_tensors(self.scorer, self.splits), temporary)
            return [path]
        tables = finished_tables(self.scorer, self.splits.train, what)
        if form == "projector":
            return _write_folder(tables, path)
        model = self.scorer.model
        about = {"focuse.model": self.settings.model, "focuse.parts": str(components_of(model)[0])}
        if form not in ONE_TABLE:
            with replace_file(path) as temporary, _room(path):
                if form == "numpy":
                    write_numpy(tables, temporary, path)
                else:
                    write_safetensors(tables, temporary, path, about)
            return [path]
        targets = [path] if len(tables) == 1 else [_beside(path, table.kind) for table in tables]
        for table, target in zip(tables, targets, strict=True):
            if form == "tsv":  # both tables before either is written
                check_names(table, target)
        for table, target in zip(tables, targets, strict=True):
            _write_table(table, target, form, about)
        return targets

    def to_pyg(self, parts: Sequence[str] = ("train",)) -> Any:
        """The run as a `torch_geometric.data.Data`: x, edge_index, edge_type, edge_attr (weights), names and more.

        `parts` are those of the splits whose edges it has; edge_part tells them apart.
        """
        return to_pyg(self.scorer, self.splits, parts)


@contextmanager
def _room(path: Path) -> Iterator[None]:
    """A full disk is one line, whatever these libraries make of it."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:120]
        raise FocuseError(f"{path}: cannot be written: {reason}; free some space, then try again") from None


def _beside(path: Path, kind: str) -> Path:
    """The file of one of two tables."""
    first, dot, rest = path.name.partition(".")
    return path.with_name(f"{first}.{kind}{dot}{rest}")


def _write_table(table: Table, target: Path, form: str, about: dict[str, str]) -> None:
    with replace_file(target) as temporary:
        if form == "parquet":
            write_parquet(table, temporary, about)
            return
        with pa.output_stream(str(temporary), compression=COMPRESSION.get(target.suffix)) as stream:
            if form == "word2vec":
                write_word2vec(table, stream)
            else:
                write_delimited(table, stream, "," if form == "csv" else "\t")


def _write_folder(tables: list[Table], folder: Path) -> list[Path]:
    """A folder that is there only when all of it is."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        try:
            temporary.mkdir()
        except OSError as error:
            raise FocuseError(f"{folder}: {error.strerror or error}; choose a folder that is writable") from None
        write_projector(tables, temporary)
        with suppress(OSError):
            folder.rmdir()  # an empty one
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(folder.iterdir())
