"""Benchmark graphs of the literature: a catalog, safe downloads, and loading by name.

A data set is looked for in the folder that FOCUSE_DATA names, then in the cache; else it is downloaded into the cache.
Every file is verified by its checksum before it is read.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import secrets
import shutil
import ssl
import stat
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import pyarrow as pa

from focuse import __version__
from focuse.data.graph import Graph
from focuse.data.graph_cache import cache_folder
from focuse.data.readers import open_decompressed, read
from focuse.errors import FocuseError
from focuse.option_strings import choose

PARTS = ("train", "valid", "test")
STEMS = {"train": ("train",), "valid": ("valid", "val"), "test": ("test",)}
SUFFIXES = (".tsv.gz", ".tsv", ".txt", ".csv")
MAX_TEXT_BYTES = 256 << 20  # limit of one decompressed file; none has a tenth of this size
BLOCK_BYTES = 1 << 20

Report = Callable[[str], None]
Progress = Callable[[int, int | None], None]


# ---- the catalog ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CatalogFile:
    """One split of a data set: its number of rows, the md5 of its text, and the sha256 of the gzip file if known.

    `rebuilt` is the md5 of a text with the same rows in another order; then the gzip file is that of this text.
    """

    rows: int
    md5: str
    sha256: str = ""
    rebuilt: str = ""


@dataclass(frozen=True)
class CatalogEntry:
    """A data set of the catalog. Without `url` there is no public source; `note` is information for its users."""

    name: str
    title: str
    files: Mapping[str, CatalogFile]
    source: str
    license: str
    url: str = ""
    note: str = ""

    @property
    def archive(self) -> Archive | None:
        """The archive to download and the files to expect, or None without a public source."""
        md5 = {f"{part}.tsv": file.md5 for part, file in self.files.items()}
        return Archive(self.url, self.name, md5) if self.url else None


@dataclass(frozen=True)
class Dataset:
    """The three graphs of a data set as in their files, each with its own ids (see `Graph.align`)."""

    name: str
    title: str
    train: Graph
    valid: Graph
    test: Graph
    folder: Path
    note: str = ""


AMPLIGRAPH = "https://s3-eu-west-1.amazonaws.com/ampligraph/datasets"
UKGE = "Chen et al. 2019 (UKGE)"
CATALOG: dict[str, CatalogEntry] = {
    entry.name: entry
    for entry in (
        CatalogEntry(
            "ppi5k",
            "PPI5K, interactions of proteins",
            {
                "train": CatalogFile(
                    230_929,
                    "d8b54de3482c0d043118cbd05f2666cf",
                    "8f700d1e3ea0918c393babce14c47329d460904e1fa6bcdfafa2a6e5abbf8d53",
                ),
                "valid": CatalogFile(
                    19_017,
                    "2bd094118f4be1f4f6d6a1d4707271c1",
                    "5704e0859e6fa6f394a8911b3de5d056b2bc4c9a2b8265b6c6c98b683eb2ed67",
                ),
                "test": CatalogFile(
                    21_720,
                    "7e6e345f496ed9a0cc58b91d4877ddd6",
                    "333c227375e2964038ed78429ad6b5ba48f10230bdfd50bc70f49085a9a1bd5c",
                ),
            },
            source=f"{UKGE}, from STRING",
            license="STRING: CC BY 4.0 today",
            url=f"{AMPLIGRAPH}/ppi5k.zip",
        ),
        CatalogEntry(
            "nl27k",
            "NL27K, beliefs read from the web",
            {
                "train": CatalogFile(
                    149_100,
                    "d4ce775401d299074d98e046f13e7283",
                    "bdccf513aea1bd0c719181e2956508e27331eece2f8866cc0f73064439c2fc92",
                ),
                "valid": CatalogFile(
                    12_278,
                    "00177fa6b9f5cec18814ee599c02eae3",
                    "a039b2036afd6e3debc6524be320e19db158322399f088eab5f612194673d9ab",
                ),
                "test": CatalogFile(
                    14_034,
                    "2ba17f29119688d93c9d29ab40f63b3e",
                    "7307e562f4197dfd7f5a070931466a6837c2b46b1c2112af3d37756440774557",
                ),
            },
            source=f"{UKGE}, from NELL (Carnegie Mellon, Read the Web)",
            license="NELL: no license text came with the data",
            url=f"{AMPLIGRAPH}/nl27k.zip",
        ),
        CatalogEntry(
            "cn15k",
            "CN15K, common sense",
            {
                "train": CatalogFile(
                    204_984,
                    "8bf2ecc8f34e7b3b544afc30abaac478",
                    "9456960202a488e082fa596794f4ba9d8b17abf0126965a282a0c63eda8a2a15",
                    rebuilt="0ececd8070416e36f3a8bf335f9c2ecb",
                ),
                "valid": CatalogFile(
                    16_881,
                    "15b63ebd7428a262ad5fe869cc944208",
                    "91cbe6fd66f6cff49855fa86407d0900e68d035577de8c8d6023ac2ff55afe76",
                ),
                "test": CatalogFile(
                    19_293,
                    "29df4b8d24a3d89fc7c1032b9c508112",
                    "c12631642afc82ca2730d9ab03add40b6473aaf718734b1214948f71b7210f93",
                ),
            },
            source=f"{UKGE}, from ConceptNet 5",
            license="ConceptNet: CC BY-SA 4.0",
            url=f"{AMPLIGRAPH}/cn15k.zip",
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
            url=f"{AMPLIGRAPH}/onet20k.zip",
        ),
        CatalogEntry(
            "onet-importance",
            "occupations rated in O*NET 18.1, a stand-in",
            {
                "train": CatalogFile(
                    274_602,
                    "d407a7558077ef13986632cf56136101",
                    "d11a42f753b9803e2979dbc127f0c06d614b788c8959d80938d3763cfd2b0e8c",
                ),
                "valid": CatalogFile(
                    850,
                    "386bf502499fe24b64c641f3264ccd57",
                    "78768458cdf1cf1fc408edaadd30d8a7c922360046e5d27f7ead5bfe7f3ab786",
                ),
                "test": CatalogFile(
                    2_000,
                    "eec55193a49060fbf7c00ae5cfe23d03",
                    "8e6abba72eeb9a55b8ecdaad4506a98d4e75b8641a35f00be76b37aca81b6219",
                ),
            },
            source="importance ratings of the O*NET 18.1 Database (USDOL/ETA), modified; no public source",
            license="O*NET Database: CC BY 4.0",
            note="a stand-in: not O*NET20K, and no figure on it compares with the paper's",
        ),
    )
}


# ---- local copies ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalCopy:
    """A local copy of a data set: its files, or an archive that is not unpacked yet."""

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
    """Return the names of the data sets that `load` knows.

    >>> names()
    ['ppi5k', 'nl27k', 'cn15k', 'onet20k', 'onet-importance']
    """
    return list(CATALOG)


def data_folder() -> Path | None:
    """Return the folder that FOCUSE_DATA names, if it is set."""
    given = os.environ.get("FOCUSE_DATA")
    return Path(os.path.expanduser(given)) if given else None


def find(name: str) -> LocalCopy | None:
    """Return the local copy of a data set, complete or not, or None. Nothing is verified, unpacked or downloaded."""
    entry = _entry(name)
    data = data_folder()
    return (_find_in(data, entry) if data else None) or _find_in(cache_folder(), entry)


def path(name: str) -> Path:
    """Return the folder with a data set's three files; an archive found there is unpacked into the cache."""
    copy = find(name)
    if copy is None:
        raise FocuseError(f"{name} is not here; {_advice(_entry(name))}")
    return _unpacked(copy, _entry(name)).folder


