"""Downloads from a local server that may misbehave, and archives that may be damaged."""

from __future__ import annotations

import hashlib
import io
import os
import random
import re
import socket
import stat
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

from focuse.data import datasets
from focuse.data.datasets import (
    Archive,
    DamagedArchiveError,
    RetryPolicy,
    check_address,
    download,
    fetch_archive,
    install,
    unpack,
)
from focuse.errors import FocuseError

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
    """Sends half of it, then nothing until the client gives up."""
    cut(handler, content)
    wait_for_disconnect(handler)


def wait_for_disconnect(handler: Handler) -> None:
    """Return when the client has closed its end of the connection."""
    handler.connection.settimeout(60)
    handler.connection.recv(1)


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
    monkeypatch.setattr(datasets, "RETRY_POLICY", RetryPolicy(sleep=waited.append, timeout=5.0))
    return waited


@pytest.fixture
def made(server: Server, waits: list[float]) -> Archive:
    return Archive(server.url, "made", MD5)


def holds_all(folder: Path, texts: dict[str, bytes] = TEXTS) -> bool:
    return {path.name: path.read_bytes() for path in folder.iterdir()} == texts


def complaint(action: Callable[[], object]) -> str:
    with pytest.raises(FocuseError) as caught:
        action()
    return str(caught.value)


# ---- downloads --------------------------------------------------------------------------------------------------
def test_a_download_is_complete_and_reports_progress(server, made, tmp_path):
    seen = []
    fetch_archive(made, tmp_path / "made", progress=lambda done, total: seen.append((done, total)))
    assert holds_all(tmp_path / "made")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert seen[-1] == (len(GOOD), len(GOOD))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert server.asked == [None]


