"""Edges that the processes of a machine share."""

import os
from pathlib import Path

import pytest
from several import several

CASES = Path(__file__).with_name("sharing_cases.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_shared_edges_are_those_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOCUSE_CACHE", str(tmp_path))
    told = several(CASES, 1, 3)
    assert told.count("nothing left") == 2
