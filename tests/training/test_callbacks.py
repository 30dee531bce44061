"""Callbacks and progress of a training."""

from __future__ import annotations

import io
import json
import signal
import sys
import textwrap

import pytest
import torch

import focuse
from focuse.config import Config
from focuse.errors import FocuseError, Stopped
from focuse.training import callbacks as progress
from focuse.training.callbacks import (
    Callback,
    CallbackFailed,
    LineReporter,
    ProgressBarReporter,
    Reporter,
    format_epoch,
    make_callbacks,
    make_reporter,
)

BASE = {"dim": 4, "batch_size": 100, "label_exponent": 1.0, "eval_every": 2, "patience": 99}
SMALL = BASE | {"progress": False}


class Diary(Callback):
    """Remembers every hook, with what it was told."""

    def __init__(self, log=None, name="", end=None):
        self.log, self.name, self.end = [] if log is None else log, name, end

    def started(self, beginning):
        self.log.append((self.name, "started", beginning))

    def epoch(self, row):
        self.log.append((self.name, "epoch", dict(row)))
        row.clear()  # a copy: nobody else sees this
        torch.rand(3)  # nothing depends on the global generator
        return None if self.end is None else len(self.told("epoch")) == self.end

    def finished(self, run):
        self.log.append((self.name, "finished", run))

    def failed(self, error):
        self.log.append((self.name, "failed", error))

    def told(self, hook):
        return [told for name, which, told in self.log if which == hook and name == self.name]


class Faulty(Callback):
    def __init__(self, hook, at=1):
        self.hook, self.at = hook, at

    def _fail(self, hook, epoch=None):
        if hook == self.hook and epoch in (None, self.at):
            raise ValueError("the disk\nis full")

    def started(self, beginning):
        self._fail("started")

    def epoch(self, row):
        self._fail("epoch", row["epoch"])

    def finished(self, run):
        self._fail("finished")

    def failed(self, error):
        self._fail("failed")


def same(first, second):
    return all(torch.equal(a, second.scorer.tables[name]) for name, a in first.scorer.tables.items())


@pytest.fixture(scope="module")
def plain(small):
    return focuse.train(small, epochs=6, **SMALL)


def without_seconds(history):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in history]


def test_hooks_are_called_in_order_and_do_not_change_the_result(small, plain, tmp_path):
    log = []
    run = focuse.train(small, epochs=6, out=tmp_path / "run", callbacks=[Diary(log, "a"), Diary(log, "b")], **SMALL)
    assert same(run, plain)
    assert without_seconds(run.history) == without_seconds(plain.history)
    assert [(name, hook) for name, hook, _ in log] == [
        *((name, "started") for name in "ab"),
        *((name, "epoch") for _ in range(6) for name in "ab"),
        *((name, "finished") for name in "ab"),
    ]
    beginning = log[0][2]
    assert beginning.settings == run.settings.to_dict()
    assert beginning.rows == {"train": 480, "valid": 60, "test": 60}
    assert (beginning.entities, beginning.relations, beginning.epochs_done) == (40, 3, 0)
    assert beginning.folder == tmp_path / "run"
    assert log[-1][2] is run
    rows = [row for name, hook, row in log if (name, hook) == ("b", "epoch")]
    written = [json.loads(line) for line in (tmp_path / "run/history.jsonl").open(encoding="utf-8")]
    assert rows == run.history == [{key: row[key] for key in row if key != "crc32"} for row in written]
    assert [row["epoch"] for row in rows if "valid_mrr" in row] == [2, 4, 6]


def test_trials_of_label_exponents_call_no_hooks(small):
    diary = Diary()
    focuse.train(small, **SMALL | {"label_exponent": None, "epochs": 3}, callbacks=[diary])
    assert len(diary.told("started")) == 1
    assert [row["epoch"] for row in diary.told("epoch")] == [1, 2, 3]


