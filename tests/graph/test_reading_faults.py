"""What is said about a faulty file: where, what and how to mend it, in one line."""

from __future__ import annotations

import gzip
import io
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.graph import read


def put(folder: Path, data: bytes | str, name: str = "graph.tsv") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def complaint(source: Any, **options: Any) -> str:
    """The message of the error that reading must raise: always one line."""
    with pytest.raises(FocuseError) as caught:
        read(source, **options)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


FAULTS = [
    ("a\tr\tb\tnan", "the weight 'nan' is not finite"),
    ("a\tr\tb\t-inf", "the weight '-inf' is not finite"),
    ("a\tr\tb\t1e999", "the weight '1e999' is not finite"),
    ("a\tr\tb\tmany", "the weight 'many' is not a number"),
    ("a\tr\tb\t1_000", "the weight '1_000' is not a number"),
    ("a\tr\tb\t", "the weight is empty"),
    ("\tr\tb\t1", "the head is empty"),
    ("a\t\tb\t1", "the relation is empty"),
    ("a\tr\t\t1", "the tail is empty"),
    ("a\tr\tb", "3 columns instead of 4"),
    ("a\tr\tb\t1\t2", "5 columns instead of 4"),
    (" ", "1 columns instead of 4"),
]


@pytest.mark.parametrize(("line", "message"), FAULTS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
def test_a_faulty_line_is_named(tmp_path: Path, line: str, message: str, pack: Any) -> None:
    text = "head\trelation\ttail\tweight\n\na\tr\tb\t1\n\n" + line + "\na\tr\tb\t1\n"
    path = put(tmp_path, pack(text.encode()))
    assert complaint(path).startswith(f"{path}, line 5: {message}")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("line", "message"), [(b"a\tr\t\xe9\t1", "the tail is not UTF-8"), (b"a\tr\tb\toops", "the weight 'oops'")]
)
def test_a_faulty_line_far_down_is_named(tmp_path: Path, line: bytes, message: str, pack: Any) -> None:
    sound = [b"head%d\trelation\ttail\t0.25" % number for number in range(200_000)]
    sound[100_002] = line
    path = put(tmp_path, pack(b"\n".join(sound)))
    assert complaint(path).startswith(f"{path}, line 100003: {message}")


def test_lines_inside_quoted_fields_count(tmp_path: Path) -> None:
    text = '"head","relation","tail","weight"\n' + '"a\n\nb",r,"c\r\nd",1\n' * 2 + "x,r,y,1\nx,r,,1\n"
    path = put(tmp_path, text, "x.csv")
    assert complaint(path).startswith(f"{path}, line 11: the tail is empty")


def test_an_open_quote_is_named_by_its_line(tmp_path: Path) -> None:
    path = put(tmp_path, 'a,r,b,1\n"c,r,d,1\ne,r,f,1\n', "x.csv")
    assert complaint(path).startswith(f"{path}, line 2: ")


def test_a_first_line_without_number_and_known_heading(tmp_path: Path) -> None:
    path = put(tmp_path, "person,likes,film,stars\nAnn,likes,Alien,5\n")
    message = complaint(path)
    assert message.startswith(f"{path}, line 1: the weight 'stars'")
    assert "--header" in message
    assert len(read(path, header=True)) == 1


def test_other_encodings(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        path = put(tmp_path, "a\tr\tb\t1\n".encode(encoding))
        assert complaint(path).startswith(f"{path}, line 1: not UTF-8 text")
    path = put(tmp_path, "a\tr\tb\t1\ncafé\tr\tb\t1\n".encode("latin-1"))
    assert complaint(path).startswith(f"{path}, line 2: the head is not UTF-8")
    path = put(tmp_path, b"caf\xe9\tr\tb\t1\n")
    assert complaint(path).startswith(f"{path}, line 1: the head is not UTF-8")


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_truncated_archive(tmp_path: Path, pack: Any) -> None:
    large = pack(b"".join(b"e%d\tr\te%d\t%d\n" % (i, i * 7919 % 100_003, i) for i in range(30_000)))
    small = pack(b"a\tr\tb\t1\n" * 5)
    for data in (large[: len(large) // 2], large[:-4], small[:-3], small[: len(small) // 2]):
        path = put(tmp_path, data, "x.gz")
        message = complaint(path)
        assert message.startswith(str(path))
        assert "runcated" in message or "damaged" in message


@pytest.mark.parametrize("data", [b"", b"\n\r\n\n", gzip.compress(b"", mtime=0), b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_an_empty_file(tmp_path: Path, data: bytes) -> None:
    path = put(tmp_path, data)
    assert complaint(path).startswith(f"{path}: the file is empty")


def test_a_header_alone(tmp_path: Path) -> None:
    path = put(tmp_path, "head\trelation\ttail\tweight\n")
    assert complaint(path).startswith(f"{path}: no edges")


def test_no_such_file_folders_and_pipes(tmp_path: Path) -> None:
    assert complaint(tmp_path / "none.tsv").startswith(f"{tmp_path / 'none.tsv'}: No such file")
    assert complaint(tmp_path).startswith(f"{tmp_path}: Is a directory")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "pipe" in complaint(pipe)
    complaint("a\tr\tb\n" * 3)  # text instead of a path
    complaint("a\0b")


def test_damaged_parquet(tmp_path: Path) -> None:
    stream = io.BytesIO()
    pq.write_table(pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"]}), stream)
    path = put(tmp_path, stream.getvalue()[:-9], "x.parquet")
    assert "not a readable Parquet file" in complaint(path)
    path = put(tmp_path, b"PAR1PAR1", "y.parquet")
    assert "not a readable Parquet file" in complaint(path)


@settings(deadline=None, max_examples=150)
@given(st.one_of(st.binary(max_size=80), st.text("ab\t,;\"' \r\n01.e-", max_size=60).map(str.encode)))
def test_any_bytes_give_a_graph_or_one_line(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), data)
        try:
            graph = read(path)
        except FocuseError:
            assert complaint(path).startswith(str(path))
        else:
            assert len(graph) > 0
            assert np.isfinite(graph.weight).all()
            assert all(name for name in [*graph.entities, *graph.relations])


def test_a_zip_archive_is_told_so(tmp_path: Path) -> None:
    """Also one that would unpack to much: it is never opened."""
    path = tmp_path / "graph.tsv.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("graph.tsv", "a\tr\tb\t1\n" * 100_000)
    assert complaint(path) == (
        f"{path}: a zip archive or a spreadsheet; unpack it, or save it as CSV, and give that file"
    )
