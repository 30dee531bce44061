"""Experiment trackers: what they store agrees with history.jsonl."""

from __future__ import annotations

import ast
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import focuse
from focuse.errors import FocuseError, Stopped
from focuse.integrations import trackers as tracking
from focuse.integrations.trackers import (
    TRACKERS,
    TensorBoard,
    Tracker,
    make_trackers,
    read_places,
)
from focuse.training.callbacks import Callback, CallbackFailed

SMALL = {"dim": 4, "batch_size": 100, "weight_mode": "focuse", "eval_every": 2, "patience": 99, "progress": False}


class StopAt(Callback):
    """EdgeEndpoints a training, or breaks it off as a crash would."""

    def __init__(self, at, crash=False):
        self.at, self.crash = at, crash

    def epoch(self, row):
        if self.crash and row["epoch"] == self.at:
            raise OSError("crash")
        return row["epoch"] == self.at


class Fake(Tracker):
    """Writes into lists; fails where it is told to."""

    kind, module = "fake", "json"

    def __init__(self, place=None, *, fail=""):
        super().__init__(place)
        self.fail, self.calls, self.figures = fail, [], {}

    def _note(self, what):
        self.calls.append(what)
        if what == self.fail:
            raise ConnectionError("the network\nis gone")

    def begin(self, info, settings, name, before):
        self._note("begin")
        self.settings = settings
        return "7"

    def log(self, figures, epoch):
        self._note("log")

    def close(self, how, metrics):
        self._note(how)
        self.figures = metrics


def history(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()]


def points(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(row["epoch"], row[name]) for row in history(folder) if row.get(name) is not None]


# ---- what all share ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ("tensorbord:logs", r"unknown tracker 'tensorbord' \(did you mean tensorboard\?\)"),
        ("tensorboard", "give its folder, like tensorboard:logs"),
        (["tensorboard:a", "tensorboard:b"], "give each tracker once"),
    ],
)
def test_a_wrong_tracker_is_an_error_before_the_graph_is_read(specs, said):
    with pytest.raises(FocuseError, match=said):
        focuse.train("missing.tsv", track=specs)


@pytest.mark.parametrize("kind", TRACKERS)
def test_a_missing_library_is_one_line_before_the_graph_is_read(kind, monkeypatch):
    def missing(name, *rest):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("focuse.integrations.trackers.import_module", missing)
    with pytest.raises(FocuseError, match=rf"cannot track with {kind} .*pip install .*'\.\[{kind}\]'"):
        focuse.train("missing.tsv", track=f"{kind}:there")


def test_trackers_are_not_imported_unless_asked_for():
    for node in ast.parse(Path(tracking.__file__).read_text(encoding="utf-8")).body:  # those inside functions wait
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & {"mlflow", "wandb", "tensorboard", "torch"}


@pytest.mark.parametrize("fail", ["log", "finished"])
def test_failing_tracker_is_noted_once_and_training_continues(small, listen, fail):
    recorder, fake = listen(), Fake(fail=fail)
    run = focuse.train(small, epochs=3, callbacks=[fake], **SMALL)
    assert len(run.history) == 3
    assert fake.calls[-1] == fail  # and nothing after it
    assert fake.calls.count(fail) == 1
    notes = [note for note in recorder.notes if note.startswith("fake")]
    assert notes == ["fake: ConnectionError: the network is gone; training goes on without it"]


def test_tracker_that_cannot_start_is_an_error_without_files(small, tmp_path):
    with pytest.raises(CallbackFailed, match="callback Fake failed in started"):
        focuse.train(small, epochs=2, out=tmp_path / "run", callbacks=[Fake(fail="begin")], **SMALL)
    assert list(tmp_path.iterdir()) == []


def test_tracker_gets_best_epoch_and_folder(small, tmp_path):
    fake = Fake()
    run = focuse.train(small, epochs=4, out=tmp_path / "run", callbacks=[fake], **SMALL)
    best = max((row for row in run.history if "valid_mrr" in row), key=lambda row: row["valid_mrr"])
    assert fake.figures["best_epoch"] == best["epoch"]
    assert fake.figures["best_valid_mrr"] == best["valid_mrr"]
    assert fake.settings["folder"] == str(tmp_path / "run")
    assert fake.settings["train_rows"] == len(run.splits.train)