def _entry(name: str) -> CatalogEntry:
    return CATALOG[choose("data set", name, CATALOG)]


def _advice(entry: CatalogEntry) -> str:
    manual = f"put its files into the folder {entry.name} of the one that FOCUSE_DATA names"
    if not entry.url:
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
    if len(files) < len(PARTS) and entry.archive is not None:
        for archive in (root / f"{entry.name}.zip", folder / f"{entry.name}.zip"):
            if os.path.isfile(archive):
                return LocalCopy(folder, archive=archive)
    return LocalCopy(folder, files) if files else None


def _unpacked(copy: LocalCopy, entry: CatalogEntry) -> LocalCopy:
    """Return a copy with all its files: an archive is unpacked into the cache, unless it was before."""
    if copy.archive and entry.archive is not None:
        target = cache_folder() / entry.name
        cached = _find_in(target.parent, entry)
        if cached is None or cached.archive or cached.missing:
            install(copy.archive, entry.archive, target)
        copy = _find_in(target.parent, entry) or LocalCopy(target)
    if copy.missing:
        part = copy.missing[0]
        raise FocuseError(f"{copy.folder}: no {part}.tsv or {part}.tsv.gz; {_repair_advice(copy, entry)}")
    return copy


# ---- fetching, verifying, loading -----------------------------------------------------------------------------------


