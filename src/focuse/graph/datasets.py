"""The benchmark graphs of the literature: what they are, where they lie, and loading them once they are checked.

A data set is looked for in the folder that FOCUSE_DATA names, then in the cache; else it is fetched into the cache.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from focuse.errors import FocuseError, choose
from focuse.graph import fetching
from focuse.graph.cache import cache_folder as cache_folder
from focuse.graph.fetching import Progress, Say
from focuse.graph.graph import Graph
from focuse.graph.opening import open_bytes
from focuse.graph.reading import read
from focuse.graph.unpacking import Archive, install

PARTS = ("train", "valid", "test")
STEMS = {"train": ("train",), "valid": ("valid", "val"), "test": ("test",)}
SUFFIXES = (".tsv.gz", ".tsv", ".txt", ".csv")
MOST_TEXT = 256 << 20  # bytes of one file, unpacked: none has a tenth of it
BLOCK = 1 << 20


@dataclass(frozen=True)
class File:
    """One part of a data set: its rows, the md5 of its text, the sha256 of the gzip file that is known of it.

    `rebuilt` is the md5 of a text with the same rows in another order; then the gzip file is that one.
    """

    rows: int
    md5: str
    sha256: str = ""
    rebuilt: str = ""


@dataclass(frozen=True)
class Entry:
    """A data set of the catalogue. Without `url` there is no public source; `note` is what its user must know."""

    name: str
    title: str
    files: Mapping[str, File]
    source: str
    licence: str
    url: str = ""
    note: str = ""

    @property
    def archive(self) -> Archive | None:
        """Where to fetch it, and what must come."""
        md5 = {f"{part}.tsv": file.md5 for part, file in self.files.items()}
        return Archive(self.url, self.name, md5) if self.url else None


@dataclass(frozen=True)
class DataSet:
    """Three graphs as their files have them: every row, each with names of its own (see `Graph.align`)."""

    name: str
    title: str
    train: Graph
    valid: Graph
    test: Graph
    folder: Path
    note: str = ""


AMPLIGRAPH = "https://s3-eu-west-1.amazonaws.com/ampligraph/datasets"
UKGE = "Chen et al. 2019 (UKGE)"
CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "ppi5k",
            "PPI5K, interactions of proteins",
            {
                "train": File(
                    230_929,
                    "d8b54de3482c0d043118cbd05f2666cf",
                    "8f700d1e3ea0918c393babce14c47329d460904e1fa6bcdfafa2a6e5abbf8d53",
                ),
                "valid": File(
                    19_017,
                    "2bd094118f4be1f4f6d6a1d4707271c1",
                    "5704e0859e6fa6f394a8911b3de5d056b2bc4c9a2b8265b6c6c98b683eb2ed67",
                ),
                "test": File(
                    21_720,
                    "7e6e345f496ed9a0cc58b91d4877ddd6",
                    "333c227375e2964038ed78429ad6b5ba48f10230bdfd50bc70f49085a9a1bd5c",
                ),
            },
            source=f"{UKGE}, from STRING",
            licence="STRING: CC BY 4.0 today",
            url=f"{AMPLIGRAPH}/ppi5k.zip",
        ),
        Entry(
            "nl27k",
            "NL27K, beliefs read from the web",
            {
                "train": File(
                    149_100,
                    "d4ce775401d299074d98e046f13e7283",
                    "bdccf513aea1bd0c719181e2956508e27331eece2f8866cc0f73064439c2fc92",
                ),
                "valid": File(
                    12_278,
                    "00177fa6b9f5cec18814ee599c02eae3",
                    "a039b2036afd6e3debc6524be320e19db158322399f088eab5f612194673d9ab",
                ),
                "test": File(
                    14_034,
                    "2ba17f29119688d93c9d29ab40f63b3e",
                    "7307e562f4197dfd7f5a070931466a6837c2b46b1c2112af3d37756440774557",
                ),
            },
            source=f"{UKGE}, from NELL (Carnegie Mellon, Read the Web)",
            licence="NELL: no licence text came with the data",
            url=f"{AMPLIGRAPH}/nl27k.zip",
        ),
        Entry(
            "cn15k",
            "CN15K, common sense",
            {
                "train": File(
                    204_984,
                    "8bf2ecc8f34e7b3b544afc30abaac478",
                    "9456960202a488e082fa596794f4ba9d8b17abf0126965a282a0c63eda8a2a15",
                    rebuilt="0ececd8070416e36f3a8bf335f9c2ecb",
                ),
                "valid": File(
                    16_881,
                    "15b63ebd7428a262ad5fe869cc944208",
                    "91cbe6fd66f6cff49855fa86407d0900e68d035577de8c8d6023ac2ff55afe76",
                ),
                "test": File(
                    19_293,
                    "29df4b8d24a3d89fc7c1032b9c508112",
                    "c12631642afc82ca2730d9ab03add40b6473aaf718734b1214948f71b7210f93",
                ),
            },
            source=f"{UKGE}, from ConceptNet 5",
            licence="ConceptNet: CC BY-SA 4.0",
            url=f"{AMPLIGRAPH}/cn15k.zip",
        ),
        Entry(
            "onet20k",
            "O*NET20K, occupations",
            {
                "train": File(461_932, "516220427a9a18516fd7a804a6944d64"),
                "valid": File(850, "d7806951ac3d916c5c5a0304eea064d2"),
                "test": File(2_000, "e5baec19037cb0bddc5a2fe3c0f4445a"),
            },
            source="Pai and Costabello 2021 (FocusE), from O*NET (USDOL/ETA); rows as AmpliGraph counts them",
            licence="O*NET Database: CC BY 4.0",
            url=f"{AMPLIGRAPH}/onet20k.zip",
        ),
        Entry(
            "onet-importance",
            "occupations rated in O*NET 18.1, a stand-in",
            {
                "train": File(
                    274_602,
                    "d407a7558077ef13986632cf56136101",
                    "d11a42f753b9803e2979dbc127f0c06d614b788c8959d80938d3763cfd2b0e8c",
                ),
                "valid": File(
                    850,
                    "386bf502499fe24b64c641f3264ccd57",
                    "78768458cdf1cf1fc408edaadd30d8a7c922360046e5d27f7ead5bfe7f3ab786",
                ),
                "test": File(
                    2_000,
                    "eec55193a49060fbf7c00ae5cfe23d03",
                    "8e6abba72eeb9a55b8ecdaad4506a98d4e75b8641a35f00be76b37aca81b6219",
                ),
            },
            source="importance ratings of the O*NET 18.1 Database (USDOL/ETA), modified; no public source",
            licence="O*NET Database: CC BY 4.0",
            note="a stand-in: not O*NET20K, and no figure on it compares with the paper's",
        ),
    )
}


# ---- where things lie -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What a folder holds of a data set: its files, or else an archive that is not unpacked yet."""

    folder: Path
    files: dict[str, Path] = field(default_factory=dict)
    archive: Path | None = None

    @property
    def missing(self) -> list[str]:
        """Parts that are not there."""
        return [] if self.archive else [part for part in PARTS if part not in self.files]

    @property
    def where(self) -> Path:
        return self.archive or self.folder


