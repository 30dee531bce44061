"""A folder that several processes write to."""

import os
from pathlib import Path

import pytest
from several import several

from focuse.errors import FocuseError
from focuse.training.settings import Settings
from focuse.training.together import restarted, store_kind

CASES = Path(__file__).with_name("together_cases.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_files_of_several_processes_are_those_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.toml").touch()
    monkeypatch.setenv("TOGETHER_FOLDER", str(tmp_path))
    several(CASES, 2, 3)


def test_one_process_is_never_restarted(tmp_path: Path) -> None:
    assert not restarted(Settings(), tmp_path)


def test_several_processes_need_their_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FocuseError, match="use --engine sharded"):
        store_kind(Settings())
    with pytest.raises(FocuseError, match="needs a folder"):
        store_kind(Settings(engine="sharded"), None)
