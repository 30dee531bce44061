"""Edges that the processes of a machine share."""

import os
from pathlib import Path

import pytest
import torch
from several import several

from focuse.engines.process_group import ProcessGroup
from focuse.errors import FocuseError
from focuse.training import shared_memory as sharing
from focuse.training.shared_memory import prepare_once_per_machine

CASES = Path(__file__).with_name("shared_memory_cases.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_shared_edges_equal_those_of_a_single_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOCUSE_CACHE", str(tmp_path))
    told = several(CASES, 1, 3)
    assert told.count("nothing left") == 2


def test_shared_folder_is_created_after_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOCUSE_CACHE", str(tmp_path))
    monkeypatch.setattr(sharing, "current_group", lambda: ProcessGroup(0, 1, torch.device("cpu")))

    def prepare() -> sharing.PreparedData:
        assert not list(tmp_path.rglob("*.part"))
        raise FocuseError("seen")

    with pytest.raises(FocuseError, match="seen"):
        prepare_once_per_machine(prepare)


def test_lost_main_process_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Left(ProcessGroup):
        def broadcast_on_host(self, value: object) -> object:
            raise torch.distributed.DistNetworkError("recvValue failed: Connection reset by peer")

    monkeypatch.setattr(sharing, "current_group", lambda: Left(1, 2, torch.device("cpu"), local_rank=1))
    with pytest.raises(FocuseError, match="another process of this training has ended"):
        prepare_once_per_machine(lambda: pytest.fail("the first one prepares"))