def test_a_broken_download_continues_at_the_last_byte(server, made, waits, tmp_path):
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
def test_a_download_starts_over_if_the_server_cannot_continue(server, made, tmp_path, manner, requests):
    server.manners = [cut, manner]
    download(made, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == GOOD
    assert server.asked == [None, f"bytes={HALF}-", None][:requests]


@pytest.mark.parametrize(("held", "requests"), [(GOOD, 1), (GOOD + b"more", 2)], ids=["all", "more"])
def test_a_complete_part_is_not_downloaded_again(server, made, tmp_path, held, requests):
    (tmp_path / "part").write_bytes(held)
    download(made, tmp_path / "part")
    assert server.asked == [f"bytes={len(held)}-", None][:requests]
    assert (tmp_path / "part").read_bytes() == GOOD


def test_waits_double_and_attempts_are_limited(server, made, waits, tmp_path):
    server.manners = [status(503), status(500), status(429), status(502)]
    message = complaint(lambda: fetch_archive(made, tmp_path / "made"))
    assert message.startswith(f"{server.url}: the server answers 502 Bad Gateway (4 attempts); ")
    assert "try again" in message
    assert waits == [0.5, 1.0, 2.0]
    assert not (tmp_path / "made").exists()


def test_a_silent_server_times_out(server, made, waits, tmp_path):
    server.manners, said = [stalling], []
    download(made, tmp_path / "part", said.append, policy=RetryPolicy(timeout=0.2, sleep=waits.append))
    assert (tmp_path / "part").read_bytes() == GOOD
    assert "(TimeoutError); trying again in 0.5 s" in said[0]


def test_a_failed_download_is_continued_by_the_next(server, made, tmp_path):
    server.manners = [cut, status(503), status(503), status(503)]
    complaint(lambda: fetch_archive(made, tmp_path / "made"))
    assert [path.name for path in tmp_path.iterdir()] == [".made.zip.part"]
    fetch_archive(made, tmp_path / "made")
    assert server.asked[-1] == f"bytes={HALF}-"
    assert holds_all(tmp_path / "made")


def test_a_part_of_another_archive_is_detected_and_replaced(server, made, tmp_path):
    (tmp_path / ".made.zip.part").write_bytes(bytes(HALF))
    said = []
    fetch_archive(made, tmp_path / "made", report=said.append)
    assert holds_all(tmp_path / "made")
    assert server.asked == [f"bytes={HALF}-", None]
    assert "starting over" in said[-1]


@pytest.mark.parametrize(("age", "asked"), [(3600, f"bytes={HALF}-"), (0, None)], ids=["killed", "living"])
def test_only_the_part_of_a_killed_process_is_continued(server, made, tmp_path, age, asked):
    left = tmp_path / ".made.123-abcdef01.zip.part"
    left.write_bytes(GOOD[:HALF])
    os.utime(left, (time.time() - age,) * 2)
    fetch_archive(made, tmp_path / "made")
    assert server.asked == [asked]
    assert left.exists() == (age == 0)
    assert holds_all(tmp_path / "made")


def test_folders_of_killed_processes_are_removed(made, tmp_path):
    for name, age in (("old", 3600), ("new", 0)):
        (tmp_path / f".made.{name}").mkdir()
        os.utime(tmp_path / f".made.{name}", (time.time() - age,) * 2)
    fetch_archive(made, tmp_path / "made")
    assert {path.name for path in tmp_path.iterdir()} == {"made", ".made.new"}


@pytest.mark.parametrize(("manner", "sent"), [(honest, f"{len(GOOD):,}"), (endless, f"more than {len(GOOD) - 1:,}")])
def test_a_download_larger_than_expected_is_refused(server, made, waits, tmp_path, manner, sent):
    server.manners = [manner]
    message = complaint(lambda: fetch_archive(replace(made, max_packed=len(GOOD) - 1), tmp_path / "made"))
    assert f"sends {sent} bytes where at most {len(GOOD) - 1:,} are expected" in message
    assert (list(tmp_path.iterdir()), len(server.asked), waits) == ([], 1, [])


def test_a_missing_file_is_requested_once(server, made, waits, tmp_path):
    server.manners = [status(404)]
    assert "the server answers 404 Not Found" in complaint(lambda: fetch_archive(made, tmp_path / "made"))
    assert (len(server.asked), waits) == (1, [])


def test_being_offline_is_an_error_of_one_line(made, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    message = complaint(
        lambda: fetch_archive(replace(made, url=f"http://127.0.0.1:{port}/made.zip"), tmp_path / "made")
    )
    assert re.search(r"no connection \(Connection refused\).*FOCUSE_DATA", message)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_an_error_of_one_line(made, tmp_path):
    (tmp_path / "file").write_text("")
    assert "FOCUSE_CACHE" in complaint(lambda: fetch_archive(made, tmp_path / "file" / "made"))


# ---- addresses --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("url", ["http://example.org/a.zip", "ftp://127.0.0.1/a.zip", "file:///etc/passwd", "a.zip"])
def test_only_https_is_fetched(url, made, tmp_path):
    assert "only https" in complaint(lambda: fetch_archive(replace(made, url=url), tmp_path / "made"))


def test_https_and_local_addresses_are_accepted():
    for url in ("https://example.org/a.zip", "http://localhost:8/a.zip", "http://[::1]:8/a.zip"):
        check_address(url)
    check_address("https://b.org/a.zip", origin="https://a.org/a.zip")


def test_a_remote_server_may_not_redirect_to_this_machine():
    assert "redirects to http://127.0.0.1/" in complaint(lambda: check_address("http://127.0.0.1/", "https://a.org/"))


def test_redirects_keep_the_range_header(server, made, tmp_path):
    server.manners = [redirect("/other.zip"), cut, redirect("/other.zip")]
    download(made, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == GOOD
    assert server.asked == [None, None, f"bytes={HALF}-", f"bytes={HALF}-"]


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("http://example.org/made.zip", "redirects to http://example.org/made.zip: refused"),
        ("file:///etc/passwd", "302"),
        ("/made.zip", "302"),
    ],
)
def test_redirects_to_other_schemes_and_loops_are_refused(server, made, waits, tmp_path, to, says):
    server.manners = [redirect(to)] * 20
    assert says in complaint(lambda: fetch_archive(made, tmp_path / "made"))
    assert waits == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"<html>please log in", "not a zip file"), (b"", "not a zip file"), (OTHER, "valid.tsv has the md5")],
    ids=["page", "empty", "other"],
)
def test_a_bad_download_leaves_no_files(server, made, tmp_path, content, says):
    server.content = content
    message = complaint(lambda: fetch_archive(made, tmp_path / "made"))
    assert message.startswith(f"{server.url}: damaged archive (")
    assert says in message
    assert "it was removed; try again" in message
    assert list(tmp_path.iterdir()) == []


# ---- into place, by several processes ---------------------------------------------------------------------------
PROCESS = """
import sys
from pathlib import Path
from focuse.data.datasets import Archive, fetch_archive
url, target, force, *md5 = sys.argv[1:]
fetch_archive(Archive(url, "made", dict(zip(md5[::2], md5[1::2]))), Path(target), force == "yes")
"""


