"""Fetching an archive over HTTPS: continued where it broke off, within limits, by several processes at once."""

from __future__ import annotations

import http.client
import os
import re
import secrets
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from focuse import __version__
from focuse.errors import FocuseError
from focuse.graph.unpacking import ELSE, Archive, DamagedError, install, writing

BLOCK = 1 << 16
LOCAL = ("127.0.0.1", "localhost", "::1")
PASSING = (408, 425, 429)  # with every 5xx: what a server says when another time may do
ABANDONED = 600.0  # seconds: no living process leaves its download untouched for so long

Say = Callable[[str], None]
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Patience:
    """How often to try, how long to wait before the second time (doubled each time), when to give up on a read."""

    attempts: int = 4
    wait: float = 0.5
    timeout: float = 30.0
    sleep: Callable[[float], object] = time.sleep


PATIENCE = Patience()


class _TooLargeError(FocuseError):
    """More bytes than can be right."""

    def __init__(self, archive: Archive, size: str) -> None:
        super().__init__(
            f"{archive.url}: the server sends {size} bytes where at most {archive.most_packed:,} are expected; "
            f"nothing was kept. Try again another day, {ELSE}"
        )


class _Passing(Exception):  # noqa: N818 - a reason to try again, no error yet
    """Something that may go better next time."""


def fetch(
    archive: Archive,
    target: Path,
    force: bool = False,
    say: Say = lambda text: None,
    progress: Progress = lambda done, total: None,
) -> None:
    """Download `archive` and unpack it as the folder `target`, which appears whole or not at all.

    A download that breaks off is kept and continued next time. Several processes may fetch the same at once.
    `force` replaces what is there.
    """
    check_address(archive.url)
    with writing(target.parent):
        _sweep(target)
        with _partial(target) as part:
            for continued in (part.exists(), False):
                download(archive, part, say, progress)
                try:
                    install(part, archive, target, force, archive.url)
                except DamagedError:
                    part.unlink()
                    if not continued:
                        raise
                    # The start may stem from an older archive of the same address.
                    say(f"{archive.url}: the old part and the new one do not fit; starting over")
                else:
                    return part.unlink()


def check_address(url: str, origin: str = "") -> None:
    """Only HTTPS; plain HTTP only within this machine, where tests serve (and not when sent there from elsewhere)."""
    address = urlsplit(url)
    from_here = not origin or urlsplit(origin).hostname in LOCAL
    if address.scheme == "https" or (address.scheme == "http" and address.hostname in LOCAL and from_here):
        return
    led = f"{origin}: leads to " if origin else ""
    raise FocuseError(f"{led}{url}: refused, only https addresses are fetched; fetch the archive by hand, {ELSE}")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows only to addresses that could have been asked for themselves."""

    max_redirections = 5

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        check_address(newurl, origin=req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    archive: Archive,
    part: Path,
    say: Say = lambda text: None,
    progress: Progress = lambda done, total: None,
    patience: Patience | None = None,
) -> None:
    """Complete the file `part`, going on from what it holds; tries again when the connection fails."""
    patience = patience or PATIENCE
    wait = patience.wait
    for attempt in range(1, patience.attempts + 1):
        try:
            return _receive(archive, part, patience.timeout, progress)
        except _TooLargeError:
            part.unlink(missing_ok=True)
            raise
        except _Passing as reason:
            if attempt == patience.attempts:
                raise FocuseError(
                    f"{archive.url}: {reason} ({attempt} attempts); check the connection and try again, {ELSE}"
                ) from None
            say(f"{archive.url}: {reason}; trying again in {wait:g} s")
        patience.sleep(wait)
        wait *= 2


def _receive(archive: Archive, part: Path, timeout: float, progress: Progress) -> None:
    done = part.stat().st_size if part.exists() else 0
    with _ask(archive.url, done, timeout) as response:
        total = _total(response, done)
        if response.status in (206, 416):
            if total == done:
                return
            if response.status == 416 or total is None or total < done:
                part.unlink()
                raise _Passing("the server cannot go on where the last download ended")
        else:
            done = 0  # all of it, asked for or not
        if total is not None and total > archive.most_packed:
            raise _TooLargeError(archive, f"{total:,}")
        with part.open("ab" if done else "wb") as file:
            done = _pour(response, file, done, total, archive, progress)
    if total is not None and done != total:
        raise _Passing(f"the connection broke off after {done:,} of {total:,} bytes")


def _ask(url: str, done: int, timeout: float) -> Any:
    """The server's answer to a request for everything after the first `done` bytes."""
    headers = {"User-Agent": f"focuse/{__version__}"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        return urllib.request.build_opener(_Redirects).open(
            urllib.request.Request(url, headers=headers), timeout=timeout
        )
    except urllib.error.HTTPError as error:
        if error.code == 416 and done:
            return error  # an answer too: it tells the size
        error.close()
        if error.code in PASSING or error.code >= 500:
            raise _Passing(f"the server answers {error.code} {error.reason}") from None
        reason = " ".join(str(error.reason).split())
        raise FocuseError(f"{url}: the server answers {error.code} {reason}; try again another day, {ELSE}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", None) or error
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise FocuseError(
                f"{url}: the server's certificate is not trusted ({cause.verify_message}); "
                f"mend this machine's certificates or clock, {ELSE}"
            ) from None
        raise _Passing(f"no connection ({getattr(cause, 'strerror', None) or cause or type(cause).__name__})") from None


def _total(response: Any, done: int) -> int | None:
    """The archive's size, if the server tells it and (where it goes on) goes on at the right byte."""
    if response.status in (206, 416):
        given = response.headers.get("Content-Range", "").strip()
        match = re.fullmatch(r"bytes (?:(\d{1,15})-\d{1,15}|\*)/(\d{1,15})", given)
        if match is None or (response.status == 206 and (match[1] is None or int(match[1]) != done)):
            return None
        return int(match[2])
    length = response.headers.get("Content-Length", "")
    return int(length) if re.fullmatch(r"\d{1,15}", length) else None


def _pour(response: Any, file: BinaryIO, done: int, total: int | None, archive: Archive, progress: Progress) -> int:
    """Bytes of the answer into the file, counted, until they end; the file's size."""
    while True:
        try:
            block = response.read(BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise _Passing(f"the connection broke off after {done:,} bytes ({type(error).__name__})") from None
        if not block:
            return done
        done += len(block)
        if done > archive.most_packed:
            raise _TooLargeError(archive, f"more than {archive.most_packed:,}")
        file.write(block)
        progress(done, total)


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """A file for a download that no other process writes to; what an earlier one left is taken over.

    To rename is to claim: of two processes one gets the old part, the other begins anew.
    """
    shared = target.with_name(f".{target.name}.zip.part")
    own = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.zip.part")
    killed = [path for path in target.parent.glob(f".{target.name}.*-*.zip.part") if _is_abandoned(path)]
    for left in (shared, *killed):
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
        return time.time() - path.stat().st_mtime > ABANDONED
    except OSError:  # another process took it
        return False


def _sweep(target: Path) -> None:
    """Remove the temporary folders of processes that were killed while unpacking."""
    for path in target.parent.glob(f".{target.name}.*"):
        if path.is_dir() and _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)
