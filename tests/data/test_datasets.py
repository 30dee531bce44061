"""Benchmark data sets are found, verified and loaded; real ones where FOCUSE_DATA names their folder."""

from __future__ import annotations

import functools
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import focuse
from focuse.data import datasets
from focuse.data.datasets import CATALOG, PARTS, CatalogEntry, CatalogFile, fetch, find, load, names, path
from focuse.data.graph_cache import cache_folder
from focuse.errors import FocuseError

REAL = os.environ.get("FOCUSE_DATA", "")
TEXTS = {
    "train": "Job_1\thas_skill_IM\tS1\t0.5\nJob_1\thas_skill_IM\tS1\t0.5\nJob_2\thas_skill_IM\tS1\t0.25\n",
    "valid": "Job_1\thas_skill_IM\tS2\t0.75\n",
    "test": "Job_2\tneeds\tS1\t1.0\n",
}


class Web(NamedTuple):
    """A web server on this machine: what it serves, and its address."""

    folder: Path
    url: str


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def gzipped(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


def write_parts(folder: Path, suffix: str = ".tsv", texts: dict[str, str] = TEXTS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in texts.items():
        (folder / f"{part}{suffix}").write_bytes(gzipped(text) if suffix.endswith(".gz") else text.encode())


def write_zip(file: Path, texts: dict[str, str] = TEXTS) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        for part, text in texts.items():
            archive.writestr(f"made/{part}.tsv", text)


def complaint(action: Callable[[], object]) -> str:
    with pytest.raises(FocuseError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FOCUSE_DATA", raising=False)
    monkeypatch.setenv("FOCUSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(datasets, "RETRY_POLICY", datasets.RetryPolicy(wait=0.0, timeout=5.0))
    return tmp_path / "cache"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that FOCUSE_DATA names, empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("FOCUSE_DATA", str(folder))
    return folder


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    folder = tmp_path / "web"
    write_zip(folder / "made.zip")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield Web(folder, f"http://127.0.0.1:{server.server_port}/made.zip")
        server.shutdown()


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> CatalogEntry:
    """A data set `made`, known in both forms, whose source does not answer."""
    files = {
        part: CatalogFile(text.count("\n"), md5(text), hashlib.sha256(gzipped(text)).hexdigest())
        for part, text in TEXTS.items()
    }
    entry = CatalogEntry("made", "MADE", files, "made here", "free", url="http://127.0.0.1:9/made.zip")
    monkeypatch.setitem(CATALOG, "made", entry)
    return entry


@pytest.fixture
def online(made: CatalogEntry, web: Web, monkeypatch: pytest.MonkeyPatch) -> Web:
    """Now its source answers."""
    monkeypatch.setitem(CATALOG, "made", replace(made, url=web.url))
    return web


# ---- the catalogue ----------------------------------------------------------------------------------------------


def test_the_catalog_is_complete():
    assert names() == ["ppi5k", "nl27k", "cn15k", "onet20k", "onet-importance", "made"]
    sums = []
    for name, entry in list(CATALOG.items())[:-1]:
        assert (entry.name, tuple(entry.files)) == (name, PARTS)
        assert entry.source
        assert entry.license
        assert "O*NET20K" not in entry.title or name == "onet20k"
        assert entry.url in (f"https://s3-eu-west-1.amazonaws.com/ampligraph/datasets/{name}.zip", "")
        assert bool(entry.url) == (name != "onet-importance")
        sums += [word for file in entry.files.values() for word in (file.md5, file.sha256, file.rebuilt) if word]
        assert {len(file.md5) for file in entry.files.values()} == {32}
        assert {len(file.sha256) for file in entry.files.values()} == {0 if name == "onet20k" else 64}
    assert len(set(sums)) == len(sums)


def test_an_unknown_name_is_answered_with_the_known_ones():
    for action in (load, path, fetch, find):
        message = complaint(lambda action=action: action("ppi5"))
        assert message.startswith("unknown data set 'ppi5' (did you mean ppi5k?): choose one of ppi5k, nl27k, ")


def test_the_public_module_is_the_same_and_needs_no_torch():
    assert focuse.datasets.load is load
    assert set(focuse.datasets.__all__) == {"load", "names", "path", "fetch", "Dataset"}
    code = "import sys, focuse; focuse.datasets.names(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("system", "variables", "expected"),
    [
        ("linux", {}, "HOME/.cache/focuse"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/focuse"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "HOME/.cache/focuse"),
        ("linux", {"FOCUSE_CACHE": "/y", "XDG_CACHE_HOME": "/x"}, "/y"),
        ("linux", {"FOCUSE_CACHE": "~/z"}, "HOME/z"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, "HOME/Library/Caches/focuse"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/focuse/Cache"),
        ("win32", {}, "HOME/AppData/Local/focuse/Cache"),
    ],
)
def test_the_cache_folder_follows_the_system(monkeypatch, tmp_path, system, variables, expected):
    for name in ("FOCUSE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path), **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", system)
    assert cache_folder() == Path(expected.replace("HOME", str(tmp_path)))


# ---- every form, every place ------------------------------------------------------------------------------------


def is_made(loaded: datasets.Dataset) -> bool:
    graphs = (loaded.train, loaded.valid, loaded.test)
    rows = ["".join("\t".join(map(str, row.values())) + "\n" for row in g.to_arrow().to_pylist()) for g in graphs]
    return (loaded.name, loaded.title, rows) == ("made", "MADE", list(TEXTS.values()))


@pytest.mark.parametrize("suffix", [".tsv.gz", ".tsv", ".txt"])
@pytest.mark.parametrize("place", ["data", "cache"])
def test_plain_and_compressed_folders_load_with_every_row(data, cache, suffix, place):
    root = {"data": data, "cache": cache}[place]
    write_parts(root / "made", suffix)
    loaded = load("made")
    assert is_made(loaded)
    assert loaded.folder == path("made") == fetch("made") == root / "made"
    assert loaded.note == ""
    assert loaded.train.source == str(root / "made" / f"train{suffix}")
    assert len(loaded.train) == 3
    assert len(loaded.valid.entities) == 2  # its own names, not train's


def test_commas_and_the_name_val_are_understood(data, made, monkeypatch):
    texts = {part: text.replace("\t", ",") for part, text in TEXTS.items()}
    files = {part: CatalogFile(1, md5(text)) for part, text in texts.items()}
    monkeypatch.setitem(CATALOG, "made", replace(made, files=files))
    write_parts(data / "made", ".csv", texts)
    (data / "made" / "valid.csv").rename(data / "made" / "val.csv")
    assert is_made(load("made"))


def test_another_gzip_file_is_verified_by_its_text(data):
    write_parts(data / "made")
    for part in PARTS:
        file = data / "made" / f"{part}.tsv"
        file.with_suffix(".tsv.gz").write_bytes(gzip.compress(file.read_bytes(), 1, mtime=5))
        file.unlink()
    assert is_made(load("made"))


def test_a_known_gzip_file_needs_no_other_checksum(data, made, monkeypatch):
    files = {part: replace(file, md5="0" * 32) for part, file in made.files.items()}
    monkeypatch.setitem(CATALOG, "made", replace(made, files=files))
    write_parts(data / "made", ".tsv.gz")
    assert is_made(load("made"))


@pytest.mark.parametrize("inside", ["made.zip", "made/made.zip"])
def test_an_unopened_archive_is_unpacked_into_the_cache(data, cache, inside):
    write_zip(data / inside)
    assert find("made").path == data / inside
    loaded = load("made")
    assert is_made(loaded)
    assert loaded.folder == path("made") == cache / "made"
    assert [file.relative_to(data).as_posix() for file in data.rglob("*.*")] == [inside]
    (data / inside).write_bytes(b"no longer needed")
    assert is_made(load("made"))


@pytest.mark.parametrize("inside", ["made.zip", "made/made.zip"])
def test_an_archive_may_lie_in_the_cache_itself(cache, inside):
    write_zip(cache / inside)
    assert path("made") == cache / "made"
    assert is_made(load("made"))
    assert (cache / inside).exists()


def test_the_users_folder_has_precedence_over_the_cache(data, cache):
    write_parts(cache / "made")
    assert load("made").folder == cache / "made"
    write_parts(data / "made")
    assert load("made").folder == data / "made"


def test_a_missing_data_folder_is_ignored(monkeypatch, cache, tmp_path):
    monkeypatch.setenv("FOCUSE_DATA", str(tmp_path / "nowhere"))
    write_parts(cache / "made")
    assert load("made").folder == cache / "made"


# ---- checks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".tsv.gz", ".tsv"])
@pytest.mark.parametrize("damage", ["other", "short", "empty"])
def test_a_file_with_another_checksum_is_refused_by_name(data, cache, suffix, damage):
    write_parts(cache / "made")
    write_parts(data / "made", suffix)
    file = data / "made" / f"valid{suffix}"
    content = file.read_bytes()
    file.write_bytes({"other": content.replace(content[-9:-8], b"~"), "short": content[:-7], "empty": b""}[damage])
    for action in (load, fetch):
        message = complaint(lambda action=action: action("made"))
        assert message.startswith(f"{file}: ")
        assert message.endswith("; put the original there, or move the folder away")


def test_a_damaged_file_in_the_cache_can_be_fetched_again(online, cache):
    write_parts(cache / "made")
    (cache / "made" / "train.tsv").write_text("a\tr\tb\t1\n")
    assert complaint(lambda: load("made")).endswith("; run 'focuse datasets fetch made --force'")
    assert fetch("made", force=True) == cache / "made"
    assert is_made(load("made"))


def test_a_missing_split_is_named(data):
    write_parts(data / "made")
    (data / "made" / "test.tsv").unlink()
    assert find("made").missing == ["test"]
    for action in (load, path, fetch):
        message = complaint(lambda action=action: action("made"))
        assert message.startswith(f"{data / 'made'}: no test.tsv or test.tsv.gz; ")


def test_a_damaged_archive_is_named_and_leaves_no_trace(data, cache):
    write_zip(data / "made.zip", {**TEXTS, "test": "x\tr\ty\t1\n"})
    message = complaint(lambda: load("made"))
    assert message.startswith(f"{data / 'made.zip'}: damaged archive (made/test.tsv has the md5 ")
    assert list(cache.iterdir()) == []
    assert (data / "made.zip").exists()


@pytest.mark.parametrize("suffix", [".tsv.gz", ".tsv"])
def test_a_rebuilt_file_is_noted(data, made, monkeypatch, suffix):
    original = "\n".join(reversed(TEXTS["train"].splitlines())) + "\n"
    train = replace(made.files["train"], md5=md5(original), rebuilt=md5(TEXTS["train"]))
    monkeypatch.setitem(CATALOG, "made", replace(made, files={**made.files, "train": train}))
    write_parts(data / "made", suffix)
    assert load("made").note == "MADE train rebuilt in another row order"
    write_parts(data / "made", suffix, {"train": original})
    assert load("made").note == ""


# ---- fetching ---------------------------------------------------------------------------------------------------


def test_a_missing_data_set_is_fetched_once(online, cache, data):
    said, came = [], []
    assert find("made") is None
    assert is_made(load("made", report=said.append))
    assert said == [f"fetching made from {online.url}"]
    shutil.rmtree(online.folder)
    assert is_made(load("made"))
    assert fetch("made", report=said.append, progress=lambda done, total: came.append(done)) == cache / "made"
    assert said[1:] == [f"made is here already: {cache / 'made'}"]
    assert came == []


def test_force_fetches_despite_a_local_copy(online, cache, data):
    write_parts(data / "made")
    said, came = [], []
    size = (online.folder / "made.zip").stat().st_size
    assert fetch("made", True, said.append, lambda done, total: came.append((done, total))) == cache / "made"
    assert came == [(size, size)]
    assert said[-1] == f"{data / 'made'} still has precedence, because FOCUSE_DATA names its folder"


def test_being_offline_is_one_line_with_an_alternative(cache):
    message = complaint(lambda: load("made"))
    assert "no connection" in message
    assert "FOCUSE_DATA" in message
    assert list(cache.iterdir()) == []


def test_data_set_without_a_public_source_is_refused_with_a_reason():
    for action in (load, path, fetch):
        message = complaint(lambda action=action: action("onet-importance"))
        assert "it has no public source: put its files into the folder onet-importance of " in message
    assert complaint(lambda: path("ppi5k")).startswith("ppi5k is not here; run 'focuse datasets fetch ppi5k', or put ")


# ---- the real ones ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="FOCUSE_DATA names no folder with the data sets")
@pytest.mark.parametrize(
    ("name", "rows", "tenth", "heavy"),
    [
        ("cn15k", (204_984, 16_881, 19_293), 1929, 3532),
        ("nl27k", (149_100, 12_278, 14_034), 1402, 8161),
        ("ppi5k", (230_929, 19_017, 21_720), 2172, 1940),
        ("onet-importance", (274_602, 850, 2_000), 200, 5),
    ],
)
def test_real_data_sets_have_the_known_sizes(monkeypatch, name, rows, tenth, heavy):
    monkeypatch.setenv("FOCUSE_DATA", REAL)
    loaded = load(name)
    assert (len(loaded.train), len(loaded.valid), len(loaded.test)) == rows
    assert tuple(CATALOG[name].files[part].rows for part in PARTS) == rows
    assert int(0.1 * len(loaded.test.align(loaded.train).graph)) == tenth
    assert np.count_nonzero(loaded.valid.align(loaded.train).graph.weight >= 0.8) == heavy
