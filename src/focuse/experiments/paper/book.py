"""What becomes of a command's cells: finished, failed or left, and what is said of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focuse.experiments.paper.cells import Cell
from focuse.experiments.paper.results import Result
from focuse.experiments.paper.tables import paper_figures
from focuse.experiments.paper.weights import without_soft_logic
from focuse.experiments.paper.workers import Task


@dataclass
class Reproduction:
    """What came of it: finished cells, what went wrong with others, and how many are left to do.

    Of those left, `busy` are being trained by another command.
    """

    out: Path
    results: list[Result] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0
    busy: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "report": str(self.out / "report.md"),
            "finished": not self.left and not self.failed,
            "left": self.left,
            "busy": self.busy,
            "failed": self.failed,
            "cells": [result.to_dict() for result in self.results],
        }

    def __str__(self) -> str:
        lines = [
            f"{Cell(**result.cell).title}, seed {result.cell['seed']}: {describe(result)}" for result in self.results
        ]
        if self.busy:
            lines.append(f"cells that another command is training: {self.busy}")
        if self.left > self.busy:
            lines.append(f"time is up, cells left: {self.left - self.busy}; the same command goes on")
        if (self.out / "report.md").exists():
            lines.append(f"report: {self.out / 'report.md'}, report.html, report.json")
        return "\n".join(lines)


@dataclass
class Book:
    """What becomes of the tasks of a command."""

    done: Reproduction
    found: dict[str, Result]
    tasks: dict[str, Task]
    say: Callable[[str], None]
    workers: int
    seconds: list[float] = field(default_factory=list)

    def finish(self, task: Task, result: Result, seconds: float) -> None:
        self.found[task.cell.name] = result
        self.seconds.append(seconds)
        self.say(f"{task.label}: {describe(result)}{self._time_left()}")

    def fail(self, task: Task, why: str) -> None:
        self.done.failed[task.cell.name] = why
        self.say(f"{task.label}: {why}")

    def leave(self, busy: bool = False) -> None:
        self.done.left += 1
        self.done.busy += busy

    def _time_left(self) -> str:
        todo = sum(name not in self.found and name not in self.done.failed for name in self.tasks)
        minutes = todo * sum(self.seconds) / len(self.seconds) / 60 / self.workers
        return f"; cells left: {todo}, about {minutes:.0f} min" if todo else ""


def describe(result: Result) -> str:
    """'top .951 bottom .487 ΔMRR .464 (paper .95 .49 .46), best epoch 400, 35 s'."""
    test, cell, facts = result.test, result.cell, result.facts
    ours = [test.figures("top").mrr, test.figures("bottom").mrr, test.delta_mrr()]
    text = f"top {ours[0]:.3f} bottom {ours[1]:.3f} ΔMRR {ours[2]:.3f}"
    paper = paper_figures(cell["data"], cell["model"], cell["kind"])
    if paper and cell["form"] != "figure3":
        text += f" (paper {paper['top_mrr']:.2f} {paper['bottom_mrr']:.2f} {paper['delta_mrr']:.2f})"
    if without_soft_logic(result):
        text += ", WITHOUT soft logic (no softlogic file beside the splits)"
    if result.weights is None and cell["kind"] == "ukge":
        text += ", weights not judged (no test_with_neg and ndcg files beside the splits)"
    return f"{text}, best epoch {facts['best_epoch']} of {facts['epochs']}, {facts['seconds']:.0f} s"
