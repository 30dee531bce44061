"""Ctrl-C as a wish that is heeded at the next good place, instead of an exception anywhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible(wanted: bool = True) -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets, so that a step is never cut in half; a second Ctrl-C is obeyed at once."""
    event = threading.Event()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    for number in before:
        signal.signal(number, ask)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: it was not Python's