def start_process(url: str, target: Path, force: str = "no") -> subprocess.Popen[str]:
    sums = [word for pair in MD5.items() for word in pair]
    arguments = [sys.executable, "-c", PROCESS, url, str(target), force, *sums]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("force", ["no", "yes"])
def test_two_processes_may_fetch_the_same_archive_at_once(server, tmp_path, force):
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


def test_a_killed_process_leaves_no_incomplete_folder(server, made, tmp_path):
    arrived = threading.Event()

    def stuck(handler: Handler, content: bytes) -> None:
        cut(handler, content)
        arrived.set()
        wait_for_disconnect(handler)

    server.manners = [stuck]
    with start_process(server.url, tmp_path / "made") as process:
        assert arrived.wait(60)
        while not any(path.stat().st_size for path in tmp_path.glob(".made.*.part")):
            time.sleep(0.01)
        process.kill()
    assert not (tmp_path / "made").exists()
    fetch_archive(made, tmp_path / "made")
    assert holds_all(tmp_path / "made")


SMALL_TEXTS = {f"{part}.tsv": f"a\tr\t{part}\t0.5\n".encode() * 100 for part in ("train", "valid", "test")}


MADE = Archive(
    "https://example.org/made.zip",
    "made",
    {name: hashlib.md5(text).hexdigest() for name, text in SMALL_TEXTS.items()},
    max_unpacked=1 << 20,
)


