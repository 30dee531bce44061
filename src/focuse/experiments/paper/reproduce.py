"""Training the paper's cells: any subset, stopped and resumed at will, finished ones kept.

A folder holds `cells/` (a result each, see results.py), `runs/` (what is being trained) and the report.
"""

from __future__ import annotations

import json
import math
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from focuse import __version__
from focuse.datasets import DataSet, load
from focuse.errors import FocuseError, Stopped
from focuse.experiments.paper.cells import Cell
from focuse.experiments.paper.choice import Choice
from focuse.experiments.paper.report import write_report
from focuse.experiments.paper.results import Result, rank_test
from focuse.experiments.paper.tables import paper_figures
from focuse.experiments.paper.weights import companion, soft_logic_file, weigh_test, without_soft_logic
from focuse.run import Run, choose_device, resume, train
from focuse.training.checkpoints import Store
from focuse.training.progress import Reporter, make_reporter
from focuse.training.stopping import best_look

Say = Callable[[str], None]


@dataclass
class Reproduction:
    """What came of it: finished cells, what went wrong with others, and how many are left to do."""

    out: Path
    results: list[Result] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "report": str(self.out / "report.md"),
            "finished": not self.left and not self.failed,
            "left": self.left,
            "failed": self.failed,
            "cells": [result.to_dict() for result in self.results],
        }

    def __str__(self) -> str:
        lines = [
            f"{Cell(**result.cell).title}, seed {result.cell['seed']}: {describe(result)}" for result in self.results
        ]
        if self.left:
            lines.append(f"time is up, cells left: {self.left}; the same command goes on")
        if (self.out / "report.md").exists():
            lines.append(f"report: {self.out / 'report.md'}, report.html, report.json")
        return "\n".join(lines)


def reproduce(
    choice: Choice,
    out: Path,
    command: str = "focuse reproduce",
    say: Say = lambda text: None,
    *,
    budget: float | None = None,
    device: str = "auto",
    progress: bool = True,
    keep_runs: bool = False,
    report_only: bool = False,
) -> Reproduction:
    """Train the chosen cells in `out` and write the report of every cell that folder holds."""
    worker = Reproducer(out, device, math.inf if budget is None else budget, keep_runs)
    done = Reproduction(out)
    try:
        if not report_only:
            done = worker.run(choice, say, progress)
    finally:  # also on Ctrl-C: what is finished is worth a report
        finished = worker.everything()
        if finished:
            write_report(finished, out, worker.about(command, finished))
    if report_only:
        done.results = finished
    if not finished and not done.left:
        reasons = "; ".join(done.failed.values())
        raise FocuseError(f"{out}: no cell finished" + (f": {reasons}" if reasons else "; there is nothing to report"))
    return done


