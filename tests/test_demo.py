"""The demo: likely and strong links of one training, and FocusE with a larger ΔMRR than without weights."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from focuse.api import train
from focuse.config import Config
from focuse.demo import MODELS, demo, sentences
from focuse.report.charts import BOTTOM_COLOR, TOP_COLOR


def test_the_settings_are_valid():
    modes = [Config.from_kwargs(**settings).weight_mode for settings in MODELS.values()]
    assert modes == ["separate", "focuse", "soft-labels"]


def test_command_shows_a_larger_delta_mrr_with_focus(command, tmp_path):
    done = command("demo", "--json", "--out", tmp_path / "demo", timeout=250, check=True)
    data = json.loads(done.stdout)
    likely, default, strong, focused, labelled = (
        data[name] for name in ("likely", "default", "strong", "focuse", "soft_labels")
    )
    assert strong["delta_mrr"] > labelled["delta_mrr"] > focused["delta_mrr"] > likely["delta_mrr"]
    assert strong["top"]["mrr"] > default["top"]["mrr"] > likely["top"]["mrr"]
    assert strong["all"]["mrr"] < likely["all"]["mrr"]  # the cost
    for part in (likely, default, strong, focused, labelled):
        assert set(part["top"]) == {"mr", "mrr", "hits@1", "hits@3", "hits@10", "n"}
        assert part["all"]["n"] == 1000
    assert len(set(data["predictions"])) == 10
    assert all(
        re.search(r" (should also have|is likely to|will find use|can lead to) ", s) for s in data["predictions"]
    )
    for words in ("careers: 10,000 links", "training likely and strong", "training FocusE", "epoch 24/24"):
        assert words in done.stderr
    page = tmp_path / "demo" / "report.html"
    assert data["report"] == str(page)
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>")
    assert len(re.findall(r"<svg\b", text)) == 1  # a panel for each ranking, in each a violin of top and of bottom
    assert re.findall(r'id="violins-axes_(\d)"', text) == ["1", "2", "3", "4", "5"]
    for panel in re.split(r'id="violins-axes_\d"', text)[1:]:
        assert "fill: var(--c1)" in panel
        assert "fill: var(--c2)" in panel
    svg = (tmp_path / "demo" / "violins.svg").read_text(encoding="utf-8")
    assert svg.count(f"fill: {TOP_COLOR}") == svg.count(f"fill: {BOTTOM_COLOR}") == 3
    assert all(sentence.replace("'", "&#39;") in text for sentence in data["predictions"])
    assert not re.search(r"""(src|href)=["']https?:""", text)  # nothing is downloaded
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {"report.html", "violins.svg"}


@pytest.mark.slow
def test_sentences_are_about_links_that_are_not_in_the_graph(careers):
    run = train(careers, dim=8, epochs=1, progress=False)
    words = sentences(run)
    assert len(words) == 10
    heads = np.unique(careers.head[careers.relation == careers.relations.id("requires skill")])
    jobs = set(careers.entities.take(heads).to_pylist())
    assert all(any(job in sentence for job in jobs) for sentence in words)
    known = {
        f"{row['head']} should also have the skill {row['tail']!r}"
        for row in careers.to_arrow().to_pylist()
        if row["relation"] == "requires skill"
    }
    assert not known & set(words)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_focus_wins_in_five_seeds_and_by_five_hundredths_on_average():
    gains = []
    for seed in range(5):
        found = demo(seed, progress=False).evaluations
        gains.append(found["FocusE"].delta_mrr - found["likely"].delta_mrr)
    assert min(gains) > 0, gains
    assert np.mean(gains) >= 0.05, gains
