"""What tidies up is not ended half-way by a second signal."""

import os
import signal
import threading
from pathlib import Path

import pytest

from focuse.graph.writing import replacing
from focuse.signals import undisturbed


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_is_heard_just_after(name: str) -> None:
    number = getattr(signal, name, None)
    if number is None:
        pytest.skip("no such signal here")
    heard: list[str] = []
    before = signal.signal(number, lambda number, frame: heard.append("signal"))
    try:
        with undisturbed():
            signal.raise_signal(number)
            heard.append("work")
        assert heard == ["work", "signal"]
        signal.raise_signal(number)
        assert heard == ["work", "signal", "signal"]
    finally:
        signal.signal(number, before)


def test_an_error_of_the_work_itself_comes_through() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="its own"), undisturbed():
        raise ValueError("its own")
    assert signal.getsignal(signal.SIGINT) is before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with undisturbed():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_go_on() -> None:
    seen: list[int] = []

    def work() -> None:
        with undisturbed():
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
        with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "file"):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert os.listdir(tmp_path) == []
