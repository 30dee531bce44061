"""Batches of queries, compared with single queries, and files of queries."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
import torch

import focuse
from focuse.errors import FocuseError
from focuse.inference.predict import top_scores

Query = tuple[str | None, str | None, str | None]


@pytest.fixture(scope="module", params=["complex", "transe", "reciprocal"])
def run(request: pytest.FixtureRequest, small: focuse.Graph) -> focuse.Run:
    model = {"model": "distmult", "reciprocal": True} if request.param == "reciprocal" else {"model": request.param}
    return focuse.train(small, dim=4, epochs=2, progress=False, **model)


@pytest.fixture(scope="module")
def plain(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, dim=4, epochs=1, progress=False)


def queries(run: focuse.Run) -> list[Query]:
    names = [str(name) for name in run.graph.entities]
    found: list[Query] = [(name, kind, None) for name, kind in product(names[:6], ["r2", "r0"])]
    found += [(None, kind, name) for name, kind in product(names[3:8], ["r1", "r0"])]
    found += [(first, None, second) for first, second in zip(names[:5], names[7:12], strict=True)]
    found += [(names[2], "r1", names[9]), (names[9], "r0", names[2])]
    order = np.random.default_rng(0).permutation(len(found))
    return [found[at] for at in order]


@pytest.mark.parametrize(("top", "new_only"), [(1, False), (7, False), (7, True), (1000, False), (1000, True)])
def test_each_query_has_the_answers_that_it_has_alone(
    run: focuse.Run, top: int, new_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("focuse.inference.predict.BLOCK_SCORES", 150)
    asked = [query for query in queries(run) if not (new_only and None not in query)]
    found = run.predict_batch(asked, top=top, new_only=new_only)
    assert found.queries == len(asked)
    for number, query in enumerate(asked, 1):
        alone = run.predict(*query, top=top, new_only=new_only)
        rows = [row for row in found[: len(found)] if row.query == number]
        assert [(r.rank, r.head, r.relation, r.tail, r.known, r.weight) for r in rows] == [
            (r.rank, r.head, r.relation, r.tail, r.known, r.weight) for r in alone
        ]
        for mine, other in zip(rows, alone, strict=True):
            for name in (
                "score",
                "weight_mean",
                "weight_median",
                "weight_low",
                "weight_high",
                "probability",
                "confidence",
            ):
                assert getattr(mine, name) == pytest.approx(getattr(other, name), abs=1e-5)


def test_answers_can_be_limited_to_candidates(run: focuse.Run) -> None:
    some = [str(name) for name in run.graph.entities][5:15]
    asked = [query for query in queries(run) if None in query and query[1] is not None]
    found = run.predict_batch(asked, top=4, candidates=some, weights=False)
    assert {row.probability for row in found} == {None}
    for number, (head, kind, tail) in enumerate(asked, 1):
        every = run.predict(head, kind, tail, top=1000, any_type=True, weights=False)
        names = [row.tail if tail is None else row.head for row in every]
        expected = [name for name in names if name in some][:4]
        rows = [row for row in found if row.query == number]
        assert [row.tail if tail is None else row.head for row in rows] == expected
        assert [row.rank for row in rows] == [1, 2, 3, 4]


def _order(scores: torch.Tensor) -> torch.Tensor:
    return torch.sort(scores, dim=1, descending=True, stable=True).indices


def test_ties_are_ordered_by_id() -> None:
    scores = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0], [5.0, 1.0, 5.0, 1.0, 9.0]])
    for top in (1, 2, 3, 5, 9):
        value, place = top_scores(scores, top)
        assert place.tolist() == _order(scores)[:, :top].tolist()
        assert value.tolist() == scores.gather(1, place).tolist()
    random = torch.randint(0, 4, (50, 40), generator=torch.Generator().manual_seed(0)).float()
    assert top_scores(random, 6)[1].tolist() == _order(random)[:, :6].tolist()


@pytest.mark.parametrize("kind", ["tsv", "csv", "parquet", "headed tsv", "swapped csv", "frame"])
def test_queries_are_read_from_files(plain: focuse.Run, tmp_path: Path, kind: str) -> None:
    rows: list[Query] = [("e1", "r0", None), (None, "r1", "e2"), ("e3", None, "e4"), ("e5", "r2", "e6")]
    expected = plain.predict_batch(rows, top=3)
    columns = dict(zip(("head", "relation", "tail"), zip(*rows, strict=True), strict=True))
    given: Any = tmp_path / f"queries.{kind.split()[-1]}"
    if kind == "parquet":
        pq.write_table(pa.table(columns), given)
    elif kind == "frame":
        given = pa.table(columns)
    elif kind == "swapped csv":
        arrow_csv.write_csv(pa.table({name: columns[name] for name in ("tail", "head", "relation")}), given)
    else:
        mark, empty = ("\t", "") if "tsv" in kind else (",", "?")
        lines = [mark.join(part or empty for part in row) for row in rows]
        lines = ["head\trelation\ttail", *lines] if "headed" in kind else lines
        given.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    assert plain.predict_batch(given, top=3) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("e1\tr0\t\ne2\tr0\te9z9\n", [", row 2:", "no entity 'e9z9'"]),
        ("head\trelation\ttail\ne1\tr0\t\n\ne1\tR1\t?\n", [", row 2:", "no relation 'R1'", "did you mean r1"]),
        ("e1\tr0\t\nxyzw\tr0\t\n", [", row 2:", "no entity 'xyzw'"]),
        ("r0\te1\t\n", ["that is a relation, not an entity; order the columns head, relation, tail"]),
        ("e1\tr0\t\n\t\te3\n", [", row 2:", "2 parts are empty"]),
        ("e1\tr0\te2\n?\t?\t?\n", [", row 2:", "3 parts are empty"]),
        ("e1\tr0\n", ["2 columns; expected head, relation and tail"]),
        ('"e1 r0 e2\n', ["line 1: one column; expected head, relation and tail"]),
        ("e1\tr0\t\ne1\tr0\n", [", line 2: 2 columns instead of 3"]),
        ("head\trelation\ttail\n", ["the table is empty; expected columns head, relation and tail"]),
        ("", ["empty"]),
    ],
)
def test_faulty_query_files_are_named_with_their_row(
    plain: focuse.Run, tmp_path: Path, text: str, words: list[str]
) -> None:
    path = tmp_path / "queries.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FocuseError) as error:
        plain.predict_batch(path)
    assert "queries.tsv" in str(error.value)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ([("e1", "r0")], {}, ["row 1", "2 values"]),
        ([("e1", "r0", None), ("e1", 3, None)], {}, ["relation"]),
        ([("e1", "r0", "e77")], {}, ["row 1", "no entity 'e77'"]),
        ([("e1", "r0", "e2")], {"new_only": True}, ["query 1", "leave one part out"]),
        ([("e1", "r0", None)], {"top": 0}, ["top 0"]),
        ([("e1", "r0", None)], {"candidates": ["e99"]}, ["no entity 'e99'"]),
        (7, {}, ["cannot read queries from int"]),
        ([], {}, ["queries: no rows"]),
        ("nowhere.tsv", {}, ["nowhere.tsv"]),
    ],
)
def test_invalid_queries_are_refused(plain: focuse.Run, given: Any, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(FocuseError) as error:
        plain.predict_batch(given, **options)
    for word in words:
        assert word in str(error.value)


def test_answers_are_written_to_files(plain: focuse.Run, tmp_path: Path) -> None:
    found = plain.predict_batch([("e1", "r0", None), (None, "r1", "e2")], top=3)
    table = found.to_arrow()
    assert table["query"].to_pylist() == [1, 1, 1, 2, 2, 2]
    assert table["tail"].to_pylist() == [row.tail for row in found]
    for suffix in ("tsv", "csv", "parquet"):
        path = tmp_path / f"answers.{suffix}"
        found.write(path)
        tab = arrow_csv.ParseOptions(delimiter="\t" if suffix == "tsv" else ",")
        again = pq.read_table(path) if suffix == "parquet" else arrow_csv.read_csv(path, parse_options=tab)
        assert again.column_names == table.column_names
        assert again["head"].to_pylist() == table["head"].to_pylist()
        assert np.allclose(again["score"].to_numpy(), table["score"].to_numpy())
    json.dumps(found.to_json(), allow_nan=False)
    lines = str(found).splitlines()
    assert len(lines) == 8  # the last one says what orders them
    assert lines[0].split()[:2] == ["query", "rank"]
    assert lines[1].split()[:2] == ["1", "1"]
    one = plain.predict_batch(("e1", "r0", None), top=3)
    assert [row.tail for row in one] == [row.tail for row in found[:3]]


def test_entity_named_question_mark_is_not_a_placeholder() -> None:
    rows = [("?", "r", f"n{i}", 1.0) for i in range(6)]
    run = focuse.train(rows, dim=2, epochs=1, progress=False, valid_fraction=0.0, test_fraction=0.0)
    found = run.predict_batch([("?", "r", "")], top=2)
    assert {row.head for row in found} == {"?"}
    assert len(found) == 2
