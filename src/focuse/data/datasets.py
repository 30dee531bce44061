"""Benchmark graphs of the literature by name, and the embedded example graph.

A dataset is looked for in the folder that FOCUSE_DATA names, then in the cache; else it is downloaded into the cache.
Every file is verified by its checksum before it is read.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from focuse.data.graph import Graph
from focuse.data.out_of_core import cache_folder
from focuse.data.readers import open_decompressed, read
from focuse.errors import FocuseError
from focuse.option_strings import choose

__all__ = ["Dataset", "careers", "fetch", "load", "names", "path"]

PARTS = ("train", "valid", "test")
SUFFIXES = (".tsv", ".tsv.gz")  # a compressed file has precedence
RETRIES = 2  # downloads that fail are tried again this often
MANUAL_ADVICE = "or put the files into the folder that FOCUSE_DATA names"
# Reading a damaged archive may raise these errors; an archive with a password raises RuntimeError.
ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, KeyError, OSError)


def careers() -> Graph:
    """Return the embedded example graph: jobs, skills, tasks and tools, and 10,000 edges with an importance in [0, 1].

    >>> careers()
    Graph(careers: 10,000 edges, 490 entities, 7 relations)
    """
    return replace(read(Path(__file__).with_name("careers.tsv.gz"), header=False), source="careers")


@dataclass(frozen=True)
class CatalogFile:
    """One split of a dataset: its number of rows, and the md5 of its text.

    `rebuilt` is the md5 of a text with the same rows in another order.
    """

    rows: int
    md5: str
    rebuilt: str = ""


@dataclass(frozen=True)
class CatalogEntry:
    """A dataset of the catalog. It can be downloaded if it is `public`; `note` is information for its users."""

    name: str
    title: str
    files: Mapping[str, CatalogFile]
    source: str
    license: str
    public: bool = True
    note: str = ""

    @property
    def url(self) -> str:
        """The address of the zip archive, empty without a public source."""
        return f"{ARCHIVES}/{self.name}.zip" if self.public else ""


@dataclass(frozen=True)
class Dataset:
    """The three graphs of a dataset as in their files, each with its own ids (see `Graph.align`)."""

    name: str
    title: str
    train: Graph
    valid: Graph
    test: Graph
    folder: Path
    note: str = ""


ARCHIVES = "https://s3-eu-west-1.amazonaws.com/ampligraph/datasets"


def _read_catalog() -> dict[str, CatalogEntry]:
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    entries = {}
    for name, table in tables.items():
        files = {part: CatalogFile(**file) for part, file in table.pop("files").items()}
        entries[name] = CatalogEntry(name, files=files, **table)
    return entries


CATALOG = _read_catalog()


@dataclass(frozen=True)
class LocalCopy:
    """A local copy of a dataset: a folder and the files of its splits."""

    folder: Path
    files: dict[str, Path]

    @property
    def missing(self) -> list[str]:
        """Return the splits without a file."""
        return [part for part in PARTS if part not in self.files]


def names() -> list[str]:
    """Return the names of the datasets that `load` knows.

    >>> names()
    ['ppi5k', 'nl27k', 'cn15k', 'onet20k', 'onet-importance']
    """
    return list(CATALOG)


def data_folder() -> Path | None:
    """Return the folder that FOCUSE_DATA names, if it is set."""
    given = os.environ.get("FOCUSE_DATA")
    return Path(os.path.expanduser(given)) if given else None


def find(name: str) -> LocalCopy | None:
    """Return the local copy of a dataset, complete or not, or None. Nothing is verified or downloaded."""
    entry = _entry(name)
    for root in filter(None, (data_folder(), cache_folder())):
        folder = root / entry.name
        candidates = {part: [folder / f"{part}{suffix}" for suffix in SUFFIXES] for part in PARTS}
        # os.path, because pathlib raises an error for folders that may not be entered.
        files = {part: path for part, paths in candidates.items() for path in paths if os.path.isfile(path)}
        if files:
            return LocalCopy(folder, files)
    return None


def path(name: str) -> Path:
    """Return the folder with a dataset's three files."""
    return _complete_copy(_entry(name)).folder


def _complete_copy(entry: CatalogEntry) -> LocalCopy:
    copy = find(entry.name)
    if copy is None:
        raise FocuseError(f"the dataset {entry.name} was not found; {_advice(entry)}")
    if copy.missing:
        part = copy.missing[0]
        raise FocuseError(f"{copy.folder}: no {part}.tsv or {part}.tsv.gz; {_advice(entry, copy)}")
    return copy


def _entry(name: str) -> CatalogEntry:
    return CATALOG[choose("dataset", name, CATALOG)]


