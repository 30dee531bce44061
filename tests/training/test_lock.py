"""One training at a time: the system's lock, which goes with its process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from focuse.errors import FocuseError
from focuse.training.checkpoints import Store
from focuse.training.lock import FILE, Lock, UnwritableError, is_locked


def test_the_second_is_told_who_has_it(tmp_path: Path) -> None:
    first = Lock.take(tmp_path)
    assert is_locked(tmp_path)
    with pytest.raises(FocuseError, match=rf"another training is at work in it \(process {os.getpid()} on .*\); wait"):
        Lock.take(tmp_path)
    first.release()
    first.release()  # once is enough
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []
    Lock.take(tmp_path).release()


def test_whoever_wants_the_folder_for_a_new_run_is_told_too(tmp_path: Path) -> None:
    lock = Lock.take(tmp_path)
    with pytest.raises(FocuseError, match=rf"another training .*process {os.getpid()} on .*; choose another --out"):
        Store.free(tmp_path)
    lock.release()
    (tmp_path / "run.toml").touch()
    with pytest.raises(FocuseError, match="exists and is not empty"):
        Store.free(tmp_path)


def test_who_only_asks_is_in_nobodys_way(tmp_path: Path) -> None:
    asking = Lock.take(tmp_path)
    let_go = threading.Timer(0.01, asking.release)
    let_go.start()
    Lock.take(tmp_path).release()
    let_go.join()


def test_a_file_that_was_left_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("4711 elsewhere, with a long name\n")
    assert not is_locked(tmp_path)
    lock = Lock.take(tmp_path)
    assert (tmp_path / FILE).read_text().startswith(f"{os.getpid()} ")
    lock.release()


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_it_goes_with_a_killed_process(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        Lock.take(tmp_path)
        os.write(writing, b"x")
        signal.pause()
    os.read(reading, 1)
    assert is_locked(tmp_path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert (tmp_path / FILE).exists()
    Lock.take(tmp_path).release()


@pytest.mark.skipif(sys.platform == "win32", reason="there an open file cannot be removed")
def test_a_lock_that_its_holder_removes_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened before its holder gives it back, locked after: that file is nobody's."""
    from focuse.training import lock as module

    first, lock, calls = Lock.take(tmp_path), module._held, []

    def late(handle: int) -> bool:
        calls.append(handle)
        first.release()
        return lock(handle)

    monkeypatch.setattr(module, "_held", late)
    second = Lock.take(tmp_path)
    assert len(calls) == 2
    monkeypatch.undo()
    with pytest.raises(FocuseError, match="another training"):
        Lock.take(tmp_path)
    second.release()


def test_a_folder_that_is_not_there_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UnwritableError, match="cannot be written"):
        Lock.take(tmp_path / "nothing")
