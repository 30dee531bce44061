"""Run folders: checkpoints, resuming, locks, damage and atomic writes."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from older import older
from safetensors import safe_open
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

import focuse
from focuse import FocuseError
from focuse.errors import Stopped
from focuse.storage.atomic import ProcessLock
from focuse.storage.metadata import FORMAT
from focuse.storage.run_folder import LOCK, RunFolder
from focuse.storage.tensors import TensorFile, write_tensors
from focuse.training.trainer import Trainer

SETTINGS = {
    "dim": 6,
    "epochs": 8,
    "weight_mode": "focuse",
    "beta_decay_epochs": 6,
    "batch_size": 64,
    "lr": 1e-2,
    "num_negatives": 4,
    "eval_every": 2,
}
EXPECTED = {
    "run.toml",
    "entities.parquet",
    "relations.parquet",
    "splits.safetensors",
    "weight_scaling.safetensors",
    "history.jsonl",
    "checkpoint.safetensors",
    "model.safetensors",
}


class Crash(BaseException):
    """What a power cut is to a process."""


def train(graph, out, **settings):
    return focuse.train(graph, out=out, progress=False, **{**SETTINGS, **settings})


def without_seconds(folder):
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in ("seconds", "crc32")} for row in rows]


def names(folder):
    return {path.name for path in folder.iterdir()}


def assert_same_run(folder, other):
    assert (folder / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert without_seconds(folder) == without_seconds(other)
    one, two = (load_file(part / "checkpoint.safetensors") for part in (folder, other))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert names(folder) == names(other) == EXPECTED


def interrupt_at(step, by):
    """Called after every batch; at batch number `step` the training is interrupted."""

    def on_step(epoch, batches):
        if batches == step:
            if by is Crash:
                raise Crash
            os.kill(os.getpid(), by)

    return on_step


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    """Uninterrupted runs by optimizer; 8 epochs of 8 batches."""
    root, made = tmp_path_factory.mktemp("whole"), {}

    def get(optimizer="sparse-adagrad"):
        if optimizer not in made:
            made[optimizer] = root / optimizer
            train(small, made[optimizer], optimizer=optimizer)
        return made[optimizer]

    return get


class TestResume:
    def test_the_graph_has_enough_batches_for_these_tests(self, whole):
        assert len(focuse.load(whole()).graph) == 480 > 7 * 64

    @pytest.mark.parametrize("optimizer", ["adam", "sparse-adam", "adagrad", "sparse-adagrad", "sgd"])
    @pytest.mark.parametrize("step", [1, 11, 16])  # first batch, mid-epoch, the last batch of an epoch
    def test_resume_after_interrupt_gives_identical_tables(self, small, tmp_path, whole, listen, optimizer, step):
        recorder = listen(interrupt_at(step, signal.SIGINT))
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(Stopped) as stopped:
            train(small, tmp_path / "run", optimizer=optimizer, checkpoint_every="0")
        assert f"focuse train --resume {tmp_path / 'run'}" in str(stopped.value)
        assert signal.getsignal(signal.SIGINT) is before
        assert recorder.seen == step  # not one batch more
        listen()
        run = focuse.resume(tmp_path / "run")
        assert_same_run(tmp_path / "run", whole(optimizer))
        assert [row["epoch"] for row in run.history] == list(range(1, 9))

    @pytest.mark.parametrize("every", ["1", "3", "0.0000001s", "0"])
    @pytest.mark.parametrize("step", [2, 27, 63])
    def test_resume_after_a_crash_at_any_step_gives_identical_tables(self, small, tmp_path, whole, listen, every, step):
        listen(interrupt_at(step, Crash))
        with pytest.raises(Crash):
            train(small, tmp_path / "run", checkpoint_every=every)
        listen()
        focuse.resume(tmp_path / "run")
        assert_same_run(tmp_path / "run", whole())

    def test_repeatedly_interrupted_training_gives_identical_tables(self, small, tmp_path, whole, listen):
        listen(interrupt_at(3, signal.SIGTERM))
        with pytest.raises(Stopped):
            train(small, tmp_path / "run")
        for _ in range(3):
            listen(interrupt_at(5, signal.SIGINT))
            with pytest.raises(Stopped):
                focuse.resume(tmp_path / "run")
        listen()
        focuse.resume(tmp_path / "run")
        assert_same_run(tmp_path / "run", whole())

    def test_a_stopped_run_predicts_with_its_checkpoint(self, small, tmp_path, listen):
        listen(interrupt_at(30, signal.SIGINT))
        with pytest.raises(Stopped):
            train(small, tmp_path / "run")
        assert focuse.load(tmp_path / "run").evaluate().all.n > 0

    def test_a_second_ctrl_c_stops_at_once(self, small, tmp_path, listen):
        def twice(epoch, batches):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        listen(twice)
        with pytest.raises(Stopped, match="stopped while training; continue with: focuse train --resume"):
            train(small, tmp_path / "run")

    def test_history_after_the_checkpoint_is_dropped(self, small, tmp_path, whole, listen):
        listen(interrupt_at(43, Crash))  # in epoch 6; the checkpoint is of epoch 3
        with pytest.raises(Crash):
            train(small, tmp_path / "run", checkpoint_every="3")
        path = tmp_path / "run" / "history.jsonl"
        assert len(path.read_text().splitlines()) == 5
        path.write_text(path.read_text() + '{"epoch": 6, "lo')  # a line that the crash cut short
        recorder = listen()
        focuse.resume(tmp_path / "run")
        assert recorder.began_at == 3
        assert_same_run(tmp_path / "run", whole())

    def test_a_run_that_has_only_the_previous_checkpoint_continues_from_it(self, small, tmp_path, whole, listen):
        """Older versions kept two checkpoints, and could be killed between two renames."""
        folder = tmp_path / "run"
        listen(interrupt_at(27, signal.SIGINT))
        with pytest.raises(Stopped):
            train(small, folder, checkpoint_every="0")
        (folder / "checkpoint.safetensors").rename(folder / "checkpoint.previous.safetensors")
        recorder = listen()
        focuse.resume(folder)
        assert recorder.seen < 64
        assert_same_run(folder, whole())

    def test_a_cut_history_of_a_finished_run_is_reported(self, small, tmp_path):
        folder = tmp_path / "run"
        train(small, folder)
        lines = (folder / "history.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / "history.jsonl").write_text("".join(lines[:1]), encoding="utf-8")
        with pytest.raises(FocuseError, match=r"history\.jsonl.*cut short before epoch"):
            focuse.load(folder)

    def test_half_written_files_of_a_killed_process_are_removed(self, small, tmp_path, whole, listen):
        listen(interrupt_at(20, Crash))
        with pytest.raises(Crash):
            train(small, tmp_path / "run", checkpoint_every="1")
        (tmp_path / "run" / ".checkpoint.safetensors.4711").write_bytes(b"half of it")
        listen()
        focuse.resume(tmp_path / "run")
        assert_same_run(tmp_path / "run", whole())

    def test_folders_of_processes_killed_while_they_created_the_run_are_removed(self, small, tmp_path):
        process = subprocess.Popen([sys.executable, "-c", ""])
        process.wait()
        abandoned, of_a_running_process, other = (
            tmp_path / name for name in (f".run.{process.pid}", f".run.{os.getppid()}", f".other.{process.pid}")
        )
        for folder in (abandoned, of_a_running_process, other):
            folder.mkdir()
            (folder / "splits.safetensors").write_bytes(b"half of it")
        train(small, tmp_path / "run")
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            [other.name, of_a_running_process.name, "run"]
        )

    def test_resuming_a_finished_run_changes_nothing(self, small, tmp_path, listen):
        train(small, tmp_path / "run")
        before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
        recorder = listen()
        run = focuse.resume(tmp_path / "run")
        assert recorder.notes == [f"{tmp_path / 'run'}: already finished after 8 epochs; give more epochs to continue"]
        assert len(run.history) == 8
        assert before == {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}

    @pytest.mark.parametrize("epochs", [2.5, "9", True, 2**32])
    def test_resuming_with_a_wrong_number_of_epochs_changes_nothing(self, small, tmp_path, epochs):
        train(small, tmp_path / "run", epochs=1)
        before = (tmp_path / "run" / "run.toml").read_bytes()
        with pytest.raises(FocuseError, match=r"epochs .*: give a whole number"):
            focuse.resume(tmp_path / "run", epochs=epochs)
        assert (tmp_path / "run" / "run.toml").read_bytes() == before
        with pytest.raises(FocuseError, match="device 'banana' is not available"):
            focuse.resume(tmp_path / "run", device="banana")
        focuse.resume(tmp_path / "run", epochs=np.int64(2))
        assert focuse.load(tmp_path / "run").settings.epochs == 2

    def test_resume_for_more_epochs_equals_a_longer_training(self, small, tmp_path, whole, listen):
        train(small, tmp_path / "run", epochs=4, patience=99)
        # Interrupted on the way: the run must remember that it is to have 8.
        listen(interrupt_at(11, signal.SIGINT))
        with pytest.raises(Stopped):
            focuse.resume(tmp_path / "run", epochs=8)
        listen()
        run = focuse.resume(tmp_path / "run")
        assert run.settings.epochs == focuse.load(tmp_path / "run").settings.epochs == 8
        assert_same_run(tmp_path / "run", whole())

    def test_more_epochs_after_early_stopping_reset_the_patience(self, small, tmp_path):
        hasty = {"lr": 0.1, "eval_every": 1, "patience": 2, "regularizer": "none", "eval_start": 0}
        first = train(small, tmp_path / "run", epochs=50, **hasty)
        assert first.last.progress.finished == "stopped early"
        done = len(first.history)
        again = focuse.resume(tmp_path / "run", epochs=80, progress=False)
        assert len(again.history) >= done + 2
        assert again.last.progress.best_value >= first.last.progress.best_value

    def test_fewer_epochs_are_refused(self, whole):
        with pytest.raises(FocuseError, match="is set to 8 epochs; epochs can only raise"):
            focuse.resume(whole(), epochs=7)

    def test_a_run_that_has_all_epochs_is_already_finished(self, whole, listen):
        recorder, folder = listen(), whole()
        assert len(focuse.resume(folder, epochs=8).history) == 8
        assert recorder.notes == [f"{folder}: already finished after 8 epochs; give more epochs to continue"]


class TestAtomicity:
    def test_a_failing_write_leaves_the_checkpoint_before_it(self, small, tmp_path, whole, monkeypatch, listen):
        calls, create = [], TensorFile.create

        def failing(self, allocate=False):
            create(self, allocate)
            calls.append(self.path.name)
            if sum("checkpoint" in name for name in calls) == 3:
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(TensorFile, "create", failing)
        folder = tmp_path / "run"
        with pytest.raises(
            FocuseError, match=r"checkpoint.safetensors: .*No space left on device.*resume the run"
        ) as error:
            train(small, folder, checkpoint_every="1")
        assert "\n" not in str(error.value)
        assert names(folder) == EXPECTED - {"model.safetensors"}
        assert RunFolder.open(folder).load_checkpoint().progress.epoch == 2
        monkeypatch.undo()
        focuse.resume(folder, progress=False)
        assert_same_run(folder, whole())

    def test_the_model_is_written_before_the_last_checkpoint(self, small, tmp_path, monkeypatch):
        """The model is written before the checkpoint that says so: a crash between them loses nothing."""
        order = []

        def spy(path, *rest, **more):
            order.append(path.name)
            write_tensors(path, *rest, **more)

        monkeypatch.setattr("focuse.storage.tables.write_tensors", spy)
        train(small, tmp_path / "run", checkpoint_every="0")
        assert order == ["model.safetensors", "checkpoint.safetensors"]

    def test_a_folder_that_cannot_be_written_does_not_appear(self, small, tmp_path, monkeypatch):
        def failing(*arguments):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(TensorFile, "create", failing)
        with pytest.raises(FocuseError, match="No space left on device"):
            train(small, tmp_path / "run")
        assert list(tmp_path.iterdir()) == []

    def test_ctrl_c_while_the_folder_is_created_leaves_nothing(self, small, tmp_path, monkeypatch):
        make = os.mkdir

        def interrupted(path, *arguments, **options):
            make(path, *arguments, **options)
            raise KeyboardInterrupt  # a signal is heard where a system call returns

        monkeypatch.setattr(os, "mkdir", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(small, tmp_path / "run")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("kind", ["folder", "file"])
    def test_out_that_exists_is_refused_and_untouched(self, small, tmp_path, kind):
        out = tmp_path / "mine"
        if kind == "folder":
            out.mkdir()
        mine = out / "thesis.txt" if kind == "folder" else out
        mine.write_text("years of work")
        fault = "exists and is not empty" if kind == "folder" else "is a file"
        with pytest.raises(FocuseError, match=f"{fault}; choose another folder$"):
            train(small, out)
        assert mine.read_text() == "years of work"
        assert list(tmp_path.rglob("*")) == ([out, mine] if kind == "folder" else [out])

    def test_a_run_may_be_created_in_an_empty_folder_or_under_missing_parents(self, small, tmp_path):
        (tmp_path / "empty").mkdir()
        for folder in (tmp_path / "empty", tmp_path / "a" / "b" / "run"):
            train(small, folder, epochs=1)
            assert names(folder) == EXPECTED

    def test_the_current_folder_is_refused(self, small, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(FocuseError, match="a name of its own"):
            train(small, ".")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_read_only_parent_is_one_line(self, small, tmp_path):
        tmp_path.chmod(0o500)
        try:
            with pytest.raises(FocuseError, match="Permission denied; choose a folder that can be written"):
                train(small, tmp_path / "run")
        finally:
            tmp_path.chmod(0o700)

    def test_a_parent_that_is_a_file_is_one_line(self, small, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(FocuseError, match=r"run: (Not a directory|File exists); choose a folder"):
            train(small, tmp_path / "file" / "run")


class TestDamage:
    """Whatever is wrong with a run's file is one line that names the file."""

    @pytest.fixture
    def folder(self, tmp_path, whole):
        copy = tmp_path / "copy"
        copy.mkdir()
        for path in whole().iterdir():
            (copy / path.name).write_bytes(path.read_bytes())
        return copy

    def refuses(self, folder, name, says="", act=focuse.load):
        with pytest.raises(FocuseError) as error:
            act(folder)
        text = str(error.value)
        assert str(folder / name) in text
        assert says in text
        assert "\n" not in text

    @pytest.mark.parametrize("name", sorted(EXPECTED - {"run.toml", "history.jsonl", "model.safetensors"}))
    @pytest.mark.parametrize("kind", ["missing", "truncated", "empty", "altered"])
    def test_a_missing_or_altered_file_is_reported(self, folder, name, kind):
        path = folder / name
        data = path.read_bytes()
        if kind == "missing":
            path.unlink()
        else:
            altered = data[:-40] + b"\xff" * 40 if path.suffix == ".parquet" else b"\xff" * 40 + data[40:]
            path.write_bytes({"truncated": data[: len(data) // 2], "empty": b"", "altered": altered}[kind])
        if name == "checkpoint.safetensors":
            (folder / "model.safetensors").unlink()
            if kind == "missing":
                with pytest.raises(FocuseError, match="nothing trained yet"):
                    focuse.load(folder)
            else:
                self.refuses(folder, name, "damaged")
                self.refuses(folder, name, "damaged", focuse.resume)
        else:
            self.refuses(folder, name, "damaged")

    def test_a_model_that_was_cut_short_is_reported(self, folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-8])
        self.refuses(folder, "model.safetensors", "damaged")

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda text: text[: text.index("[settings]") + 40], "damaged"),
            (lambda text: text.replace(f"format = {FORMAT}\n", ""), "format"),
            (lambda text: text.replace(f"format = {FORMAT}", "format = 99"), "run format 99"),
            (lambda text: text.replace('model = "complex"', 'model = "complx"'), "did you mean complex"),
            (lambda text: text.replace("[settings]", "[sittings]"), "settings"),
            (lambda text: text.replace("[unseen", "[onseen"), "unseen"),
            (lambda text: "\ufffe" + text, "damaged"),
            (lambda text: text.replace("rows = 0", 'rows = "x"'), "not an integer"),
        ],
    )
    def test_a_changed_run_toml_is_reported(self, folder, change, says):
        path = older(folder) / "run.toml"
        before = path.read_text(encoding="utf-8")
        path.write_text(change(before), encoding="utf-8")
        assert path.read_text(encoding="utf-8") != before
        self.refuses(folder, "run.toml", says)

    @pytest.mark.parametrize(
        ("name", "change", "says"),
        [
            ("splits", lambda arrays: arrays["train/weight"].fill(np.nan), "not a finite number"),
            ("splits", lambda arrays: arrays.update({"train/head": arrays["train/head"].astype(float)}), "data type"),
            ("splits", lambda arrays: arrays.update({"test/tail": arrays["test/tail"][1:]}), "have different lengths"),
            ("splits", lambda arrays: arrays.update({k: v[:0] for k, v in arrays.items() if "train" in k}), "no edges"),
            ("weight_scaling", lambda arrays: arrays.update({"low": arrays["low"][:1]}), "damaged"),
        ],
    )
    def test_impossible_arrays_are_reported(self, folder, name, change, says):
        path = older(folder) / f"{name}.safetensors"
        arrays = {key: value.copy() for key, value in load_arrays(path).items()}
        change(arrays)
        save_arrays(arrays, path)
        self.refuses(folder, path.name, says)

    def test_damaged_lines_of_an_old_history_are_reported(self, folder):
        path = older(folder) / "history.jsonl"
        path.write_text('{"epoch": 2, "loss": 0.5}\n' + "[" * 100_000, encoding="utf-8")
        assert [row["epoch"] for row in focuse.load(folder).history] == [2]  # a crash cut the last line short
        path.write_text("[" * 100_000 + '\n{"epoch": 2, "loss": 0.5}\n', encoding="utf-8")
        self.refuses(folder, path.name, "line 1 was altered")
        path.unlink()
        path.mkdir()
        self.refuses(folder, path.name, "damaged")

    def test_a_folder_without_a_run_is_reported(self, tmp_path):
        for act in (focuse.load, focuse.resume):
            with pytest.raises(FocuseError, match=r"not a run \(no run.toml\)"):
                act(tmp_path / "nothing")

    @pytest.mark.parametrize(
        ("tensors", "metadata", "says"),
        [
            ({"table/entity": torch.zeros(2)}, {"progress": "{}"}, "no tables"),
            ({"other/entity": torch.zeros(2)}, {"progress": "{}"}, "other"),
            ({"table/entity": torch.zeros(2)}, {}, "progress"),
            ({"table/entity": torch.zeros(2)}, {"progress": "{"}, "damaged"),
            ({"table/entity": torch.zeros(2)}, {"progress": '{"day": 3}'}, "day"),
        ],
    )
    def test_a_checkpoint_with_other_contents_is_reported(self, folder, tensors, metadata, says):
        save_file(tensors, older(folder) / "checkpoint.safetensors", metadata)
        self.refuses(folder, "checkpoint.safetensors", says, focuse.resume)


class TestDamagedCheckpoint:
    @pytest.fixture
    def killed(self, small, tmp_path, listen):
        """A training that ended like a power cut in epoch 6, with checkpoints of epochs 4 and 5."""
        listen(interrupt_at(43, Crash))
        with pytest.raises(Crash):
            train(small, tmp_path / "run", checkpoint_every="1")
        return tmp_path / "run"

    def alter(self, path):
        data = bytearray(path.read_bytes())
        data[-3] ^= 1  # in the last table
        path.write_bytes(data)

    def test_without_a_checkpoint_training_begins_again(self, killed, whole, listen):
        self.alter(killed / "checkpoint.safetensors")
        with pytest.raises(FocuseError, match=r"remove it and resume, which trains from the start"):
            focuse.resume(killed, progress=False)
        (killed / "checkpoint.safetensors").unlink()
        focuse.resume(killed, progress=False)
        assert_same_run(killed, whole())

    def test_a_lost_model_is_written_again_from_the_checkpoint(self, small, tmp_path, whole):
        train(small, tmp_path / "run")
        self.alter(tmp_path / "run" / "model.safetensors")
        with pytest.raises(FocuseError, match=r"model.safetensors: damaged .* remove it, the checkpoint has the same"):
            focuse.load(tmp_path / "run")
        (tmp_path / "run" / "model.safetensors").unlink()
        focuse.resume(tmp_path / "run", progress=False)
        assert_same_run(tmp_path / "run", whole())

    def test_an_altered_history_is_reported_and_may_be_removed(self, killed, whole, listen):
        path = killed / "history.jsonl"
        before = path.read_bytes()
        lines = before.splitlines(keepends=True)
        for altered in (before.replace(b"1", b"2", 1), b"".join(lines[:3]), b"", before[:-1] + b"x"):
            path.write_bytes(altered)
            with pytest.raises(
                FocuseError, match=r"history.jsonl: damaged .* or remove it to continue without a history"
            ):
                focuse.load(killed)
        path.unlink()
        for _ in range(2):  # what is done without stays without
            listen(interrupt_at(3, Crash))
            with pytest.raises(Crash):
                focuse.resume(killed)
        listen()
        assert [row["epoch"] for row in focuse.resume(killed).history] == [6, 7, 8]
        assert (killed / "model.safetensors").read_bytes() == (whole() / "model.safetensors").read_bytes()


class TestLocking:
    def test_a_folder_in_use_is_refused_for_writing_but_not_for_reading(self, small, tmp_path, listen):
        refused = []

        def meanwhile(epoch, batches):
            if batches == 20:
                for act in (focuse.resume, lambda folder: focuse.resume(folder, epochs=99)):
                    with pytest.raises(FocuseError, match=r"run: is in use by process \d+ on"):
                        act(tmp_path / "run")
                refused.append(len(focuse.load(tmp_path / "run").history))  # who reads may

        listen(meanwhile)
        train(small, tmp_path / "run", checkpoint_every="1")
        assert refused == [2]
        assert names(tmp_path / "run") == EXPECTED

    def test_a_failed_training_releases_its_lock(self, small, tmp_path, listen):
        listen(interrupt_at(20, Crash))
        with pytest.raises(Crash):
            train(small, tmp_path / "run")
        assert not (tmp_path / "run" / "training.lock").exists()

    def test_of_two_trainings_with_the_same_folder_the_second_is_refused(self, small, tmp_path, monkeypatch):
        publish = RunFolder._move_into_place

        def late(self, path):
            path.mkdir()
            (path / "run.toml").write_text("another's")
            publish(self, path)

        monkeypatch.setattr(RunFolder, "_move_into_place", late)
        with pytest.raises(FocuseError, match=r"run: exists and is not empty; choose another folder"):
            train(small, tmp_path / "run")
        assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_without_checksums_is_resumed(small, tmp_path, whole, listen):
    """As it was written then: none in run.toml, none in tensors, none in history."""
    listen(interrupt_at(27, signal.SIGINT))
    with pytest.raises(Stopped):
        train(small, tmp_path / "run")
    listen()
    folder = older(tmp_path / "run")
    path = folder / "checkpoint.safetensors"
    with safe_open(path, framework="pt") as file:
        progress = {"progress": file.metadata()["progress"]}
    save_file(load_file(path), path, progress)
    rows = [
        {key: row[key] for key in row if key != "crc32"} for row in map(json.loads, (folder / "history.jsonl").open())
    ]
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(focuse.load(folder).history) == 3
    focuse.resume(folder)
    assert_same_run(folder, whole())
    assert "checksums" not in tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))


def test_saving_a_run_is_atomic(small, tmp_path, monkeypatch):
    run = train(small, None)

    create = TensorFile.create

    def failing(self, allocate=False):
        if "model" in self.path.name:
            raise OSError(28, "No space left on device")
        create(self, allocate)

    monkeypatch.setattr(TensorFile, "create", failing)
    with pytest.raises(FocuseError, match=rf"{tmp_path}/run/model.safetensors: cannot be written: No space left"):
        run.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    run.save(tmp_path / "run")
    assert names(tmp_path / "run") == EXPECTED
    assert focuse.load(tmp_path / "run").history == run.history


class TestContents:
    def test_every_setting_is_in_run_toml_resolved(self, whole):
        config = tomllib.loads((whole() / "run.toml").read_text(encoding="utf-8"))
        run = focuse.load(whole())
        assert config["format"] == FORMAT
        assert config["focuse"] == focuse.__version__
        given = {key: value for key, value in run.settings.to_dict().items() if value is not None}
        assert config["settings"] == given
        assert config["settings"]["eval_start"] == 3
        assert {key for key, value in given.items() if value == "auto"} == {"engine"}

    def test_unusual_names_are_kept(self, tmp_path):
        rows = [('x\t"y"\n', "r\\'", f"ä{i}\u2028 \x7f", i / 30) for i in range(30)]
        train(rows, tmp_path / "run", epochs=1, model="distmult")
        again = focuse.load(tmp_path / "run")
        assert again.graph.entities[0] == 'x\t"y"\n'
        assert "ä3\u2028 \x7f" in list(again.graph.entities)

    def test_no_file_is_a_pickle(self, whole):
        assert names(whole()) == EXPECTED
        for path in whole().iterdir():
            assert path.suffix in {".toml", ".parquet", ".safetensors", ".jsonl"}
            assert not path.read_bytes().startswith((b"\x80", b"PK"))  # pickle; torch.save's zip

    def test_the_source_never_pickles(self):
        for path in Path(focuse.__file__).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                imported = []
                if isinstance(node, ast.Import):
                    imported = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    imported = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    # A .pt file of plain tensors is what users of PyTorch ask an export for; nothing of ours reads one.
                    bad = {"torch.load"} if path.name == "export.py" else {"torch.load", "torch.save"}
                    assert f"{node.value.id}.{node.attr}" not in bad, path
                bad = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "torch.load", "torch.save"}
                assert not bad & set(imported), path


