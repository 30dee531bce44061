"""Ctrl-C: a wish first, an order the second time."""

import os
import signal
import threading

import pytest

from focuse.training.interrupts import interruptible, tidily


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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


def test_a_hangup_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as asked, tidily():
            os.kill(os.getpid(), signal.SIGHUP)
            assert not asked.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_is_ended_as_by_ctrl_c(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), tidily():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
