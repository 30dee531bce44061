"""Tables of a run that several processes write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from several import several

from focuse.engines.process_group import ProcessGroup, join_group
from focuse.errors import FocuseError
from focuse.storage.run_folder import RunFolder
from focuse.storage.tables import ONE_PROCESS, PartitionedTables, ShardedTables, TableStorage, make_table_storage

CASES = Path(__file__).with_name("tables_cases.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_several_processes_write_the_files_of_an_ordinary_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.toml").write_text("format = 3\n\n[settings]\n", encoding="utf-8")
    monkeypatch.setenv("SHARDED_FOLDER", str(tmp_path))
    several(CASES, 2, 3)


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        ("auto", TableStorage),
        ("native", TableStorage),
        ("sharded", ShardedTables),
        ("partitioned", PartitionedTables),
    ],
)
def test_engine_selects_the_table_storage(engine: str, kind: type) -> None:
    assert type(make_table_storage(engine)) is kind


def test_a_single_process_is_never_restarted_by_torchrun(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("format = 3\n\n[settings]\n", encoding="utf-8")
    (tmp_path / "job.txt").touch()
    assert not RunFolder.was_created_by(tmp_path, ONE_PROCESS)


def test_a_group_of_one_runs_an_action_itself() -> None:
    group = ProcessGroup(0, 1, ONE_PROCESS.device)
    assert group.run_on_main(lambda: 3) == 3


def test_several_processes_need_the_sharded_engine_and_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert join_group("auto", "cpu").is_single
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FocuseError, match="use engine 'sharded'"):
        join_group("auto", "cpu")
    with pytest.raises(FocuseError, match="needs a run folder that all processes can access"):
        join_group("sharded", "cpu", None)