def fetch(name: str, force: bool = False, report: Report | None = None, progress: Progress | None = None) -> Path:
    """Return the folder of a data set, verified; it is downloaded into the cache if there is no local copy.

    Parameters
    ----------
    force : bool
        Download it even if there is a copy, and replace the one in the cache.
    report : function of a str
        Receives a line of text now and then.
    progress : function of two int
        Receives the bytes downloaded, and the total size or None if it is unknown.
    """
    entry = _entry(name)
    report = report or (lambda text: None)
    copy = find(name)
    if copy is not None and not force:
        copy = _unpacked(copy, entry)
        _verify(copy, entry)
        report(f"{name} is here already: {copy.folder}")
        return copy.folder
    archive = entry.archive
    if archive is None:
        raise FocuseError(f"{name} cannot be fetched; {_advice(entry)}")
    target = cache_folder() / name
    report(f"fetching {name} from {archive.url}")
    fetch_archive(archive, target, force, report, progress or (lambda done, total: None))
    if copy is not None and copy.folder != target:
        report(f"{copy.path} still has precedence, because FOCUSE_DATA names its folder")
    return target


def load(name: str, report: Report | None = None) -> Dataset:
    """Load a data set by name, downloading it first if there is no local copy. Files with other content are refused.

    >>> load("ppi5k").train  # doctest: +SKIP
    Graph(…/ppi5k/train.tsv: 230,929 edges, 4,999 entities, 7 relations)
    """
    entry = _entry(name)
    if find(name) is None:
        if entry.archive is None:
            raise FocuseError(f"{name} is not here; {_advice(entry)}")
        fetch(name, report=report)
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
            rebuilt = _is_rebuilt(path, file)
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise FocuseError(f"{path}: cannot be read ({reason}); {_repair_advice(copy, entry)}") from None
        if rebuilt is None:
            raise FocuseError(
                f"{path}: damaged or another file: its checksum is not that of {entry.name}'s {part}; "
                f"{_repair_advice(copy, entry)}"
            )
        if rebuilt:
            notes.append(f"{entry.name.upper()} {part} rebuilt in another row order")
    return notes


def _repair_advice(copy: LocalCopy, entry: CatalogEntry) -> str:
    if copy.folder.parent == cache_folder() and entry.url:
        return f"run 'focuse datasets fetch {entry.name} --force'"
    return "put the original there, or move the folder away"


def _is_rebuilt(path: Path, file: CatalogFile) -> bool | None:
    """Return True for the rebuilt file, False for the original, None for any other."""
    if file.sha256 and path.suffix == ".gz":
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256:
                return bool(file.rebuilt)
    digest = hashlib.md5(usedforsecurity=False)
    size = 0
    with open_decompressed(path) as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            if size > MAX_TEXT_BYTES:
                return None
    return {file.md5: False, file.rebuilt: True}.get(digest.hexdigest())


# ---- archives -------------------------------------------------------------------------------------------------------

UNPACK_BLOCK_BYTES = 1 << 16
MAX_ARCHIVE_MEMBERS = 1000
MANUAL_ADVICE = "or put the files into the folder that FOCUSE_DATA names"


@dataclass(frozen=True)
class Archive:
    """A zip archive on the web.

    Attributes
    ----------
    folder : str
        The folder inside the archive that may contain the files.
    md5 : mapping of str to str
        The files to extract, each with the md5 of its content.
    max_packed, max_unpacked : int
        Limits in bytes of the archive and of its content.
    """

    url: str
    folder: str
    md5: Mapping[str, str]
    max_packed: int = 64 << 20
    max_unpacked: int = 256 << 20


