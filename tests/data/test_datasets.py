"""Datasets are found, verified, downloaded and loaded; real ones where FOCUSE_DATA names their folder."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import os
import random
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
from focuse.data.out_of_core import cache_folder
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
    monkeypatch.setattr(datasets, "RETRIES", 0)
    monkeypatch.setattr(datasets, "ARCHIVES", "http://127.0.0.1:9")
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
        yield Web(folder, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> CatalogEntry:
    """A dataset `made`, whose source does not answer."""
    files = {part: CatalogFile(text.count("\n"), md5(text)) for part, text in TEXTS.items()}
    entry = CatalogEntry("made", "MADE", files, "made here", "free")
    monkeypatch.setitem(CATALOG, "made", entry)
    return entry


@pytest.fixture
def online(web: Web, monkeypatch: pytest.MonkeyPatch) -> Web:
    """A server that has the archive of `made`."""
    monkeypatch.setattr(datasets, "ARCHIVES", web.url)
    return web


# ---- the embedded graph ---------------------------------------------------------------------------------------------


def test_the_embedded_graph_has_the_documented_size_and_weights(tmp_path):
    graph = focuse.datasets.careers()
    assert repr(graph) == "Graph(careers: 10,000 edges, 490 entities, 7 relations)"
    assert np.bincount(graph.relation).tolist() == [3000, 2300, 1400, 1300, 900, 750, 350]
    assert graph.num_repeated == 0
    assert 0 <= graph.weight.min() < 0.05 < 0.9 < graph.weight.max() <= 1
    assert {"Pâtissier", "CAD/CAM", "Façade Designer"} <= set(graph.entities)
    graph.write(tmp_path / "careers.tsv")
    content = Path(datasets.__file__).with_name("careers.tsv.gz").read_bytes()
    assert (tmp_path / "careers.tsv").read_bytes() == gzip.decompress(content)


# ---- the catalog ----------------------------------------------------------------------------------------------


def test_the_catalog_is_complete():
    assert names() == ["ppi5k", "nl27k", "cn15k", "onet20k", "onet-importance", "made"]
    sums = []
    for name, entry in list(CATALOG.items())[:-1]:
        assert (entry.name, tuple(entry.files)) == (name, PARTS)
        assert entry.source
        assert entry.license
        assert "O*NET20K" not in entry.title or name == "onet20k"
        assert entry.url == ("" if name == "onet-importance" else f"http://127.0.0.1:9/{name}.zip")
        sums += [word for file in entry.files.values() for word in (file.md5, file.rebuilt) if word]
        assert {len(file.md5) for file in entry.files.values()} == {32}
    assert len(set(sums)) == len(sums)


def test_an_unknown_name_is_answered_with_the_known_ones():
    for action in (load, path, fetch, find):
        message = complaint(lambda action=action: action("ppi5"))
        assert message.startswith("unknown dataset 'ppi5' (did you mean ppi5k?): choose one of ppi5k, nl27k, ")


def test_the_public_module_is_the_same_and_needs_no_torch():
    assert focuse.datasets.load is load
    assert set(focuse.datasets.__all__) == {"careers", "load", "names", "path", "fetch", "Dataset"}
    code = "import sys, focuse; focuse.datasets.names(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folders of Linux")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "HOME/.cache/focuse"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/focuse"),
        ({"FOCUSE_CACHE": "/y", "XDG_CACHE_HOME": "/x"}, "/y"),
        ({"FOCUSE_CACHE": "~/z"}, "HOME/z"),
    ],
)
def test_the_cache_folder_follows_the_system(monkeypatch, tmp_path, variables, expected):
    for name in ("FOCUSE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path), **variables}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected.replace("HOME", str(tmp_path)))


# ---- every format in every folder ------------------------------------------------------------------------------------


def is_made(loaded: datasets.Dataset) -> bool:
    graphs = (loaded.train, loaded.valid, loaded.test)
    rows = ["".join("\t".join(map(str, row.values())) + "\n" for row in g.to_arrow().to_pylist()) for g in graphs]
    return (loaded.name, loaded.title, rows) == ("made", "MADE", list(TEXTS.values()))


@pytest.mark.parametrize("suffix", [".tsv.gz", ".tsv"])
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


def test_another_gzip_file_is_verified_by_its_text(data):
    write_parts(data / "made")
    for part in PARTS:
        file = data / "made" / f"{part}.tsv"
        file.with_suffix(".tsv.gz").write_bytes(gzip.compress(file.read_bytes(), 1, mtime=5))
        file.unlink()
    assert is_made(load("made"))


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


@pytest.mark.parametrize("suffix", [".tsv.gz", ".tsv"])
def test_a_rebuilt_file_is_noted(data, made, monkeypatch, suffix):
    original = "\n".join(reversed(TEXTS["train"].splitlines())) + "\n"
    train = replace(made.files["train"], md5=md5(original), rebuilt=md5(TEXTS["train"]))
    monkeypatch.setitem(CATALOG, "made", replace(made, files={**made.files, "train": train}))
    write_parts(data / "made", suffix)
    assert load("made").note == "MADE train rebuilt in another row order"
    write_parts(data / "made", suffix, {"train": original})
    assert load("made").note == ""


# ---- archives and downloads -------------------------------------------------------------------------------------


def archive_bytes(*extra: tuple[str, bytes], texts: dict[str, str] = TEXTS) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, text in texts.items():
            archive.writestr(f"made/{part}.tsv", text)
        for name, content in extra:
            archive.writestr(name, content)
    return stream.getvalue()


BAD = {
    "page": (b"<html>please log in</html>", "not a zip file"),
    "short": (archive_bytes()[:-60], "not a zip file"),
    "missing": (archive_bytes(texts={"train": TEXTS["train"]}), "no item named 'valid.tsv'"),
    "other": (archive_bytes(texts={**TEXTS, "test": "x\tr\ty\t1\n"}), "test.tsv has the md5"),
}


@pytest.mark.parametrize(("content", "says"), BAD.values(), ids=BAD)
def test_a_bad_archive_is_refused_and_nothing_is_installed(online, cache, content, says):
    (online.folder / "made.zip").write_bytes(content)
    message = complaint(lambda: load("made"))
    assert message.startswith(f"{online.url}/made.zip: damaged archive (")
    assert says in message
    assert list(cache.iterdir()) == []


def test_only_the_known_files_are_unpacked(online, cache, tmp_path):
    (online.folder / "made.zip").write_bytes(
        archive_bytes(("../evil.tsv", b"x"), ("/tmp/evil.tsv", b"x"), ("made/readme", b"x"))
    )
    assert is_made(load("made"))
    assert sorted(file.name for file in (cache / "made").iterdir()) == ["test.tsv", "train.tsv", "valid.tsv"]
    assert not list(tmp_path.rglob("*evil*"))


def test_any_damage_to_an_archive_is_detected_or_has_no_effect(made, tmp_path):
    content, chance = archive_bytes(), random.Random(1)
    damaged = 0
    for number in range(300):
        spoilt = bytearray(content)
        for _ in range(chance.choice([1, 2, 8])):
            spoilt[chance.randrange(0 if number % 2 else len(content) - 250, len(content))] = chance.randrange(256)
        (tmp_path / "spoilt.zip").write_bytes(spoilt)
        try:
            texts = datasets.unpack(tmp_path / "spoilt.zip", made)
            assert all(texts[part].decode() == text for part, text in TEXTS.items())
        except FocuseError:
            damaged += 1
    assert damaged > 100


def test_a_missing_dataset_is_downloaded_once(online, cache, data):
    assert find("made") is None
    assert is_made(load("made"))
    shutil.rmtree(online.folder)
    assert is_made(load("made"))
    assert fetch("made") == cache / "made"
    assert [file.name for file in cache.iterdir()] == ["made"]


def test_force_downloads_despite_a_local_copy_and_keeps_other_files(online, cache, data):
    write_parts(data / "made")
    write_parts(cache / "made", ".tsv.gz", {**TEXTS, "train": "a\tr\tb\t1\n"})
    (cache / "made" / "notes.txt").write_text("mine")
    assert fetch("made", force=True) == cache / "made"
    assert sorted(file.name for file in (cache / "made").iterdir()) == [
        "notes.txt", "test.tsv", "train.tsv", "valid.tsv",
    ]  # fmt: skip
    shutil.rmtree(data)
    assert is_made(load("made"))


def test_a_failed_download_is_one_line_with_an_alternative(cache, web, monkeypatch):
    for address, reason in (("http://127.0.0.1:9", "refused"), (web.url + "/nowhere", "404")):
        monkeypatch.setattr(datasets, "ARCHIVES", address)
        message = complaint(lambda: load("made"))
        assert message.startswith(f"{address}/made.zip: cannot be downloaded to {cache} (")
        assert reason in message
        assert "FOCUSE_DATA" in message
        assert list(cache.iterdir()) == []


def test_a_truncated_download_is_tried_again(cache, monkeypatch):
    content, requests = archive_bytes(), []

    class Truncating(Quiet):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content if len(requests) > 1 else content[:50])

    monkeypatch.setattr(datasets, "RETRIES", 1)
    with ThreadingHTTPServer(("127.0.0.1", 0), Truncating) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setattr(datasets, "ARCHIVES", f"http://127.0.0.1:{server.server_port}")
        assert is_made(load("made"))
        server.shutdown()
    assert requests == ["/made.zip"] * 2
    assert [file.name for file in cache.iterdir()] == ["made"]


def test_an_unwritable_cache_is_an_error_of_one_line(online, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("FOCUSE_CACHE", str(tmp_path / "file"))
    assert "cannot be downloaded to" in complaint(lambda: fetch("made"))


def test_without_pooch_the_error_names_it(online, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert complaint(lambda: load("made")) == "cannot download made; install pooch: pip install pooch"


def test_dataset_without_a_public_source_is_refused_with_a_reason():
    for action in (load, path, fetch):
        message = complaint(lambda action=action: action("onet-importance"))
        assert "it has no public source: put its files into $FOCUSE_DATA/onet-importance" in message
    assert complaint(lambda: path("ppi5k")).startswith(
        "the dataset ppi5k was not found; run 'focuse datasets fetch ppi5k', or put "
    )


# ---- the real ones ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="FOCUSE_DATA names no folder with the datasets")
@pytest.mark.parametrize(
    ("name", "rows", "tenth", "heavy"),
    [
        ("cn15k", (204_984, 16_881, 19_293), 1929, 3532),
        ("nl27k", (149_100, 12_278, 14_034), 1402, 8161),
        ("ppi5k", (230_929, 19_017, 21_720), 2172, 1940),
        ("onet-importance", (274_602, 850, 2_000), 200, 5),
    ],
)
def test_real_datasets_have_the_known_sizes(monkeypatch, name, rows, tenth, heavy):
    monkeypatch.setenv("FOCUSE_DATA", REAL)
    loaded = load(name)
    assert (len(loaded.train), len(loaded.valid), len(loaded.test)) == rows
    assert tuple(CATALOG[name].files[part].rows for part in PARTS) == rows
    assert int(0.1 * len(loaded.test.align(loaded.train).graph)) == tenth
    assert np.count_nonzero(loaded.valid.align(loaded.train).graph.weight >= 0.8) == heavy