def names() -> list[str]:
    """The data sets that `load` knows.

    >>> names()
    ['ppi5k', 'nl27k', 'cn15k', 'onet20k', 'onet-importance']
    """
    return list(CATALOGUE)


def data_folder() -> Path | None:
    """The folder that FOCUSE_DATA names, if it is set."""
    given = os.environ.get("FOCUSE_DATA")
    return Path(os.path.expanduser(given)) if given else None


def find(name: str) -> Found | None:
    """Where a data set lies, whole or in part, or None. Only looks: nothing is checked, unpacked or fetched."""
    entry = _entry(name)
    data = data_folder()
    return (_look(data, entry) if data else None) or _look(cache_folder(), entry)


def path(name: str) -> Path:
    """The folder with a data set's three files; an archive found there is unpacked into the cache."""
    found = find(name)
    if found is None:
        raise FocuseError(f"{name} is not here; {_advice(_entry(name))}")
    return _opened(found, _entry(name)).folder


def _entry(name: str) -> Entry:
    return CATALOGUE[choose("data set", name, CATALOGUE)]


def _advice(entry: Entry) -> str:
    own = f"put its files into the folder {entry.name} of the one that FOCUSE_DATA names"
    return f"run 'focuse datasets fetch {entry.name}', or {own}" if entry.url else f"it has no public source: {own}"


