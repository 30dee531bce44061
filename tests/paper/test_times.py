"""The time of a cell, and the section of the report on times."""

import time

import pytest

from focuse.paper.document import Grid
from focuse.paper.times import Clock, seconds_of, seconds_of_looks, times_section

HISTORY = [{"seconds": 2.0}, {"seconds": 2.0}, {"seconds": 2.5, "valid_mrr": 0.1}, {"seconds": 1.9, "valid_mse": 0.2}]


def test_validation_time_is_the_extra_time_of_its_epochs() -> None:
    assert seconds_of(HISTORY) == pytest.approx(8.4)
    assert seconds_of_looks(HISTORY) == pytest.approx(0.5)
    assert seconds_of_looks(HISTORY[2:]) == 0.0  # no epoch to compare with
    assert seconds_of_looks([]) == 0.0


def test_clock_adds_up_the_time_of_a_cell(monkeypatch) -> None:
    now = iter([100.0, 110.0, 113.0])
    monkeypatch.setattr(time, "time", lambda: next(now))
    clock = Clock(began=90.0, workers=3)
    clock.before = 7.0  # an earlier command's
    clock.trained()
    assert clock.times(HISTORY) == {
        "training": 7.9,
        "looking": 0.5,
        "judging": 3.0,
        "whole": 20.0,
        "command": 90.0,
        "start": 100.0,
        "end": 113.0,
        "workers": 3,
    }


def test_times_are_shown_per_command_and_cell(make_result) -> None:
    def timed(kind, seed, command, start, end, **more):
        parts = {"training": 10.0 + seed, "looking": 1.0, "judging": 2.0, "whole": end - start}
        return make_result(
            kind=kind, seed=seed, times=parts | {"command": command, "start": start, "end": end, "workers": 4}, **more
        )

    results = [
        timed("plain", 0, 0.0, 30.0, 90.0),
        timed("focuse", 0, 0.0, 31.0, 120.0),
        timed("plain", 1, 0.0, 90.0, 180.0),
        timed("focuse", 1, 600.0, 606.0, 660.0),
        timed("focuse", 0, 600.0, 612.0, 660.0, data="nl27k", form="figure3", changes={"beta_decay_epochs": 0}),
        make_result("cn15k"),  # of an older version
    ]
    commands, parts, cells = (block.rows for block in times_section(results) if isinstance(block, Grid))
    assert commands == [
        ["1970-01-01 00:00", "made up", "4", "3", "3.0"],
        ["1970-01-01 00:10", "made up", "4", "2", "1.0"],
    ]
    assert parts == [
        ["tables 2 to 4", "0", "2", "149", "2.0"],  # from the command's begin on
        ["tables 2 to 4", "1", "2", "144", "2.5"],  # two commands' shares
        ["figure 3", "0", "1", "48", "0.8"],
    ]
    assert len(cells) == 3
    assert cells[0] == ["PPI5K ComplEx", "10.5", "1.0", "2.0", "75.0", "800", "2", "4", "made up"]
    assert times_section([make_result()]) == []