def _advice(entry: CatalogEntry, copy: LocalCopy | None = None) -> str:
    """Return how to get a dataset, or how to replace a damaged copy of it."""
    if copy is not None and (copy.folder.parent != cache_folder() or not entry.public):
        return "put the original there, or move the folder away"
    if copy is not None:
        return f"run 'focuse datasets fetch {entry.name} --force'"
    manual = f"put its files into $FOCUSE_DATA/{entry.name}"
    if not entry.public:
        return f"it has no public source: {manual}"
    return f"run 'focuse datasets fetch {entry.name}', or {manual}"


def fetch(name: str, force: bool = False, progress: bool = False) -> Path:
    """Return the folder of a dataset, verified; it is downloaded into the cache if there is no local copy.

    With `force` it is downloaded even if there is a copy, and replaces the one in the cache. With `progress` the
    progress of a download is shown on standard error.
    """
    entry = _entry(name)
    if find(name) is not None and not force:
        copy = _complete_copy(entry)
        _verify(copy, entry)
        return copy.folder
    if not entry.public:
        raise FocuseError(f"{name} cannot be fetched; {_advice(entry)}")
    return _download(entry, progress)


def load(name: str, progress: bool = False) -> Dataset:
    """Load a dataset by name, downloading it first if there is no local copy. Files with other content are refused.

    >>> load("ppi5k").train  # doctest: +SKIP
    Graph(…/ppi5k/train.tsv: 230,929 edges, 4,999 entities, 7 relations)
    """
    entry = _entry(name)
    if find(name) is None and entry.public:
        _download(entry, progress)
    copy = _complete_copy(entry)
    notes = _verify(copy, entry)
    train, valid, test = (read(copy.files[part], header=False) for part in PARTS)
    return Dataset(name, entry.title, train, valid, test, copy.folder, "; ".join(notes))


def _verify(copy: LocalCopy, entry: CatalogEntry) -> list[str]:
    """Raise an error unless every file is the expected one; return notes for the user."""
    notes = [entry.note] if entry.note else []
    advice = _advice(entry, copy)
    for part, path in copy.files.items():
        file = entry.files[part]
        try:
            with open_decompressed(path) as stream:
                md5 = _md5(stream.read())
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise FocuseError(f"{path}: cannot be read ({reason}); {advice}") from None
        if md5 not in (file.md5, file.rebuilt):
            fault = f"damaged or another file: its checksum is not that of {entry.name}'s {part}"
            raise FocuseError(f"{path}: {fault}; {advice}")
        if md5 == file.rebuilt:
            notes.append(f"{entry.name.upper()} {part} rebuilt in another row order")
    return notes


def _md5(text: bytes) -> str:
    return hashlib.md5(text, usedforsecurity=False).hexdigest()


def _download(entry: CatalogEntry, progress: bool) -> Path:
    """Download the archive of a dataset and replace its files in the cache; return their folder."""
    try:
        import pooch  # type: ignore[import-untyped]
    except ImportError:
        raise FocuseError(f"cannot download {entry.name}; install pooch: pip install pooch") from None
    pooch.get_logger().setLevel("INFO" if progress else "ERROR")
    show_bar = progress and find_spec("tqdm") is not None
    root, file = cache_folder(), f"{entry.name}.zip"
    folder = root / entry.name
    try:
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{entry.name}.", dir=root, ignore_cleanup_errors=True) as temporary:
            source = pooch.create(
                temporary, base_url="", registry={file: None}, urls={file: entry.url}, retry_if_failed=RETRIES
            )
            texts = unpack(Path(source.fetch(file, progressbar=show_bar)), entry)
            folder.mkdir(exist_ok=True)
            for part, text in texts.items():
                Path(temporary, part).write_bytes(text)
                os.replace(Path(temporary, part), folder / f"{part}.tsv")
                (folder / f"{part}.tsv.gz").unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # the errors of requests are OSErrors, too
        cause: BaseException = error
        while cause.__context__ is not None:  # requests wraps the error of the system several times
            cause = cause.__context__
        reason = getattr(cause, "strerror", None) or cause
        fault = f"cannot be downloaded to {root} ({reason}); check the connection and the disk and try again"
        raise FocuseError(f"{entry.url}: {fault}, {MANUAL_ADVICE}") from None
    return folder


def unpack(archive: Path, entry: CatalogEntry) -> dict[str, bytes]:
    """Return the texts of a dataset's three files from a zip archive, verified; other members are ignored."""
    texts = {}
    try:
        with zipfile.ZipFile(archive) as packed:
            members = set(packed.namelist())
            for part, file in entry.files.items():
                inside = f"{entry.name}/{part}.tsv"
                texts[part] = packed.read(inside if inside in members else f"{part}.tsv")
                if (md5 := _md5(texts[part])) != file.md5:
                    raise ValueError(f"{part}.tsv has the md5 {md5}, expected {file.md5}")
    except ARCHIVE_ERRORS as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FocuseError(f"{entry.url}: damaged archive ({reason}); try again later, {MANUAL_ADVICE}") from None
    return texts
