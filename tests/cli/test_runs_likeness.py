"""`focuse similar`, `clusters`, `duplicates` and `analogies` as processes."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import focuse

ASKED = [
    (["similar", "RUN", "e1", "e2", "--top", "3"], 6),
    (["clusters", "RUN", "--n-clusters", "4"], 40),
    (["duplicates", "RUN", "--min-similarity", "0", "--min-overlap", "0", "--top", "7"], 7),
    (["analogies", "RUN", "e1", "e2", "e3", "--top", "5"], 5),
]


@pytest.mark.parametrize(("options", "rows"), ASKED, ids=[f"{options[0]} {rows}" for options, rows in ASKED])
def test_results_are_printed_as_json_and_written_to_files(inside, trained, tmp_path: Path, options, rows) -> None:
    call = [trained.folder if part == "RUN" else part for part in options]
    found = json.loads(inside(*call, "--json"))["rows"]
    out = tmp_path / "found.parquet"
    said = inside(*call, "--out", out)
    assert f"{rows} " in said.splitlines()[-1]
    assert str(out) in said.splitlines()[-1]
    assert said.splitlines()[1] == inside(*call).splitlines()[1]  # the first row is printed, too
    assert pq.read_table(out).to_pylist() == found
    assert len(found) == rows


def test_clusters_prints_one_row_per_cluster(inside, trained) -> None:
    call = ["clusters", trained.folder, "--n-clusters", "4"]
    shown = inside(*call).splitlines()
    assert shown[0].split() == ["cluster", "size", "cohesion", "central", "relations", "neighbors"]
    summary = json.loads(inside(*call, "--json"))["summary"]
    assert sum(row["size"] for row in summary) == 40
    assert [line.split()[:2] for line in shown[1:5]] == [[str(row["cluster"]), str(row["size"])] for row in summary]


def test_text_equals_that_of_the_run(inside, trained) -> None:
    run = focuse.load(trained.folder)
    shown = inside("similar", trained.folder, "e1", "e2", "--mean")
    assert shown.strip("\n") == str(run.similar(["e1", "e2"], mean=True))


def test_analogies_can_be_limited_to_new_links(inside, trained) -> None:
    call = ["analogies", trained.folder, "e1", "e2", "e3", "--json"]
    every = json.loads(inside(*call, "--top", "40"))["rows"]
    assert {row["known"] for row in every} == {True, False}
    new = json.loads(inside(*call, "--top", "5", "--new-only"))["rows"]
    assert new == [row for row in every if not row["known"]][:5]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["similar", "RUN", "e99"], ["no entity 'e99'", "did you mean"]),
        (["similar", "RUN", "e1", "--top", "0"], ["top 0"]),
        (["clusters", "RUN", "--n-clusters", "41"], ["n_clusters 41", "40 entities"]),
        (["duplicates", "RUN", "--min-similarity", "2"], ["min_similarity 2"]),
        (["duplicates", "RUN", "--out", "x.doc"], ["x.doc"]),
        (["analogies", "RUN", "e1", "e2", "E3"], ["no entity 'E3'", "did you mean e3"]),
    ],
)
def test_invalid_options_are_refused(refused_inside, trained, options, words) -> None:
    line = refused_inside(*[trained.folder if part == "RUN" else part for part in options])
    for word in words:
        assert word in line
