"""Inferred triples are aligned to train, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from focuse.data.readers import read
from focuse.errors import FocuseError
from focuse.rules.augmentation import read_soft_logic
from focuse.rules.grounding import inferred

TRAIN = read([("a", "r", "b", 0.9), ("b", "r", "c", 0.8), ("c", "likes", "a", 0.7)])


def refusal(source: object) -> str:
    with pytest.raises(FocuseError) as caught:
        read_soft_logic(source, TRAIN)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_inferred_triples_are_unchanged_after_writing_and_reading(tmp_path: Path) -> None:
    found = inferred(TRAIN, "r(x, y) & r(y, z) -> r(x, z)")
    found.write(tmp_path / "soft.tsv.gz")
    back = read_soft_logic(tmp_path / "soft.tsv.gz", TRAIN)
    assert back.graph.keys.tolist() == found.keys.tolist()
    assert back.graph.weight.tolist() == found.weight.tolist()
    assert back.graph.entities is TRAIN.entities
    assert back.unseen.rows == 0
    assert read_soft_logic(found, TRAIN).graph.keys.tolist() == found.keys.tolist()


def test_ids_are_those_of_train() -> None:
    aligned = read_soft_logic([("c", "likes", "b", 0.25), ("a", "r", "c", 1.0)], TRAIN).graph
    assert TRAIN.entities.take(aligned.head).to_pylist() == ["c", "a"]
    assert TRAIN.relations.take(aligned.relation).to_pylist() == ["likes", "r"]
    assert aligned.weight.tolist() == [0.25, 1.0]


def test_unknown_names_are_counted_and_found(tmp_path: Path) -> None:
    path = tmp_path / "soft.tsv"
    path.write_text("a\tr\tc\t0.5\na\tr\tzeus\t0.4\nhera\tlikes\tzeus\t0.4\na\tloves\tb\t0.3\n")
    said = refusal(path)
    assert said.startswith(f"{path}, row 2: 3 of 4 rows have names that rows does not have, such as 'hera', 'zeus', ")
    assert "'loves'; infer them over this training graph or remove these rows" in said


def test_rows_are_counted_without_a_header(tmp_path: Path) -> None:
    assert refusal([("a", "r", "c", 0.5), ("a", "r", "zeus", 0.4)]).startswith("rows, row 2: 1 of 2 rows")
    for name in ("soft.parquet", "soft.csv.gz"):
        read([("a", "r", "c", 0.5), ("a", "r", "zeus", 0.4)]).write(tmp_path / name)
        assert refusal(tmp_path / name).startswith(f"{tmp_path / name}, row 2: 1 of 2 rows")


def test_confidences_outside_of_the_unit_interval(tmp_path: Path) -> None:
    path = tmp_path / "soft.tsv"
    path.write_text("a\tr\tc\t0.5\nb\tr\ta\t0.5\nb\tr\ta\t87\nc\tr\ta\t-1\n")
    said = refusal(path)
    assert said.startswith(f"{path}, row 3: the confidence 87 is outside of [0, 1], as are 2 of 4; ")
    assert "'relation', 'global' or 'quantile'" in said


def test_a_file_without_confidences_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "soft.tsv"
    path.write_text("a\tr\tc\n")
    assert refusal(path) == f"{path}: no confidences; give a fourth column with numbers in [0, 1]"
