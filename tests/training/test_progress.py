from __future__ import annotations

import io

import pytest

import focuse
from focuse.training import progress
from focuse.training.progress import Bar, Lines, Silent, describe, make_reporter
from focuse.training.settings import Settings

ROW = {"epoch": 3, "loss": 1.23456, "beta": 0.5, "seconds": 0.1, "valid_mrr": 0.3214}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (ROW, "loss 1.235  β 0.50  valid MRR 0.321"),
        ({"loss": 2.0, "beta": None}, "loss 2"),
        ({"loss": 2.0, "beta": 0.0}, "loss 2  β 0.00"),
    ],
)
def test_describe(row, text):
    assert describe(row) == text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal_lines_elsewhere_nothing_if_not_wanted(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    assert type(make_reporter(True)) is Bar
    assert type(make_reporter(False)) is Silent
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert type(make_reporter(True)) is Lines
    assert type(make_reporter(False)) is Silent


def test_a_reporter_is_taken_as_it_is(small):
    class Mine(Silent):
        def __init__(self):
            self.epochs = []

        def epoch(self, row):
            self.epochs.append(row["epoch"])

    mine = Mine()
    assert make_reporter(mine) is mine
    focuse.train(small, dim=4, epochs=2, progress=mine)
    assert mine.epochs == [1, 2]


def test_lines_come_every_ten_seconds_and_at_the_end(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    lines = Lines()
    lines.note("hello")
    lines.start(Settings(epochs=8), 0)
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
    bar = Bar()
    bar.start(Settings(epochs=10), 0)
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


def test_nothing_is_printed_when_not_wanted(small, capfd):
    focuse.train(small, dim=4, epochs=2, progress=False)
    assert capfd.readouterr() == ("", "")


def test_stdout_is_left_to_results(small, capfd):
    focuse.train(small, dim=4, epochs=2)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "epoch 2/2" in shown.err
