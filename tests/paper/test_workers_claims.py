"""Claims of cells: one holder at a time, and none by dead processes."""

import subprocess
import sys

import pytest

from focuse.errors import FocuseError
from focuse.paper.workers import claim

HOLDER = """
import fcntl, os, sys
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(handle, fcntl.LOCK_EX)
print("mine", flush=True)
sys.stdin.read()
"""


def test_claim_has_one_holder_at_a_time(tmp_path) -> None:
    path = tmp_path / "cell.claim"
    with claim(path) as mine:
        assert mine
        with claim(path) as other:
            assert not other
        with claim(tmp_path / "another.claim") as another:
            assert another
        assert path.exists()
    assert list(tmp_path.iterdir()) == []
    with claim(path) as again:
        assert again


@pytest.mark.skipif(sys.platform == "win32", reason="the other process locks as POSIX does")
def test_claim_of_a_dead_process_is_taken_over(tmp_path) -> None:
    path = tmp_path / "cell.claim"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-S", "-c", HOLDER, path], text=True, **pipes) as holder:
        assert holder.stdout.readline() == "mine\n"
        with claim(path) as mine:
            assert not mine
        holder.kill()
        holder.wait()
    assert path.exists()
    with claim(path) as mine:
        assert mine


def test_claim_is_released_when_training_fails(tmp_path) -> None:
    path = tmp_path / "cell.claim"
    with pytest.raises(ValueError, match="diverged"), claim(path):
        raise ValueError("diverged")
    with claim(path) as mine:
        assert mine


def test_missing_folder_is_an_error_of_one_line(tmp_path) -> None:
    with pytest.raises(FocuseError, match="choose an --out that can be written"), claim(tmp_path / "no" / "cell.claim"):
        pass
