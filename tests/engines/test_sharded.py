"""Several processes take the same steps and compute the same ranks as the reference."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from several import several

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
CASES = Path(__file__).with_name("sharded_cases.py")


def test_two_processes_train_and_rank_as_one() -> None:
    output = several(CASES, 2)
    assert ("by TorchRec" in output) == (find_spec("torchrec") is not None)
    assert "by torch.distributed" in output


@pytest.mark.slow
def test_every_case_with_three_and_four_processes_trains_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERY_CASE", "1")
    several(CASES, 3, 4)
