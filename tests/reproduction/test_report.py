"""The report as a whole: complete, also for some of the cells only, and the same for the same results."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from focuse.errors import FocuseError
from reproduction.report import LINES, draw_decay_curves, draw_violins, write_report
from reproduction.summary import decay_curves, group_results

ABOUT = {"command": "python -m reproduction", "focuse": "2.0"}
HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)> | *a* *b*'


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
    made.append(make_result(kind="focuse", overrides={"loss": "pairwise-nll"}))
    made += [make_result("nl27k", "complex", "focuse", 0, {"beta_decay_epochs": at}, "figure3") for at in (0, 100)]
    return made


@pytest.fixture(scope="module")
def report(results, tmp_path_factory):
    """File -> text of their report."""
    folder = tmp_path_factory.mktemp("report") / "new" / "folder"
    write_report(results, folder, ABOUT)
    return read(folder)


def read(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def tables(text):
    """The tables of a Markdown text as lists of rows of cells."""
    blocks = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [
        [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()]
        for block in blocks
    ]


def test_same_results_give_identical_files_and_stale_figures_are_deleted(results, report, make_result, tmp_path):
    figures = {"figure3.svg", "figure4-ppi5k.svg", "figure4-onet-importance.svg"}
    assert set(report) == {"report.md", "report.json", *figures}
    write_report(reversed(results), tmp_path, ABOUT)
    assert read(tmp_path) == report
    (tmp_path / "figure5.svg").touch()
    write_report([make_result()], tmp_path, ABOUT)
    assert {path.name for path in tmp_path.glob("*.svg")} == {"figure4-ppi5k.svg", "figure5.svg"}
    assert "figure3.svg" not in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_sections_come_in_order(report):
    text = report["report.md"]
    wanted = ["# Reproduction", "## Verdict", "## Tables", "### Table 2", "### Table 3", "### Table 4", "## Figure 3"]
    wanted += ["## Figure 4", "## Without leaked", "### Table 2", "### Table 4", "## Ablations", "## Settings"]
    wanted += ["### Where the authors' code", "### Where the settings"]
    place = -1
    for heading in wanted:
        place = text.index(f"{heading}", place + 1)
    for value in ("python -m reproduction", "made up", "| cells | 17 |"):
        assert value in text[: text.index("## Verdict")]
    assert "- No cell of the tables is finished for NL27K, CN15K, O*NET20K.\n" in text
    assert "quick form" not in text
    assert "\n\n\n" not in text


def test_every_table_is_complete(report):
    found = tables(report["report.md"])
    assert len(found) >= 20
    for head, rule, *rows in found:
        assert all(re.fullmatch(r"-+:?", cell) for cell in rule)
        assert rows
        assert {len(row) for row in (rule, *rows)} == {len(head)}


def test_tables_show_the_numbers_of_the_json(results, report):
    text, data = report["report.md"], json.loads(report["report.json"])
    row = next(
        row for row in data["rows"] if (row["data"], row["model"], row["kind"]) == ("ppi5k", "complex", "focuse")
    )
    cells = [result.cell for result in results]
    chosen = [i for i, cell in enumerate(cells) if (cell.data, cell.model, cell.kind) == ("ppi5k", "complex", "focuse")]
    tops = [results[i].test.metrics("top").mrr for i in chosen if not cells[i].overrides]
    assert row["entries"]["top_mrr"]["mean"] == pytest.approx(np.mean(tops))
    table = next(table for table in tables(text[text.index("### Table 4") :]) if table[0][0] == "PPI5K")
    assert table[0][:4] == ["PPI5K", "top MRR", "paper", "diff."]
    shown = next(line for line in table if line[0] == "FocusE ComplEx")
    assert shown[1] == f"{np.mean(tops):.3f}"[1:] + f" ± {f'{np.std(tops, ddof=1):.3f}'[1:]}"
    assert shown[2] == ".95"
    assert shown[3].replace("−", "-") == f"{np.mean(tops) - 0.95:+.3f}".replace("0.", ".")
    assert shown[-1] == "2"
    missing = next(line for line in table if line[0] == "TransE")
    assert missing[:4] + missing[-1:] == ["TransE", "–", ".42", "–", "–"]


def test_settings_of_every_cell_are_listed(results, report):
    text = report["report.md"]
    (settings,) = (table for table in tables(text) if table[0][:3] == ["cell", "form", "seed"])
    assert len(settings) == 2 + len(results)
    line = next(line for line in settings if line[0] == "PPI5K FocusE ComplEx (loss=pairwise-nll)")
    assert line[1:] == ["tables", "0", "400", "30", "0.0001", "l3:1e-2", "500", "800", "425", ".812", "36", "made up"]


def test_substitute_data_set_is_never_called_by_another_name(make_result, tmp_path):
    write_report([make_result("onet-importance", kind=kind) for kind in ("plain", "focuse")], tmp_path, ABOUT)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if "NET20K" in line] == [
        "- No cell of the tables is finished for PPI5K, NL27K, CN15K, O*NET20K."
    ]


def test_json_is_strict_and_complete(results, tmp_path):
    write_report(results, tmp_path, {**ABOUT, "where": tmp_path})
    data = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert data["about"]["where"] == str(tmp_path)
    assert len(data["cells"]) == len(results)
    assert data["form"] == "tables"
    assert list(data["figure3"]["complex"]) == ["0", "100"]
    assert sum(one["widens"] for one in data["verdicts"] if one["change"] is not None) == 3
    assert data["bootstrap"] == {"resamples": 2000, "level": 0.95, "seed": 0}


def test_hostile_text_is_escaped(make_result, tmp_path):
    results = [make_result(kind="focuse"), make_result(kind="focuse", overrides={"loss": HOSTILE})]
    results.append(make_result(device=HOSTILE))
    write_report(results, tmp_path, {HOSTILE: HOSTILE})
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.count("script>alert(1)") >= 5
    assert not re.search(r"(?<!\\)<[a-z/!]", text)
    for head, *rows in tables(text):
        assert {len(row) for row in rows} == {len(head)}


def test_quick_form_is_labeled_and_is_not_compared(make_result, tmp_path):
    write_report([make_result(kind=kind, form="quick") for kind in ("plain", "focuse")], tmp_path, ABOUT)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "This is the quick form" in text[: text.index("## Verdict")]
    assert "reaches the paper's" not in text
    assert "FocusE widens ΔMRR in 1 of 1 pairs" in text
    assert "| diff. |" not in text


@pytest.mark.parametrize("which", ["figure3", "one"])
def test_report_of_few_cells_is_complete(make_result, tmp_path, which):
    cells = {
        "figure3": make_result("nl27k", kind="focuse", overrides={"beta_decay_epochs": 0}, form="figure3"),
        "one": make_result("cn15k", "distmult", "focuse"),
    }
    write_report([cells[which]], tmp_path, ABOUT)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "No pair of a plain cell and one with FocusE is finished yet." in text
    assert ("## Tables" in text) == (which == "one")
    assert (tmp_path / "figure3.svg").exists() == (which == "figure3")
    assert "nan" not in re.sub(r"[^a-z ]", " ", text).split()


def test_invalid_folder_is_an_error_of_one_line(make_result, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FocuseError, match="choose a folder"):
        write_report([make_result()], tmp_path / "file", ABOUT)


def test_lines_of_figure_3_differ_without_color(make_result, make_ranked):
    results = [
        make_result("nl27k", model, "focuse", seed, {"beta_decay_epochs": at}, "figure3", make_ranked(at + seed))
        for model in LINES
        for at in (0, 100)
        for seed in (0, 1)
    ]
    picture = draw_decay_curves(decay_curves(results))
    assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    for color, _, _ in LINES.values():
        assert f"stroke: {color}" in picture
    assert len({marker for _, marker, _ in LINES.values()}) == len({dashes for *_, dashes in LINES.values()}) == 3
    assert picture.count("opacity: 0.15") == 3  # a band per model
    single = draw_decay_curves(decay_curves(results[:1]))
    assert "opacity: 0.15" not in single
    assert LINES["complex"][0] not in single


def test_violins_use_the_first_common_seed(make_result):
    plain, later, focused = make_result(seed=0), make_result(seed=2), make_result(kind="focuse", seed=2)

    def drawn(*results):
        return draw_violins(group_results(results)[1], "ppi5k")

    assert drawn(plain, later, focused) == drawn(later, focused) != drawn(plain, focused)
    assert re.findall(r'id="axes_(\d)"', drawn(later, focused)) == ["1", "2"]
    assert re.findall(r'id="axes_(\d)"', drawn(focused)) == ["1"]
    assert drawn(make_result("ppi5k", "transe")) == ""