def test_tracker_learns_whether_training_stopped_or_failed(small, tmp_path):
    stopped, failed = Fake(), Fake()
    with pytest.raises(Stopped):
        focuse.train(small, epochs=3, out=tmp_path / "run", callbacks=[stopped], deadline=0.0, **SMALL)
    with pytest.raises(CallbackFailed):
        focuse.train(small, epochs=3, callbacks=[failed, StopAt(2, crash=True)], **SMALL)
    assert (stopped.calls[-1], failed.calls[-1]) == ("stopped", "failed")


# ---- TensorBoard ---------------------------------------------------------------------------------------------------


def events(folder: Path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(folder), size_guidance={reader.SCALARS: 0})
    found.Reload()
    return found


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(each.step, each.value) for each in events(folder).Scalars(name)]


def in_float32(found: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(step, float(np.float32(value))) for step, value in found]


def test_tensorboard_holds_the_history(small, tmp_path):
    plugin_data_pb2 = pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2")
    run = focuse.train(small, epochs=4, out=tmp_path / "run", track=f"tensorboard:{tmp_path / 'logs'}", **SMALL)
    folder = tmp_path / "logs" / "run"
    for name in ("loss", "beta", "seconds", "valid_mrr"):
        assert scalars(folder, name) == in_float32(points(tmp_path / "run", name)), name
    found = events(folder)
    started = plugin_data_pb2.HParamsPluginData.FromString(
        found.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    ).session_start_info
    assert started.hparams["model"].string_value == "complex"
    assert started.hparams["dim"].number_value == run.settings.dim
    assert scalars(folder, "end/epochs") == [(4, 4.0)]


def test_tensorboard_continues_in_its_folder_after_resume(small, tmp_path):
    pytest.importorskip("tensorboard")
    run = tmp_path / "run"
    tracked = [TensorBoard(tmp_path / "logs"), StopAt(3, crash=True)]
    with pytest.raises(CallbackFailed):
        focuse.train(small, epochs=6, out=run, callbacks=tracked, checkpoint_every="0", **SMALL)
    assert read_places(run) == {"tensorboard": {"place": str(tmp_path / "logs"), "id": str(tmp_path / "logs" / "run")}}
    focuse.resume(run, track=f"tensorboard:{tmp_path / 'logs'}", progress=False)
    assert [each.name for each in (tmp_path / "logs").iterdir()] == ["run"]
    assert scalars(tmp_path / "logs" / "run", "loss") == in_float32(points(run, "loss"))
    assert len(points(run, "loss")) == 6


def test_epochs_after_the_last_checkpoint_are_not_logged_twice(small, tmp_path):
    pytest.importorskip("tensorboard")
    run, logs = tmp_path / "run", f"tensorboard:{tmp_path / 'logs'}"
    focuse.train(small, epochs=6, out=run, track=logs, callbacks=[StopAt(2)], **SMALL)
    checkpoint = (run / "checkpoint.safetensors").read_bytes()
    focuse.resume(run, track=logs, callbacks=[StopAt(5)], progress=False)
    (run / "checkpoint.safetensors").write_bytes(checkpoint)  # as after a crash that lost epochs 3 to 5
    focuse.resume(run, track=logs, progress=False)
    assert [step for step, _ in scalars(tmp_path / "logs" / "run", "loss")] == [1, 2, 3, 4, 5, 6]


def test_each_training_gets_its_own_tensorboard_folder(small, tmp_path):
    pytest.importorskip("tensorboard")
    logs = f"tensorboard:{tmp_path / 'logs'}"
    for _ in range(2):
        focuse.train(small, epochs=1, track=[logs], **SMALL)
    assert sorted(each.name for each in (tmp_path / "logs").iterdir()) == ["run", "run-2"]
    focuse.train(small, epochs=3, out=tmp_path / "x", track=logs, callbacks=[StopAt(1)], **SMALL)
    focuse.resume(tmp_path / "x", callbacks=[StopAt(2)], progress=False)
    assert len(scalars(tmp_path / "logs" / "x", "loss")) == 1  # no tracker is followed that is not given
    focuse.resume(tmp_path / "x", track=f"tensorboard:{tmp_path / 'others'}", progress=False)
    assert [step for step, _ in scalars(tmp_path / "others" / "x", "loss")] == [3]  # another place is another log


