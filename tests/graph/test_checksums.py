"""Checksums: every single bit of a small file is turned over, and each time it is noticed."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from focuse.graph.checksums import (
    KEY,
    UNKNOWN,
    check_row,
    check_tensors,
    check_text,
    file_checksum,
    seal_row,
    seal_tensors,
    seal_text,
)  # fmt: skip

ARRAYS = {"a": np.arange(5, dtype=np.float32), "b": np.eye(2)}


def sealed(path: Path, **metadata: str) -> Path:
    save_file(ARRAYS, path, {**metadata, KEY: UNKNOWN})
    seal_tensors(path)
    return path


def turned(data: bytes) -> list[bytes]:
    """The same bytes, each time with another bit turned over."""
    found = []
    for place in range(len(data)):
        for bit in range(8):
            found.append(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
    return found


def test_a_sealed_file_is_as_it_was(tmp_path: Path) -> None:
    path = sealed(tmp_path / "x.safetensors", about='{"crc32":"ffffffff"}')
    check_tensors(path, required=True)
    assert {name: array.tolist() for name, array in load_file(path).items()} == {
        k: v.tolist() for k, v in ARRAYS.items()
    }
    digits = path.read_bytes().split(b'"crc32":"')[1][:8]
    whole = path.read_bytes().replace(b'"crc32":"' + digits, b'"crc32":"00000000')
    assert int(digits, 16) == zlib.crc32(whole)


def test_the_same_tensors_are_the_same_bytes(tmp_path: Path) -> None:
    files = [sealed(tmp_path / f"{i}.safetensors", one="1", two="2", three="3") for i in range(12)]
    assert len({path.read_bytes() for path in files}) == 1


def test_every_bit_of_a_file_of_tensors(tmp_path: Path) -> None:
    path = sealed(tmp_path / "x.safetensors", about="b")
    for data in turned(path.read_bytes()):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"altered|cut short"):
            check_tensors(path, required=True)


def test_every_length_of_a_file_of_tensors(tmp_path: Path) -> None:
    path = sealed(tmp_path / "x.safetensors")
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"altered|cut short"):
            check_tensors(path, required=True)


def test_a_file_from_before_has_none_and_needs_none(tmp_path: Path) -> None:
    save_file(ARRAYS, tmp_path / "x.safetensors")
    check_tensors(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="its checksum is gone"):
        check_tensors(tmp_path / "x.safetensors", required=True)


def test_every_bit_of_a_text() -> None:
    text = seal_text('name = "ä"\nseed = 3\n')
    check_text(text, required=True)
    check_text("seed = 3\n", required=False)
    for data in turned(text.encode()):
        with pytest.raises(ValueError, match=r"altered|decode"):
            check_text(data.decode(), required=True)


def test_every_bit_of_a_row() -> None:
    row = {"epoch": 3, "loss": 0.25, "beta": None}
    line = json.dumps(seal_row(row)).encode()
    assert check_row(json.loads(line), required=True) == row
    assert check_row(row, required=False) == row
    for data in turned(line):
        try:
            found = json.loads(data)
        except ValueError:
            continue
        with pytest.raises(ValueError, match="altered"):
            check_row(found, required=True)


def test_a_file_is_summed_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focuse.graph.checksums.CHUNK_BYTES", 7)
    (tmp_path / "x").write_bytes(bytes(range(100)))
    assert file_checksum(tmp_path / "x") == f"{zlib.crc32(bytes(range(100))):08x}"
