"""`focuse datasets`: list, path and fetch."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

NAMES = ["ppi5k", "nl27k", "cn15k", "onet20k", "onet-importance"]
TEXTS = {part: f"a\tr\t{part}\t0.5\n" for part in ("train", "valid", "test")}
# The command with a dataset of its own, because the real ones must not be downloaded here.
PROGRAM = """
import hashlib, sys
from focuse.data import datasets
url = sys.argv.pop(1)
texts = {part: f"a\\tr\\t{part}\\t0.5\\n" for part in datasets.PARTS}
files = {part: datasets.CatalogFile(1, hashlib.md5(text.encode()).hexdigest()) for part, text in texts.items()}
datasets.CATALOG["made"] = datasets.CatalogEntry("made", "MADE", files, "made here", "free")
datasets.ARCHIVES, datasets.RETRIES = url, 0
from focuse.cli.main import run
run()
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty data folder and an empty cache."""
    own = {"FOCUSE_DATA": str(tmp_path / "data"), "FOCUSE_CACHE": str(tmp_path / "cache"), "no_proxy": "127.0.0.1"}
    return {**os.environ, **own}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "web").mkdir()
    with zipfile.ZipFile(tmp_path / "web" / "made.zip", "w") as archive:
        for part, text in TEXTS.items():
            archive.writestr(f"made/{part}.tsv", text)
    return tmp_path / "web" / "made.zip"


@pytest.fixture
def made(archive: Path, places: dict[str, str]) -> Iterator[Run]:
    """`made("fetch", "made")`: `focuse datasets …` with a dataset that a server on this machine has."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(archive.parent))) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"

        def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-c", PROGRAM, url, "datasets", *arguments]
            return subprocess.run(command, capture_output=True, text=True, timeout=60, env=places, **options)

        yield run
        server.shutdown()


@pytest.mark.parametrize(("name", "flags"), [("list", {}), ("path", {}), ("fetch", {"--force"})])
def test_help_describes_every_option(command, name, flags):
    shown = command("datasets", name, "--help", check=True).stdout
    assert re.match(rf"Usage: .*focuse datasets {name} \[OPTIONS\]", shown)
    described = dict(re.findall(r"^  (?:-h, )?(--[\w-]+) +(\S.*)", shown, re.MULTILINE))
    assert set(described) == {"--json", "--help", *flags}
    assert all(len(words.split()) >= 2 for words in described.values())
    assert max(map(len, shown.splitlines())) <= 80


def test_command_without_arguments_shows_help(command):
    done = command("datasets")
    assert (done.returncode, done.stderr) == (2, "")
    assert re.match(r"Usage: .*focuse datasets \[OPTIONS\] COMMAND", done.stdout)


def test_list_shows_datasets_and_their_location(command, places, tmp_path):
    for part in TEXTS:
        file = tmp_path / "data" / "ppi5k" / f"{part}.tsv.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
    (tmp_path / "cache" / "nl27k").mkdir(parents=True)
    (tmp_path / "cache" / "nl27k" / "train.tsv").write_text("")
    data = json.loads(command("datasets", "list", "--json", env=places, check=True).stdout)
    rows = {row["name"]: row for row in data["rows"]}
    assert list(rows) == NAMES
    assert (data["data"], data["cache"]) == (str(tmp_path / "data"), str(tmp_path / "cache"))
    assert [rows["ppi5k"][part] for part in ("train", "valid", "test")] == [230_929, 19_017, 21_720]
    assert [row["folder"] for row in rows.values()] == [
        str(tmp_path / "data" / "ppi5k"),
        str(tmp_path / "cache" / "nl27k"),
        None,
        None,
        None,
    ]
    assert rows["nl27k"]["state"] == "without valid and test"
    assert rows["onet-importance"]["url"] == ""
    assert all(row["source"] and row["license"] and row["title"] for row in rows.values())

    shown = command("datasets", "list", env=places, check=True).stdout.splitlines()
    assert [line.split()[0] for line in shown[1:6]] == NAMES
    assert shown[1].split()[1:] == ["230,929", "19,017", "21,720", "complete", str(tmp_path / "data" / "ppi5k")]
    assert "without valid and test" in shown[2]
    assert "can be downloaded" in shown[4]
    assert "no public source" in shown[5]


def test_path_is_printed_after_fetch(made, tmp_path):
    folder = tmp_path / "cache" / "made"
    done = made("fetch", "made", check=True)
    assert (done.stdout, done.stderr) == (f"{folder}\n", "")
    assert {file.name: file.read_text() for file in folder.iterdir()} == {f"{p}.tsv": t for p, t in TEXTS.items()}
    for arguments in (["path", "made"], ["fetch", "made"], ["fetch", "made", "--force"]):
        assert json.loads(made(*arguments, "--json", check=True).stdout) == {"name": "made", "folder": str(folder)}


def test_force_replaces_damaged_files(made, tmp_path):
    made("fetch", "made", check=True)
    file = tmp_path / "cache" / "made" / "train.tsv"
    file.write_text("a\tr\tb\t0\n")
    done = made("fetch", "made")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"focuse: {file}: damaged or another file")
    assert done.stderr.endswith("; run 'focuse datasets fetch made --force'\n")
    made("fetch", "made", "--force", check=True)
    assert file.read_text() == TEXTS["train"]


@pytest.mark.parametrize("fault", ["gone", "damaged"])
def test_failed_fetch_is_an_error_of_one_line(made, archive, tmp_path, fault):
    if fault == "gone":
        archive.unlink()
    else:
        archive.write_bytes(b"<html>")
    done = made("fetch", "made")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert {"gone": "404", "damaged": "not a zip file"}[fault] in done.stderr
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["path", "ppi5"], "unknown dataset 'ppi5' (did you mean ppi5k?): choose one of ppi5k, nl27k, "),
        (["path", "ppi5k"], "the dataset ppi5k was not found; run 'focuse datasets fetch ppi5k'"),
        (["fetch", "onet-importance"], "no public source"),
        (["path"], "(see focuse datasets path --help)"),
        (["fetsch"], "No such command 'fetsch'"),
    ],
)
def test_invalid_names_are_refused(refused, places, arguments, says):
    assert says in refused("datasets", *arguments, env=places)
