"""The report of a run: complete, offline and safe, for any run."""

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import focuse
from focuse.errors import FocuseError
from focuse.report.report import SECTIONS, html_of

HOSTILE = "<script>alert(1)</script>"
SMALL = {"dim": 6, "epochs": 4, "eval_every": 2, "progress": False}
TITLES = [
    "Data",
    "Training",
    "Ranking the test triples",
    "Does the order follow the weights?",
    "What the first suggestions hold",
    "Scores of strong and weak links",
    "Predicted weights",
    "Intervals",
    "Probability of a link",
    "By relation",
    "Links it would add",
    "Map of entities",
    "To repeat it",
]


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, **SMALL)


@pytest.fixture(scope="module")
def html(run: focuse.Run) -> str:
    return html_of(run)


def titles(read: Any) -> list[str]:
    places = [place for place, text in enumerate(read.texts) if text in TITLES]
    told = [read.texts[place] for place in places]
    # First the table of contents, then the headings themselves.
    assert told[: len(told) // 2] == told[len(told) // 2 :]
    return told[len(told) // 2 :]


def figures_of(read: Any) -> dict[str, Any]:
    packed = next(value for key, value in read.attributes if key == "href" and value.startswith("data:")).split(",")[1]
    told: dict[str, Any] = json.loads(base64.b64decode(packed))
    return told


def test_report_has_every_section_and_its_numbers(run: focuse.Run, html: str, read_page: Any) -> None:
    read = read_page(html)
    assert read.open == []
    assert titles(read) == TITLES
    assert "h1" in read.tags
    told = figures_of(read)
    assert told["evaluation"] == run.evaluate().to_dict()
    assert told["weights"] == run.evaluate_weights().to_dict()
    assert told["settings"] == json.loads(json.dumps(run.settings.to_dict()))
    assert [row["epoch"] for row in told["history"]] == [1, 2, 3, 4]
    assert set(told) >= {"audit", "baselines", "relations", "map", "versions", "fingerprints", "repeat", "links"}
    for number in (run.evaluate().delta_mrr, run.evaluate().order.relation.share):  # type: ignore[union-attr]
        assert f"{number:.3f}" in read.texts
    assert html == html_of(run)


def test_report_loads_no_external_resources(html: str, read_page: Any) -> None:
    read = read_page(html)
    for key, value in read.attributes:
        if key in ("src", "href", "xlink:href", "srcset", "action"):
            assert value.startswith(("#", "data:application/json;base64,")), (key, value[:50])
    assert read.tags.count("script") == 1
    assert not {"link", "iframe", "object", "embed", "base", "img"} & set(read.tags)
    ids = [value for key, value in read.attributes if key == "id"]
    assert len(ids) == len(set(ids))


def test_hostile_names_are_escaped(small: focuse.Graph, read_page: Any) -> None:
    rows = small.to_arrow().to_pylist()
    evil = [
        (f"{HOSTILE}{r['head']}", f'"><img src=x>{r["relation"]}', f"{HOSTILE}{r['tail']}", r["weight"]) for r in rows
    ]
    read = read_page(html_of(focuse.train(evil, **SMALL)))
    assert "img" not in read.tags
    assert read.tags.count("script") == 1  # the page's own
    assert any(text.startswith(HOSTILE) for text in read.texts)
    assert any(text.startswith('"><img') for text in read.texts)
    assert read.open == []


def test_run_without_test_and_validation_has_a_report(small: focuse.Graph, read_page: Any) -> None:
    read = read_page(html_of(focuse.train(small, valid_fraction=0, test_fraction=0, **SMALL)))
    assert titles(read) == ["Data", "Training", *TITLES[-4:]]
    assert any("no test split" in text for text in read.texts)
    told = figures_of(read)
    assert "--valid-fraction 0 --test-fraction 0" in told["repeat"]["command"]
    assert (told["evaluation"], told["weights"]) == (None, None)
    assert all(row["weight_mean"] is None for row in told["links"])


def test_report_can_use_another_test_graph(small: focuse.Graph, read_page: Any) -> None:
    run = focuse.train(small, test_fraction=0, **SMALL)
    test = [("e1", "r0", "e2", 0.5), ("e4", "r1", "e5", 0.9), ("e4", "r1", "e6", 0.1)]
    read = read_page(html_of(run, test))
    assert figures_of(read)["evaluation"]["all"]["n"] == 3
    assert "Predicted weights" in titles(read)


def test_graph_without_weights_has_no_weight_sections(small: focuse.Graph, read_page: Any) -> None:
    rows = [(r["head"], r["relation"], r["tail"]) for r in small.to_arrow().to_pylist()]
    read = read_page(html_of(focuse.train(rows, **SMALL)))
    # Nothing to order by weight, and no weights to predict.
    assert titles(read) == [name for name in TITLES if name not in (TITLES[3], "Predicted weights", "Intervals")]
    assert any("No weights were given" in text for text in read.texts)


def test_confidence_model_has_a_report(small: focuse.Graph, read_page: Any) -> None:
    read = read_page(html_of(focuse.train(small, model="ukge-logi", **SMALL)))
    assert titles(read) == TITLES
    assert "ukge-logi" in read.texts


def test_sections_may_be_empty_or_add_data(run: focuse.Run, read_page: Any) -> None:
    def more(run: Any, figures: Any) -> str:
        figures.data["more"] = [1, 2]
        return "<h2>More</h2>"

    read = read_page(html_of(run, sections=[lambda run, figures: "", more]))
    assert read.tags.count("h2") == 1
    assert "nav" not in read.tags  # nothing to link to
    assert figures_of(read)["more"] == [1, 2]
    assert len(SECTIONS) == len(set(SECTIONS))


def test_report_is_written_to_a_file(run: focuse.Run, html: str, tmp_path: Path) -> None:
    assert run.report(tmp_path / "page.html") == tmp_path / "page.html"
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == html
    with pytest.raises(FocuseError, match="is a folder"):
        run.report(tmp_path)
    with pytest.raises(FocuseError, match=r"no folder .*page\.html; choose one that exists"):
        run.report(tmp_path / "page.html" / "below.html")
    with pytest.raises(FocuseError, match=r"page\.pdf: the page is HTML"):
        run.report(tmp_path / "page.pdf")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_unusual_graphs_have_a_report(read_page: Any, tmp_path: Path) -> None:
    long, turned = "long " * 200, "\u05e9\u05dc\u05d5\u05dd"
    three = [(long, turned, "b", 1.0), ("b", turned, turned, 0.5), (turned, turned, long, 0.1)]
    read = read_page(html_of(focuse.train(three, dim=4, epochs=1, progress=False)))
    assert read.open == []
    assert titles(read)[0] == "Data"
    assert any(turned in text for text in read.texts)
    # Every pair is known: there is nothing left to add.
    full = [(h, "r", t, 0.5) for h in "abcd" for t in "abcd"]
    told = read_page(html_of(focuse.train(full, valid_fraction=0, test_fraction=0, dim=4, epochs=1, progress=False)))
    assert "Links it would add" not in told.texts
    assert figures_of(told)["links"] == []


def test_progress_of_every_part_is_reported(run: focuse.Run) -> None:
    heard: list[str] = []
    html_of(run, map="pca", say=heard.append)
    assert heard[0] == f"ranking {len(run.splits.test):,} test triples"
    assert heard[-1] == f"drawing a map of {len(run.graph.entities)} entities by principal components"
    with pytest.raises(FocuseError, match="unknown map 'tsn'"):
        html_of(run, map="tsn")


def test_headings_are_nested_and_charts_are_described(html: str, read_page: Any) -> None:
    read = read_page(html)
    levels = [int(tag[1]) for tag in read.tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    shown = [tag for tag in read.tags if tag == "svg"]
    assert html.count('role="img" aria-label="') + html.count('aria-hidden="true"') == len(shown)
    assert html.count("<caption>") == read.tags.count("table")
