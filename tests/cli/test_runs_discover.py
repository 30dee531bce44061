"""`focuse discover` and `focuse predict --queries` as processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

import focuse


@pytest.fixture(scope="module")
def known(trained) -> set[tuple[str, str, str]]:
    run = focuse.load(trained.folder)
    parts = (run.splits.train, run.splits.valid, run.splits.test)
    tables = [part.to_arrow().to_pylist() for part in parts]
    return {(row["head"], row["relation"], row["tail"]) for table in tables for row in table}


def test_links_are_printed_as_json_and_text_and_written_to_files(inside, trained, known, tmp_path: Path) -> None:
    done = inside("discover", trained.folder, "--top", 12, "--json")
    found = json.loads(done)
    rows = found["rows"]
    assert [row["rank"] for row in rows] == list(range(1, 13))
    assert not {(row["head"], row["relation"], row["tail"]) for row in rows} & known
    chances = [row["probability"] for row in rows]
    assert chances == sorted(chances, reverse=True)
    assert all(row["weight_mean"] is not None for row in rows)
    shown = inside("discover", trained.folder, "--top", 12).splitlines()
    assert len(shown) >= 13
    assert shown[0].split()[:5] == ["rank", "head", "relation", "tail", "score"]
    assert rows[0]["head"] in shown[1]
    for suffix in ("tsv", "csv", "parquet"):
        path = tmp_path / f"links.{suffix}"
        said = inside("discover", trained.folder, "--top", 12, "--out", path)
        assert said.splitlines()[1] == shown[1]
        assert "… 2 more rows" in said
        assert said.splitlines()[-1] == f"12 links written to {path}"
        tab = arrow_csv.ParseOptions(delimiter="\t" if suffix == "tsv" else ",")
        table = pq.read_table(path) if suffix == "parquet" else arrow_csv.read_csv(path, parse_options=tab)
        assert table["tail"].to_pylist() == [row["tail"] for row in rows]
        assert table["rank"].to_pylist() == [row["rank"] for row in rows]


def test_links_are_filtered_by_names(inside, trained, tmp_path: Path) -> None:
    names = tmp_path / "heads.txt"
    names.write_text("e3\r\n\ne4\n", encoding="utf-8")
    options = ["--head", "e5", "--heads-from", names, "--relation", "r1", "--tail", "e20", "--tail", "e21"]
    done = inside("discover", trained.folder, *options, "--any-type", "--top", 500, "--json")
    rows = json.loads(done)["rows"]
    assert {row["head"] for row in rows} == {"e3", "e4", "e5"}
    assert {row["relation"] for row in rows} == {"r1"}
    assert {row["tail"] for row in rows} <= {"e20", "e21"}
    capped = inside("discover", trained.folder, "--max-per-head", 1, "--top", 12, "--json")
    rows = json.loads(capped)["rows"]
    assert len({row["head"] for row in rows}) == len(rows) <= 12
    popular = inside("discover", trained.folder, "--strategy", "popular", "--json")
    assert json.loads(popular)["strategy"] == "popular"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--head", "e77"], ["no entity 'e77'", "did you mean"]),
        (["--relation", "R1"], ["did you mean r1"]),
        (["--top", "0"], ["top 0"]),
        (["--strategy", "all"], ["unknown strategy 'all'"]),
        (["--max-scores", "10"], ["links to score"]),
        (["--out", "links.txt"], ["links.txt", ".parquet"]),
        (["--out", "nowhere/links.tsv"], ["no folder"]),
        (["--heads-from", "nowhere.txt"], ["nowhere.txt"]),
    ],
)
def test_invalid_options_are_refused(refused_inside, trained, options, words, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused_inside("discover", trained.folder, *options)
    for word in words:
        assert word in line
    assert list(tmp_path.iterdir()) == []


SLOW = """
import sys
from focuse.inference import link_search as search
keep = search._keep_best
def slowly(*given):
    keep(*given)
    print("block", file=sys.stderr, flush=True)
    sys.stdin.readline()  # until the signal is on its way
search._keep_best, search.CPU_BLOCK_SCORES = slowly, 40
from focuse.cli.main import run
run()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_interrupt_shows_the_best_links_so_far(trained) -> None:
    call = [sys.executable, "-c", SLOW, "discover", str(trained.folder), "--top", "5", "--json"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(call, **pipes, text=True, env=os.environ)
    for line in process.stderr:
        if line.startswith("block"):
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    found = json.loads(out)
    assert process.returncode == 130
    assert found["stopped"] is True
    assert "these are the best of those" in found["notes"][-1]
    assert 0 < len(found["rows"]) <= 5


def test_queries_are_read_from_a_file(inside, trained, tmp_path: Path) -> None:
    queries, out = tmp_path / "queries.csv", tmp_path / "answers.parquet"
    queries.write_text("head,relation,tail\ne1,r0,\n?,r1,e2\ne3,,e4\n", encoding="utf-8")
    said = inside("predict", trained.folder, "--queries", queries, "--top", 3, "--out", out, "--json")
    table = pq.read_table(out)
    assert json.loads(said)["written"] == len(table) == 9
    alone = inside("predict", trained.folder, "--head", "e1", "--relation", "r0", "--top", 3, "--json")
    one = json.loads(alone)["rows"]
    assert table["tail"].to_pylist()[:3] == [row["tail"] for row in one]
    assert table["probability"].to_pylist()[:3] == pytest.approx([row["probability"] for row in one])
    few = tmp_path / "few.txt"
    few.write_text("e7\ne8\n", encoding="utf-8")
    queries.write_text("head,relation,tail\ne1,r0,\n?,r1,e2\n", encoding="utf-8")
    shown = inside("predict", trained.folder, "--queries", queries, "--candidates-file", few, "--scores-only")
    lines = [line for line in shown.splitlines() if line.split()[0] == "1"]
    assert {line.split()[4] for line in lines} == {"e7", "e8"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--queries", "q.tsv"], ["q.tsv, row 2", "no entity 'e99'"]),
        (["--queries", "q.tsv", "--head", "e1"], ["leave --head"]),
        (["--head", "e1", "--relation", "r0", "--candidates-file", "none.txt"], ["none.txt"]),
    ],
)
def test_invalid_queries_are_refused(refused_inside, trained, options, words, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.tsv").write_text("e1\tr0\t\ne99\tr0\t?\n", encoding="utf-8")
    line = refused_inside("predict", trained.folder, *options)
    for word in words:
        assert word in line