def test_callback_can_stop_training_and_resume_gives_identical_tables(small, plain, tmp_path):
    later, notes = Diary(), Diary()
    run = focuse.train(small, epochs=6, out=tmp_path / "run", callbacks=[Diary(end=3), later], **SMALL)
    assert len(run.history) == 3
    assert run.last.progress.finished == "stopped by Diary"
    assert later.told("epoch")[-1]["epoch"] == 3  # those after it hear of the epoch as well
    assert later.told("finished") == [run]
    assert same(focuse.load(tmp_path / "run"), run)
    on = focuse.resume(tmp_path / "run", callbacks=[notes], progress=False)
    assert notes.told("started")[0].epochs_done == 3
    assert [row["epoch"] for row in notes.told("epoch")] == [4, 5, 6]
    assert same(on, plain)


def test_only_true_from_a_hook_stops_training(small):
    class Chatty(Callback):
        def epoch(self, row):
            return "yes"

    assert len(focuse.train(small, epochs=2, callbacks=[Chatty()], **SMALL).history) == 2


def test_failing_callback_is_one_line_and_progress_is_saved(small, plain, tmp_path):
    folder, diary = tmp_path / "run", Diary()
    with pytest.raises(CallbackFailed) as caught:
        focuse.train(small, epochs=6, out=folder, callbacks=[diary, Faulty("epoch", 4)], **SMALL)
    assert str(caught.value) == (
        "callback Faulty failed in epoch(): ValueError: the disk is full; the training is saved, continue with: "
        f"focuse train --resume {folder}"
    )
    assert diary.told("failed") == [caught.value]
    assert isinstance(caught.value.__cause__, ValueError)
    assert len(focuse.load(folder).history) == 4
    assert same(focuse.resume(folder, progress=False), plain)


def test_error_of_a_failing_callback_holds_the_unsaved_run(small, plain, tmp_path):
    with pytest.raises(CallbackFailed, match=r"the attribute \.run of the error holds the run") as caught:
        focuse.train(small, epochs=6, callbacks=[Faulty("epoch", 4)], **SMALL)
    assert len(caught.value.run.history) == 4
    caught.value.run.save(tmp_path / "run")
    assert same(focuse.resume(tmp_path / "run", progress=False), plain)


def test_callback_failing_in_the_last_epoch_leaves_a_finished_run(small, plain, tmp_path):
    with pytest.raises(CallbackFailed):
        focuse.train(small, epochs=6, out=tmp_path / "run", callbacks=[Faulty("epoch", 6)], **SMALL)
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert same(focuse.load(tmp_path / "run"), plain)


def test_callback_failing_at_the_start_leaves_no_files(small, tmp_path):
    with pytest.raises(CallbackFailed, match="Faulty failed in started") as caught:
        focuse.train(small, epochs=2, out=tmp_path / "run", callbacks=[Faulty("started")], **SMALL)
    assert caught.value.run is None
    assert list(tmp_path.iterdir()) == []


def test_callback_failing_in_finished_keeps_the_run(small, plain, tmp_path):
    later = Diary()
    with pytest.raises(CallbackFailed, match="the training itself is complete") as caught:
        focuse.train(small, epochs=6, out=tmp_path / "run", callbacks=[Faulty("finished"), later], **SMALL)
    assert same(caught.value.run, plain)
    assert len(later.told("finished")) == 1
    assert same(focuse.load(tmp_path / "run"), plain)


def test_every_callback_sees_an_interrupt_even_if_another_fails(small, tmp_path, listen):
    recorder = listen(lambda epoch, seen: seen == 4 and signal.raise_signal(signal.SIGINT))
    later = Diary()
    with pytest.raises(Stopped):
        focuse.train(small, epochs=6, out=tmp_path / "run", callbacks=[Faulty("failed"), later], **BASE)
    assert isinstance(later.told("failed")[0], Stopped)
    assert later.told("finished") == []
    assert any("callback Faulty failed in failed(): ValueError" in note for note in recorder.notes)