class Reproducer:
    """Works through cells in a folder."""

    def __init__(self, out: Path, device: str = "auto", budget: float = math.inf, keep_runs: bool = False) -> None:
        self.out, self.device, self.keep_runs = out, choose_device(device), keep_runs
        self.deadline = time.monotonic() + budget
        self.data: dict[str, DataSet] = {}

    def run(self, choice: Choice, say: Say, progress: bool = True) -> Reproduction:
        """Train what is not finished yet; every result, old and new, of the chosen cells."""
        names = {path.name for path in self.out.iterdir()} if self.out.is_dir() else set()
        if names and not names & {"cells", "runs"}:
            raise FocuseError(f"{self.out}: holds something else; choose another --out")
        cells = choice.cells(self._load(choice, say))
        for folder in (self.out / "cells", self.out / "runs"):
            _make(folder)
        done = Reproduction(self.out)
        trained: list[float] = []
        for place, cell in enumerate(cells, 1):
            result = self.finished(cell)
            if result is None and time.monotonic() > self.deadline:
                done.left += 1
                continue
            label = f"[{place}/{len(cells)}] {cell.title}, seed {cell.seed}"
            if result is None:
                say(f"{label} …")
                start = time.monotonic()
                try:
                    result = self._train(cell, progress)
                except Stopped:
                    if time.monotonic() <= self.deadline:
                        raise Stopped(f"stopped in {label}, saved; the same command goes on") from None
                    done.left += 1
                    continue
                except FocuseError as error:
                    done.failed[cell.name] = str(error)
                    say(f"{label}: {error}")
                    continue
                trained.append(time.monotonic() - start)
                say(f"{label}: {describe(result)}{_time_left(trained, [c for c in cells[place:] if not self._has(c)])}")
            done.results.append(result)
        return done

    def _load(self, choice: Choice, say: Say) -> list[str]:
        """The chosen data sets that can be had: all of them first, since a missing one should not show after hours."""
        missing = {}
        for name in choice.data:
            if all(self.finished(cell) for cell in choice.cells([name])):
                continue  # nothing left to train on it
            try:
                self.data[name] = load(name)
            except FocuseError as error:
                if choice.named:
                    raise
                missing[name] = str(error)
                say(f"left out: {error}")
        if len(missing) == len(choice.data):
            raise FocuseError("none of the data sets can be had: " + "; ".join(missing.values()))
        return [name for name in choice.data if name not in missing]

    def everything(self) -> list[Result]:
        """Every result in the folder, also of other commands."""
        return [Result.load(path) for path in sorted((self.out / "cells").glob("*.json"))]

    def about(self, command: str, results: Sequence[Result]) -> dict[str, Any]:
        """What a report says of its making."""
        return {
            "report by": command,
            "device": sorted({str(result.facts["device"]) for result in results}),
            "torch": sorted({str(result.facts["torch"]) for result in results}),
            "focuse": __version__,
            "cells": len(results),
            "hours": round(sum(float(result.facts["seconds"]) for result in results) / 3600, 3),
        }

    def finished(self, cell: Cell) -> Result | None:
        """The cell's result, if it was made with the settings it would get today."""
        if not self._has(cell):
            return None
        result = Result.load(self.out / "cells" / f"{cell.name}.json")
        given = cell.settings(int(result.facts.get("rows", 0)))
        if without_soft_logic(result) and soft_logic_file(cell.data) is not None:
            return None  # it was trained before the file was there
        return result if result.facts.get("given") == _plain(given) else None

    def _has(self, cell: Cell) -> bool:
        return (self.out / "cells" / f"{cell.name}.json").is_file()

    def _train(self, cell: Cell, progress: bool) -> Result:
        """One cell, from its checkpoint if it has one."""
        data = self.data[cell.data]
        given = cell.settings(len(data.train))
        folder = self.out / "runs" / cell.name
        reporter = _Epochs(make_reporter(progress))
        if folder.exists() and not _began_with(folder, given):
            shutil.rmtree(folder)
        if (folder / "run.toml").is_file():
            run = resume(folder, device=self.device, progress=reporter, deadline=self.deadline)
        else:
            run = train(
                data.train,
                valid=data.valid,
                test=data.test,
                soft_logic=companion(data, "softlogic") if cell.kind == "ukge" else None,
                out=folder,
                progress=reporter,
                deadline=self.deadline,
                device=self.device,
                **given,
            )
        result = Result(cell.to_dict(), _facts(cell, run, given), rank_test(run), weigh_test(run, data))
        result.save(self.out / "cells", cell.name)
        if not self.keep_runs:
            shutil.rmtree(folder, ignore_errors=True)
        return result


def _facts(cell: Cell, run: Run, given: dict[str, Any]) -> dict[str, Any]:
    best = best_look(run.history) or {}
    inferred = run.splits.inferred
    device = run.settings.device
    return {
        "given": _plain(given),
        "settings": run.settings.to_dict(),
        "departures": cell.departures,
        "rows": len(run.graph),
        "epochs": len(run.history),
        "best_epoch": best.get("epoch"),
        "valid_mrr": best.get("valid_mrr"),
        "valid_mse": best.get("valid_mse"),
        "inferred": 0 if inferred is None else len(inferred),
        "seconds": round(sum(row["seconds"] for row in run.history), 1),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else f"{platform.machine()} CPU",
        "torch": torch.__version__,
        "focuse": __version__,
    }


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


def _time_left(trained: list[float], todo: Sequence[Cell]) -> str:
    minutes = len(todo) * sum(trained) / len(trained) / 60
    return f"; cells left: {len(todo)}, about {minutes:.0f} min" if todo else ""


def _began_with(folder: Path, given: dict[str, Any]) -> bool:
    """Whether an unfinished run was begun with these settings; a damaged one was not."""
    try:
        settings, _, _ = Store.open(folder).fixed()
    except FocuseError:
        return False
    return all(getattr(settings, key) == value for key, value in given.items())


def _plain(given: dict[str, Any]) -> Any:
    """As JSON will have it, for comparisons."""
    return json.loads(json.dumps(given))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FocuseError(f"{folder}: {error.strerror or error}; choose an --out that can be written") from None


class _Epochs:
    """A cell's progress without its notes: they are the same for every cell of a data set."""

    def __init__(self, inner: Reporter) -> None:
        self.inner = inner
        self.start, self.step, self.epoch, self.stop = inner.start, inner.step, inner.epoch, inner.stop

    def note(self, text: str) -> None: ...
