"""Training the paper's cells: any subset, stopped and resumed at will, finished ones kept.

A folder holds `cells/` (a result each, see results.py), `runs/` (what is being trained) and the report.
"""

from __future__ import annotations

import json
import math
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from focuse import __version__
from focuse.api import Run, resume, train
from focuse.data.datasets import Dataset, load
from focuse.engines.factory import choose_device
from focuse.errors import FocuseError, Stopped
from focuse.paper.cells import Cell
from focuse.paper.choice import Choice
from focuse.paper.report import write_report
from focuse.paper.results import Result, rank_test
from focuse.paper.tables import paper_figures
from focuse.paper.times import Clock, seconds_of
from focuse.paper.weights import companion, soft_logic_file, weigh_test, without_soft_logic
from focuse.paper.workers import Answer, Task, claim, in_order, share
from focuse.storage.run_folder import RunFolder
from focuse.training.callbacks import LineReporter, Reporter, SilentReporter, make_reporter
from focuse.training.validation import best_epoch_row

Say = Callable[[str], None]


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
    workers: int = 1,
) -> Reproduction:
    """Train the chosen cells in `out`, by several `workers` if asked, and write the report of all that folder holds."""
    if workers < 1:
        raise FocuseError(f"workers {workers}: give at least 1")
    worker = Reproducer(out, device, math.inf if budget is None else budget, keep_runs, workers)
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
    """Works through cells in a folder, by itself or with workers."""

    def __init__(
        self, out: Path, device: str = "auto", budget: float = math.inf, keep_runs: bool = False, workers: int = 1
    ) -> None:
        self.out, self.device, self.keep_runs = out, choose_device(device), keep_runs
        self.workers, self.began = workers, time.time()
        self.deadline = time.monotonic() + budget
        self.data: dict[str, Dataset] = {}

    @classmethod
    def of_worker(cls, options: Mapping[str, Any]) -> Reproducer:
        """As `options` describes another, for one of its workers."""
        budget = math.inf if options["until"] is None else options["until"] - time.monotonic()
        made = cls(Path(options["out"]), options["device"], budget, options["keep_runs"], options["workers"])
        made.began = options["began"]
        return made

    def options(self, progress: bool) -> dict[str, Any]:
        """What a worker needs to know; times are the clock's, as every process has them."""
        left = self.deadline - time.monotonic()
        return {
            "out": str(self.out),
            "device": self.device,
            "until": None if math.isinf(left) else time.monotonic() + left,
            "keep_runs": self.keep_runs,
            "workers": self.workers,
            "began": self.began,
            "progress": progress,
        }

    def run(self, choice: Choice, say: Say, progress: bool = True) -> Reproduction:
        """Train what is not finished yet; every result, old and new, of the chosen cells."""
        names = {path.name for path in self.out.iterdir()} if self.out.is_dir() else set()
        if names and not names & {"cells", "runs"}:
            raise FocuseError(f"{self.out}: holds something else; choose another --out")
        cells = choice.cells(self._load(choice, say))
        for folder in (self.out / "cells", self.out / "runs"):
            _make(folder)
        found = {cell.name: result for cell in cells if (result := self.finished(cell)) is not None}
        tasks = {
            cell.name: Task(cell, f"[{place}/{len(cells)}] {cell.title}, seed {cell.seed}")
            for place, cell in enumerate(cells, 1)
            if cell.name not in found
        }
        done = Reproduction(self.out)
        book = Book(done, found, tasks, say, self.workers)
        if self.workers > 1 and len(tasks) > 1:
            self._share(book, progress)
        else:
            self._alone(book, progress)
        done.results = [found[cell.name] for cell in cells if cell.name in found]
        return done

    def _alone(self, book: Book, progress: bool) -> None:
        for task in book.tasks.values():
            if time.monotonic() > self.deadline:
                book.leave()
                continue
            book.say(f"{task.label} …")
            start = time.monotonic()
            try:
                result = self.train(task.cell, self.reporter(progress))
            except Stopped:
                if time.monotonic() <= self.deadline:
                    raise Stopped(f"stopped in {task.label}, saved; the same command goes on") from None
                book.leave()
            except FocuseError as error:
                book.fail(task, str(error))
            else:
                if result is None:
                    book.leave(busy=True)
                else:
                    book.finish(task, result, time.monotonic() - start)

    def _share(self, book: Book, progress: bool) -> None:
        """Let workers do it, which leave their results in the folder."""
        ended: set[str] = set()

        def record(task: Task, answer: Answer) -> None:
            name = task.cell.name
            ended.add(name)
            if "done" in answer:
                book.finish(task, Result.load(self.out / "cells" / f"{name}.json"), float(answer["done"]))
            elif "failed" in answer:
                book.fail(task, str(answer["failed"]))
            else:
                book.leave(busy="busy" in answer)

        order = [book.tasks[cell.name] for cell in in_order([t.cell for t in book.tasks.values()], self.everything())]
        stopped = share(order, self.workers, self.options(progress), book.say, record, self.deadline)
        for name in book.tasks:
            if name not in ended:
                book.leave()
        if stopped:
            raise Stopped(f"stopped, saved; cells left: {book.done.left}; the same command goes on")

    def _load(self, choice: Choice, say: Say) -> list[str]:
        """The chosen data sets that can be had: all of them first, since a missing one should not show after hours."""
        missing = {}
        for name in choice.data:
            if all(self.finished(cell) for cell in choice.cells([name])):
                continue  # nothing left to train on it
            try:
                self._data(name)
            except FocuseError as error:
                if choice.named:
                    raise
                missing[name] = str(error)
                say(f"left out: {error}")
        if len(missing) == len(choice.data):
            raise FocuseError("none of the data sets can be had: " + "; ".join(missing.values()))
        return [name for name in choice.data if name not in missing]

    def _data(self, name: str) -> Dataset:
        """A data set, read once."""
        if name not in self.data:
            self.data[name] = load(name)
        return self.data[name]

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

    def reporter(self, progress: bool, say: Say | None = None) -> Reporter:
        """Who follows a training: on the terminal, or by lines to `say`."""
        if say is None:
            return _Epochs(make_reporter(progress))
        return _Epochs(LineReporter(say) if progress else SilentReporter())

    def train(self, cell: Cell, reporter: Reporter) -> Result | None:
        """One cell, its result kept; None if another process is training it."""
        with claim(self.out / "runs" / f"{cell.name}.claim") as mine:
            if not mine:
                return None
            return self.finished(cell) or self._train(cell, reporter)

    def _train(self, cell: Cell, reporter: Reporter) -> Result:
        """One cell, from its checkpoint if it has one."""
        data, clock = self._data(cell.data), Clock(self.began, self.workers)
        given = cell.settings(len(data.train))
        folder = self.out / "runs" / cell.name
        if folder.exists() and not _began_with(folder, given):
            shutil.rmtree(folder)
        if (folder / "run.toml").is_file():
            clock.before = seconds_of(RunFolder.open(folder).history())
            run = resume(folder, device=self.device, progress=reporter, deadline=self.deadline)
        else:
            run = train(
                data.train,
                valid=data.valid,
                test=data.test,
                inferred_triples=companion(data, "softlogic") if cell.kind == "ukge" else None,
                out=folder,
                progress=reporter,
                deadline=self.deadline,
                device=self.device,
                **given,
            )
        clock.trained()
        test, weights = rank_test(run), weigh_test(run, data)
        facts = _facts(cell, run, given) | {"times": clock.times(run.history)}
        result = Result(cell.to_dict(), facts, test, weights)
        result.save(self.out / "cells", cell.name)
        if not self.keep_runs:
            shutil.rmtree(folder, ignore_errors=True)
        return result


