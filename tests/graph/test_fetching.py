"""Downloads from a real server on this machine, behaving well and badly, and archives good and bad."""

from __future__ import annotations

import hashlib
import io
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from focuse.errors import FocuseError
from focuse.graph import fetching
from focuse.graph.fetching import Archive, Patience, check_address, download, fetch

# Names that do not compress: the archive has several blocks.
NOISE = random.Random(0)
TEXTS = {
    f"{part}.tsv": "".join(f"{NOISE.randbytes(9).hex()}\tr\tb{i % 7}\t0.{i}\n" for i in range(rows)).encode()
    for part, rows in (("train", 30_000), ("valid", 30), ("test", 40))
}
MD5 = {name: hashlib.md5(text).hexdigest() for name, text in TEXTS.items()}


def packed(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


GOOD = packed({f"made/{name}": text for name, text in TEXTS.items()})
HALF = len(GOOD) // 2
OTHER = packed({**TEXTS, "valid.tsv": b"a\tr\tb\t1\n"})


# ---- the server -------------------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.headers.get("Range"))
        manner = self.server.manners.pop(0) if self.server.manners else honest
        manner(self, self.server.content)

    def log_message(self, *arguments: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)


Manner = Callable[[Handler, bytes], None]


class Server(ThreadingHTTPServer):
    """Serves `content`; each request takes the next of `manners`, then all are answered honestly."""

    daemon_threads = True
    block_on_close = False
    content = GOOD

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.manners: list[Manner] = []
        self.asked: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_port}/made.zip"

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that go away are part of the play


def honest(handler: Handler, content: bytes) -> None:
    asked = handler.headers.get("Range")
    start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
    if asked and start >= len(content):
        handler.answer(416, Content_Range=f"bytes */{len(content)}", Content_Length=0)
    elif asked:
        given = f"bytes {start}-{len(content) - 1}/{len(content)}"
        handler.answer(206, content[start:], Content_Range=given, Content_Length=len(content) - start)
    else:
        handler.answer(200, content, Content_Length=len(content))


def ignoring_ranges(handler: Handler, content: bytes) -> None:
    handler.answer(200, content, Content_Length=len(content))


def cut(handler: Handler, content: bytes) -> None:
    """Promises all of it and goes away in the middle."""
    handler.answer(200, content[:HALF], Content_Length=len(content))


def stalling(handler: Handler, content: bytes) -> None:
    """Sends half of it, then nothing."""
    cut(handler, content)
    time.sleep(3)


def from_byte(start: int, total: int) -> Manner:
    """Goes on at a byte of its own choice, in an archive of a size of its own choice."""
    given = f"bytes {start}-{total - 1}/{total}"
    return lambda handler, content: handler.answer(206, content[start:], Content_Range=given)


def endless(handler: Handler, content: bytes) -> None:
    """No length, and ever more."""
    handler.answer(200)
    for _ in range(1000):
        handler.wfile.write(bytes(1 << 16))


def status(code: int) -> Manner:
    return lambda handler, content: handler.answer(code, b"no", Content_Length=2)


