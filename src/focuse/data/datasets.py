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
MAX_TEXT_BYTES = 256 << 20  # limit of one decompressed file; none has a tenth of this size
BLOCK_BYTES = 1 << 20
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


# ---- the catalog ----------------------------------------------------------------------------------------------------


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


# ---- local copies ---------------------------------------------------------------------------------------------------


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
        raise FocuseError(f"{entry.name} is not here; {_advice(entry)}")
    if copy.missing:
        part = copy.missing[0]
        raise FocuseError(f"{copy.folder}: no {part}.tsv or {part}.tsv.gz; {_repair_advice(copy, entry)}")
    return copy


def _entry(name: str) -> CatalogEntry:
    return CATALOG[choose("dataset", name, CATALOG)]


def _advice(entry: CatalogEntry) -> str:
    manual = f"put its files into the folder {entry.name} of the one that FOCUSE_DATA names"
    if not entry.public:
        return f"it has no public source: {manual}"
    return f"run 'focuse datasets fetch {entry.name}', or {manual}"


# ---- fetching, verifying, loading -----------------------------------------------------------------------------------


def fetch(name: str, force: bool = False, progress: bool = False) -> Path:
    """Return the folder of a dataset, verified; it is downloaded into the cache if there is no local copy.

    Parameters
    ----------
    force : bool
        Download it even if there is a copy, and replace the one in the cache.
    progress : bool
        Show the progress of a download on standard error.
    """
    entry = _entry(name)
    if find(name) is not None and not force:
        copy = _complete_copy(entry)
        _verify(copy, entry)
        return copy.folder
    if not entry.public:
        raise FocuseError(f"{name} cannot be fetched; {_advice(entry)}")
    _download(entry, progress)
    return cache_folder() / name


def load(name: str, progress: bool = False) -> Dataset:
    """Load a dataset by name, downloading it first if there is no local copy. Files with other content are refused.

    >>> load("ppi5k").train  # doctest: +SKIP
    Graph(…/ppi5k/train.tsv: 230,929 edges, 4,999 entities, 7 relations)
    """
    entry = _entry(name)
    if find(name) is None and entry.public:
        fetch(name, progress=progress)
    copy = _complete_copy(entry)
    notes = _verify(copy, entry)
    train, valid, test = (read(copy.files[part], header=False) for part in PARTS)
    return Dataset(name, entry.title, train, valid, test, copy.folder, "; ".join(notes))


def _verify(copy: LocalCopy, entry: CatalogEntry) -> list[str]:
    """Raise an error unless every file is the expected one; return notes for the user."""
    notes = [entry.note] if entry.note else []
    for part, path in copy.files.items():
        file = entry.files[part]
        try:
            md5 = _text_md5(path)
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise FocuseError(f"{path}: cannot be read ({reason}); {_repair_advice(copy, entry)}") from None
        if md5 not in (file.md5, file.rebuilt):
            raise FocuseError(
                f"{path}: damaged or another file: its checksum is not that of {entry.name}'s {part}; "
                f"{_repair_advice(copy, entry)}"
            )
        if md5 == file.rebuilt:
            notes.append(f"{entry.name.upper()} {part} rebuilt in another row order")
    return notes


def _repair_advice(copy: LocalCopy, entry: CatalogEntry) -> str:
    if copy.folder.parent == cache_folder() and entry.public:
        return f"run 'focuse datasets fetch {entry.name} --force'"
    return "put the original there, or move the folder away"


def _text_md5(path: Path) -> str:
    """Return the md5 of a file's decompressed text, or "too large" if it cannot be a known one."""
    digest, size = hashlib.md5(usedforsecurity=False), 0
    with open_decompressed(path) as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            if size > MAX_TEXT_BYTES:
                return "too large"
    return digest.hexdigest()


# ---- downloading and unpacking --------------------------------------------------------------------------------------


def _download(entry: CatalogEntry, progress: bool) -> None:
    """Download the archive of a dataset and unpack it into the cache."""
    try:
        import pooch  # type: ignore[import-untyped]
    except ImportError:
        raise FocuseError(f"cannot download {entry.name}; install pooch: pip install pooch") from None
    pooch.get_logger().setLevel("INFO" if progress else "ERROR")
    show_bar = progress and find_spec("tqdm") is not None
    root = cache_folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{entry.name}.", dir=root, ignore_cleanup_errors=True) as temporary:
            file = f"{entry.name}.zip"
            source = pooch.create(
                temporary, base_url="", registry={file: None}, urls={file: entry.url}, retry_if_failed=RETRIES
            )
            _install(Path(source.fetch(file, progressbar=show_bar)), entry)
    except (OSError, ValueError) as error:  # the errors of requests are OSErrors, too
        cause: BaseException = error
        while cause.__context__ is not None:  # requests wraps the error of the system several times
            cause = cause.__context__
        reason = getattr(cause, "strerror", None) or cause
        raise FocuseError(
            f"{entry.url}: cannot be downloaded to {root} ({reason}); check the connection and the disk and try "
            f"again, {MANUAL_ADVICE}"
        ) from None


def _install(archive: Path, entry: CatalogEntry) -> None:
    """Unpack an archive into the dataset's folder in the cache, which is next to the folder of the archive.

    The folder appears once all files are verified. In an existing folder, each file is replaced by a complete one, and
    other files are kept.
    """
    fresh, target = archive.with_name("fresh"), cache_folder() / entry.name
    fresh.mkdir()
    unpack(archive, entry, fresh)
    try:
        os.rename(fresh, target)
    except OSError:  # there is a folder already
        for part in PARTS:
            os.replace(fresh / f"{part}.tsv", target / f"{part}.tsv")
            (target / f"{part}.tsv.gz").unlink(missing_ok=True)


def unpack(archive: Path, entry: CatalogEntry, folder: Path) -> None:
    """Extract the three files of a dataset from a zip archive into `folder`, and verify them.

    The archive determines neither names nor paths nor sizes of the files that are written.
    """
    texts = {}
    try:
        with zipfile.ZipFile(archive) as packed:
            members = set(packed.namelist())
            for part, file in entry.files.items():
                inside = f"{entry.name}/{part}.tsv"
                member = packed.getinfo(inside if inside in members else f"{part}.tsv")
                if member.file_size > MAX_TEXT_BYTES:
                    raise ValueError(f"{part}.tsv has {member.file_size:,} bytes")
                texts[part] = packed.read(member)
                if (digest := hashlib.md5(texts[part], usedforsecurity=False).hexdigest()) != file.md5:
                    raise ValueError(f"{member.filename} has the md5 {digest}, expected {file.md5}")
    except ARCHIVE_ERRORS as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FocuseError(f"{entry.url}: damaged archive ({reason}); try again later, {MANUAL_ADVICE}") from None
    for part, text in texts.items():
        (folder / f"{part}.tsv").write_bytes(text)
