"""Progress of a search: a bar, lines, or nothing."""

from __future__ import annotations

import io

import pytest

from focuse.tuning import watching
from focuse.tuning.watching import Bar, Lines, Watch, make_watch


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    return now


def test_progress_is_a_bar_on_a_terminal_and_lines_otherwise(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    assert type(make_watch(True)) is Bar
    assert type(make_watch(False)) is Watch
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert type(make_watch(True)) is Lines


def test_each_trial_prints_a_line_with_best_and_time_left(clock, capsys):
    lines = Lines()
    lines.begin(6, 1)
    clock[0] += 30
    lines.share(0.5)
    lines.ended("trial 1: fine", "0.4000 (trial 0)", 3)  # another process did one as well
    clock[0] += 30
    lines.ended("trial 5: fine", "0.5000 (trial 5)", 6)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "trial 1: fine; best 0.4000 (trial 0); 3 of 6 done, about 0:00:45 left",
        "trial 5: fine; best 0.5000 (trial 5); 6 of 6 done",
    ]


def test_no_estimate_without_finished_trials(clock, capsys):
    lines = Lines()
    lines.begin(6, 2)
    lines.ended("trial 2: interrupted", "none yet", 2)
    assert capsys.readouterr().err == "trial 2: interrupted; best none yet; 2 of 6 done\n"


def test_bar_keeps_printed_lines_and_escapes_markup(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    bar = Bar()
    bar.begin(4, 0)
    bar.share(0.5)
    bar.ended("trial 0: [bold]fine", "0.4000 (trial 0)", 1)
    bar.bar.refresh()
    bar.stop()
    shown = terminal.getvalue()
    assert "trial 0: [bold]fine" in shown
    assert "best 0.4000 (trial 0); 1 of 4 done, about" in shown


def test_disabled_progress_prints_nothing(capfd):
    watch = make_watch(False)
    watch.begin(3, 0)
    watch.note("x")
    watch.share(0.1)
    watch.ended("a", "b", 1)
    watch.stop()
    assert capfd.readouterr() == ("", "")
