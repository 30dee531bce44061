"""Ctrl-C as a wish that is heeded at the next good place, instead of an exception anywhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from focuse.signals import wishes


@contextmanager
def interruptible(wanted: bool = True) -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM or SIGHUP sets, so that a step is never cut in half; a second is obeyed at once."""
    event = threading.Event()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = wishes()

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


@contextmanager
def tidily() -> Iterator[None]:
    """For a command: SIGTERM and SIGHUP are as Ctrl-C, which leaves nothing half-written behind."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: handler for number, handler in wishes().items() if main and handler is signal.SIG_DFL}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