def test_a_damaged_tracking_file_is_one_line(small, tmp_path):
    focuse.train(small, epochs=3, out=tmp_path / "run", callbacks=[StopAt(1)], **SMALL)
    (tmp_path / "run" / "tracking.toml").write_text("[", encoding="utf-8")
    with pytest.raises(FocuseError, match=r"tracking.toml: damaged file"):
        focuse.resume(tmp_path / "run", callbacks=[Fake()], progress=False)


# ---- MLflow and Weights & Biases: slow to import -------------------------------------------------------------------


@pytest.mark.slow
def test_mlflow_holds_the_history_and_continues_after_resume(small, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    trained = focuse.train(small, epochs=5, out=run, track="mlflow:logs.db", callbacks=[StopAt(3)], **SMALL)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'logs.db'}")
    experiment = client.get_experiment_by_name("focuse").experiment_id
    found = client.search_runs([experiment])[0]
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "run"
    assert found.data.params["model"] == "complex"
    assert {name: found.data.params[name] for name in trained.settings.to_dict()} == {
        name: str(value) for name, value in trained.settings.to_dict().items()
    }
    assert found.data.params["train_rows"] == "480"
    checkpoint = (run / "checkpoint.safetensors").read_bytes()
    focuse.resume(run, track="mlflow:logs.db", callbacks=[StopAt(4)], progress=False)
    (run / "checkpoint.safetensors").write_bytes(checkpoint)  # epoch 4 is learnt again
    focuse.resume(run, track="mlflow:logs.db", progress=False)
    assert len(client.search_runs([experiment])) == 1
    for name in ("loss", "beta", "valid_mrr"):
        logged = [(each.step, each.value) for each in client.get_metric_history(found.info.run_id, name)]
        assert sorted(logged) == points(run, name), name
    assert client.get_run(found.info.run_id).data.metrics["epochs"] == 5


def records(path: Path) -> Iterator[bytes]:
    """The records of a W&B file: a LevelDB log in blocks of 32 KiB after seven bytes of its own."""
    data, at, record = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # no room for a header: the rest of a block is empty
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


def offline(folder: Path) -> tuple[list[dict], dict, dict]:
    """Rows of history, config and summary of an offline run, from its file of records."""
    from wandb.proto import wandb_internal_pb2

    def named(items) -> dict:
        return {each.key or each.nested_key[0]: json.loads(each.value_json) for each in items}

    rows, config, summary = [], {}, {}
    for data in records(next(folder.glob("*.wandb"))):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            rows.append(named(record.history.item))
        if record.HasField("run"):
            config |= named(record.run.config.update)
        if record.HasField("summary"):
            summary |= named(record.summary.update)
    return rows, config, summary


@pytest.mark.slow
def test_wandb_offline_holds_the_history(small, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    trained = focuse.train(small, epochs=5, out=run, track="wandb:skills", callbacks=[StopAt(3)], **SMALL)
    assert os.listdir(tmp_path) == ["run"]  # nothing in the working folder
    first = sorted((run / "wandb").glob("offline-run-*"))
    assert len(first) == 1
    rows, config, summary = offline(first[0])
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    for name in ("loss", "beta", "valid_mrr"):
        assert [(row["epoch"], row[name]) for row in rows if name in row] == points(run, name), name
    assert {name: config[name] for name in trained.settings.to_dict()} == trained.settings.to_dict()
    assert summary["epochs"] == 3
    kept = read_places(run)["wandb"]
    assert first[0].name.endswith(kept["id"])
    focuse.resume(run, track="wandb:skills", progress=False)
    again = sorted(set((run / "wandb").glob("offline-run-*")) - set(first))
    assert len(again) == 1
    assert again[0].name.endswith(kept["id"])  # the same run, once both are synchronised
    assert [row["epoch"] for row in offline(again[0])[0]] == [4, 5]


def test_password_in_an_address_is_refused_and_not_shown():
    with pytest.raises(FocuseError, match="MLFLOW_TRACKING_PASSWORD") as error:
        make_trackers("mlflow:https://me:secret@example.org")
    assert "secret" not in str(error.value)