class DamagedArchiveError(FocuseError):
    """The error of an archive that does not have the expected content."""


# Reading a damaged archive may raise these errors; an archive with a password raises RuntimeError.
ARCHIVE_ERRORS = (
    DamagedArchiveError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError,
)  # fmt: skip


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Create `folder`; a full disk and other system errors in the block become a FocuseError of one line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise FocuseError(
            f"{folder}: {error.strerror or error}; free some space there, or name another folder with FOCUSE_CACHE"
        ) from None


def install(path: Path, archive: Archive, target: Path, force: bool = False, where: str = "") -> None:
    """Unpack the zip file `path` next to `target` and rename it to `target` once every file is verified.

    If another process was faster, its folder stays, unless `force`. Other files in an old folder are kept. `where`
    names the archive in errors.
    """
    with (
        _writable(target.parent),
        TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent, ignore_cleanup_errors=True) as temporary,
    ):
        fresh = Path(temporary, "fresh")  # inside, because only its owner may enter the temporary folder itself
        fresh.mkdir()
        unpack(path, archive, fresh, where)
        _move_into_place(fresh, target, archive, force, Path(temporary))


def _move_into_place(fresh: Path, target: Path, archive: Archive, force: bool, temporary: Path) -> None:
    for attempt in range(10):  # other processes may do the same at this moment
        if attempt or not force:
            try:
                os.rename(fresh, target)
                break
            except OSError:
                if not target.exists():
                    raise
            if all(os.path.isfile(target / name) for name in archive.md5):
                break
        with suppress(FileNotFoundError):
            os.rename(target, temporary / f"old{attempt}")
    else:
        raise FocuseError(f"{target}: cannot be replaced, other programs keep changing it; try again")
    stems = {name.partition(".")[0] for name in archive.md5}
    for old in temporary.glob("old*/*"):
        if old.name.partition(".")[0] not in stems and not (target / old.name).exists():
            os.rename(old, target / old.name)


