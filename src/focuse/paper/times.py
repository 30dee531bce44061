"""How long cells took, part by part, and how long the commands that trained them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import fmean, median
from typing import Any

from focuse.paper.cells import Cell
from focuse.paper.document import Block, Grid, Heading, Text
from focuse.paper.results import Result

PARTS = ("training", "looking", "judging", "whole")
NAMES = ("tables 2 to 4", "figure 3", "others")
LOOKS = ("valid_mrr", "valid_mse")


@dataclass
class Clock:
    """Measures one cell of a command that `began` then (time.time) with so many workers.

    `before` are the seconds that an earlier command spent on it.
    """

    began: float
    workers: int
    before: float = 0.0
    start: float = field(default_factory=lambda: time.time())
    end_of_training: float = 0.0

    def trained(self) -> None:
        self.end_of_training = time.time()

    def times(self, history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Seconds of training steps, of looks at validation, of ranking and weighing test, and of everything.

        `command`, `start` and `end` are when the command and the cell began and the cell ended, in seconds since 1970.
        """
        end, looking = time.time(), seconds_of_looks(history)
        seconds = {
            "training": seconds_of(history) - looking,
            "looking": looking,
            "judging": end - self.end_of_training,
            "whole": self.before + end - self.start,
        }
        moments = {"command": self.began, "start": self.start, "end": end}
        return {key: round(value, 3) for key, value in (seconds | moments).items()} | {"workers": self.workers}


def seconds_of(history: Iterable[Mapping[str, Any]]) -> float:
    """Seconds of all epochs, looks at validation included."""
    return float(sum(row["seconds"] for row in history))


def seconds_of_looks(history: Iterable[Mapping[str, Any]]) -> float:
    """What epochs with a look at validation took longer than those without; 0 where there are none without.

    >>> rows = [{"seconds": 1.0}, {"seconds": 1.0}, {"seconds": 1.5, "valid_mrr": 0.1}]
    >>> seconds_of_looks(rows)
    0.5
    """
    looked: dict[bool, list[float]] = {True: [], False: []}
    for row in history:
        looked[any(name in row for name in LOOKS)].append(float(row["seconds"]))
    if not looked[False]:
        return 0.0
    usual = median(looked[False])
    return sum(max(0.0, seconds - usual) for seconds in looked[True])


def times_section(results: Sequence[Result]) -> list[Block]:
    """Commands, tables and cells with their times; nothing for results that have none."""
    timed = [result for result in results if "times" in result.facts]
    if not timed:
        return []
    lead = (
        "Looking is ranking or weighing validation during the training, judging the same with test at its end. Where "
        "several workers share a device, a cell waits for the others in between: its seconds are longer than alone."
    )
    heads = ["began (UTC)", "device", "workers", "cells", "minutes to its last cell"]
    blocks: list[Block] = [Heading(2, "Time"), Text(lead), Grid(heads, _commands(timed), words=2)]
    heads = ["part", "seed", "cells", "seconds of all cells", "minutes by the clock"]
    blocks.append(Grid(heads, _parts(timed), words=1))
    heads = ["time a cell (s, mean over seeds)", *PARTS, "epochs", "seeds", "workers", "device"]
    return [*blocks, Grid(heads, _cells(timed), words=1)]


def _commands(timed: Sequence[Result]) -> list[list[str]]:
    rows = []
    for began, group in sorted(_grouped(timed, lambda result: float(_times(result)["command"])).items()):
        minutes = (max(_times(result)["end"] for result in group) - began) / 60
        when = datetime.fromtimestamp(began, UTC).strftime("%Y-%m-%d %H:%M")
        rows.append([when, _devices(group), _workers(group), str(len(group)), f"{minutes:.1f}"])
    return rows


def _parts(timed: Sequence[Result]) -> list[list[str]]:
    """Tables and figure 3, seed by seed: from the first cell that began (or the command, before it) to the last end."""
    first: dict[float, float] = {}  # of each command
    for result in timed:
        times = _times(result)
        first[times["command"]] = min(times["start"], first.get(times["command"], times["start"]))
    rows = []
    for (part, seed), group in sorted(_grouped(timed, _part).items()):
        minutes = 0.0
        for command, some in _grouped(group, lambda result: _times(result)["command"]).items():
            start = min(_times(result)["start"] for result in some)
            start = command if start == first[command] else start
            minutes += (max(_times(result)["end"] for result in some) - start) / 60
        seconds = sum(_times(result)["whole"] for result in group)
        rows.append([NAMES[part], str(seed), str(len(group)), f"{seconds:,.0f}", f"{minutes:.1f}"])
    return rows


def _cells(timed: Sequence[Result]) -> list[list[str]]:
    rows = []
    for group in _grouped(timed, lambda result: replace(Cell(**result.cell), seed=0).name).values():
        cell = Cell(**group[0].cell)
        name = cell.title + ("" if cell.form == "paper" else f", {cell.form}")
        means = [fmean(float(_times(result)[part]) for result in group) for part in PARTS]
        epochs = fmean(result.facts["epochs"] for result in group)
        seconds = [f"{value:.1f}" for value in means]
        rows.append([name, *seconds, f"{epochs:,.0f}", str(len(group)), _workers(group), _devices(group)])
    return rows


def _part(result: Result) -> tuple[int, int]:
    """Place in NAMES, and seed."""
    cell = result.cell
    place = 1 if cell["form"] == "figure3" else 0 if cell["form"] == "paper" and not cell["changes"] else 2
    return place, int(cell["seed"])


def _times(result: Result) -> dict[str, Any]:
    times: dict[str, Any] = result.facts["times"]
    return times


def _workers(group: Sequence[Result]) -> str:
    return ", ".join(map(str, sorted({_times(result)["workers"] for result in group})))


def _devices(group: Sequence[Result]) -> str:
    return ", ".join(sorted({str(result.facts["device"]) for result in group}))


def _grouped(results: Iterable[Result], key: Any) -> dict[Any, list[Result]]:
    groups: dict[Any, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups
