"""A training can be resumed from its first second: killed or stopped in any phase, it ends as if nothing had been."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import run as python

import focuse
from focuse.config import Config
from focuse.errors import FocuseError, Stopped
from focuse.storage.run_folder import REQUEST, RunFolder
from focuse.training.request import FileSource, TrainingInput, read_request

# The command `focuse` in a process that gets a signal at the beginning of the given call of a function.
DISTURBED = """
import os, sys
from importlib import import_module
from operator import attrgetter

number, call, module, path = int(sys.argv.pop(1)), int(sys.argv.pop(1)), import_module(sys.argv.pop(1)), sys.argv.pop(1)
parent, _, name = path.rpartition(".")
owner = attrgetter(parent)(module) if parent else module
function, calls = getattr(owner, name), []

def disturbed(*given, **named):
    calls.append(1)
    if len(calls) == call:
        os.kill(os.getpid(), number)
    return function(*given, **named)

setattr(owner, name, disturbed)
from focuse.cli.main import run
sys.argv[0] = "focuse"
run()
"""
READING = 1, "focuse.data.readers", "inspect_file"
# Where trainings are disturbed, in the order in which they get there.
MOMENTS = {
    "reading the input": READING,
    "writing the splits": (1, "focuse.storage.run_folder", "write_metadata"),
    "naming the splits": (5, "focuse.storage.run_folder", "fsync_path"),
    "the first trial": (1, "focuse.training.label_exponent", "evaluate"),
    "the third trial": (2, "focuse.training.label_exponent", "evaluate"),
    "storing the label exponent": (1, "focuse.storage.run_folder", "write_settings"),
    "after the search": (1, "focuse.api", "make_trainer"),
    "the first epoch": (1, "focuse.storage.run_folder", "RunFolder.append"),
    "the first answers": (1, "focuse.cli.train", "_report"),
}
OPTIONS = ("--model", "distmult", "--dim", "8", "--epochs", "10", "--weight-mode", "soft-labels", "--device", "cpu")


def command(*words: object, at: tuple[int, str, str] | None = None, number: int = signal.SIGKILL) -> Any:
    if at is None:
        return python(["-m", "focuse", *map(str, words)])
    return python(["-c", DISTURBED, str(int(number)), *map(str, at), *map(str, words)])


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of enough edges to choose a label exponent."""
    random = np.random.default_rng(3)
    head, tail = random.integers(0, 200, (2, 14000))
    kept = (head % 6 == tail % 6) | (random.random(14000) < 0.4)
    rows = zip(head[kept], tail[kept], random.random(14000)[kept], strict=True)
    path = tmp_path_factory.mktemp("graph") / "graph.tsv"
    path.write_text("head\trelation\ttail\tweight\n" + "".join(f"e{h}\tr\te{t}\t{w:.3f}\n" for h, t, w in rows))
    return path


@pytest.fixture(scope="module")
def whole(graph: Path) -> Path:
    """The run of a training that nothing disturbed."""
    folder = graph.parent / "whole"
    done = command("train", graph, "--out", folder, *OPTIONS)
    assert done.returncode == 0, done.stderr
    return folder


def assert_same(folder: Path, other: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {path.name for path in other.iterdir()}
    for name in ("model.safetensors", "checkpoint.safetensors", "splits.safetensors", "label_exponent.json"):
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name
    assert focuse.load(folder).settings == focuse.load(other).settings


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.slow
def test_a_training_that_is_killed_in_every_phase_gives_the_same_bits(graph: Path, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words: list[object] = ["train", graph, "--out", folder, *OPTIONS]
    for name, moment in MOMENTS.items():
        done = command(*words, at=moment)
        assert done.returncode == -signal.SIGKILL, f"{name}: {done.stderr}"
        words = ["train", "--resume", folder]
    assert (folder / "model.safetensors").exists()  # the last kill came after the end of the training
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert "already finished after 10 epochs" in done.stderr
    assert "new links" in done.stdout
    assert_same(folder, whole)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
@pytest.mark.parametrize(
    ("name", "number", "doing"),
    [
        ("reading the input", signal.SIGTERM, "while reading the input"),
        ("the third trial", signal.SIGHUP, "while choosing the label exponent"),
        ("after the search", signal.SIGINT, "while training"),
        ("the first epoch", signal.SIGTERM, "after 1 epoch and 1 batch, saved"),
    ],
)
def test_a_training_that_is_stopped_says_how_to_continue(
    name: str, number: int, doing: str, graph: Path, whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    done = command("train", graph, "--out", folder, *OPTIONS, at=MOMENTS[name], number=number)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == f"focuse: stopped {doing}; continue with: focuse train --resume {folder}"
    assert not (folder / "training.lock").exists()
    assert command("train", "--resume", folder).returncode == 0
    assert_same(folder, whole)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.slow
def test_what_was_fitted_before_a_kill_is_kept(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("probability.safetensors"))
    words = ("predict-weights", folder, whole.parent / "graph.tsv", "--out", tmp_path / "weights.tsv")
    fitting = {
        "calibration.safetensors": (1, "focuse.inference.weight_predictor", "WeightPredictor.fit_estimator"),
        "weights.safetensors": (1, "focuse.inference.weight_predictor", "WeightPredictor.predict"),
    }
    for name, moment in fitting.items():
        assert not (folder / name).exists()
        assert command(*words, at=moment).returncode == -signal.SIGKILL
        assert (folder / name).exists()
    assert command(*words).returncode == 0
    expected = focuse.load(whole).predict_weights(whole.parent / "graph.tsv").to_dicts()
    assert focuse.load(folder).predict_weights(whole.parent / "graph.tsv").to_dicts() == expected


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
def test_resuming_that_is_stopped_at_once_says_how_to_continue(whole: Path) -> None:
    moment = (1, "focuse.api", "resume")
    done = command("train", "--resume", whole, at=moment, number=signal.SIGTERM)
    advice = f"continue with: focuse train --resume {whole}"
    assert (done.returncode, done.stderr) == (130, f"focuse: stopped before the training went on; {advice}\n")


def interrupted(*arguments: Any, **options: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def request_only(graph: Path, tmp_path: Path) -> Path:
    """The folder of a training that was stopped while it read its file, which is a copy of the graph's."""
    (tmp_path / "graph.tsv").write_bytes(graph.read_bytes())
    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("focuse.data.readers.inspect_file", interrupted)
        with pytest.raises(Stopped, match="stopped while reading the input; continue with: focuse train --resume "):
            focuse.train(tmp_path / "graph.tsv", out=folder, dim=4, epochs=1, label_exponent=2.0, progress=False)
    assert [path.name for path in folder.iterdir()] == [REQUEST]
    return folder


class TestBeforeTheInputIsRead:
    def test_other_commands_say_that_the_input_is_not_read(self, request_only):
        with pytest.raises(FocuseError, match="the input of its training is not read yet; continue with: focuse train"):
            focuse.load(request_only)
        done = command("evaluate", request_only)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert f"continue with: focuse train --resume {request_only}" in done.stderr
        with pytest.raises(FocuseError, match="exists and is not empty; choose another folder, or resume it"):
            focuse.train([("a", "r", "b", 1.0)], out=request_only)

    def test_a_command_is_told_who_reads_the_input(self, request_only):
        with RunFolder(request_only).locked(), pytest.raises(FocuseError, match=r"not read yet; wait for process \d+"):
            focuse.load(request_only)

    def test_epochs_can_be_raised(self, request_only):
        assert len(focuse.resume(request_only, epochs=2, progress=False).history) == 2
        assert not (request_only / REQUEST).exists()

    def test_a_source_that_has_changed_is_named(self, request_only):
        path = request_only.parent / "graph.tsv"
        path.write_text(path.read_text(encoding="utf-8") + "e1\tr\te2\t0.5\n", encoding="utf-8")
        with pytest.raises(FocuseError, match=rf"while it read {path}, which has changed since; remove the folder"):
            focuse.resume(request_only, progress=False)
        path.unlink()
        with pytest.raises(FocuseError, match=rf"{path}, which cannot be read: No such file.*; put it back, or remove"):
            focuse.resume(request_only, progress=False)
        assert [each.name for each in request_only.iterdir()] == [REQUEST]

    def test_a_request_that_was_altered_is_reported(self, request_only):
        text = (request_only / REQUEST).read_text(encoding="utf-8")
        (request_only / REQUEST).write_text(text.replace('"dim": 4', '"dim": 5'), encoding="utf-8")
        with pytest.raises(FocuseError, match=r"request.json: damaged .*; remove the folder and train again"):
            focuse.resume(request_only)


class TestRequest:
    def test_settings_and_options_are_kept(self, tmp_path):
        for name in ("graph.tsv", "valid.tsv", "weights.tsv", "rules.txt"):
            (tmp_path / name).touch()
        read = FileSource(tmp_path / "graph.tsv", {"columns": ("a", "b"), "relation_weights": tmp_path / "weights.tsv"})
        given = TrainingInput(read, str(tmp_path / "valid.tsv"), rules=tmp_path / "rules.txt", undirected=True)
        settings = Config.from_kwargs(model="transe", lr=0.02, weight_scaling="log")
        text = given.request(settings)
        assert text is not None
        (tmp_path / REQUEST).write_text(text, encoding="utf-8")
        stored, again = read_request(RunFolder.open(tmp_path, unread=True))
        assert (stored, stored.provenance) == (settings, settings.provenance)
        assert again.graph.path == str(tmp_path / "graph.tsv")
        assert again.graph.options == {"columns": ["a", "b"], "relation_weights": str(tmp_path / "weights.tsv")}
        assert (again.valid, again.rules) == (str(tmp_path / "valid.tsv"), str(tmp_path / "rules.txt"))
        assert (again.test, again.undirected, again.valid_fraction) == (None, True, None)
        assert len(json.loads(text)["files"]) == 4

    def test_sources_that_are_not_files_make_no_request(self, tmp_path):
        settings = Config.from_kwargs()
        assert TrainingInput([("a", "r", "b", 1.0)]).request(settings) is None
        assert TrainingInput(tmp_path).request(settings) is None
        assert TrainingInput(tmp_path / "none.tsv").request(settings) is None


class TestSourcesThatAreNotFiles:
    def test_the_folder_is_created_once_they_are_split(self, small, tmp_path, monkeypatch):
        settings: dict[str, Any] = {"dim": 4, "epochs": 2, "label_exponent": 2.0, "progress": False}
        monkeypatch.setattr("focuse.training.preparation.read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            focuse.train(small, out=tmp_path / "run", **settings)
        assert not (tmp_path / "run").exists()
        monkeypatch.undo()
        monkeypatch.setattr("focuse.api.make_trainer", interrupted)
        with pytest.raises(Stopped, match="stopped while training; continue with"):
            focuse.train(small, out=tmp_path / "run", **settings)
        monkeypatch.undo()
        with pytest.raises(FocuseError, match="nothing trained yet; continue with: focuse train --resume"):
            focuse.load(tmp_path / "run")
        focuse.resume(tmp_path / "run", progress=False)
        focuse.train(small, out=tmp_path / "whole", **settings)
        model = (tmp_path / "run" / "model.safetensors").read_bytes()
        assert model == (tmp_path / "whole" / "model.safetensors").read_bytes()


class TestFailures:
    @pytest.mark.parametrize(
        ("text", "settings", "message"),
        [
            ("a\tr\tb\tmuch\n", {}, "which of 4 columns"),
            ("", {}, "empty|no edges"),
            ("a\tr\tb\t1\nb\tr\tc\t2\n", {"weight_scaling": "none", "model": "ukge-rect"}, "in \\[0, 1\\]"),
            ("".join(f"a\tr\tb{i}\t{i}\n" for i in range(90)), {"lr": 1e38, "batch_size": 4}, "diverged in epoch 1"),
        ],
        ids=["no weights", "empty", "outside of the range", "diverged"],
    )
    def test_input_that_cannot_be_trained_on_leaves_no_folder(self, tmp_path, text, settings, message):
        path = tmp_path / "graph.tsv"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(FocuseError, match=message):
            focuse.train(path, out=tmp_path / "new" / "run", epochs=5, dim=4, progress=False, **settings)
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.slow
    def test_the_default_folder_is_removed_too(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "graph.tsv").write_text("a\tr\tb\tmuch\n", encoding="utf-8")
        done = command("train", "graph.tsv")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert [path.name for path in tmp_path.iterdir()] == ["graph.tsv"]
