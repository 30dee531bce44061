"""Signals that ask a process to end, and work too short and too needed to be ended half-way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HANGUP = getattr(signal, "SIGHUP", None)  # a closed terminal; Windows knows none


def wishes() -> dict[signal.Signals, Any]:
    """The signals that ask for an end, each with who hears it now; not one that `nohup` has it ignore."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) is not signal.SIG_IGN:
        numbers.append(HANGUP)
    return {number: signal.getsignal(number) for number in numbers}


@contextmanager
def undisturbed() -> Iterator[None]:
    """For what tidies up: a signal that comes in between is heard just after, so that nothing is left behind.

    >>> with undisturbed():
    ...     pass  # remove what is half-written
    """
    if threading.current_thread() is not threading.main_thread():  # no signal disturbs others
        yield
        return
    # None: somebody's who is not Python; whoever ignores one goes on doing so.
    before = {number: heard for number, heard in wishes().items() if heard not in (None, signal.SIG_IGN)}
    waiting: list[int] = []
    try:
        for number in before:
            signal.signal(number, lambda number, frame: waiting.append(number))
        yield
    finally:
        for number, heard in before.items():
            signal.signal(number, heard)
        if waiting:
            signal.raise_signal(waiting[0])
