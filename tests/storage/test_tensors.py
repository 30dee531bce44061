"""Files of tensors: safetensors that anyone can read, whose checksum notices every altered bit."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from focuse.errors import FocuseError
from focuse.storage import tensors
from focuse.storage.tensors import (
    ArraySpec,
    DamagedError,
    TensorFile,
    check_row,
    check_tensors,
    check_text,
    file_checksum,
    has_checksums,
    map_arrays,
    read_into,
    read_records,
    reading,
    seal_row,
    seal_text,
    write_arrays,
    write_records,
    write_tensors,
)

SMALL = {"a": np.arange(5, dtype=np.float32), "b": np.eye(2)}
MANY = {
    "ids": np.arange(10, dtype=np.int32),
    "rows": np.arange(12, dtype=np.float32).reshape(4, 3),
    "columns": np.arange(12, dtype=np.float32).reshape(4, 3).T,
    "weights": np.linspace(0, 1, 7),
    "one": np.array(3, dtype=np.int64),
    "none": np.empty((0, 5), np.float32),
    "flags": np.array([True, False]),
}


def flipped(data: bytes) -> list[bytes]:
    """Copies of the bytes, each with another bit flipped."""
    found = []
    for position in range(len(data)):
        for bit in range(8):
            found.append(data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])
    return found


class TestWriting:
    def test_other_libraries_read_what_is_written_and_the_other_way(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tensors, "CHUNK_BYTES", 16)
        write_arrays(tmp_path / "a", MANY, {"source": "here"})
        save_file({name: values.copy() for name, values in MANY.items()}, tmp_path / "b")
        with safe_open(tmp_path / "a", framework="np") as file:
            assert file.metadata()["source"] == "here"
        for found in (load_file(tmp_path / "a"), map_arrays(tmp_path / "a"), map_arrays(tmp_path / "b")):
            assert found.keys() == MANY.keys()
            for name, values in MANY.items():
                assert found[name].dtype == values.dtype
                assert np.array_equal(found[name], values)

    def test_a_file_may_hold_no_array(self, tmp_path: Path) -> None:
        write_arrays(tmp_path / "a", {})
        check_tensors(tmp_path / "a", required=True)
        assert load_file(tmp_path / "a") == {}

    @pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
    def test_chunks_written_in_any_order_give_identical_bytes(self, tmp_path: Path, order: list[int]) -> None:
        rows = np.arange(18, dtype=np.float32).reshape(6, 3)
        write_arrays(tmp_path / "whole", {"rows": rows})
        file = TensorFile(tmp_path / "pieces", {"rows": ArraySpec.of(rows)})
        file.create(allocate=True)
        for piece in order:
            with file.open():
                file.write("rows", rows[2 * piece : 2 * piece + 2], 2 * piece)
        file.seal(drop_cache=True)
        assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()

    def test_incomplete_file_is_not_sealed(self, tmp_path: Path) -> None:
        file = TensorFile(tmp_path / "a", {"rows": ArraySpec(np.dtype("<f4"), (4, 2))})
        file.create()
        with file.open():
            file.write("rows", np.zeros((2, 2), np.float32))
        with pytest.raises(OSError, match="not have its full size"):
            file.seal()

    def test_equal_tensors_give_identical_bytes(self, tmp_path: Path) -> None:
        for number, names in enumerate((("one", "two", "three"), ("three", "one", "two"))):
            write_tensors(
                tmp_path / str(number), {name: torch.ones(2) for name in names}, {name: name for name in names}
            )
        assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()

    def test_a_failed_write_replaces_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "x.safetensors"
        write_tensors(path, {"t": torch.ones(100)}, {})
        before = path.read_bytes()
        monkeypatch.setattr(TensorFile, "write", lambda *given: None)
        with pytest.raises(
            FocuseError, match=r"x.safetensors: cannot be written: the file does not have its full size"
        ):
            write_tensors(path, {"t": torch.zeros(100)}, {})
        assert path.read_bytes() == before
        assert [each.name for each in tmp_path.iterdir()] == [path.name]


class TestReading:
    def test_changes_of_mapped_arrays_are_not_written_to_the_file(self, tmp_path: Path) -> None:
        write_arrays(tmp_path / "a", MANY)
        map_arrays(tmp_path / "a")["rows"][:] = 7
        assert np.array_equal(map_arrays(tmp_path / "a")["rows"], MANY["rows"])

    def test_rows_are_read_into_a_part_of_a_table(self, tmp_path: Path) -> None:
        write_arrays(tmp_path / "a", {"rows": MANY["rows"]}, sync=False)
        table, other = np.zeros((9, 3), np.float32), np.ones(2)
        assert read_into(tmp_path / "a", {"rows": table[2:6], "sum": other}) == {"rows"}
        assert np.array_equal(table[2:6], MANY["rows"])
        assert not table[:2].any()
        assert other.all()
        with pytest.raises(ValueError, match="instead of"):
            read_into(tmp_path / "a", {"rows": table})

    def test_rows_that_were_altered_are_not_read(self, tmp_path: Path) -> None:
        write_arrays(tmp_path / "a", {"rows": MANY["rows"]})
        (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-1] + b"\x01")
        with pytest.raises(ValueError, match="altered"):
            read_into(tmp_path / "a", {"rows": np.zeros((4, 3), np.float32)})

    @pytest.mark.parametrize("cut", [0, 4, 60, -1])
    def test_a_file_that_was_cut_short_is_not_mapped(self, tmp_path: Path, cut: int) -> None:
        write_arrays(tmp_path / "a", MANY)
        whole = (tmp_path / "a").read_bytes()
        (tmp_path / "a").write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"cut short|Expecting|Unterminated"):
            map_arrays(tmp_path / "a")

    def test_the_damaged_file_is_named_once(self, tmp_path: Path) -> None:
        with pytest.raises(DamagedError) as error, reading(tmp_path / "outer"), reading(tmp_path / "inner", "do this"):
            raise ValueError("no numbers")
        assert str(error.value) == f"{tmp_path / 'inner'}: damaged file: no numbers; do this"


class TestChecksums:
    def test_the_checksum_is_that_of_the_file_with_zeros_in_its_place(self, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        write_arrays(path, SMALL, {"about": '{"crc32":"ffffffff"}'})
        check_tensors(path, required=True)
        assert {name: array.tolist() for name, array in load_file(path).items()} == {
            name: array.tolist() for name, array in SMALL.items()
        }
        digits = path.read_bytes().split(b'"crc32":"')[1][:8]
        whole = path.read_bytes().replace(b'"crc32":"' + digits, b'"crc32":"00000000')
        assert int(digits, 16) == zlib.crc32(whole)

    def test_every_flipped_bit_of_a_tensor_file_is_noticed(self, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        write_arrays(path, SMALL, {"about": "b"})
        for data in flipped(path.read_bytes()):
            path.write_bytes(data)
            with pytest.raises(ValueError, match=r"altered|cut short"):
                check_tensors(path, required=True)

    def test_every_shorter_tensor_file_is_noticed(self, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        write_arrays(path, SMALL)
        whole = path.read_bytes()
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            with pytest.raises(ValueError, match=r"altered|cut short"):
                check_tensors(path, required=True)

    def test_a_file_without_a_checksum_is_accepted_unless_one_is_required(self, tmp_path: Path) -> None:
        save_file(SMALL, tmp_path / "x.safetensors")
        check_tensors(tmp_path / "x.safetensors")
        with pytest.raises(ValueError, match="its checksum is gone"):
            check_tensors(tmp_path / "x.safetensors", required=True)

    def test_every_flipped_bit_of_a_text_is_noticed(self) -> None:
        text = seal_text('name = "ä"\nseed = 3\n')
        check_text(text, required=True)
        check_text("seed = 3\n", required=False)
        for data in flipped(text.encode()):
            with pytest.raises(ValueError, match=r"altered|decode"):
                check_text(data.decode(), required=True)

    def test_every_flipped_bit_of_a_row_is_noticed(self) -> None:
        row = {"epoch": 3, "loss": 0.25, "beta": None}
        line = json.dumps(seal_row(row)).encode()
        assert check_row(json.loads(line), required=True) == row
        assert check_row(row, required=False) == row
        for data in flipped(line):
            try:
                found = json.loads(data)
            except ValueError:
                continue
            with pytest.raises(ValueError, match="altered"):
                check_row(found, required=True)

    def test_the_checksum_of_a_file_is_computed_in_pieces(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tensors, "CHUNK_BYTES", 7)
        (tmp_path / "x").write_bytes(bytes(range(100)))
        assert file_checksum(tmp_path / "x") == f"{zlib.crc32(bytes(range(100))):08x}"


class TestRecords:
    RECORDS = ({"from": "ä", "epochs": 3}, {"from": "b", "epochs": 0.5})

    def test_records_are_read_back_and_changes_are_detected(self, tmp_path: Path) -> None:
        path = tmp_path / "records.json"
        assert read_records(path, dict) == []
        write_records(path, [])
        assert not path.exists()
        write_records(path, list(self.RECORDS))
        assert read_records(path, dict) == list(self.RECORDS)
        path.write_text(path.read_text(encoding="utf-8").replace("0.5", "0.7"), encoding="utf-8")
        with pytest.raises(FocuseError, match=r"records.json: damaged file \(altered"):
            read_records(path, dict)

    def test_records_of_a_run_with_checksums_need_theirs(self, tmp_path: Path) -> None:
        path = tmp_path / "records.json"
        path.write_text('[{"epochs": 3}]', encoding="utf-8")
        assert read_records(path, dict) == [{"epochs": 3}]
        (tmp_path / "run.toml").write_text("[checksums]\n", encoding="utf-8")
        assert has_checksums(tmp_path)
        with pytest.raises(FocuseError, match="its checksum is gone"):
            read_records(path, dict)
        path.write_text('{"epochs": 3}', encoding="utf-8")
        with pytest.raises(FocuseError, match="not a list"):
            read_records(path, dict)
