"""Files that are replaced as a whole, and locks that end with their process."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import pytest

from focuse.errors import FocuseError
from focuse.storage.atomic import ProcessLock, lock_holder, replace_file


class TestReplacing:
    def test_error_while_writing_keeps_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_text("old")
        with pytest.raises(UnicodeEncodeError), replace_file(path) as temporary:
            temporary.write_text("new ä", encoding="ascii")
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.skipif(sys.platform == "win32", reason="there are no modes")
    def test_private_file_is_readable_by_its_owner_only(self, tmp_path: Path) -> None:
        with replace_file(tmp_path / "x", private=True) as temporary:
            temporary.write_text("secret")
        assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600

    def test_two_threads_can_replace_the_same_file(self, tmp_path: Path) -> None:
        together = threading.Barrier(2)

        def write(text: str) -> None:
            with replace_file(tmp_path / "x") as temporary:
                temporary.write_text(text)
                together.wait()
                assert temporary.read_text() == text

        threads = [threading.Thread(target=write, args=(text,)) for text in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (tmp_path / "x").read_text() in ("one", "two")
        assert list(tmp_path.iterdir()) == [tmp_path / "x"]

    def test_a_full_disk_is_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(FocuseError, match="x: cannot be written: No space left"), replace_file(tmp_path / "x"):
            raise OSError(errno.ENOSPC, "No space left on device")


class TestLock:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "x.lock"

    def test_lock_has_one_holder_whom_others_can_identify(self, path: Path) -> None:
        first = ProcessLock.acquire(path)
        assert first is not None
        assert lock_holder(path).startswith(f"process {os.getpid()} on ")
        assert ProcessLock.acquire(path) is None
        first.release()
        first.release()  # once is enough
        assert lock_holder(path) == ""
        assert not path.exists()
        second = ProcessLock.acquire(path)
        assert second is not None
        second.release()

    def test_acquire_waits_for_a_short_check_of_the_holder(self, path: Path) -> None:
        asking = ProcessLock.acquire(path, timeout=0)
        assert asking is not None
        acquired = []
        thread = threading.Thread(target=lambda: acquired.append(ProcessLock.acquire(path, timeout=60)))
        thread.start()
        asking.release()
        thread.join()
        assert acquired[0] is not None
        acquired[0].release()

    def test_lock_file_of_a_killed_process_is_not_locked(self, path: Path) -> None:
        path.write_text("4711 elsewhere, with a long name\n")
        assert lock_holder(path) == ""
        path.write_text("4711 elsewhere, with a long name\n")
        lock = ProcessLock.acquire(path)
        assert lock is not None
        assert path.read_text().startswith(f"{os.getpid()} ")
        lock.release()

    def test_lock_ends_when_its_process_is_killed(self, path: Path) -> None:
        script = "import sys, time; from pathlib import Path; from focuse.storage.atomic import ProcessLock;"
        script += "lock = ProcessLock.acquire(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
        words = [sys.executable, "-c", script, str(path)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "locked\n"
            assert lock_holder(path) == f"process {child.pid} on {socket.gethostname()}"
            child.kill()
        assert path.exists()
        lock = ProcessLock.acquire(path)
        assert lock is not None
        lock.release()

    @pytest.mark.skipif(sys.platform == "win32", reason="there an open file cannot be removed")
    def test_lock_follows_its_file_to_another_folder(self, tmp_path: Path) -> None:
        (tmp_path / "old").mkdir()
        lock = ProcessLock.acquire(tmp_path / "old" / "x")
        assert lock is not None
        (tmp_path / "old").rename(tmp_path / "new")
        lock.path = tmp_path / "new" / "x"
        assert ProcessLock.acquire(tmp_path / "new" / "x") is None
        lock.release()
        assert list((tmp_path / "new").iterdir()) == []

    def test_lock_does_not_create_missing_folders(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            ProcessLock.acquire(tmp_path / "nothing" / "x")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
    def test_file_systems_without_locks_are_supported(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        def refuse(*given: object, **named: object) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
        locks = [ProcessLock.acquire(path), ProcessLock.acquire(path)]
        for lock in locks:
            assert lock is not None
            lock.release()
        assert not path.exists()
