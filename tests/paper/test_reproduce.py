"""Cells are trained, stopped, resumed and kept."""

import json
import time

import pytest

import focuse
from focuse.data.datasets import Dataset
from focuse.data.splits import split
from focuse.errors import FocuseError, Stopped
from focuse.paper import reproduce as room
from focuse.paper.choice import Choice
from focuse.paper.reproduce import Reproducer, reproduce
from focuse.paper.workers import claim

SMALL = "dim=4 epochs=3 num_negatives=8 batch_size=64"


@pytest.fixture(autouse=True)
def loads(monkeypatch: pytest.MonkeyPatch, small: focuse.Graph, tmp_path) -> list[str]:
    """Every data set is a small one; the names of those asked for."""
    parts, asked = split(small, seed=3), []

    def load(name: str) -> Dataset:
        asked.append(name)
        if name == "onet20k":
            raise FocuseError("onet20k: cannot be had")
        return Dataset(name, name, parts.train, parts.valid, parts.test, tmp_path)

    monkeypatch.setattr(room, "load", load)
    return asked


def choose(*data: str, change: str = SMALL, **words) -> Choice:
    return Choice.of(data or None, ["complex"], changes=[change], quick=True, **words)


def test_cells_are_trained_and_reported(tmp_path) -> None:
    said: list[str] = []
    done = reproduce(choose("ppi5k"), tmp_path, "focuse reproduce", said.append, progress=False)
    assert [result.cell["kind"] for result in done.results] == ["plain", "focuse"]
    assert done.left == 0
    plain, focused = (result.facts["settings"] for result in done.results)
    assert (plain["weight_mode"], focused["weight_mode"], focused["dim"], focused["negative_sampling"]) == (
        "none",
        "focuse",
        4,
        "shared",
    )
    assert {path.name for path in tmp_path.iterdir()} >= {"report.md", "report.html", "report.json", "cells"}
    assert not any((tmp_path / "runs").iterdir())
    assert sum("[1/2]" in line for line in said) == 2
    assert "cells left: 1" in said[1]
    assert "paper 0.97" in said[1]
    json.dumps(done.to_dict(), allow_nan=False)


def test_finished_cells_are_not_trained_again(tmp_path, loads) -> None:
    first = reproduce(choose("ppi5k", kinds=["plain"]), tmp_path, progress=False)
    again = reproduce(choose("ppi5k"), tmp_path, progress=False)
    assert again.results[0].facts == first.results[0].facts
    loads.clear()
    assert len(reproduce(choose("ppi5k"), tmp_path, progress=False).results) == 2
    assert loads == []  # nothing to train: the data is not even looked for


def test_a_cell_whose_settings_changed_is_trained_again(tmp_path) -> None:
    done = reproduce(choose("ppi5k", kinds=["plain"]), tmp_path, progress=False)
    (path,) = (tmp_path / "cells").glob("*.json")
    data = json.loads(path.read_text())
    data["facts"]["given"]["lr"] = 0.5
    path.write_text(json.dumps(data))
    again = reproduce(choose("ppi5k", kinds=["plain"]), tmp_path, progress=False)
    assert again.results[0].facts["given"] == done.results[0].facts["given"]


def test_report_includes_results_of_other_commands(tmp_path) -> None:
    reproduce(choose("ppi5k", kinds=["plain"]), tmp_path, progress=False)
    reproduce(choose("nl27k", kinds=["plain"]), tmp_path, progress=False)
    done = reproduce(choose("cn15k"), tmp_path, progress=False, report_only=True)
    assert [result.cell["data"] for result in done.results] == ["nl27k", "ppi5k"]
    assert json.loads((tmp_path / "report.json").read_text())["about"]["cells"] == 2


def test_budget_stops_training_and_resume_gives_the_same_result(tmp_path, monkeypatch) -> None:
    """The first cell is cut short in its first epoch and ends, after the resume, where an uncut one ends."""
    choice = choose("ppi5k", change="dim=4 epochs=8 num_negatives=8 batch_size=64")
    whole = reproduce(choice, tmp_path / "whole", progress=False)
    worker, trained = Reproducer(tmp_path / "cut", budget=1000), room.train

    def time_is_up_while_it_trains(*arguments, **options):
        worker.deadline = time.monotonic() - 1
        return trained(*arguments, **(options | {"deadline": worker.deadline}))

    monkeypatch.setattr(room, "train", time_is_up_while_it_trains)
    part = worker.run(choice, lambda text: None, progress=False)
    assert (part.left, part.results) == (2, [])
    assert any((tmp_path / "cut" / "runs").iterdir())
    monkeypatch.setattr(room, "train", trained)
    rest = reproduce(choice, tmp_path / "cut", progress=False)
    for ours, theirs in zip(rest.results, whole.results, strict=True):
        assert (ours.test.score == theirs.test.score).all()


