"""Signals and memory of the machine."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from focuse import system as memory
from focuse.storage.atomic import replace_file
from focuse.system import deferred_signals, free_memory, interruptible, signals_as_interrupts, used_memory


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_sets_the_event_and_the_second_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with interruptible() as asked:
        assert not asked.is_set()
        os.kill(os.getpid(), number)
        assert asked.wait(5)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_handlers_are_unchanged_unless_requested() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible(False):
        assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_get_an_event_without_handlers() -> None:
    seen = []

    def run() -> None:
        with interruptible() as asked:
            seen.append(asked.is_set())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]


def test_ignored_hangup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as asked, signals_as_interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
            assert not asked.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_end_a_command_like_ctrl_c(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), signals_as_interrupts():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_deferred_signal_arrives_after_the_block(name: str) -> None:
    number = getattr(signal, name, None)
    if number is None:
        pytest.skip("no such signal here")
    heard: list[str] = []
    before = signal.signal(number, lambda number, frame: heard.append("signal"))
    try:
        with deferred_signals():
            signal.raise_signal(number)
            heard.append("work")
        assert heard == ["work", "signal"]
        signal.raise_signal(number)
        assert heard == ["work", "signal", "signal"]
    finally:
        signal.signal(number, before)


def test_an_error_in_the_block_is_raised() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="its own"), deferred_signals():
        raise ValueError("its own")
    assert signal.getsignal(signal.SIGINT) is before


def test_ignored_signal_stays_ignored_while_deferring() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_signals():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_deferring_signals_in_another_thread_does_nothing() -> None:
    seen: list[int] = []

    def work() -> None:
        with deferred_signals():
            seen.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]


def test_a_second_ctrl_c_leaves_no_half_written_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = Path.unlink

    def disturbed(path: Path, missing_ok: bool = False) -> None:
        signal.raise_signal(signal.SIGINT)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", disturbed)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), replace_file(tmp_path / "file"):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert os.listdir(tmp_path) == []


def test_free_memory_is_plausible() -> None:
    assert 10**6 < free_memory() < 10**15


def test_used_memory_grows_with_an_array() -> None:
    before = used_memory()
    more = np.ones(1 << 24)
    assert used_memory() - before > 100_000_000
    del more


@pytest.mark.parametrize(
    ("line", "folder", "files"),
    [
        ("0::/box", "box", {"memory.max": "7000", "memory.current": "5000", "memory.stat": "anon 1\nfile 3000\n"}),
        (
            "9:memory:/box",
            "memory/box",
            {
                "memory.limit_in_bytes": "7000",
                "memory.usage_in_bytes": "5000",
                "memory.stat": "cache 1\ntotal_cache 3000\n",
            },
        ),
    ],
)
def test_free_memory_respects_the_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, folder: str, files: dict[str, str]
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / folder / name).write_text(text, encoding="ascii")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"3:cpu:/elsewhere\n{line}\n", encoding="ascii")
    monkeypatch.setattr(memory, "PROC", tmp_path)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert free_memory() == 7000 - 5000 + 3000  # pages of files can be freed
    (tmp_path / "self" / "cgroup").write_text(f"{line}/inner\n", encoding="ascii")
    assert free_memory() == 7000 - 5000 + 3000  # the limit of an outer group