def _facts(cell: Cell, run: Run, given: dict[str, Any]) -> dict[str, Any]:
    best = best_epoch_row(run.history) or {}
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
        "seconds": round(seconds_of(run.history), 1),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else f"{platform.machine()} CPU",
        "torch": torch.__version__,
        "focuse": __version__,
    }


def _began_with(folder: Path, given: dict[str, Any]) -> bool:
    """Whether an unfinished run was begun with these settings; a damaged one was not."""
    try:
        settings, _, _ = RunFolder.open(folder).metadata()
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


# ---- what becomes of a command's cells: finished, failed or left, and what is said of each ---------------------------


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
            f"{Cell(**result.cell).title}, seed {result.cell['seed']}: {describe_result(result)}"
            for result in self.results
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
        self.say(f"{task.label}: {describe_result(result)}{self._time_left()}")

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


def describe_result(result: Result) -> str:
    """'top .951 bottom .487 ΔMRR .464 (paper .95 .49 .46), best epoch 400, 35 s'."""
    test, cell, facts = result.test, result.cell, result.facts
    ours = [test.metrics("top").mrr, test.metrics("bottom").mrr, test.delta_mrr()]
    text = f"top {ours[0]:.3f} bottom {ours[1]:.3f} ΔMRR {ours[2]:.3f}"
    paper = paper_figures(cell["data"], cell["model"], cell["kind"])
    if paper and cell["form"] != "figure3":
        text += f" (paper {paper['top_mrr']:.2f} {paper['bottom_mrr']:.2f} {paper['delta_mrr']:.2f})"
    if without_soft_logic(result):
        text += ", WITHOUT soft logic (no softlogic file beside the splits)"
    if result.weights is None and cell["kind"] == "ukge":
        text += ", weights not judged (no test_with_neg and ndcg files beside the splits)"
    return f"{text}, best epoch {facts['best_epoch']} of {facts['epochs']}, {facts['seconds']:.0f} s"