def redirect(to: str) -> Manner:
    return lambda handler, content: handler.answer(302, Location=to, Content_Length=0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between attempts, remembered instead of waited."""
    waited: list[float] = []
    monkeypatch.setattr(fetching, "PATIENCE", Patience(sleep=waited.append, timeout=5.0))
    return waited


@pytest.fixture
def made(server: Server, waits: list[float]) -> Archive:
    return Archive(server.url, "made", MD5)


def holds_all(folder: Path) -> bool:
    return {path.name: path.read_bytes() for path in folder.iterdir()} == TEXTS


def complaint(action: Callable[[], object]) -> str:
    with pytest.raises(FocuseError) as caught:
        action()
    return str(caught.value)


# ---- downloads --------------------------------------------------------------------------------------------------


def test_comes_whole_and_tells_how_far(server, made, tmp_path):
    seen = []
    fetch(made, tmp_path / "made", progress=lambda done, total: seen.append((done, total)))
    assert holds_all(tmp_path / "made")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert seen[-1] == (len(GOOD), len(GOOD))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert server.asked == [None]


def test_goes_on_where_the_connection_broke_off(server, made, waits, tmp_path):
    server.manners = [cut]
    said = []
    download(made, tmp_path / "part", said.append)
    assert (tmp_path / "part").read_bytes() == GOOD
    assert (server.asked, waits) == ([None, f"bytes={HALF}-"], [0.5])
    assert f"broke off after {HALF:,} of {len(GOOD):,} bytes" in said[0]


@pytest.mark.parametrize(
    ("manner", "requests"),
    [(ignoring_ranges, 2), (from_byte(7, len(GOOD)), 3), (from_byte(HALF, 9), 3), (status(416), 3)],
)
def test_starts_over_where_the_server_cannot_go_on(server, made, tmp_path, manner, requests):
    server.manners = [cut, manner]
    download(made, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == GOOD
    assert server.asked == [None, f"bytes={HALF}-", None][:requests]


@pytest.mark.parametrize(("held", "requests"), [(GOOD, 1), (GOOD + b"more", 2)], ids=["all", "more"])
def test_a_part_that_is_all_of_it_is_not_sent_again(server, made, tmp_path, held, requests):
    (tmp_path / "part").write_bytes(held)
    download(made, tmp_path / "part")
    assert server.asked == [f"bytes={len(held)}-", None][:requests]
    assert (tmp_path / "part").read_bytes() == GOOD


def test_waits_grow_and_end(server, made, waits, tmp_path):
    server.manners = [status(503), status(500), status(429), status(502)]
    message = complaint(lambda: fetch(made, tmp_path / "made"))
    assert message.startswith(f"{server.url}: the server answers 502 Bad Gateway (4 attempts); ")
    assert "try again" in message
    assert waits == [0.5, 1.0, 2.0]
    assert not (tmp_path / "made").exists()


def test_a_silent_server_is_given_up(server, made, waits, tmp_path):
    server.manners, said = [stalling], []
    download(made, tmp_path / "part", said.append, patience=Patience(timeout=0.2, sleep=waits.append))
    assert (tmp_path / "part").read_bytes() == GOOD
    assert "(TimeoutError); trying again in 0.5 s" in said[0]


def test_a_failed_download_is_continued_by_the_next(server, made, tmp_path):
    server.manners = [cut, status(503), status(503), status(503)]
    complaint(lambda: fetch(made, tmp_path / "made"))
    assert [path.name for path in tmp_path.iterdir()] == [".made.zip.part"]
    fetch(made, tmp_path / "made")
    assert server.asked[-1] == f"bytes={HALF}-"
    assert holds_all(tmp_path / "made")


def test_a_part_of_another_archive_is_told_by_the_result(server, made, tmp_path):
    (tmp_path / ".made.zip.part").write_bytes(bytes(HALF))
    said = []
    fetch(made, tmp_path / "made", say=said.append)
    assert holds_all(tmp_path / "made")
    assert server.asked == [f"bytes={HALF}-", None]
    assert "starting over" in said[-1]


@pytest.mark.parametrize(("age", "asked"), [(3600, f"bytes={HALF}-"), (0, None)], ids=["killed", "living"])
def test_only_what_a_killed_process_left_is_taken_over(server, made, tmp_path, age, asked):
    left = tmp_path / ".made.123-abcdef01.zip.part"
    left.write_bytes(GOOD[:HALF])
    os.utime(left, (time.time() - age,) * 2)
    fetch(made, tmp_path / "made")
    assert server.asked == [asked]
    assert left.exists() == (age == 0)
    assert holds_all(tmp_path / "made")


def test_folders_of_killed_processes_are_swept_away(made, tmp_path):
    for name, age in (("old", 3600), ("new", 0)):
        (tmp_path / f".made.{name}").mkdir()
        os.utime(tmp_path / f".made.{name}", (time.time() - age,) * 2)
    fetch(made, tmp_path / "made")
    assert {path.name for path in tmp_path.iterdir()} == {"made", ".made.new"}


@pytest.mark.parametrize(("manner", "sent"), [(honest, f"{len(GOOD):,}"), (endless, f"more than {len(GOOD) - 1:,}")])
def test_more_than_expected_is_refused(server, made, waits, tmp_path, manner, sent):
    server.manners = [manner]
    message = complaint(lambda: fetch(replace(made, most_packed=len(GOOD) - 1), tmp_path / "made"))
    assert f"sends {sent} bytes where at most {len(GOOD) - 1:,} are expected" in message
    assert (list(tmp_path.iterdir()), len(server.asked), waits) == ([], 1, [])


def test_what_is_not_there_is_not_asked_for_twice(server, made, waits, tmp_path):
    server.manners = [status(404)]
    assert "the server answers 404 Not Found" in complaint(lambda: fetch(made, tmp_path / "made"))
    assert (len(server.asked), waits) == (1, [])


def test_offline_is_one_line(made, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    message = complaint(lambda: fetch(replace(made, url=f"http://127.0.0.1:{port}/made.zip"), tmp_path / "made"))
    assert re.search(r"no connection \(Connection refused\).*FOCUSE_DATA", message)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(made, tmp_path):
    (tmp_path / "file").write_text("")
    assert "FOCUSE_CACHE" in complaint(lambda: fetch(made, tmp_path / "file" / "made"))


# ---- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://example.org/a.zip", "ftp://127.0.0.1/a.zip", "file:///etc/passwd", "a.zip"])
def test_only_https_is_fetched(url, made, tmp_path):
    assert "only https" in complaint(lambda: fetch(replace(made, url=url), tmp_path / "made"))


def test_https_and_this_machine_are_fine():
    for url in ("https://example.org/a.zip", "http://localhost:8/a.zip", "http://[::1]:8/a.zip"):
        check_address(url)
    check_address("https://b.org/a.zip", origin="https://a.org/a.zip")


def test_a_server_elsewhere_may_not_lead_into_this_machine():
    assert "leads to http://127.0.0.1/" in complaint(lambda: check_address("http://127.0.0.1/", "https://a.org/"))


def test_redirects_are_followed_with_the_range(server, made, tmp_path):
    server.manners = [redirect("/other.zip"), cut, redirect("/other.zip")]
    download(made, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == GOOD
    assert server.asked == [None, None, f"bytes={HALF}-", f"bytes={HALF}-"]


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("http://example.org/made.zip", "leads to http://example.org/made.zip: refused"),
        ("file:///etc/passwd", "302"),
        ("/made.zip", "302"),
    ],
)
def test_redirects_elsewhere_are_refused(server, made, waits, tmp_path, to, says):
    server.manners = [redirect(to)] * 20
    assert says in complaint(lambda: fetch(made, tmp_path / "made"))
    assert waits == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"<html>please log in", "not a zip file"), (b"", "not a zip file"), (OTHER, "valid.tsv has the md5")],
    ids=["page", "empty", "other"],
)
def test_a_bad_archive_leaves_nothing_behind(server, made, tmp_path, content, says):
    server.content = content
    message = complaint(lambda: fetch(made, tmp_path / "made"))
    assert message.startswith(f"{server.url}: damaged archive (")
    assert says in message
    assert "it was removed; try again" in message
    assert list(tmp_path.iterdir()) == []


# ---- into place, by several processes ---------------------------------------------------------------------------


PROCESS = """
import sys
from pathlib import Path
from focuse.graph.fetching import Archive, fetch
url, target, force, *md5 = sys.argv[1:]
fetch(Archive(url, "made", dict(zip(md5[::2], md5[1::2]))), Path(target), force == "yes")
"""


def start_process(url: str, target: Path, force: str = "no") -> subprocess.Popen[str]:
    sums = [word for pair in MD5.items() for word in pair]
    arguments = [sys.executable, "-c", PROCESS, url, str(target), force, *sums]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("force", ["no", "yes"])
def test_processes_at_once_do_not_harm_each_other(server, tmp_path, force):
    together = threading.Barrier(2, timeout=60)

    def meeting(handler: Handler, content: bytes) -> None:
        """Half to each, then both go on at the same moment."""
        handler.answer(200, content[:HALF], Content_Length=len(content))
        together.wait()
        handler.wfile.write(content[HALF:])

    server.manners = [meeting, meeting]
    running = [start_process(server.url, tmp_path / "made", force) for _ in range(2)]
    for process in running:
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0
    assert holds_all(tmp_path / "made")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert server.asked == [None, None]


def test_a_killed_process_leaves_no_half_folder(server, made, tmp_path):
    arrived = threading.Event()

    def stuck(handler: Handler, content: bytes) -> None:
        cut(handler, content)
        arrived.set()
        time.sleep(3)

    server.manners = [stuck]
    with start_process(server.url, tmp_path / "made") as process:
        assert arrived.wait(60)
        while not any(path.stat().st_size for path in tmp_path.glob(".made.*.part")):
            time.sleep(0.01)
        process.kill()
    assert not (tmp_path / "made").exists()
    fetch(made, tmp_path / "made")
    assert holds_all(tmp_path / "made")