def special(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def archive_bytes(
    *extra: tuple[str | zipfile.ZipInfo, bytes], prefix: str = "made/", without: str = "", kind: int = 8
) -> bytes:
    """A good archive with `extra` members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for name, text in SMALL_TEXTS.items():
            if name != without:
                archive.writestr(f"{prefix}{name}", text)
        for member, text in extra:
            archive.writestr(member, text)
    return stream.getvalue()


def locked(content: bytes) -> bytes:
    """The same, claiming to be encrypted."""
    changed = bytearray(content)
    changed[content.index(b"PK\x01\x02") + 8] |= 1
    changed[content.index(b"PK\x03\x04") + 6] |= 1
    return bytes(changed)


def flipped(content: bytes) -> bytes:
    """The same with one bit of the packed text flipped."""
    changed = bytearray(content)
    changed[content.index(b"made/train.tsv") + 20] ^= 1
    return bytes(changed)


LINK = special("made/train.tsv", stat.S_IFLNK | 0o777)


BAD = {
    "page": (b"<html>please log in</html>", "not a zip file"),
    "short": (archive_bytes()[:-60], "not a zip file"),
    "flipped": (flipped(archive_bytes()), ""),
    "missing": (archive_bytes(without="test.tsv"), "no test.tsv"),
    "other": (archive_bytes(("made/valid.tsv", b"x"), without="valid.tsv"), "valid.tsv has the md5"),
    "twice": (archive_bytes(("train.tsv", b"a\tr\tb\t1\n")), "train.tsv is in it twice"),
    "outside": (archive_bytes(("../evil.tsv", b"x")), "'../evil.tsv' points outside"),
    "deep": (archive_bytes(("made/../../evil.tsv", b"x")), "points outside"),
    "absolute": (archive_bytes(("/tmp/evil.tsv", b"x")), "'/tmp/evil.tsv' points outside"),
    "windows": (archive_bytes(("..\\evil.tsv", b"x")), "points outside"),
    "drive": (archive_bytes(("C:\\evil.tsv", b"x")), "points outside"),
    "link": (archive_bytes((LINK, b"/etc/passwd"), without="train.tsv"), "is a link or device"),
    "pipe": (archive_bytes((special("made/pipe", stat.S_IFIFO), b"")), "is a link or device"),
    "crowd": (archive_bytes(*((f"{i}", b"") for i in range(1000))), "1,003 members"),
    "bomb": (archive_bytes(("made/train.tsv", bytes(2 << 20)), without="train.tsv"), "bytes when unpacked"),
    "lzma": (archive_bytes(kind=zipfile.ZIP_LZMA), "packed in an unusual way"),
    "locked": (locked(archive_bytes()), "encrypted"),
}


def test_a_good_archive_is_installed(tmp_path):
    (tmp_path / "made.zip").write_bytes(archive_bytes())
    install(tmp_path / "made.zip", MADE, tmp_path / "deep" / "made")
    assert holds_all(tmp_path / "deep" / "made", SMALL_TEXTS)


@pytest.mark.parametrize(("content", "says"), BAD.values(), ids=BAD)
def test_a_bad_archive_is_refused_and_nothing_is_installed(tmp_path, content, says):
    file = tmp_path / "made.zip"
    file.write_bytes(content)
    with pytest.raises(DamagedArchiveError) as caught:
        install(file, MADE, tmp_path / "cache" / "made")
    message = str(caught.value)
    assert message.startswith(f"{file}: damaged archive (")
    assert says in message
    assert "replace it by the original" in message
    assert set(tmp_path.rglob("*")) == {file, tmp_path / "cache"}
    assert file.read_bytes() == content  # the user's own


def test_an_unreadable_archive_is_an_error_of_one_line(tmp_path):
    (tmp_path / "made.zip").mkdir()
    with pytest.raises(FocuseError, match=r"made\.zip: Is a directory; give a readable archive"):
        install(tmp_path / "made.zip", MADE, tmp_path / "made")


def test_a_member_cannot_grow_past_its_stated_size(tmp_path):
    """A bomb whose directory claims to be small: nothing past the claim is unpacked."""
    bomb = bytearray(archive_bytes(("made/train.tsv", bytes(5 << 20)), without="train.tsv"))
    place = bomb.rindex(b"PK\x01\x02")
    bomb[place + 24 : place + 28] = (100).to_bytes(4, "little")
    (tmp_path / "bomb.zip").write_bytes(bomb)
    with pytest.raises(DamagedArchiveError):
        unpack(tmp_path / "bomb.zip", MADE, tmp_path)
    assert (tmp_path / "train.tsv").stat().st_size <= 100


def test_any_damage_is_detected_or_has_no_effect(tmp_path):
    content, chance = archive_bytes(), random.Random(1)
    damaged = 0
    for number in range(400):
        spoilt = bytearray(content)
        for _ in range(chance.choice([1, 2, 8])):
            spoilt[chance.randrange(0 if number % 2 else len(content) - 250, len(content))] = chance.randrange(256)
        (tmp_path / "spoilt.zip").write_bytes(spoilt)
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            unpack(tmp_path / "spoilt.zip", MADE, folder)
            assert holds_all(folder, SMALL_TEXTS)
        except DamagedArchiveError:
            damaged += 1
    assert damaged > 200


@pytest.mark.parametrize("prefix", ["", "made/", "made\\"])
def test_other_members_are_not_extracted(tmp_path, prefix):
    content = archive_bytes(
        ("__MACOSX/made/._train.tsv", b"x"), ("made/readme.md", b"x"), ("made/deep/", b""), prefix=prefix
    )
    (tmp_path / "a.zip").write_bytes(content)
    install(tmp_path / "a.zip", MADE, tmp_path / "made")
    assert holds_all(tmp_path / "made", SMALL_TEXTS)


def test_the_folder_has_the_usual_permissions(tmp_path):
    (tmp_path / "made.zip").write_bytes(archive_bytes())
    install(tmp_path / "made.zip", MADE, tmp_path / "made")
    (tmp_path / "other").mkdir()
    assert (tmp_path / "made").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder from earlier with files of its user's, among them the archive."""
    folder = tmp_path / "made"
    folder.mkdir()
    for name in (*SMALL_TEXTS, "train.tsv.gz"):
        (folder / name).write_text("old")
    (folder / "test_with_neg.tsv").write_text("mine")
    (folder / "made.zip").write_bytes(archive_bytes())
    return folder


def own_files_are_kept(folder: Path) -> bool:
    """And none of the old parts; nor is anything left beside the folder."""
    kept = (folder / "test_with_neg.tsv").read_text() == "mine" and (
        folder / "made.zip"
    ).read_bytes() == archive_bytes()
    for name in ("test_with_neg.tsv", "made.zip"):
        (folder / name).unlink()
    return kept and os.listdir(folder.parent) == ["made"]


def test_force_replaces_the_splits_and_keeps_other_files(old):
    install(old / "made.zip", MADE, old, force=True)
    assert own_files_are_kept(old)
    assert holds_all(old, SMALL_TEXTS)


def test_without_force_an_existing_folder_is_kept(old):
    install(old / "made.zip", MADE, old)
    assert (old / "train.tsv").read_text() == "old"


def test_an_incomplete_folder_is_replaced(old):
    (old / "test.tsv").unlink()
    install(old / "made.zip", MADE, old)
    assert own_files_are_kept(old)
    assert holds_all(old, SMALL_TEXTS)
