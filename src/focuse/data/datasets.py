"""Benchmark graphs of the literature by name, and the embedded example graph.

A dataset is looked for in the folder that FOCUSE_DATA names, then in the cache; else it is downloaded into the cache.
Every file is verified by its checksum before it is read.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from focuse.data.graph import Graph
from focuse.data.graph_cache import cache_folder
from focuse.data.readers import open_decompressed, read
from focuse.errors import FocuseError
from focuse.option_strings import choose

__all__ = ["Dataset", "careers", "fetch", "load", "names", "path"]

PARTS = ("train", "valid", "test")
STEMS = {"train": ("train",), "valid": ("valid", "val"), "test": ("test",)}
SUFFIXES = (".tsv.gz", ".tsv", ".txt", ".csv")
MAX_TEXT_BYTES = 256 << 20  # limit of one decompressed file; none has a tenth of this size
BLOCK_BYTES = 1 << 20
RETRIES = 2  # downloads that fail are tried again this often
MANUAL_ADVICE = "or put the files into the folder that FOCUSE_DATA names"
# Reading a damaged archive may raise these errors; an archive with a password raises RuntimeError.
ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, KeyError)


def careers() -> Graph:
    """Return the embedded example graph: jobs, skills, tasks and tools, and 10,000 edges with an importance in [0, 1].

    >>> careers()
    Graph(careers: 10,000 edges, 490 entities, 7 relations)
    """
    return replace(read(Path(__file__).with_name("careers.tsv.gz"), header=False, cache=False), source="careers")


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
UKGE = "Chen et al. 2019 (UKGE)"
CATALOG: dict[str, CatalogEntry] = {
    entry.name: entry
    for entry in (
        CatalogEntry(
            "ppi5k",
            "PPI5K, interactions of proteins",
            {
                "train": CatalogFile(230_929, "d8b54de3482c0d043118cbd05f2666cf"),
                "valid": CatalogFile(19_017, "2bd094118f4be1f4f6d6a1d4707271c1"),
                "test": CatalogFile(21_720, "7e6e345f496ed9a0cc58b91d4877ddd6"),
            },
            source=f"{UKGE}, from STRING",
            license="STRING: CC BY 4.0 today",
        ),
        CatalogEntry(
            "nl27k",
            "NL27K, beliefs read from the web",
            {
                "train": CatalogFile(149_100, "d4ce775401d299074d98e046f13e7283"),
                "valid": CatalogFile(12_278, "00177fa6b9f5cec18814ee599c02eae3"),
                "test": CatalogFile(14_034, "2ba17f29119688d93c9d29ab40f63b3e"),
            },
            source=f"{UKGE}, from NELL (Carnegie Mellon, Read the Web)",
            license="NELL: no license text came with the data",
        ),
        CatalogEntry(
            "cn15k",
            "CN15K, common sense",
            {
                "train": CatalogFile(204_984, "8bf2ecc8f34e7b3b544afc30abaac478", "0ececd8070416e36f3a8bf335f9c2ecb"),
                "valid": CatalogFile(16_881, "15b63ebd7428a262ad5fe869cc944208"),
                "test": CatalogFile(19_293, "29df4b8d24a3d89fc7c1032b9c508112"),
            },
            source=f"{UKGE}, from ConceptNet 5",
            license="ConceptNet: CC BY-SA 4.0",
        ),
        CatalogEntry(
            "onet20k",
            "O*NET20K, occupations",
            {
                "train": CatalogFile(461_932, "516220427a9a18516fd7a804a6944d64"),
                "valid": CatalogFile(850, "d7806951ac3d916c5c5a0304eea064d2"),
                "test": CatalogFile(2_000, "e5baec19037cb0bddc5a2fe3c0f4445a"),
            },
            source="Pai and Costabello 2021 (FocusE), from O*NET (USDOL/ETA); rows as AmpliGraph counts them",
            license="O*NET Database: CC BY 4.0",
        ),
        CatalogEntry(
            "onet-importance",
            "occupations rated in O*NET 18.1, a stand-in",
            {
                "train": CatalogFile(274_602, "d407a7558077ef13986632cf56136101"),
                "valid": CatalogFile(850, "386bf502499fe24b64c641f3264ccd57"),
                "test": CatalogFile(2_000, "eec55193a49060fbf7c00ae5cfe23d03"),
            },
            source="importance ratings of the O*NET 18.1 Database (USDOL/ETA), modified; no public source",
            license="O*NET Database: CC BY 4.0",
            public=False,
            note="a stand-in: not O*NET20K, and no figure on it compares with the paper's",
        ),
    )
}


# ---- local copies ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalCopy:
    """A local copy of a dataset: its files, or an archive that is not unpacked yet."""

    folder: Path
    files: dict[str, Path] = field(default_factory=dict)
    archive: Path | None = None

    @property
    def missing(self) -> list[str]:
        """Return the splits without a file."""
        return [] if self.archive else [part for part in PARTS if part not in self.files]

    @property
    def path(self) -> Path:
        return self.archive or self.folder


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
    """Return the local copy of a dataset, complete or not, or None. Nothing is verified, unpacked or downloaded."""
    entry = _entry(name)
    data = data_folder()
    return (_find_in(data, entry) if data else None) or _find_in(cache_folder(), entry)


def path(name: str) -> Path:
    """Return the folder with a dataset's three files; an archive found there is unpacked into the cache."""
    copy = find(name)
    if copy is None:
        raise FocuseError(f"{name} is not here; {_advice(_entry(name))}")
    return _unpacked(copy, _entry(name)).folder


