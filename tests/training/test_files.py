"""Files of a run: rows of JSON and tensors with their checksums, and what a reader is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from focuse.errors import FocuseError
from focuse.training.files import (
    DamagedError,
    has_checksums,
    read_rows,
    read_tensors,
    reading,
    write_rows,
    write_tensors,
)

ROWS = [{"from": "ä", "epochs": 3}, {"from": "b", "epochs": 0.5}]


def test_rows_come_back_and_altered_ones_do_not(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    write_rows(path, ROWS)
    assert read_rows(path) == ROWS
    path.write_text(path.read_text(encoding="utf-8").replace("0.5", "0.7"), encoding="utf-8")
    with pytest.raises(ValueError, match="altered"):
        read_rows(path)


def test_rows_from_before_need_no_checksum_but_those_of_a_run_with_some_do(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[{"epochs": 3}]', encoding="utf-8")
    assert read_rows(path) == [{"epochs": 3}]
    (tmp_path / "run.toml").write_text("[checksums]\n", encoding="utf-8")
    assert has_checksums(tmp_path)
    with pytest.raises(ValueError, match="its checksum is gone"):
        read_rows(path)
    path.write_text('{"epochs": 3}', encoding="utf-8")
    with pytest.raises(ValueError, match="no list"):
        read_rows(path)


def test_tensors_replace_others_which_are_kept(tmp_path: Path) -> None:
    path, before = tmp_path / "x.safetensors", tmp_path / "before.safetensors"
    for number in (1, 2, 3):
        write_tensors(path, {"t": torch.full((2,), number)}, {"n": str(number)}, keep=before)
    found, about = read_tensors(path, "cpu")
    assert (found["t"].tolist(), about["n"]) == ([3, 3], "3")
    assert read_tensors(before, "cpu")[0]["t"].tolist() == [2, 2]
    assert {each.name for each in tmp_path.iterdir()} == {path.name, before.name}


def test_a_writer_that_writes_too_little_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"t": torch.ones(100)}, {})
    before = path.read_bytes()

    def short(tensors: object, to: Path, metadata: object) -> None:
        to.write_bytes(before[:-8])

    monkeypatch.setattr("focuse.training.files.save_tensors", short)
    with pytest.raises(FocuseError, match=r"x.safetensors: cannot be written"):
        write_tensors(path, {"t": torch.zeros(100)}, {})
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_the_file_that_is_damaged_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(DamagedError) as error, reading(tmp_path / "outer"), reading(tmp_path / "inner", "do this"):
        raise ValueError("no numbers")
    assert str(error.value) == f"{tmp_path / 'inner'}: damaged file: no numbers; do this"
