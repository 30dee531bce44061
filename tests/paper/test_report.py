"""The report as a whole: complete, self-contained, also for a part of the cells."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from focuse.errors import FocuseError
from focuse.paper.report import QUICK_LINE, strict, write_report

ABOUT = {"command": "focuse reproduce", "device": ["a card"], "torch": "2.13", "cells": 3, "hours": 1.5}
HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Tags, attributes and texts; fails on a tag that is closed out of turn."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(key, value or "") for key, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def results(make_result):
    """Two data sets, two models, two seeds, one cell missing; an ablation; two points of figure 3."""
    cells = [
        (data, model, kind, seed)
        for data in ("ppi5k", "onet-importance")
        for model in ("transe", "complex")
        for kind in ("plain", "focuse")
        for seed in (0, 1)
    ]
    made = [make_result(*cell) for cell in cells if cell[:3] != ("ppi5k", "transe", "plain")]
    made.append(make_result(kind="focuse", changes={"loss": "pairwise-nll"}))
    made += [make_result("nl27k", "complex", "focuse", 0, {"beta_decay_epochs": at}, "figure3") for at in (0, 100)]
    return made


@pytest.fixture(scope="module")
def report(results, tmp_path_factory):
    """File -> text of their report."""
    folder = tmp_path_factory.mktemp("report") / "new" / "folder"
    write_report(results, folder, ABOUT)
    return read(folder)


def refuse(constant):
    raise AssertionError(constant)


def read(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_report_writes_the_expected_files(report):
    assert set(report) == {
        *("report.md", "report.html", "report.json"),
        *("figure3.svg", "figure4-ppi5k.svg", "figure4-onet-importance.svg"),
    }


def test_same_results_give_identical_files_and_stale_pictures_are_removed(results, report, make_result, tmp_path):
    write_report(results, tmp_path, ABOUT)
    assert read(tmp_path) == report
    (tmp_path / "figure5.svg").touch()
    write_report([make_result()], tmp_path, ABOUT)
    assert {path.name for path in tmp_path.glob("*.svg")} == {"figure4-ppi5k.svg", "figure5.svg"}
    assert "figure3.svg" not in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_sections_come_in_order(report):
    text = report["report.md"]
    heads = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
    wanted = ["Reproduction", "Verdict", "Table 2", "Table 3", "Table 4", "Figure 3", "Figure 4", "Without leaked"]
    wanted += ["Table 2", "Table 3", "Table 4", "Ablations", "How it was run", "Where the authors"]
    places = [next(i for i, head in enumerate(heads) if head.startswith(wanted[0]))]
    for word in wanted[1:]:
        places.append(next(i for i, head in enumerate(heads) if head.startswith(word) and i > places[-1]))
    assert places == sorted(places)
    for value in ("focuse reproduce", "a card", "2.13", "1.5"):
        assert value in text[: text.index("## Verdict")]
    assert "- No cell of the tables is finished for NL27K, CN15K, O*NET20K.\n" in text
    assert QUICK_LINE not in text


def test_tables_show_the_numbers_of_the_json(results, report):
    """What JSON has in full stands rounded in the Markdown, paper and difference beside it."""
    text, data = report["report.md"], json.loads(report["report.json"])
    table = next(table for table in data["tables"]["full"] if table["table"] == 4)
    row = next(
        row for row in table["rows"] if (row["data"], row["model"], row["kind"]) == ("ppi5k", "complex", "focuse")
    )
    chosen = [r for r in results if r.cell["data"] == "ppi5k" and r.cell["model"] == "complex"]
    chosen = [r for r in chosen if r.cell["kind"] == "focuse" and not r.cell["changes"]]
    tops = [r.test.metrics("top").mrr for r in chosen]
    assert row["entries"]["top_mrr"]["ours"] == pytest.approx(np.mean(tops))
    line = next(line for line in text[text.index("Table 4") :].splitlines() if line.startswith("| FocusE ComplEx"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    spread = f"{np.std(tops, ddof=1):.3f}"[1:]
    assert cells[1] == f"{np.mean(tops):.3f}"[1:] + f" ± {spread}"
    assert cells[2] == ".95"
    assert cells[3].replace("−", "-") == f"{np.mean(tops) - 0.95:+.3f}".replace("0.", ".")
    missing = next(line for line in text[text.index("Table 4") :].splitlines() if line.startswith("| TransE"))
    assert [cell.strip() for cell in missing.strip("|").split("|")][:4] == ["TransE", "–", ".42", "–"]


def test_substitute_data_set_is_never_called_by_another_name(make_result, tmp_path):
    write_report([make_result("onet-importance", kind=kind) for kind in ("plain", "focuse")], tmp_path, ABOUT)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    # Named once, as one of those that were not run.
    assert [line for line in text.splitlines() if "NET20K" in line] == [
        "- No cell of the tables is finished for PPI5K, NL27K, CN15K, O*NET20K."
    ]
    assert "Not in the paper, so with nothing to reach: O*NET importance (stand-in)." in text


def test_json_is_strict_and_complete(results, make_result, tmp_path):
    odd = make_result("cn15k", valid_mrr=float("nan"), best_epoch=np.int64(3), settings={"lr": np.float32(0.5)})
    write_report([*results, odd], tmp_path, {**ABOUT, "where": tmp_path, "loss": float("inf")})
    data = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert data["about"]["where"] == str(tmp_path)
    assert data["about"]["loss"] is None
    told = [{k: v for k, v in result.to_dict().items() if k != "weights"} for result in [*results, odd]]
    assert data["cells"] == strict(told)
    assert data["form"] == "paper"
    assert [table["table"] for table in data["tables"]["clean"]] == [2, 3, 4]
    assert list(data["figure3"]["complex"]) == ["0", "100"]
    assert [one["data"] for one in data["figure4"]] == ["ppi5k", "cn15k", "onet-importance"]
    assert data["verdict"]["counts"]["widens"]["of"] == 3
    assert data["ablations"][0][1]["changes"] == {"loss": "pairwise-nll"}
    assert data["bootstrap"] == {"resamples": 2000, "level": 0.95, "seed": 0}


def test_the_page_is_well_formed_and_loads_nothing(report):
    text = report["report.html"]
    page = Page(text)
    assert page.open == []
    assert page.tags.count("svg") == 3
    assert not {"link", "script", "iframe", "object", "embed", "base", "img"} & set(page.tags)
    for key, value in page.attributes:
        if key in ("src", "href", "xlink:href", "srcset", "data", "action"):
            assert value.startswith("#"), (key, value)
        assert not re.search(r"url\((?!#)", value)
    assert "@import" not in text
    assert text.lower().count("<!doctype") == 1
    ids = [value for key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    for row in re.findall(r"<table>.*?</table>", text, re.DOTALL):
        assert len({len(re.findall(r"<t[hd][ >]", line)) for line in row.split("<tr>")[1:]}) == 1


def test_hostile_text_is_escaped(make_result, tmp_path):
    results = [make_result(kind="focuse"), make_result(kind="focuse", changes={"loss": HOSTILE})]
    results.append(make_result(departures=[HOSTILE], settings={"regularizer": HOSTILE}))
    write_report(results, tmp_path, {HOSTILE: HOSTILE})
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert not any(key.startswith("on") for key, _ in page.attributes)
    assert sum(HOSTILE in data for data in page.texts) >= 5
    assert "<script" not in (tmp_path / "report.md").read_text(encoding="utf-8").replace("\\<", "")


def test_quick_form_is_labeled_and_makes_no_claims(make_result, tmp_path):
    write_report([make_result(kind=kind, form="quick") for kind in ("plain", "focuse")], tmp_path, ABOUT)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert QUICK_LINE in text[: text.index("## Verdict")]
    assert "reaches the paper's" not in text
    assert "FocusE widens ΔMRR in 1 of 1 pairs" in text
    assert "Table 4" in text
    assert QUICK_LINE in Page((tmp_path / "report.html").read_text(encoding="utf-8")).texts


def test_quick_cells_beside_others_are_left_out(make_result, tmp_path):
    write_report([make_result(), make_result(form="quick")], tmp_path, {})
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert QUICK_LINE not in text
    assert "1 cells of the quick form lie in the same folder" in text
    assert re.search(r"\| cells +\| 2 ", text)


@pytest.mark.parametrize("which", ["nothing", "figure3", "one"])
def test_report_of_few_cells_is_complete(make_result, tmp_path, which):
    cells = {
        "nothing": [],
        "figure3": [make_result("nl27k", kind="focuse", changes={"beta_decay_epochs": 0}, form="figure3")],
        "one": [make_result("cn15k", "distmult", "focuse")],
    }
    write_report(cells[which], tmp_path, ABOUT)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "No pair of a plain cell and one with FocusE is finished yet." in text
    assert ("## Tables" in text) == (which == "one")
    assert (tmp_path / "figure3.svg").exists() == (which == "figure3")
    assert "nan" not in re.sub(r"[^a-z ]", " ", text).split()
    assert Page((tmp_path / "report.html").read_text(encoding="utf-8")).open == []


def test_invalid_folder_is_an_error_of_one_line(make_result, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FocuseError, match="choose a folder"):
        write_report([make_result()], tmp_path / "file", ABOUT)
