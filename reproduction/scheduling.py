"""Train cells of the grid, in one process or several, stop and resume at any time.

The output folder has `cells/` (the results), `runs/` (trainings in progress) and the report.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from focuse import __version__
from focuse.api import Run, resume, train
from focuse.data.datasets import Dataset, load
from focuse.engines.factory import choose_device
from focuse.errors import FocuseError, Stopped
from focuse.storage.atomic import ProcessLock
from focuse.storage.run_folder import RunFolder
from focuse.system import interruptible
from focuse.training.callbacks import LineReporter, Reporter, make_reporter
from focuse.training.validation import best_epoch_row
from reproduction.grid import Cell, published_results
from reproduction.report import write_report
from reproduction.results import RankedTest, Result, data_file, evaluate_weights, lacks_inferred_triples

Note = Callable[[str], None]
load_once = lru_cache(load)  # data sets stay in memory


def reproduce(
    cells: Sequence[Cell],
    out: Path,
    *,
    command: str = "python -m reproduction",
    note: Note = lambda text: None,
    time_limit: float | None = None,
    device: str = "auto",
    workers: int = 1,
    keep_runs: bool = False,
    report_only: bool = False,
    skip_missing_data: bool = False,
    load: Callable[[str], Dataset] = load_once,
    progress: bool = True,
) -> ProgressLog:
    """Train the cells that are not finished in the folder `out`, and write a report on all finished cells there.

    The report shows `command`; `note` shows a line to the user. After `time_limit` seconds, trainings are saved and
    stopped. `workers` processes train cells at the same time. With `keep_runs`, the trained models are kept, and with
    `report_only` nothing is trained. With `skip_missing_data`, data sets that `load` does not find are left out.
    """
    if workers < 1:
        raise FocuseError(f"workers {workers}: give at least 1")
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / "cells").exists())):
        raise FocuseError(f"{out}: is not the folder of a reproduction; choose another folder")
    deadline = time.monotonic() + (math.inf if time_limit is None else time_limit)
    trainer = CellTrainer(out, choose_device(device), deadline, keep_runs, workers, load)
    log = ProgressLog(out, [] if report_only else _with_data(trainer, cells, skip_missing_data, note), note)
    log.results = {cell.name: result for cell in log.cells if (result := trainer.finished(cell)) is not None}
    remaining = [cell for cell in log.cells if cell.name not in log.results]
    try:
        if workers > 1 and len(remaining) > 1:
            _train_in_processes(trainer, remaining, log, progress)
        else:
            _train_in_this_process(trainer, remaining, log, lambda cell: make_reporter(progress))
    finally:  # also after Ctrl-C
        finished = [Result.load(path) for path in sorted((out / "cells").glob("*.json"))]
        if finished:
            write_report(finished, out, {"command": command, "focuse": __version__})
    if report_only:
        log.results = {result.cell.name: result for result in finished}
    if not finished and not log.left:
        reasons = "; ".join(log.failed.values())
        raise FocuseError(f"{out}: no cell is finished; {reasons or 'there is nothing to report'}")
    return log


def _with_data(trainer: CellTrainer, cells: Sequence[Cell], skip_missing: bool, note: Note) -> list[Cell]:
    """Return the cells whose data sets are available; all are loaded first, so that a missing one is reported early."""
    missing: dict[str, str] = {}
    for name in dict.fromkeys(cell.data for cell in cells if trainer.finished(cell) is None):
        try:
            trainer.load(name)
        except FocuseError as error:
            if not skip_missing:
                raise
            missing[name] = str(error)
            note(f"left out: {error}")
    found = [cell for cell in cells if cell.data not in missing]
    if not found:
        raise FocuseError(f"none of the data sets is available: {'; '.join(missing.values())}")
    for folder in (trainer.out / "cells", trainer.out / "runs"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FocuseError(f"{folder}: {error.strerror or error}; choose a writable folder") from None
    return found


@dataclass
class ProgressLog:
    """What becomes of the cells of a command: `results` by name, `failed` with reasons; the others are left to do.

    Of the cells left, `busy` are being trained by another command.
    """

    out: Path
    cells: list[Cell]
    note: Note
    results: dict[str, Result] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    busy: int = 0

    @property
    def left(self) -> int:
        """The number of cells that are neither finished nor failed."""
        return sum(cell.name not in self.results and cell.name not in self.failed for cell in self.cells)

    def label(self, cell: Cell) -> str:
        """Return the title of a cell with its number, like '[2/12] PPI5K ComplEx, seed 0'."""
        return f"[{self.cells.index(cell) + 1}/{len(self.cells)}] {cell.title}, seed {cell.seed}"

    def train(self, cell: Cell, trainer: CellTrainer, reporter: Reporter) -> None:
        """Train a cell, unless another process is training it, and record what becomes of it."""
        try:
            result = trainer.train(cell, reporter, lambda: self.note(f"{self.label(cell)} …"))
        except Stopped:
            raise
        except FocuseError as error:
            self.failed[cell.name] = text = str(error)
        else:
            if result is None:
                self.busy += 1
                return
            self.results[cell.name], text = result, describe_result(result)
        self.note(f"{self.label(cell)}: {text}{f'; cells left: {self.left}' if self.left else ''}")

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "report": str(self.out / "report.md"),
            "finished": not self.left and not self.failed,
            "left": self.left,
            "busy": self.busy,
            "failed": self.failed,
            "cells": [result.to_dict() for result in self.results.values()],
        }

    def __str__(self) -> str:
        lines = [f"{each.cell.title}, seed {each.cell.seed}: {describe_result(each)}" for each in self.results.values()]
        if self.busy:
            lines.append(f"cells that another command is training: {self.busy}")
        if self.left > self.busy:
            lines.append(f"time limit reached, cells left: {self.left - self.busy}; continue with the same command")
        if (self.out / "report.md").exists():
            lines.append(f"report: {self.out / 'report.md'}, report.json")
        return "\n".join(lines)


def describe_result(result: Result) -> str:
    """Return a line such as 'top 0.951 bottom 0.487 ΔMRR 0.464 (paper 0.95 0.49 0.46), best epoch 400 of 800, 35 s'."""
    test, cell, info = result.test, result.cell, result.info
    mrr = [test.metrics("top").mrr, test.metrics("bottom").mrr, test.delta_mrr()]
    text = f"top {mrr[0]:.3f} bottom {mrr[1]:.3f} ΔMRR {mrr[2]:.3f}"
    paper = published_results(cell.data, cell.model, cell.kind)
    if paper and cell.form != "figure3":
        text += f" (paper {paper['top_mrr']:.2f} {paper['bottom_mrr']:.2f} {paper['delta_mrr']:.2f})"
    if lacks_inferred_triples(result):
        text += ", WITHOUT inferred triples (the data set has no file softlogic)"
    return f"{text}, best epoch {info['best_epoch']} of {info['epochs']}, {info['seconds']:.0f} s"


# ---- training -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellTrainer:
    """Trains single cells; `deadline` is a time of time.monotonic, which all processes share."""

    out: Path
    device: str
    deadline: float = math.inf
    keep_runs: bool = False
    workers: int = 1
    load: Callable[[str], Dataset] = load_once

    def finished(self, cell: Cell) -> Result | None:
        """Return the stored result of a cell if it was trained with the settings that the cell has now."""
        path = self.out / "cells" / f"{cell.name}.json"
        if not path.is_file():
            return None
        result = Result.load(path)
        if lacks_inferred_triples(result) and data_file(self.load(cell.data).folder, "softlogic") is not None:
            return None  # it was trained before the file was there
        return result if result.info.get("given") == _as_json(cell.settings(int(result.info.get("rows", 0)))) else None

    def train(self, cell: Cell, reporter: Reporter, start: Callable[[], None] = lambda: None) -> Result | None:
        """Train a cell, or continue its training, and store the result; None if another process is training it.

        `start` is called before a cell is trained that is not finished yet.
        """
        lock = ProcessLock.acquire(self.out / "runs" / f"{cell.name}.lock", timeout=0)
        if lock is None:
            return None
        try:
            if (result := self.finished(cell)) is not None:
                return result
            start()
            return self._train(cell, EpochReporter(reporter))
        finally:
            lock.release()

    def _train(self, cell: Cell, reporter: Reporter) -> Result:
        data, folder = self.load(cell.data), self.out / "runs" / cell.name
        given = cell.settings(len(data.train))
        if folder.exists() and not _was_started_with(folder, given):
            shutil.rmtree(folder)
        shared: dict[str, Any] = {"device": self.device, "progress": reporter, "deadline": self.deadline}
        if folder.exists():
            run = resume(folder, **shared)
        else:
            inferred = data_file(data.folder, "softlogic") if cell.kind == "ukge" else None
            parts: dict[str, Any] = {"valid": data.valid, "test": data.test, "inferred_triples": inferred}
            run = train(data.train, **parts, out=folder, **shared, **given)
        result = Result(cell, _describe_training(cell, run, given), RankedTest.rank(run), evaluate_weights(run, data))
        result.save(self.out / "cells")
        if not self.keep_runs:
            shutil.rmtree(folder, ignore_errors=True)
        return result


class EpochReporter(Reporter):
    """Shows the epochs of a training without its notes, which are the same for all cells of a data set."""

    def __init__(self, shown: Reporter) -> None:
        for name in ("start", "step", "epoch", "stop"):
            setattr(self, name, getattr(shown, name))


def _describe_training(cell: Cell, run: Run, given: dict[str, Any]) -> dict[str, Any]:
    best = best_epoch_row(run.history) or {}
    device, inferred = run.settings.device, run.splits.inferred
    return {
        "given": _as_json(given),
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


def _was_started_with(folder: Path, given: dict[str, Any]) -> bool:
    """Return whether an unfinished run has these settings; False if it is damaged."""
    try:
        settings, _, _ = RunFolder.open(folder).metadata()
    except FocuseError:
        return False
    return all(getattr(settings, key) == value for key, value in given.items())


def _as_json(settings: dict[str, Any]) -> Any:
    """Return the settings as JSON restores them, for comparisons."""
    return json.loads(json.dumps(settings))


def _train_in_this_process(
    trainer: CellTrainer, cells: Sequence[Cell], log: ProgressLog, reporter: Callable[[Cell], Reporter]
) -> None:
    for cell in cells:
        try:
            if time.monotonic() <= trainer.deadline:
                log.train(cell, trainer, reporter(cell))
        except Stopped:
            if time.monotonic() <= trainer.deadline:
                raise Stopped(f"stopped in {log.label(cell)}, saved; continue with the same command") from None


# ---- several processes ----------------------------------------------------------------------------------------------


def _train_in_processes(trainer: CellTrainer, cells: Sequence[Cell], log: ProgressLog, progress: bool) -> None:
    """Train cells in worker processes, each of which takes those that no other one has locked or finished."""
    context = multiprocessing.get_context("spawn")  # a GPU cannot be used after a fork
    failed: Any = context.SimpleQueue()
    arguments = (trainer, sorted(cells, key=_schedule), log.cells, progress, failed)
    workers = [context.Process(target=_work, args=arguments) for _ in range(min(trainer.workers, len(cells)))]
    with interruptible() as interrupted:
        for worker in workers:
            worker.start()
        running, stopped = list(workers), False
        while running:
            if interrupted.is_set() and not stopped:
                stopped = True
                for worker in running:
                    os.kill(worker.pid or 0, signal.SIGINT)
            running[0].join(0.1)
            running = [worker for worker in running if worker.is_alive()]
    while not failed.empty():
        log.failed |= failed.get()
    log.results |= {cell.name: result for cell in cells if (result := trainer.finished(cell)) is not None}
    if stopped:
        raise Stopped(f"stopped, saved; cells left: {log.left}; continue with the same command")
    if any(worker.exitcode for worker in workers):
        left = [cell.name for cell in cells if cell.name not in log.results and cell.name not in log.failed]
        log.failed |= dict.fromkeys(left, "its process ended unexpectedly")
    log.busy = log.left if time.monotonic() <= trainer.deadline else 0


def _schedule(cell: Cell) -> tuple[bool, int, int]:
    """Return the order of cells: tables before figure 3, seed by seed, long trainings before short ones."""
    settings = cell.settings(100_000)
    return cell.form == "figure3", cell.seed, -settings.get("epochs", 50) * settings.get("dim", 100)


def _work(trainer: CellTrainer, cells: Sequence[Cell], listed: list[Cell], progress: bool, failed: Any) -> None:
    """Train cells in a worker process until none is left, or until the command is stopped or killed."""
    if start_session := getattr(os, "setsid", None):  # Windows does not have it
        start_session()  # Ctrl-C in a terminal interrupts the command only, which passes it on
    threading.Thread(target=_stop_with_command, daemon=True).start()
    if trainer.device.startswith("cuda"):  # on a CPU, results depend on the number of threads
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // trainer.workers))

    def note(text: str) -> None:
        if progress:
            print(text, file=sys.stderr, flush=True)

    def reporter(cell: Cell) -> Reporter:
        return LineReporter(lambda text: note(f"{log.label(cell)}: {text}"))

    log = ProgressLog(trainer.out, listed, note)
    with suppress(Stopped, KeyboardInterrupt):
        _train_in_this_process(trainer, cells, log, reporter)
    failed.put(log.failed)


def _stop_with_command() -> None:
    """Stop this process as Ctrl-C does, which saves its training, when the command was killed."""
    command = multiprocessing.parent_process()
    if command is not None:
        command.join()
        os.kill(os.getpid(), signal.SIGINT)
