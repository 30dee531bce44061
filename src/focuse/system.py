"""Termination signals and the free memory of this process."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from focuse.errors import FocuseError

# SIGHUP is sent when the terminal is closed; Windows does not have it.
HANGUP = getattr(signal, "SIGHUP", None)
TERMINATION = [signal.SIGINT, signal.SIGTERM, *([] if HANGUP is None else [HANGUP])]
PROC, CGROUP = Path("/", "proc"), Path("/", "sys", "fs", "cgroup")  # these exist on Linux only
# For version 2 and version 1 of control groups: their folder, limit, use, and the bytes of files in memory.
CONTROL_GROUPS = {
    "": ("", "memory.max", "memory.current", r"^file (\d+)"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", r"^total_cache (\d+)"),
}


@contextmanager
def _handling(handler: Any, replaces: Callable[[Any], bool]) -> Iterator[None]:
    """Install a handler for the signals that ask the process to end, where it `replaces` the current handler.

    An ignored signal stays ignored, as SIGHUP is under nohup.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():  # other threads receive no signals
        current = {number: signal.getsignal(number) for number in TERMINATION}
        before = {number: old for number, old in current.items() if old is not signal.SIG_IGN and replaces(old)}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)  # None was no Python handler


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer signals that arrive in the block to its end, so that cleaning up is not interrupted.

    >>> with deferred_signals():
    ...     pass  # remove a half-written file
    """
    received: list[int] = []
    try:
        with _handling(lambda number, frame: received.append(number), lambda old: old is not None):
            yield
    finally:
        if received:
            signal.raise_signal(received[0])


@contextmanager
def interruptible(enabled: bool = True) -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM or SIGHUP sets instead of interrupting; a second signal interrupts."""
    event = threading.Event()

    def request_stop(number: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    with _handling(request_stop, lambda old: enabled):
        yield event


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C in the block, so that a command cleans up before it ends."""
    with _handling(signal.default_int_handler, lambda old: old is signal.SIG_DFL):
        yield


def used_memory() -> int:
    """Return the bytes of memory that this process uses, without pages of files."""
    used = psutil.Process().memory_info()
    return int(used.rss - getattr(used, "shared", 0))


_memory_limit: ContextVar[int | None] = ContextVar("memory_limit", default=None)


@contextmanager
def limited_memory(limit: str | None) -> Iterator[None]:
    """Let `free_memory` return at most what this process may still use of a limit, like '6GB'; None is no limit."""
    token = _memory_limit.set(None if limit is None else parse_memory(limit))
    try:
        yield
    finally:
        _memory_limit.reset(token)


def free_memory() -> int:
    """Return the bytes that the machine, the process's control group and `limited_memory` still allow it to use."""
    free = [int(psutil.virtual_memory().available)]
    allowed = _memory_limit.get()
    if allowed is not None:
        free.append(max(0, allowed - used_memory()))
    with suppress(OSError):
        for line in (PROC / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            folder, limit, usage, cached = CONTROL_GROUPS.get(controllers, ("", "", "", ""))
            innermost = CGROUP / folder / path.lstrip("/")
            for group in (innermost, *innermost.parents):  # a limit applies to the groups inside, too
                with suppress(OSError, ValueError):  # without a limit there is no such file, or it says "max"
                    maximum, used = (int((group / name).read_text(encoding="ascii")) for name in (limit, usage))
                    match = re.search(cached, (group / "memory.stat").read_text(encoding="ascii"), re.MULTILINE)
                    free.append(max(0, maximum - used + (int(match[1]) if match else 0)))
    return min(free)


def check_memory_limit(alternative: str = "") -> None:
    """Raise FocuseError if this process uses more memory than `limited_memory` allows."""
    limit = _memory_limit.get()
    if limit is not None and used_memory() > limit:
        used = format_size(used_memory())
        raise FocuseError(
            f"{used} of memory are in use, more than the limit of {format_size(limit)}; raise memory_limit{alternative}"
        )


def chunks(length: int, size: int) -> Iterable[slice]:
    """Return slices of `size` rows that together cover range(length).

    >>> [(chunk.start, chunk.stop) for chunk in chunks(5, 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def parse_memory(text: str) -> int:
    """Return the number of bytes of a size like '6GB', '512 MB' or '1.5GiB'.

    >>> parse_memory("6GB"), parse_memory("1.5 GiB")
    (6000000000, 1610612736)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([kmgt]?)(i?)(b?)\s*", text, re.IGNORECASE)
    size = 0.0
    if match is not None and match[2] + match[4]:  # a number without a unit is ambiguous
        size = float(match[1]) * (1024 if match[3] else 1000) ** " kmgt".index(match[2].lower() or " ")
    if not 1 <= size < 1 << 63:
        raise FocuseError(f"memory_limit {text!r}: give a size like '6GB' or '512MB'")
    return int(size)


def format_size(size: float) -> str:
    """Return a number of bytes as text.

    >>> format_size(18.2e9), format_size(3.6e6)
    ('18.2 GB', '3.6 MB')
    """
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