@pytest.mark.parametrize(("every", "expected"), [("0", []), ("3", [3, 6]), ("1", [1, 2, 3, 4, 5, 6, 7])])
def test_checkpoints_follow_the_number_of_epochs(small, tmp_path, monkeypatch, every, expected):
    saved = []
    save = RunFolder.save

    def spy(self, checkpoint):
        saved.append((checkpoint.progress.epoch, checkpoint.progress.batch))
        save(self, checkpoint)

    monkeypatch.setattr(RunFolder, "save", spy)
    train(small, tmp_path / "run", checkpoint_every=every)
    assert saved == [*((epoch, 0) for epoch in expected), (8, 0)]


def test_checkpoints_by_the_clock_also_come_within_an_epoch(small, tmp_path, monkeypatch):
    saved = []
    now = [0.0]
    monkeypatch.setattr("focuse.storage.run_folder.time.monotonic", lambda: now[0])
    save, step = RunFolder.save, Trainer._train_batch

    def spy(self, checkpoint):
        saved.append((checkpoint.progress.epoch, checkpoint.progress.batch))
        save(self, checkpoint)

    def slow(self, rows, beta, seed):
        now[0] += 1.0
        return step(self, rows, beta, seed)

    monkeypatch.setattr(RunFolder, "save", spy)
    monkeypatch.setattr(Trainer, "_train_batch", slow)
    run = train(small, tmp_path / "run", checkpoint_every="4s", epochs=2)
    batches = -(-len(run.graph) // 64)
    assert saved[:-1] == [divmod(second, batches) for second in range(4, 2 * batches, 4)]


@pytest.mark.skipif(os.name == "nt", reason="no modes there")
def test_the_umask_decides_who_can_read_the_files(small, tmp_path):
    before = os.umask(0o027)
    try:
        numbers = [(name, "size", place) for place, name in enumerate(small.entities.column.to_pylist())]
        run = train(small, tmp_path / "run", epochs=1, model="literale-distmult", node_attributes=numbers)
        run.predict(head="e1", relation="r1", top=1)
        partitioned = {"engine": "partitioned", "partitions": "4:2", "label_exponent": 1.0}
        focuse.train(small, out=tmp_path / "partitioned", dim=4, epochs=1, progress=False, **partitioned)
    finally:
        os.umask(before)
    found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("**/*") if path.is_file()}
    assert {
        "node_attributes.safetensors",
        "calibration.safetensors",
        "manifest.json",
        "edges.safetensors",
    } <= found.keys()
    assert set(found.values()) == {0o640}


