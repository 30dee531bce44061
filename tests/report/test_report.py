"""The report of a run: complete, offline and safe, for any run."""

import base64
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import focuse
from focuse.data.statistics import describe
from focuse.errors import FocuseError
from focuse.evaluation.metrics import format_number
from focuse.report.collect import Findings, collect
from focuse.report.page import percent
from focuse.report.report import (
    SECTIONS,
    SHOWN_RELATIONS,
    held_out_fraction,
    render_findings,
    render_report,
    reproduce,
    train_command,
)
from focuse.training.label_exponent import LabelExponentTrial

HOSTILE = "<script>alert(1)</script>"
SMALL = {"dim": 6, "epochs": 4, "eval_every": 2, "progress": False}
TRAINING = ["--dim", "6", "--epochs", "3", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, **SMALL)


@pytest.fixture(scope="module")
def found(run: focuse.Run) -> Findings:
    return collect(run, None, lambda text: None)


@pytest.fixture(scope="module")
def html(found: Findings) -> str:
    return render_findings(found)


@pytest.fixture(scope="module")
def read(html: str, read_page: Any) -> Any:
    return read_page(html)


def titles(read: Any) -> list[str]:
    shown = [text for text in read.texts if text in SECTIONS]
    # First the table of contents, then the headings themselves.
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]
    return shown[len(shown) // 2 :]


def data_of(read: Any) -> dict[str, Any]:
    packed = next(value for key, value in read.attributes if key == "href" and value.startswith("data:")).split(",")[1]
    data: dict[str, Any] = json.loads(base64.b64decode(packed))
    return data


def rows(read: Any, width: int) -> list[list[str]]:
    cells = [text.strip() for text in read.texts if text.strip()]
    return [cells[i : i + width] for i in range(len(cells))]


def test_report_has_every_section_and_its_numbers(run: focuse.Run, html: str, read: Any) -> None:
    assert read.open == []
    assert titles(read) == list(SECTIONS)
    assert "h1" in read.tags
    data = data_of(read)
    assert data["evaluation"] == run.evaluate().to_dict()
    assert data["weights"] == run.evaluate_weights().to_dict()
    assert data["settings"] == json.loads(json.dumps(run.settings.to_dict()))
    assert [row["epoch"] for row in data["history"]] == [1, 2, 3, 4]
    assert len(data["relations"]) == len(run.graph.relations)
    assert set(data) >= {"statistics", "baselines", "reproduction", "links", "coverage"}
    for number in (run.evaluate().delta_mrr, run.evaluate().order.relation.share):  # type: ignore[union-attr]
        assert f"{number:.3f}" in read.texts
    assert html == render_report(run)


def test_report_loads_no_external_resources(read: Any) -> None:
    for key, value in read.attributes:
        if key in ("src", "href", "xlink:href", "srcset", "action"):
            assert value.startswith(("#", "data:application/json;base64,")), (key, value[:50])
    assert read.tags.count("script") == 1
    assert not {"link", "iframe", "object", "embed", "base", "img"} & set(read.tags)
    ids = [value for key, value in read.attributes if key == "id"]
    assert len(ids) == len(set(ids))


def test_hostile_names_are_escaped(small: focuse.Graph, read_page: Any) -> None:
    evil = [
        (f"{HOSTILE}{r['head']}", f'"><img src=x>{r["relation"]}', f"{HOSTILE}{r['tail']}", r["weight"])
        for r in small.to_arrow().to_pylist()
    ]
    run = focuse.train(evil, **SMALL)
    read = read_page(render_report(run))
    assert "img" not in read.tags
    assert read.tags.count("script") == 1  # the page's own
    assert any(text.startswith(HOSTILE) for text in read.texts)
    assert any(text.startswith('"><img') for text in read.texts)
    assert read.open == []


def test_summary_agrees_with_the_metrics(found: Findings, read: Any, read_page: Any) -> None:
    evaluation = found.evaluation
    assert evaluation is not None
    text = " ".join(read.texts)
    assert f"(MRR {evaluation.all.mrr:.3f})" in text
    best = max(one.all.mrr for one in found.baselines.values())
    verb = "is better than" if evaluation.all.mrr > best else "is not better than"
    assert f"The model {verb} the best baseline without a model" in text
    tiles = rows(read, 2)
    assert ["MRR", f"{evaluation.all.mrr:.3f}"] in tiles
    assert ["ΔMRR", f"{evaluation.delta_mrr:.3f}".replace("-", "−")] in tiles
    assert found.weights is not None
    assert found.weights.intervals is not None
    measured = percent(next(iter(found.weights.intervals.rows.values())).coverage, 1)
    assert ["Interval coverage", measured] in tiles
    assert f"Interval coverage: {measured} (target 90\u00a0%)." in text
    worse = replace(found, evaluation=replace(evaluation, all=replace(evaluation.all, mrr=0.0)))
    assert "is not better than the best baseline" in " ".join(read_page(render_findings(worse)).texts)


def test_tables_show_the_evaluation(run: focuse.Run, found: Findings, read: Any) -> None:
    evaluation, weights, probabilities = found.evaluation, found.weights, found.probabilities
    assert evaluation is not None
    assert evaluation.order is not None
    for name, one in (("within a relation", evaluation.order.relation), ("within a query", evaluation.order.query)):
        assert [name, format_number(one.share), f"{one.pairs:,}"] in rows(read, 3)
    for name, one in {"complex": evaluation, **found.baselines}.items():
        assert one.suggestions is not None
        for row in one.suggestions.first:
            values = (row.weight, row.possible, row.precision, row.mean_weight)
            assert [name, str(row.n), *map(format_number, values)] in rows(read, 6)
    assert weights is not None
    for protocol in weights.protocols:
        cells = weights.cells(protocol)
        assert [name in weights.baselines for name in cells] == sorted(name in weights.baselines for name in cells)
        for name, values in cells.items():
            assert [name, *values.values()] in rows(read, 1 + len(values))
    assert weights.intervals is not None
    for name, row in weights.intervals.rows.items():
        assert [name, format_number(row.coverage)] in rows(read, 2)
    assert probabilities is not None
    for name, row in probabilities.rows.items():
        assert [name, format_number(row.brier), format_number(row.ece)] in rows(read, 3)
    for link in found.links:
        numbers = [format_number(value) for value in (link.score, link.probability, link.weight_mean)]
        assert [link.head, link.relation, link.tail, *numbers] in rows(read, 6)
    for chart in ("Loss", "Validation MRR", "Weights of train", "Coverage", "Reliability", "Triples by probability"):
        assert chart in read.texts


def test_checks_and_leakage_describe_the_faults_of_a_graph(read_page: Any) -> None:
    edges = [(f"e{i % 20}", "r", f"e{(i + 1) % 20}", i / 60) for i in range(60)]
    edges += [("e1", "r", "e0", 0.5), ("e3", "s", "e3", 0.1)]
    run = focuse.train(
        edges, valid_fraction=0, test_fraction=0, dim=4, epochs=1, duplicates="keep", label_exponent=1, progress=False
    )
    test = focuse.read([("e0", "r", "e1", 0.0), ("e2", "r", "e1", 0.3), ("e5", "s", "e9", 0.3)]).align(run.graph).graph
    read = read_page(render_findings(Findings(run, describe(run.graph, {"test": test}))))
    pairs = rows(read, 2)
    assert ["Rows that repeat a triple", "40"] in pairs
    assert ["Repeated triples with different weights", "20"] in pairs
    assert ["Rows with an inverse edge", "4"] in pairs
    assert ["Self-loops", "1"] in pairs
    assert "Train/test leakage" in read.texts
    assert ["same triple in train", "1"] in pairs
    assert ["inverse edge, any relation", "2"] in pairs
    assert ["neither the same triple nor an inverse edge", "1"] in pairs
    assert titles(read) == ["Data", "Training", "Reproduce this run"]  # nothing else was computed


def test_run_without_test_and_validation_has_a_report(small: focuse.Graph, read_page: Any) -> None:
    read = read_page(render_report(focuse.train(small, valid_fraction=0, test_fraction=0, **SMALL)))
    assert titles(read) == ["Data", "Training", *list(SECTIONS)[-3:]]
    assert any("no test split" in text for text in read.texts)
    assert "tail MRR" not in read.texts
    data = data_of(read)
    assert "--valid-fraction 0 --test-fraction 0" in data["reproduction"]["command"]
    assert (data["evaluation"], data["weights"]) == (None, None)
    assert all(row["weight_mean"] is None for row in data["links"])


def test_report_can_use_another_test_graph(small: focuse.Graph, read_page: Any) -> None:
    run = focuse.train(small, test_fraction=0, **SMALL)
    test = [("e1", "r0", "e2", 0.5), ("e4", "r1", "e5", 0.9), ("e4", "r1", "e6", 0.1)]
    read = read_page(render_report(run, test))
    assert data_of(read)["evaluation"]["all"]["n"] == 3
    assert "Weight prediction" in titles(read)


def test_graph_without_weights_has_no_weight_sections(small: focuse.Graph, read_page: Any) -> None:
    triples = [(r["head"], r["relation"], r["tail"]) for r in small.to_arrow().to_pylist()]
    read = read_page(render_report(focuse.train(triples, **SMALL)))
    assert titles(read) == [name for name in SECTIONS if name != "Weight prediction"]
    assert "Concordance of scores and weights" not in read.texts  # precision@n is still there
    assert any("The graph has no weights" in text for text in read.texts)


def test_confidence_model_has_a_report(small: focuse.Graph, read_page: Any) -> None:
    read = read_page(render_report(focuse.train(small, model="ukge-logi", **SMALL)))
    assert titles(read) == list(SECTIONS)
    assert "ukge-logi" in read.texts


def test_weight_columns_and_label_exponents_have_tables(read_page: Any) -> None:
    edges = [
        (f"e{i % 12}", f"r{i % 2}", f"e{(i * 5 + i // 12) % 12}", (i % 12) / 12, None if i % 4 else 50 - i % 9)
        for i in range(140)
    ]
    run = focuse.train(edges, model="distmult", dim=4, epochs=2, label_exponent=1.0, progress=False)
    run.label_exponent_trials = [LabelExponentTrial(0.0, 0.5, 0.1), LabelExponentTrial(1.0, 0.51, 0.4)]
    read = read_page(render_report(run))
    assert {"Weight columns", "Label exponent"} <= set(read.texts)
    assert re.search(r"importance: \W*w1\W* \d\.\d\d, \W*w2\W* \d\.\d\d\.", " ".join(" ".join(read.texts).split()))
    assert ["1", "0.510", "0.400"] in rows(read, 3)
    data = data_of(read)
    assert data["weight_columns"] is not None
    assert len(data["label_exponent_trials"]) == 2


def test_many_relations_are_folded(read_page: Any) -> None:
    edges = [(f"a{i % 9}", f"<r{i % 40}>", f"b{i % 7}", i % 5) for i in range(400)]
    many = focuse.train(edges, valid_fraction=0, test_fraction=0, dim=4, epochs=1, label_exponent=1, progress=False)
    read = read_page(render_report(many))
    assert read.tags.count("details") == 1
    assert f"{40 - SHOWN_RELATIONS} other relations" in read.texts
    assert {f"<r{i}>" for i in range(40)} <= set(read.texts)
    assert ("class", "sortable") in read.attributes


def test_report_is_written_to_a_file(run: focuse.Run, html: str, tmp_path: Path) -> None:
    assert run.report(tmp_path / "page.html") == tmp_path / "page.html"
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == html
    with pytest.raises(FocuseError, match="is a folder"):
        run.report(tmp_path)
    with pytest.raises(FocuseError, match=r"there is no folder .*page\.html; create it first"):
        run.report(tmp_path / "page.html" / "below.html")
    with pytest.raises(FocuseError, match=r"page\.pdf: cannot write \.pdf; use \.html"):
        run.report(tmp_path / "page.pdf")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_report_needs_matplotlib(run: focuse.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(FocuseError, match="install matplotlib: pip install matplotlib"):
        run.report(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_unusual_graphs_have_a_report(read_page: Any) -> None:
    long, hebrew = "long " * 200, "\u05e9\u05dc\u05d5\u05dd"
    three = [(long, hebrew, "b", 1.0), ("b", hebrew, hebrew, 0.5), (hebrew, hebrew, long, 0.1)]
    read = read_page(render_report(focuse.train(three, dim=4, epochs=1, progress=False)))
    assert read.open == []
    assert titles(read)[0] == "Data"
    assert any(hebrew in text for text in read.texts)
    # Every pair is known: there is no link left to predict.
    full = [(h, "r", t, 0.5) for h in "abcd" for t in "abcd"]
    run = focuse.train(full, valid_fraction=0, test_fraction=0, dim=4, epochs=1, progress=False)
    read = read_page(render_report(run))
    assert "Top predicted links" not in read.texts
    assert data_of(read)["links"] == []


def test_progress_of_every_step_is_reported(run: focuse.Run) -> None:
    lines: list[str] = []
    render_report(run, progress=lines.append)
    assert lines[0] == f"Ranking {len(run.splits.test):,} test triples"
    assert lines[-1] == "Searching for new links"


def test_headings_are_nested_and_charts_are_described(html: str, read: Any) -> None:
    levels = [int(tag[1]) for tag in read.tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    assert html.count('role="img" aria-label="') + html.count('aria-hidden="true"') == read.tags.count("svg")
    assert html.count("<caption>") == read.tags.count("table")


# ---- reproduction ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ["--valid-fraction", "0.15", "--test-fraction", "0.05"],
        ["--model", "transe-l2", "--weight-mode", "focuse", "--beta-decay-epochs", "2"],
        ["--valid", "valid.tsv", "--test", "test.tsv", "--seed", "7"],
    ],
)
def test_printed_command_reproduces_the_run(
    options: list[str], small: focuse.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from focuse.cli.main import app

    monkeypatch.chdir(tmp_path)
    part = np.arange(len(small)) % 10
    small.select(part > 1).write("a graph.tsv")
    small.select(part == 0).write("valid.tsv")
    small.select(part == 1).write("test.tsv")
    app(["train", "a graph.tsv", "--out", "first", *TRAINING, *options], standalone_mode=False)
    run = focuse.load("first", device="cpu")
    Path("settings.toml").write_text(reproduce(run)["settings"], encoding="utf-8")
    printed = shlex.split(train_command(run))
    assert printed[:3] == ["focuse", "train", "a graph.tsv"]
    app([*printed[1:], "--quiet"], standalone_mode=False)
    assert Path("first/model.safetensors").read_bytes() == Path("again/model.safetensors").read_bytes()
    for name in ("valid", "test"):
        one, other = (getattr(focuse.load(folder, device="cpu").splits, name) for folder in ("first", "again"))
        assert one.to_arrow().equals(other.to_arrow())


@given(st.integers(1, 10**6), st.floats(0, 0.45))
def test_printed_fractions_hold_out_as_many_rows(total: int, fraction: float) -> None:
    size = min(int(fraction * total), 20_000)
    assert min(int(float(held_out_fraction(size, total)) * total), 20_000) == size


def test_only_a_report_imports_matplotlib_and_jinja2() -> None:
    code = "import focuse.api, focuse.cli.main, sys; print({'matplotlib', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "set()"