def _look(root: Path, entry: Entry) -> Found | None:
    # os.path, as pathlib stumbles over folders that may not be entered.
    folder = root / entry.name
    files: dict[str, Path] = {}
    for part in PARTS:
        candidates = (folder / f"{stem}{suffix}" for stem in STEMS[part] for suffix in SUFFIXES)
        there = next((path for path in candidates if os.path.isfile(path)), None)
        if there is not None:
            files[part] = there
    if len(files) < len(PARTS) and entry.archive is not None:
        for archive in (root / f"{entry.name}.zip", folder / f"{entry.name}.zip"):
            if os.path.isfile(archive):
                return Found(folder, archive=archive)
    return Found(folder, files) if files else None


def _opened(found: Found, entry: Entry) -> Found:
    """The same with all its files: an archive is unpacked into the cache, where it may already be."""
    if found.archive and entry.archive is not None:
        target = cache_folder() / entry.name
        cached = _look(target.parent, entry)
        if cached is None or cached.archive or cached.missing:
            install(found.archive, entry.archive, target)
        found = _look(target.parent, entry) or Found(target)
    if found.missing:
        part = found.missing[0]
        raise FocuseError(f"{found.folder}: no {part}.tsv or {part}.tsv.gz; {_mend(found, entry)}")
    return found


# ---- fetching, checking, loading --------------------------------------------------------------------------------


def fetch(name: str, force: bool = False, say: Say | None = None, progress: Progress | None = None) -> Path:
    """Have a data set here: its folder, checked; downloaded into the cache if it is nowhere yet.

    `force` downloads it in any case and replaces what the cache holds. `say` gets a line for people now and then,
    `progress` the bytes that came and (if known) all that will.
    """
    entry = _entry(name)
    say = say or (lambda text: None)
    found = find(name)
    if found is not None and not force:
        found = _opened(found, entry)
        _checked(found, entry)
        say(f"{name} is here already: {found.folder}")
        return found.folder
    archive = entry.archive
    if archive is None:
        raise FocuseError(f"{name} cannot be fetched; {_advice(entry)}")
    target = cache_folder() / name
    say(f"fetching {name} from {archive.url}")
    fetching.fetch(archive, target, force, say, progress or (lambda done, total: None))
    if found is not None and found.folder != target:
        say(f"{found.where} is still used first, as FOCUSE_DATA says so")
    return target


def load(name: str, say: Say | None = None) -> DataSet:
    """Load a data set by name, fetching it first if it is not here. Files that are not the known ones are refused.

    >>> load("ppi5k").train  # doctest: +SKIP
    Graph(…/ppi5k/train.tsv: 230,929 edges, 4,999 entities, 7 relations)
    """
    entry = _entry(name)
    if find(name) is None:
        if entry.archive is None:
            raise FocuseError(f"{name} is not here; {_advice(entry)}")
        fetch(name, say=say)
    found = find(name)
    if found is None:
        raise FocuseError(f"{name} was removed while it was being fetched; try again")
    found = _opened(found, entry)
    notes = _checked(found, entry)
    train, valid, test = (read(found.files[part], header=False) for part in PARTS)
    return DataSet(name, entry.title, train, valid, test, found.folder, "; ".join(notes))


def _checked(found: Found, entry: Entry) -> list[str]:
    """An error unless every file is the known one; else what is to be said about them."""
    notes = [entry.note] if entry.note else []
    for part, path in found.files.items():
        file = entry.files[part]
        try:
            rebuilt = _identify(path, file)
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise FocuseError(f"{path}: cannot be read ({reason}); {_mend(found, entry)}") from None
        if rebuilt is None:
            raise FocuseError(
                f"{path}: damaged or another file: its checksum is not that of {entry.name}'s {part}; "
                f"{_mend(found, entry)}"
            )
        if rebuilt:
            notes.append(f"{entry.name.upper()} {part} rebuilt in another row order")
    return notes


def _mend(found: Found, entry: Entry) -> str:
    if found.folder.parent == cache_folder() and entry.url:
        return f"run 'focuse datasets fetch {entry.name} --force'"
    return "put the original there, or take the folder away"


def _identify(path: Path, file: File) -> bool | None:
    """Whether a file is the rebuilt one (True) or the original (False); None if it is neither."""
    if file.sha256 and path.suffix == ".gz":
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256:
                return bool(file.rebuilt)
    digest = hashlib.md5(usedforsecurity=False)
    size = 0
    with open_bytes(path) as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
            size += len(block)
            if size > MOST_TEXT:
                return None
    return {file.md5: False, file.rebuilt: True}.get(digest.hexdigest())