def test_resumed_training_reports_its_starting_epoch(small, tmp_path, listen):
    listen(interrupt_at(9, signal.SIGINT))
    with pytest.raises(Stopped, match="stopped after 1 epoch and 1 batch, saved"):
        train(small, tmp_path / "run")
    recorder = listen()
    focuse.resume(tmp_path / "run")
    assert recorder.notes[0] == f"{tmp_path / 'run'}: resuming after 1 epoch and 1 batch"


def test_a_folder_in_use_is_refused_for_a_new_run(tmp_path):
    lock = ProcessLock.acquire(tmp_path / LOCK)
    with pytest.raises(FocuseError, match=rf"is in use by process {os.getpid()} on .*; choose another folder"):
        RunFolder.ensure_new(tmp_path)
    lock.release()
    (tmp_path / "run.toml").touch()
    with pytest.raises(FocuseError, match="exists and is not empty"):
        RunFolder.ensure_new(tmp_path)


def test_a_folder_that_cannot_be_written_is_not_locked(tmp_path):
    with pytest.raises(FocuseError, match="nothing: cannot be written: No such file"):
        RunFolder(tmp_path / "nothing").lock()


def test_sidecar_files_may_have_the_name_of_an_older_format(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.file_path("label_exponent.json") == tmp_path / "label_exponent.json"
    (tmp_path / "sharpness.json").touch()
    assert folder.file_path("label_exponent.json") == tmp_path / "sharpness.json"
    (tmp_path / "label_exponent.json").touch()
    assert folder.file_path("label_exponent.json") == tmp_path / "label_exponent.json"
