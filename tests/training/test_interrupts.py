"""Ctrl-C: a wish first, an order the second time."""

import os
import signal
import threading

import pytest

from focuse.training.interrupts import interruptible


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_noted_the_second_obeyed(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with interruptible() as asked:
        assert not asked.is_set()
        os.kill(os.getpid(), number)
        assert asked.wait(5)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_nothing_is_touched_unless_wanted() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible(False):
        assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_have_no_signals() -> None:
    seen = []

    def run() -> None:
        with interruptible() as asked:
            seen.append(asked.is_set())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]
