"""Edges that the processes of a machine share."""

import os
from pathlib import Path

import pytest
import torch
from several import several

from focuse.engines.company import Company
from focuse.errors import FocuseError
from focuse.training import sharing
from focuse.training.settings import Settings
from focuse.training.sharing import prepared_once

CASES = Path(__file__).with_name("sharing_cases.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_shared_edges_are_those_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOCUSE_CACHE", str(tmp_path))
    told = several(CASES, 1, 3)
    assert told.count("nothing left") == 2


def test_while_a_training_is_prepared_there_is_no_folder_yet_that_could_be_taken_for_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOCUSE_CACHE", str(tmp_path))
    monkeypatch.setattr(sharing, "joined", lambda: Company(0, 1, torch.device("cpu")))

    def prepare() -> sharing.Prepared:
        assert not list(tmp_path.rglob("*.part"))
        raise FocuseError("seen")

    with pytest.raises(FocuseError, match="seen"):
        prepared_once(Settings(engine="sharded:plain"), prepare)


def test_who_waits_for_a_first_process_that_is_gone_says_so_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Left(Company):
        def here(self, value: object) -> object:
            raise torch.distributed.DistNetworkError("recvValue failed: Connection reset by peer")

    monkeypatch.setattr(sharing, "joined", lambda: Left(1, 2, torch.device("cpu"), local=1))
    with pytest.raises(FocuseError, match="another process of this training is gone"):
        prepared_once(Settings(engine="sharded:plain"), lambda: pytest.fail("the first one prepares"))
