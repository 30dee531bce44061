"""`focuse predict`."""

from __future__ import annotations

import json
import shutil

import pytest

import focuse
from focuse.cli import output
from focuse.cli.main import app
from focuse.inference.link_search import plausible_keys
from focuse.inference.predict import PREDICTED


def test_json_ranks_the_missing_part(command, trained):
    done = command("predict", trained.folder, "--head", "e1", "--relation", "r0", "--top", "4", "--json", check=True)
    found = json.loads(done.stdout)["rows"]
    assert [row["rank"] for row in found] == [1, 2, 3, 4]
    assert [row["probability"] for row in found] == sorted((row["probability"] for row in found), reverse=True)
    columns = ["rank", "head", "relation", "tail", "score", "known", "weight", *PREDICTED]
    assert all(list(row) == columns for row in found)
    assert all(0 <= row[name] <= 1 for row in found for name in PREDICTED)
    assert all(row["weight_low"] <= row["weight_mean"] <= row["weight_high"] for row in found)
    assert {(row["head"], row["relation"]) for row in found} == {("e1", "r0")}
    assert done.stderr == ""


def test_text_marks_known_triples(command, trained):
    shown = command("predict", trained.folder, "--relation", "r0", "--tail", "e2", "--top", "40", check=True).stdout
    headings, *lines, note = shown.splitlines()
    assert note.startswith("ordered by probability: ")
    assert headings.split()[-2:] == ["known", "weight"]
    run = focuse.load(trained.folder)
    heads = plausible_keys(run.graph)["head"] // len(run.graph.entities)
    assert len(lines) == min(40, (heads == run.graph.relations.id("r0")).sum())
    assert {line.split()[3] for line in lines} == {"e2"}
    assert {line.split()[-2] for line in lines} == {"yes", "no"}
    assert all((line.split()[-1] == "–") == (line.split()[-2] == "no") for line in lines)
    asked = ["--relation", "r0", "--tail", "e2", "--top", "40", "--new-only"]
    new = command("predict", trained.folder, *asked, check=True)
    assert len(new.stdout.splitlines()) == 2 + sum(line.split()[-2] == "no" for line in lines)


def test_missing_relation_is_ranked(command, trained):
    shown = command("predict", trained.folder, "--head", "e1", "--tail", "e2", "--json", check=True).stdout
    assert {row["relation"] for row in json.loads(shown)["rows"]} == {"r0", "r1", "r2"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--head", "e_39", "--relation", "r0"], "no entity 'e_39' (did you mean e39"),
        (["--head", "e1", "--relation", "rr0"], "no relation 'rr0' (did you mean r0"),
        (["--head", "r0", "--relation", "r1"], "that is a relation, not an entity; give it as the relation"),
        (["--tail", "e1", "--relation", "e2"], "that is an entity, not a relation; give it as the head or tail"),
        (["--head", "e1"], "give two of head, relation and tail"),
        (["--head", "e1", "--relation", "r0", "--top", "0"], "top 0: give a whole number, at least 1"),
    ],
)
def test_invalid_queries_are_refused(refused, trained, options, says):
    assert says in refused("predict", trained.folder, *options)


class TestFittingNote:
    """The first question to a run fits something; on a large graph that is said."""

    @pytest.fixture
    def fresh(self, trained, tmp_path):
        kept = shutil.ignore_patterns("weights.safetensors", "probability.safetensors")
        return shutil.copytree(trained.folder, tmp_path / "fresh", ignore=kept)

    @pytest.mark.parametrize("name", ["predict", "explain"])
    def test_fitting_is_announced_once_on_stderr(self, fresh, monkeypatch, capsys, name):
        monkeypatch.setattr(output, "LARGE_GRAPH", 1)
        asked = [name, str(fresh), "--head", "e1", "--relation", "r0", "--tail", "e2", "--json"]
        for told in ("Fitting the weight estimator (once per run) …\n", ""):  # then it is stored
            app(asked, standalone_mode=False)
            shown = capsys.readouterr()
            assert shown.err == told
            assert json.loads(shown.out)

    def test_fitting_of_a_small_graph_is_not_announced(self, fresh, capsys):
        app(["predict", str(fresh), "--head", "e1", "--relation", "r0"], standalone_mode=False)
        assert capsys.readouterr().err == ""

    def test_misspelled_name_is_refused_before_fitting(self, fresh, monkeypatch, refused_inside, capsys):
        monkeypatch.setattr(output, "LARGE_GRAPH", 1)
        for name in ("predict", "explain"):
            refused_inside(name, fresh, "--head", "nobody", "--relation", "r0", "--tail", "e2")
            assert capsys.readouterr().err == ""
        assert not (fresh / "weights.safetensors").exists()
