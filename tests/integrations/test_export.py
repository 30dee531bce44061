"""Exported embeddings and predicted links, read back by the tool of each format."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import focuse
from focuse.api import load
from focuse.data.writers import TABLE_SUFFIXES, link_writers
from focuse.errors import FocuseError
from focuse.integrations.export import graph_tensors

ODD = ["a b", 'quo"te', "comma,", "100%", "ü", "new\nline", "tab\tbed", "\u2028", "back\\slash", "%20", " lead"]


@pytest.fixture(scope="module")
def run() -> focuse.Run:
    """Complex numbers, two of a row's; names that formats stumble over."""
    rows = [(ODD[i % 11], f"r {i % 2}", ODD[i * 7 % 11 - 3] if i % 5 else f"t{i}", i / 9) for i in range(60)]
    return focuse.train(rows, dim=3, epochs=2, progress=False, valid_fraction=0.1, test_fraction=0.1)


@pytest.fixture(scope="module")
def plain() -> focuse.Run:
    """Names that every format takes."""
    return focuse.train([(f"h{i}", "r", f"t{i % 5}", i) for i in range(30)], dim=4, epochs=1, progress=False)


def tables(run: focuse.Run) -> dict[str, tuple[list[str], np.ndarray]]:
    found = run.scorer.encoded_tables()
    return {
        "entities": (list(run.graph.entities), found["entity"].cpu().numpy()),
        "relations": (list(run.graph.relations), found["relation"].cpu().numpy()),
    }


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def read_parquet(path: Path) -> tuple[list[str], np.ndarray]:
    table = pq.read_table(path)
    width = table.schema.field("vector").type.list_size
    flat = table["vector"].combine_chunks().flatten().to_numpy()
    return table["name"].to_pylist(), flat.reshape(-1, width)


def read_csv(path: Path) -> tuple[list[str], np.ndarray]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="") as text:
        header, *rows = csv.reader(text)
    assert header == ["name", *map(str, range(len(header) - 1))]
    return [row[0] for row in rows], np.array([row[1:] for row in rows], np.float32)


def read_tsv(path: Path) -> tuple[list[str], np.ndarray]:
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    rows = [line.split("\t") for line in lines[1:]]
    return [row[0] for row in rows], np.array([row[1:] for row in rows], np.float32)


