"""Arrays written piece by piece are safetensors that anyone can read."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from focuse.graph import arrays
from focuse.graph.arrays import fill, map_arrays, read_header, write_arrays, write_through

GIVEN = {
    "ids": np.arange(10, dtype=np.int32),
    "rows": np.arange(12, dtype=np.float32).reshape(4, 3),
    "weights": np.linspace(0, 1, 7),
    "one": np.array(3, dtype=np.int64),
    "none": np.empty((0, 5), np.float32),
    "flags": np.array([True, False]),
}


def test_another_library_reads_what_was_written_and_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "PIECE_BYTES", 16)
    write_arrays(tmp_path / "a", GIVEN, {"said": "so"})
    save_file(GIVEN, tmp_path / "b")
    assert read_header(tmp_path / "a")[1] == {"said": "so"}
    for found in (load_file(tmp_path / "a"), map_arrays(tmp_path / "a"), map_arrays(tmp_path / "b")):
        assert found.keys() == GIVEN.keys()
        for name, values in GIVEN.items():
            assert found[name].dtype == values.dtype
            assert np.array_equal(found[name], values)


def test_what_is_mapped_may_be_changed_and_the_file_stays(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", GIVEN)
    map_arrays(tmp_path / "a")["rows"][:] = 7
    assert np.array_equal(map_arrays(tmp_path / "a")["rows"], GIVEN["rows"])


def test_rows_are_read_to_where_they_belong(tmp_path: Path) -> None:
    write_through(tmp_path / "a", {"rows": GIVEN["rows"]})
    table, other = np.zeros((9, 3), np.float32), np.ones(2)
    assert fill(tmp_path / "a", {"rows": table[2:6], "sum": other}) == {"rows"}
    assert np.array_equal(table[2:6], GIVEN["rows"])
    assert not table[:2].any()
    assert other.all()
    with pytest.raises(ValueError, match="instead of"):
        fill(tmp_path / "a", {"rows": table})


@pytest.mark.parametrize("cut", [0, 4, 60, -1])
def test_a_file_cut_short(tmp_path: Path, cut: int) -> None:
    write_arrays(tmp_path / "a", GIVEN)
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(whole[:cut])
    with pytest.raises(ValueError, match=r"cut short|Expecting|Unterminated"):
        map_arrays(tmp_path / "a")