def unpack(path: Path, archive: Archive, folder: Path, where: str = "") -> None:
    """Extract the expected files of a zip archive into `folder`; raise DamagedArchiveError for anything unexpected.

    The archive determines neither names nor paths nor sizes: other members are ignored, and the whole archive is
    refused if one of them points outside or is a link.
    """
    where = where or str(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise FocuseError(f"{where}: {error.strerror or error}; give a readable archive, {MANUAL_ADVICE}") from None
    try:
        with file, zipfile.ZipFile(file) as packed:
            for name, info in _expected_members(packed, archive).items():
                digest = _extract(packed, info, folder / name)
                if digest != archive.md5[name]:
                    raise DamagedArchiveError(f"{info.filename} has the md5 {digest}, expected {archive.md5[name]}")
    except ARCHIVE_ERRORS as error:
        reason = str(error) or type(error).__name__
        advice = "it was removed; try again later" if where != str(path) else "replace it by the original"
        raise DamagedArchiveError(f"{where}: damaged archive ({reason}); {advice}, {MANUAL_ADVICE}") from None


def _expected_members(packed: zipfile.ZipFile, archive: Archive) -> dict[str, zipfile.ZipInfo]:
    """Return the member of each expected file; raise an error if one is missing or repeated, or one is suspicious."""
    members = packed.infolist()
    if len(members) > MAX_ARCHIVE_MEMBERS:
        raise DamagedArchiveError(f"{len(members):,} members, expected {len(archive.md5)}")
    expected: dict[str, zipfile.ZipInfo] = {}
    for info in members:
        path = info.filename.replace("\\", "/")  # archives from Windows
        steps = path.split("/")
        file_type = stat.S_IFMT(info.external_attr >> 16)
        if ".." in steps or not steps[0] or ":" in steps[0]:
            raise DamagedArchiveError(f"the member {info.filename!r} points outside")
        if file_type not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise DamagedArchiveError(f"the member {info.filename!r} is a link or device")
        name = path.removeprefix(f"{archive.folder}/")
        if name in archive.md5:
            if info.header_offset < 0 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DamagedArchiveError(f"{name} is packed in an unusual way")
            if name in expected:
                raise DamagedArchiveError(f"{name} is in it twice")
            expected[name] = info
    missing = [name for name in archive.md5 if name not in expected]
    if missing:
        raise DamagedArchiveError(f"no {missing[0]} in it")
    size = sum(info.file_size for info in expected.values())
    if size > archive.max_unpacked:
        raise DamagedArchiveError(f"{size:,} bytes when unpacked, at most {archive.max_unpacked:,} are expected")
    return expected


def _extract(packed: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> str:
    """Write one member and return its md5. It cannot grow past the size that the archive states for it."""
    digest = hashlib.md5(usedforsecurity=False)
    with packed.open(info) as source, path.open("xb") as file:
        while block := source.read(UNPACK_BLOCK_BYTES):
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


# ---- downloads ------------------------------------------------------------------------------------------------------

DOWNLOAD_BLOCK_BYTES = 1 << 16
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
TRANSIENT_STATUS = (408, 425, 429)  # and every 5xx: another attempt may succeed
ABANDONED_SECONDS = 600.0  # a download that is unchanged for this long belongs to a killed process


@dataclass(frozen=True)
class RetryPolicy:
    """The number of attempts, the wait before the second one (doubled each time), and the timeout of a read."""

    attempts: int = 4
    wait: float = 0.5
    timeout: float = 30.0
    sleep: Callable[[float], object] = time.sleep


RETRY_POLICY = RetryPolicy()


class _TooLargeError(FocuseError):
    """The error of a server that sends more bytes than expected."""

    def __init__(self, archive: Archive, size: str) -> None:
        super().__init__(
            f"{archive.url}: the server sends {size} bytes where at most {archive.max_packed:,} are expected; "
            f"nothing was kept. Try again another day, {MANUAL_ADVICE}"
        )


class _TransientError(Exception):
    """A failure after which another attempt may succeed."""


def fetch_archive(
    archive: Archive,
    target: Path,
    force: bool = False,
    report: Report = lambda text: None,
    progress: Progress = lambda done, total: None,
) -> None:
    """Download `archive` and unpack it as the folder `target`, which appears only when it is complete.

    An interrupted download is kept and continued next time. Several processes may fetch the same archive at once.
    `force` replaces an existing folder.
    """
    check_address(archive.url)
    with _writable(target.parent):
        _remove_abandoned_folders(target)
        with _partial_file(target) as part:
            for continued in (part.exists(), False):
                download(archive, part, report, progress)
                try:
                    install(part, archive, target, force, archive.url)
                except DamagedArchiveError:
                    part.unlink()
                    if not continued:
                        raise
                    # The first part may stem from an older archive at the same address.
                    report(f"{archive.url}: the old part and the new one do not fit; starting over")
                else:
                    return part.unlink()


def check_address(url: str, origin: str = "") -> None:
    """Raise FocuseError unless the address is HTTPS, or HTTP on this machine without a redirect from elsewhere."""
    address = urlsplit(url)
    from_here = not origin or urlsplit(origin).hostname in LOCAL_HOSTS
    if address.scheme == "https" or (address.scheme == "http" and address.hostname in LOCAL_HOSTS and from_here):
        return
    redirected = f"{origin}: redirects to " if origin else ""
    raise FocuseError(
        f"{redirected}{url}: refused, only https addresses are fetched; download the archive by hand, {MANUAL_ADVICE}"
    )


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows redirects only to addresses that `check_address` accepts."""

    max_redirections = 5

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        check_address(newurl, origin=req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    archive: Archive,
    part: Path,
    report: Report = lambda text: None,
    progress: Progress = lambda done, total: None,
    policy: RetryPolicy | None = None,
) -> None:
    """Complete the file `part`, continuing after its last byte; try again if the connection fails."""
    policy = policy or RETRY_POLICY
    wait = policy.wait
    for attempt in range(1, policy.attempts + 1):
        try:
            return _receive(archive, part, policy.timeout, progress)
        except _TooLargeError:
            part.unlink(missing_ok=True)
            raise
        except _TransientError as reason:
            if attempt == policy.attempts:
                raise FocuseError(
                    f"{archive.url}: {reason} ({attempt} attempts); check the connection and try again, {MANUAL_ADVICE}"
                ) from None
            report(f"{archive.url}: {reason}; trying again in {wait:g} s")
        policy.sleep(wait)
        wait *= 2


def _receive(archive: Archive, part: Path, timeout: float, progress: Progress) -> None:
    done = part.stat().st_size if part.exists() else 0
    with _request(archive.url, done, timeout) as response:
        total = _total_size(response, done)
        if response.status in (206, 416):
            if total == done:
                return
            if response.status == 416 or total is None or total < done:
                part.unlink()
                raise _TransientError("the server cannot continue where the last download ended")
        else:
            done = 0  # the server sends the whole file instead of the requested rest
        if total is not None and total > archive.max_packed:
            raise _TooLargeError(archive, f"{total:,}")
        with part.open("ab" if done else "wb") as file:
            done = _copy_response(response, file, done, total, archive, progress)
    if total is not None and done != total:
        raise _TransientError(f"the connection broke off after {done:,} of {total:,} bytes")


def _request(url: str, done: int, timeout: float) -> Any:
    """Return the server's response to a request for everything after the first `done` bytes."""
    headers = {"User-Agent": f"focuse/{__version__}"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        return urllib.request.build_opener(_CheckedRedirects).open(
            urllib.request.Request(url, headers=headers), timeout=timeout
        )
    except urllib.error.HTTPError as error:
        if error.code == 416 and done:
            return error  # this error is also a response, which states the size
        error.close()
        if error.code in TRANSIENT_STATUS or error.code >= 500:
            raise _TransientError(f"the server answers {error.code} {error.reason}") from None
        reason = " ".join(str(error.reason).split())
        raise FocuseError(
            f"{url}: the server answers {error.code} {reason}; try again another day, {MANUAL_ADVICE}"
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", None) or error
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise FocuseError(
                f"{url}: the server's certificate is not trusted ({cause.verify_message}); "
                f"correct this machine's certificates or clock, {MANUAL_ADVICE}"
            ) from None
        description = getattr(cause, "strerror", None) or cause or type(cause).__name__
        raise _TransientError(f"no connection ({description})") from None


def _total_size(response: Any, done: int) -> int | None:
    """Return the archive's size if the server states it and, if it continues, does so at the right byte."""
    if response.status in (206, 416):
        given = response.headers.get("Content-Range", "").strip()
        match = re.fullmatch(r"bytes (?:(\d{1,15})-\d{1,15}|\*)/(\d{1,15})", given)
        if match is None or (response.status == 206 and (match[1] is None or int(match[1]) != done)):
            return None
        return int(match[2])
    length = response.headers.get("Content-Length", "")
    return int(length) if re.fullmatch(r"\d{1,15}", length) else None


def _copy_response(
    response: Any, file: BinaryIO, done: int, total: int | None, archive: Archive, progress: Progress
) -> int:
    """Write the response to the file and return the file's size."""
    while True:
        try:
            block = response.read(DOWNLOAD_BLOCK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise _TransientError(f"the connection broke off after {done:,} bytes ({type(error).__name__})") from None
        if not block:
            return done
        done += len(block)
        if done > archive.max_packed:
            raise _TooLargeError(archive, f"more than {archive.max_packed:,}")
        file.write(block)
        progress(done, total)


@contextmanager
def _partial_file(target: Path) -> Iterator[Path]:
    """Yield a file for a download that no other process writes to, which continues an abandoned download if possible.

    A process claims the old file by renaming it: of two processes one gets it, the other starts over.
    """
    shared = target.with_name(f".{target.name}.zip.part")
    own = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.zip.part")
    abandoned = [path for path in target.parent.glob(f".{target.name}.*-*.zip.part") if _is_abandoned(path)]
    for left in (shared, *abandoned):
        with suppress(OSError):
            os.rename(left, own)
            os.utime(own)
            break
    try:
        yield own
    finally:
        with suppress(FileNotFoundError):
            os.replace(own, shared)


def _is_abandoned(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > ABANDONED_SECONDS
    except OSError:  # another process took it
        return False


def _remove_abandoned_folders(target: Path) -> None:
    """Remove the temporary folders of processes that were killed while unpacking."""
    for path in target.parent.glob(f".{target.name}.*"):
        if path.is_dir() and _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)