def test_callbacks_from_classes_and_import_paths(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
            import focuse
            class Mine(focuse.Callback): pass
            class Picky(focuse.Callback):
                def __init__(self, colour): pass
            class Other: pass
        """),
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    made = make_callbacks([Callback, "mine:Mine"])
    assert [type(each).__name__ for each in made] == ["Callback", "Mine"]
    assert make_callbacks(made) == made
    assert make_callbacks(made[0]) == [made[0]]
    for wrong, said in [
        ("mine:Min", r"callback 'mine:Min': mine has no class 'Min' \(did you mean Mine\?\)"),
        ("mine:Other", "callback 'mine:Other': is not a focuse.Callback"),
        ("mine:Picky", "callback 'mine:Picky': cannot be created without arguments"),
        ("nowhere:Mine", "there is no module 'nowhere'"),
        ("mine", "write it like package.module:Class"),
        (7, "callback 7: is not a focuse.Callback"),
    ]:
        with pytest.raises(FocuseError, match=said):
            make_callbacks([wrong])
    sys.modules.pop("mine", None)


def test_an_unknown_callback_is_an_error_before_the_graph_is_read(tmp_path):
    with pytest.raises(FocuseError, match="no module 'nowhere'"):
        focuse.train(tmp_path / "missing.tsv", callbacks=["nowhere:Mine"])


# ---- test_progress ----


ROW = {"epoch": 3, "loss": 1.23456, "beta": 0.5, "seconds": 0.1, "valid_mrr": 0.3214}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (ROW, "loss 1.235  β 0.50  valid MRR 0.321"),
        ({"loss": 2.0, "beta": None}, "loss 2"),
        ({"loss": 2.0, "beta": 0.0}, "loss 2  β 0.00"),
    ],
)
def test_epoch_is_formatted_with_loss_beta_and_validation(row, text):
    assert format_epoch(row) == text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_reporter_is_a_bar_on_a_terminal_and_lines_otherwise(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    assert type(make_reporter(True)) is ProgressBarReporter
    assert type(make_reporter(False)) is Reporter
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert type(make_reporter(True)) is LineReporter
    assert type(make_reporter(False)) is Reporter


def test_a_reporter_can_be_given(small):
    class Mine(Reporter):
        def __init__(self):
            self.epochs = []

        def epoch(self, row):
            self.epochs.append(row["epoch"])

    mine = Mine()
    assert make_reporter(mine) is mine
    run = focuse.train(small, dim=4, epochs=2, progress=mine)
    assert run.weight_model is not None
    assert mine.epochs == [1, 2, *(row["epoch"] for row in run.weight_model.history)]


def test_lines_come_every_ten_seconds_and_at_the_end(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    lines = LineReporter()
    lines.note("hello")
    lines.start(Config(epochs=8), 0)
    for epoch in range(1, 9):
        lines.epoch({**ROW, "epoch": epoch})
        now[0] += 4
    shown = capsys.readouterr()
    assert shown.out == ""
    first, *epochs = shown.err.splitlines()
    assert first == "hello"
    assert [line.split()[1] for line in epochs] == ["1/8", "4/8", "7/8", "8/8"]
    assert epochs[0] == "epoch 1/8  loss 1.235  β 0.50  valid MRR 0.321"


def test_a_bar_keeps_the_last_validation_mrr(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    bar = ProgressBarReporter()
    bar.start(Config(epochs=10), 0)
    bar.epoch(ROW)
    bar.step(3, 0.5)
    bar.epoch({"epoch": 4, "loss": 1.0, "beta": 0.25, "seconds": 0.1})
    bar.note("[bold] is not markup")
    bar.stop()
    shown = terminal.getvalue()
    assert "epoch 4/10" in shown
    assert "loss 1  β 0.25  valid MRR 0.321" in shown
    assert "[bold] is not markup" in shown
    assert "left" in shown


def test_progress_false_prints_nothing(small, capfd):
    focuse.train(small, dim=4, epochs=2, progress=False)
    assert capfd.readouterr() == ("", "")


def test_progress_goes_to_stderr(small, capfd):
    focuse.train(small, dim=4, epochs=2)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "epoch 2/2" in shown.err