def _entry(name: str) -> CatalogEntry:
    return CATALOG[choose("dataset", name, CATALOG)]


def _advice(entry: CatalogEntry) -> str:
    manual = f"put its files into the folder {entry.name} of the one that FOCUSE_DATA names"
    if not entry.public:
        return f"it has no public source: {manual}"
    return f"run 'focuse datasets fetch {entry.name}', or {manual}"


def _find_in(root: Path, entry: CatalogEntry) -> LocalCopy | None:
    # os.path, because pathlib raises an error for folders that may not be entered.
    folder = root / entry.name
    files: dict[str, Path] = {}
    for part in PARTS:
        candidates = (folder / f"{stem}{suffix}" for stem in STEMS[part] for suffix in SUFFIXES)
        path = next((candidate for candidate in candidates if os.path.isfile(candidate)), None)
        if path is not None:
            files[part] = path
    if len(files) < len(PARTS) and entry.public:
        for archive in (root / f"{entry.name}.zip", folder / f"{entry.name}.zip"):
            if os.path.isfile(archive):
                return LocalCopy(folder, archive=archive)
    return LocalCopy(folder, files) if files else None


def _unpacked(copy: LocalCopy, entry: CatalogEntry) -> LocalCopy:
    """Return a copy with all its files: an archive is unpacked into the cache, unless it was before."""
    if copy.archive is not None:
        target = cache_folder() / entry.name
        cached = _find_in(target.parent, entry)
        if cached is None or cached.archive or cached.missing:
            _install(copy.archive, entry, str(copy.archive))
        copy = _find_in(target.parent, entry) or LocalCopy(target)
    if copy.missing:
        part = copy.missing[0]
        raise FocuseError(f"{copy.folder}: no {part}.tsv or {part}.tsv.gz; {_repair_advice(copy, entry)}")
    return copy


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
    copy = find(name)
    if copy is not None and not force:
        copy = _unpacked(copy, entry)
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
    if find(name) is None:
        if not entry.public:
            raise FocuseError(f"{name} is not here; {_advice(entry)}")
        fetch(name, progress=progress)
    copy = find(name)
    if copy is None:
        raise FocuseError(f"{name} was deleted while it was being fetched; try again")
    copy = _unpacked(copy, entry)
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
            _install(Path(source.fetch(file, progressbar=show_bar)), entry, entry.url)
    except (OSError, ValueError) as error:  # the errors of requests are OSErrors, too
        cause: BaseException = error
        while cause.__context__ is not None:  # requests wraps the error of the system several times
            cause = cause.__context__
        reason = getattr(cause, "strerror", None) or cause
        raise FocuseError(
            f"{entry.url}: cannot be downloaded to {root} ({reason}); check the connection and the disk and try "
            f"again, {MANUAL_ADVICE}"
        ) from None


def _install(archive: Path, entry: CatalogEntry, where: str) -> None:
    """Unpack an archive into the dataset's folder in the cache; `where` names the archive in errors.

    The folder appears once all files are verified. In an existing folder, each file is replaced by a complete one, and
    other files are kept.
    """
    target = cache_folder() / entry.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{entry.name}.", dir=target.parent, ignore_cleanup_errors=True) as temporary:
        fresh = Path(temporary, "fresh")  # inside, because only its owner may enter the temporary folder itself
        fresh.mkdir()
        unpack(archive, entry, fresh, where)
        try:
            os.rename(fresh, target)
        except OSError:  # there is a folder already
            for part in PARTS:
                os.replace(fresh / f"{part}.tsv", target / f"{part}.tsv")
                for other in (stem + suffix for stem in STEMS[part] for suffix in SUFFIXES):
                    if other != f"{part}.tsv":
                        (target / other).unlink(missing_ok=True)


def unpack(archive: Path, entry: CatalogEntry, folder: Path, where: str = "") -> None:
    """Extract the three files of a dataset from a zip archive into `folder`, and verify them.

    The archive determines neither names nor paths nor sizes of the files that are written.
    """
    try:
        with zipfile.ZipFile(archive) as packed:
            members = set(packed.namelist())
            for part, file in entry.files.items():
                inside = f"{entry.name}/{part}.tsv"
                member = packed.getinfo(inside if inside in members else f"{part}.tsv")
                if member.file_size > MAX_TEXT_BYTES:
                    raise ValueError(f"{part}.tsv has {member.file_size:,} bytes")
                text = packed.read(member)
                if (digest := hashlib.md5(text, usedforsecurity=False).hexdigest()) != file.md5:
                    raise ValueError(f"{member.filename} has the md5 {digest}, expected {file.md5}")
                (folder / f"{part}.tsv").write_bytes(text)
    except ARCHIVE_ERRORS as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FocuseError(f"{where or archive}: damaged archive ({reason}); try again later, {MANUAL_ADVICE}") from None
    except OSError as error:
        raise FocuseError(f"{where or archive}: cannot be unpacked to {folder} ({error.strerror or error})") from None
