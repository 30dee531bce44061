"""Predicted links written to every format."""

from __future__ import annotations

from pathlib import Path

import pytest

import focuse
from focuse.exports import links


@pytest.fixture(scope="module")
def found(small):
    run = focuse.train(small, dim=4, epochs=2, progress=False)
    return run.predict(head="e1", relation="r0", top=5)


@pytest.mark.parametrize("suffix", links.link_suffixes())
def test_predictions_are_written(found, suffix: str, tmp_path: Path) -> None:
    if suffix in (".nt", ".nq", ".ttl", ".trig"):
        pytest.importorskip("pyoxigraph")
    path = links.write(found, tmp_path / f"links{suffix}")
    numbers = ["score", "low", "high", "probability"]
    back = focuse.read(path, weights=numbers).to_arrow().to_pylist()
    assert [row["tail"] for row in back] == [row.tail for row in found]
    for row, expected in zip(back, found, strict=True):
        assert {name: row[name] for name in numbers} == {name: getattr(expected, name) for name in numbers}
