"""Links with their numbers: every form read back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from focuse.errors import FocuseError
from focuse.graph import read
from focuse.graph.links import SUFFIXES, write_links

LINKS = pa.table(
    {
        "head": ["a b", "http://e/x"],
        "relation": ["likes", "likes"],
        "tail": ['"c"', "a b"],
        "probability": [1 / 3, None],
        "low": [0.1, 0.2],
        "known": [True, False],
    }
)


class Result:
    def to_arrow(self) -> pa.Table:
        return LINKS


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_any_result_with_to_arrow_is_written(suffix: str, tmp_path: Path) -> None:
    path = write_links(Result(), tmp_path / f"links{suffix}")
    assert path == tmp_path / f"links{suffix}"
    if suffix == ".parquet":
        assert pq.read_table(path).equals(LINKS)
    elif suffix in (".csv", ".tsv"):
        options = arrow_csv.ParseOptions(
            delimiter="," if suffix == ".csv" else "\t", quote_char='"' if suffix == ".csv" else False
        )
        assert arrow_csv.read_csv(path, parse_options=options).to_pydict() == LINKS.to_pydict()
    else:
        pytest.importorskip("pyoxigraph")
        found = read(path).to_arrow()
        assert found.to_pydict() == LINKS.drop_columns(["known"]).to_pydict()


def test_guesses_are_spoken_of_and_facts_stated(tmp_path: Path) -> None:
    write_links(LINKS, tmp_path / "x.ttl")
    assert (tmp_path / "x.ttl").read_text(encoding="utf-8").splitlines()[1].startswith("<< <urn:focuse:a%20b>")
    write_links(LINKS, tmp_path / "x.ttl", asserted=True)
    assert (tmp_path / "x.ttl").read_text(encoding="utf-8").splitlines()[1].startswith("<urn:focuse:a%20b>")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match=r"cannot write \.xlsx; use \.tsv, \.csv, \.parquet, \.nt"):
        write_links(LINKS, tmp_path / "x.xlsx")
    with pytest.raises(FocuseError, match="no column 'tail'"):
        write_links(LINKS.drop_columns(["tail"]), tmp_path / "x.ttl")
    with pytest.raises(FocuseError, match="a tab or line end"):
        write_links(pa.table({"head": ["a\tb"], "relation": ["r"], "tail": ["t"]}), tmp_path / "x.tsv")
    assert list(tmp_path.iterdir()) == []