def read_word2vec(path: Path) -> tuple[list[str], np.ndarray]:
    """As gensim's KeyedVectors.load_word2vec_format reads text: lines of bytes, cut at single spaces."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as stream:
        count, width = map(int, stream.readline().split())
        names, rows = [], []
        for _ in range(count):
            parts = stream.readline().decode("utf-8").rstrip().split(" ")
            assert len(parts) == width + 1
            assert parts == "".join([" ".join(parts)]).split()  # and for readers that cut at any white space
            names.append(parts[0])
            rows.append([np.float32(number) for number in parts[1:]])
        assert stream.read() == b""
    return [unquote(name) for name in names], np.array(rows, np.float32)


READERS = {
    "x.parquet": read_parquet,
    "x.csv": read_csv,
    "x.csv.gz": read_csv,
    "x.vec": read_word2vec,
    "x.txt.gz": read_word2vec,
}


@pytest.mark.parametrize("what", ["entities", "relations"])
@pytest.mark.parametrize("name", READERS)
def test_exported_table_is_read_back_bit_by_bit(run, name: str, what: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("focuse.integrations.export.CHUNK_NUMBERS", 20)  # three rows at a time
    assert run.export(tmp_path / name, what=what) == [tmp_path / name]
    names, vectors = READERS[name](tmp_path / name)
    expected = tables(run)[what]
    assert names == expected[0]
    same(vectors, expected[1])


def test_tsv_is_read_back_and_names_with_tabs_are_refused(plain, run, tmp_path: Path) -> None:
    plain.export(tmp_path / "x.tsv")
    names, vectors = read_tsv(tmp_path / "x.tsv")
    assert names == list(plain.graph.entities)
    same(vectors, tables(plain)["entities"][1])
    with pytest.raises(FocuseError, match=r"x\.tsv: a name contains a tab or a line end; write"):
        run.export(tmp_path / "x.tsv")
    assert read_tsv(tmp_path / "x.tsv")[0] == names  # what was there stays


def test_both_tables_are_two_files_where_a_file_holds_one(run, tmp_path: Path) -> None:
    files = run.export(tmp_path / "x.csv.gz", what="both")
    assert [path.name for path in files] == ["x.entities.csv.gz", "x.relations.csv.gz"]
    for path, (names, vectors) in zip(files, tables(run).values(), strict=True):
        found = read_csv(path)
        assert found[0] == names
        same(found[1], vectors)


def test_numpy_export_contains_no_pickles(run, tmp_path: Path) -> None:
    run.export(tmp_path / "x.npz", what="both")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as found:
        assert sorted(found) == ["entities", "entity_names", "relation_names", "relations"]
        assert found["entity_names"].tolist() == tables(run)["entities"][0]
        assert found["relation_names"].tolist() == tables(run)["relations"][0]
        same(found["entities"], tables(run)["entities"][1])
        same(found["relations"], tables(run)["relations"][1])


def test_names_that_a_format_cannot_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = focuse.train(
        [(f"h\x00{i}", "r", f"t{i}", i) for i in range(9)],
        dim=2,
        epochs=1,
        progress=False,
        valid_fraction=0,
        test_fraction=0,
    )
    monkeypatch.setattr("focuse.integrations.export.MAX_NAME_BYTES", 10)
    with pytest.raises(FocuseError, match="GB for the names"):
        run.export(tmp_path / "x.npz")
    assert list(tmp_path.iterdir()) == []
    run.export(tmp_path / "x.vec")
    assert read_word2vec(tmp_path / "x.vec")[0] == list(run.graph.entities)


def test_no_table_is_written_if_one_cannot_be(tmp_path: Path) -> None:
    rows = [(f"e{i}", "a\tr", f"e{i * 3 % 20}", 1.0) for i in range(20)]
    odd = focuse.train(rows, epochs=1, dim=2, progress=False)
    with pytest.raises(FocuseError, match=r"x\.relations\.tsv: a name contains a tab"):
        odd.export(tmp_path / "x.tsv", what="both")
    assert list(tmp_path.iterdir()) == []


def test_pytorch_geometric_export_loads_without_pickles(run, tmp_path: Path) -> None:
    """The object, and the file of plain tensors that loads without trusting pickles."""
    run.export(tmp_path / "x.pt")
    found = torch.load(tmp_path / "x.pt", weights_only=True)
    train = run.splits.train
    same(found["x"].numpy(), tables(run)["entities"][1])
    same(found["relation_x"].numpy(), tables(run)["relations"][1])
    assert found["names"] == list(train.entities)
    names, kinds = found["names"], found["relation_names"]
    edges = zip(
        *found["edge_index"].tolist(), found["edge_type"].tolist(), found["edge_attr"][:, 0].tolist(), strict=True
    )
    named = [(names[h], kinds[r], names[t], w) for h, t, r, w in edges]
    expected = [tuple(row.values()) for row in train.to_arrow().to_pylist()]
    assert [row[:3] for row in named] == [row[:3] for row in expected]
    np.testing.assert_array_equal([row[3] for row in named], np.float32([row[3] for row in expected]))


@pytest.mark.slow  # importing it takes as long as all the rest
def test_pytorch_geometric_data_is_valid(run) -> None:
    data_of = pytest.importorskip("torch_geometric.data").Data
    data = run.to_pyg(["train", "valid", "test"])
    assert isinstance(data, data_of)
    assert data.validate()
    sizes = [len(part) for part in (run.splits.train, run.splits.valid, run.splits.test)]
    assert data.num_edges == sum(sizes)
    assert torch.bincount(data.edge_part).tolist() == sizes
    assert data.num_nodes == len(run.graph.entities)
    assert run.to_pyg().num_edges == sizes[0]
    with pytest.raises(FocuseError, match=r"unknown split 'tests' \(did you mean test"):
        run.to_pyg(["tests"])


def test_pytorch_geometric_export_has_all_weight_columns(small, with_columns) -> None:
    run = focuse.train(with_columns(small, missing=0.2), dim=2, epochs=1, progress=False)
    data = graph_tensors(run)
    assert data["weight_names"] == ["fit", "noise", "distance"]
    columns = run.splits.train.columns
    np.testing.assert_array_equal(data["edge_attr"].numpy(), columns.values.astype(np.float32))
    assert np.isnan(data["edge_attr"].numpy()).any()


def test_models_with_encoders_export_encoded_rows(small, tmp_path: Path) -> None:
    run = focuse.train(small, model="kbgat", dim=4, epochs=1, progress=False)
    run.export(tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as found:
        same(found["entities"], run.scorer.encoded_tables()["entity"].cpu().numpy())
        raw = run.scorer.tables["entity"].cpu().numpy()
        assert found["entities"].shape != raw.shape or not np.array_equal(found["entities"], raw)


def test_complex_rows_are_real_parts_then_imaginary_ones(run, tmp_path: Path) -> None:
    run.export(tmp_path / "x.npz", what="both")
    with np.load(tmp_path / "x.npz") as found:
        rows = {name: np.split(found[name].astype(np.float64), 2, axis=1) for name in ("entities", "relations")}
    entity, relation = (real + 1j * imaginary for real, imaginary in rows.values())
    ids = [torch.tensor([number], device=run.scorer.device) for number in (1, 0, 4)]
    expected = (entity[1] * relation[0] * entity[4].conj()).sum().real
    assert run.scorer.score(*ids).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("x.xlsx", {}, r"cannot export to \.xlsx; use \.parquet, \.csv"),
        ("x.parqet", {}, r"cannot export to \.parqet \(did you mean \.parquet"),
        ("x.csv", {"format": "word3vec"}, r"unknown format 'word3vec' \(did you mean word2vec\?\)"),
        ("x.csv", {"what": "entity"}, r"unknown export 'entity' \(did you mean entities\?\)"),
        ("x.npz.gz", {}, "numpy files are not compressed"),
        ("no/x.csv", {}, "there is no folder"),
        ("folder", {}, "cannot export to a file without suffix; use"),
        ("folder", {"format": "csv"}, "is a folder; give a file"),
    ],
)
def test_faulty_exports_are_refused(run, name: str, options: dict[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").touch()
    with pytest.raises(FocuseError, match=message):
        run.export(tmp_path / name, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_loaded_run_exports_the_same(run, tmp_path: Path) -> None:
    run.save(tmp_path / "run")
    load(tmp_path / "run").export(tmp_path / "x.parquet")
    same(read_parquet(tmp_path / "x.parquet")[1], tables(run)["entities"][1])


@pytest.mark.parametrize("suffix", [*TABLE_SUFFIXES, *link_writers()])
def test_predicted_links_are_read_back(small: focuse.Graph, suffix: str, tmp_path: Path) -> None:
    if suffix in (".nt", ".nq", ".ttl", ".trig"):
        pytest.importorskip("pyoxigraph")
    run = focuse.train(small, dim=4, epochs=2, label_exponent=1.0, progress=False)
    found = run.predict(head="e1", relation="r0", top=5)
    path = found.write(tmp_path / f"links{suffix}")
    numbers = ["score", "weight_low", "weight_high", "probability"]
    back = focuse.read(path, weight_columns=numbers).to_arrow().to_pylist()
    assert [row["tail"] for row in back] == [row.tail for row in found]
    for row, expected in zip(back, found, strict=True):
        assert {name: row[name] for name in numbers} == {name: getattr(expected, name) for name in numbers}
