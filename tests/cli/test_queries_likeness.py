"""`focuse similar`, `clusters`, `duplicates` and `analogies` as processes."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import focuse

ASKED = [
    (["similar", "RUN", "e1", "e2", "--top", "3"], "similar", 6),
    (["clusters", "RUN", "--count", "4"], "clusters", 40),
    (["duplicates", "RUN", "--similarity", "0", "--overlap", "0", "--top", "7", "--names"], "pairs", 7),
    (["analogies", "RUN", "e1", "e2", "e3", "--top", "5"], "analogies", 5),
    (["analogies", "RUN", "e1", "e2", "e3", "--method", "offset", "--top", "5"], "analogies", 5),
]


@pytest.mark.parametrize(("options", "key", "rows"), ASKED, ids=lambda value: value if isinstance(value, str) else None)
def test_results_are_printed_as_json_and_written_to_files(inside, trained, tmp_path: Path, options, key, rows) -> None:
    call = [trained.folder if part == "RUN" else part for part in options]
    found = json.loads(inside(*call, "--json"))[key]
    out = tmp_path / "found.parquet"
    said = inside(*call, "--out", out)
    table = pq.read_table(out)
    assert f"{rows} " in said
    assert len(table) == rows
    if key == "clusters":
        assert sum(group["size"] for group in found) == 40
    else:
        assert len(found) == rows
        assert str(found[0][table.column_names[0]]) == str(table.column(0)[0].as_py())


def test_text_equals_that_of_the_run(inside, trained) -> None:
    run = focuse.load(trained.folder)
    shown = inside("similar", trained.folder, "e1", "e2", "e3", "--between")
    assert shown.strip("\n") == str(run.similar(["e1", "e2", "e3"], among=["e1", "e2", "e3"]))
    shown = inside("similar", trained.folder, "e1", "e2", "--together", "--measure", "euclidean")
    assert shown.strip("\n") == str(run.similar(["e1", "e2"], together=True, measure="euclidean"))


def test_analogies_can_be_limited_to_new_links(inside, trained) -> None:
    call = ["analogies", trained.folder, "e1", "e2", "e3", "--json"]
    every = json.loads(inside(*call, "--top", "40"))["analogies"]
    assert {row["known"] for row in every} == {True, False}
    new = json.loads(inside(*call, "--top", "5", "--new"))["analogies"]
    assert new == [row for row in every if not row["known"]][:5]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["similar", "RUN", "e99"], ["no entity 'e99'", "did you mean"]),
        (["similar", "RUN", "e1", "--measure", "cosin"], ["unknown measure 'cosin'", "cosine"]),
        (["similar", "RUN", "e1", "--top", "0"], ["top 0"]),
        (["clusters", "RUN", "--count", "41"], ["count 41", "40 entities"]),
        (["clusters", "RUN", "--method", "ward"], ["unknown method 'ward'"]),
        (["clusters", "RUN", "--method", "hdbscan", "--count", "3"], ["leave count out"]),
        (["duplicates", "RUN", "--similarity", "2"], ["similarity 2"]),
        (["duplicates", "RUN", "--out", "x.doc"], ["x.doc"]),
        (["analogies", "RUN", "e1", "e2", "E3"], ["no entity 'E3'", "did you mean e3"]),
        (["analogies", "RUN", "e1", "e2", "e3", "--method", "offset", "--new"], ["use the method relations"]),
        (["analogies", "RUN", "e1", "e2", "e3", "--method", "sum"], ["unknown method 'sum'"]),
    ],
)
def test_invalid_options_are_refused(refused_inside, trained, options, words) -> None:
    line = refused_inside(*[trained.folder if part == "RUN" else part for part in options])
    for word in words:
        assert word in line