def test_ctrl_c_leaves_a_report_of_what_is_finished(tmp_path, monkeypatch) -> None:
    trained = room.train

    def train(*arguments, **options):
        if options["weight_mode"] == "focuse":
            raise Stopped("stopped by the user")
        return trained(*arguments, **options)

    monkeypatch.setattr(room, "train", train)
    with pytest.raises(Stopped, match=r"stopped in \[2/2\] PPI5K FocusE ComplEx.*the same command goes on"):
        reproduce(choose("ppi5k"), tmp_path, progress=False)
    assert json.loads((tmp_path / "report.json").read_text())["about"]["cells"] == 1


def test_failing_cell_does_not_stop_the_others(tmp_path, monkeypatch) -> None:
    trained = room.train

    def train(*arguments, **options):
        if options["weight_mode"] == "none":
            raise FocuseError("training diverged")
        return trained(*arguments, **options)

    monkeypatch.setattr(room, "train", train)
    done = reproduce(choose("ppi5k"), tmp_path, progress=False)
    assert [result.cell["kind"] for result in done.results] == ["focuse"]
    assert list(done.failed.values()) == ["training diverged"]
    assert done.to_dict()["finished"] is False


def test_cell_trained_by_another_command_is_skipped(tmp_path) -> None:
    choice = choose("ppi5k")
    plain, _ = choice.cells(["ppi5k"])
    (tmp_path / "runs").mkdir()
    with claim(tmp_path / "runs" / f"{plain.name}.claim"):
        done = reproduce(choice, tmp_path, progress=False)
    assert [result.cell["kind"] for result in done.results] == ["focuse"]
    assert (done.left, done.busy, done.to_dict()["finished"]) == (1, 1, False)
    assert "cells that another command is training: 1" in str(done)
    assert "time is up" not in str(done)
    assert len(reproduce(choice, tmp_path, progress=False).results) == 2


def test_cell_finished_by_another_command_is_not_trained_again(tmp_path, monkeypatch) -> None:
    choice = choose("ppi5k", kinds=["plain"])
    (result,) = reproduce(choice, tmp_path, progress=False).results
    worker = Reproducer(tmp_path)
    monkeypatch.setattr(room, "train", None)
    (cell,) = choice.cells(["ppi5k"])
    again = worker.train(cell, worker.reporter(False))
    assert again is not None
    assert again.facts == result.facts


def test_unavailable_data_is_reported(tmp_path) -> None:
    with pytest.raises(FocuseError, match="onet20k: cannot be had"):
        reproduce(choose("onet20k"), tmp_path, progress=False)
    assert not tmp_path.joinpath("cells").exists()
    said: list[str] = []
    unnamed = Choice.of(
        models=["transe"], kinds=["plain"], changes=["epochs=1 dim=2 num_negatives=2 batch_size=64"], part="tables"
    )
    done = reproduce(unnamed, tmp_path, say=said.append, progress=False)
    assert said[0] == "left out: onet20k: cannot be had"
    assert {result.cell["data"] for result in done.results} == {"ppi5k", "nl27k", "cn15k", "onet-importance"}


def test_report_without_results_is_refused(tmp_path) -> None:
    with pytest.raises(FocuseError, match="nothing to report"):
        reproduce(choose("ppi5k"), tmp_path, progress=False, report_only=True)


def test_leftover_run_of_other_settings_is_restarted(tmp_path, monkeypatch) -> None:
    choice = choose("ppi5k", kinds=["plain"])
    (cell,) = choice.cells(["ppi5k"])
    folder = tmp_path / "runs" / cell.name
    data = room.load("ppi5k")
    focuse.train(data.train, valid=data.valid, test=data.test, out=folder, dim=9, epochs=1, progress=False)
    done = reproduce(choice, tmp_path, progress=False)
    assert done.results[0].facts["settings"]["dim"] == 4


def test_ukge_is_trained_again_once_its_soft_logic_is_available(tmp_path, monkeypatch, small) -> None:
    """Files beside the splits come later: then the cell is another one."""
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    parts = split(small, seed=3)
    found = Dataset("nl27k", "NL27K", parts.train, parts.valid, parts.test, data)
    monkeypatch.setattr(room, "load", lambda name: found)
    monkeypatch.setattr("focuse.datasets.path", lambda name: data)
    choice = Choice.of(["nl27k"], ["ukge-logi"], ["ukge"], changes=[SMALL], part="tables")
    said: list[str] = []
    (first,) = reproduce(choice, out, "focuse reproduce", said.append, progress=False).results
    assert first.facts["inferred"] == 0
    assert first.weights is None
    assert "WITHOUT soft logic" in said[-1]
    assert "weights not judged" in said[-1]
    assert "Trained without soft logic" in (out / "report.md").read_text()
    rows = small.to_arrow().to_pylist()[:5]
    lines = ["\t".join(str(row[name]) for name in ("head", "relation", "tail", "weight")) for row in rows]
    for name in ("softlogic", "ndcg"):
        (data / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    (data / "test_with_neg.tsv").write_text("\n".join([*lines, "e1\tr0\te1\t0"]) + "\n")
    said.clear()
    (again,) = reproduce(choice, out, "focuse reproduce", said.append, progress=False).results
    assert again.facts["inferred"] == 5
    assert again.weights is not None
    assert "WITHOUT" not in said[-1]
    assert "Trained without soft logic" not in (out / "report.md").read_text()
