"""Termination signals and the free memory of this process."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from focuse.errors import FocuseError

HANGUP = getattr(signal, "SIGHUP", None)  # sent when the terminal is closed; Windows does not have it


def _termination_handlers() -> dict[signal.Signals, Any]:
    """Return the signals that ask the process to end with their current handlers, without SIGHUP under `nohup`."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) is not signal.SIG_IGN:
        numbers.append(HANGUP)
    return {number: signal.getsignal(number) for number in numbers}


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer signals that arrive in the block to its end, so that cleaning up is not interrupted.

    >>> with deferred_signals():
    ...     pass  # remove a half-written file
    """
    if threading.current_thread() is not threading.main_thread():  # other threads receive no signals
        yield
        return
    # The handler is None if it was not installed by Python. An ignored signal stays ignored.
    before = {
        number: handler for number, handler in _termination_handlers().items() if handler not in (None, signal.SIG_IGN)
    }
    received: list[int] = []
    try:
        for number in before:
            signal.signal(number, lambda number, frame: received.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


@contextmanager
def interruptible(enabled: bool = True) -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM or SIGHUP sets instead of interrupting; a second signal interrupts."""
    event = threading.Event()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = _termination_handlers()

    def request_stop(number: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    for number in before:
        signal.signal(number, request_stop)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None was no Python handler


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C in the block, so that a command cleans up before it ends."""
    main = threading.current_thread() is threading.main_thread()
    before = {
        number: handler for number, handler in _termination_handlers().items() if main and handler is signal.SIG_DFL
    }
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


PROC, CGROUP = Path("/", "proc"), Path("/", "sys", "fs", "cgroup")  # these exist on Linux only


def used_memory() -> int:
    """Return the bytes of memory that this process uses, without pages of files, or 0 if unknown."""
    with suppress(OSError):
        match = re.search(r"RssAnon:\s+(\d+) kB", (PROC / "self" / "status").read_text(encoding="ascii"))
        if match:
            return int(match[1]) * 1024
    return 0


def free_memory() -> int | None:
    """Return the bytes that the machine and the process's control group still allow it to use, or None if unknown."""
    limits = [value for value in (_free_on_machine(), _free_in_control_group()) if value is not None]
    return min(limits) if limits else None


def _free_on_machine() -> int | None:
    with suppress(OSError, ValueError, AttributeError):
        text = (PROC / "meminfo").read_text(encoding="ascii")
        match = re.search(r"MemAvailable:\s+(\d+) kB", text)
        if match:
            return int(match[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _free_in_control_group() -> int | None:
    """Return the bytes that the control group (version 1 or 2) has left; pages of files count as free."""
    free_bytes = []
    with suppress(OSError):
        for line in (PROC / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                names = CGROUP / path.lstrip("/"), "memory.max", "memory.current", r"^file (\d+)"
            elif "memory" in controllers.split(","):
                names = (
                    CGROUP / "memory" / path.lstrip("/"),
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    r"^total_cache (\d+)",
                )
            else:
                continue
            folder, limit, usage, cached = names
            with suppress(OSError, ValueError):
                maximum, used = (int((folder / name).read_text(encoding="ascii")) for name in (limit, usage))
                match = re.search(cached, (folder / "memory.stat").read_text(encoding="ascii"), re.MULTILINE)
                free_bytes.append(max(0, maximum - used + (int(match[1]) if match else 0)))
    return min(free_bytes) if free_bytes else None


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
