"""Cells are trained, stopped, resumed and kept, in one process and in several."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from small_datasets import load_for_a_process_that_dies, load_small

import focuse
from focuse.errors import FocuseError
from focuse.storage.atomic import ProcessLock
from focuse.training.callbacks import Reporter
from reproduction.grid import Cell, select_cells
from reproduction.scheduling import CellTrainer, reproduce

SMALL = "dim=4 epochs=3 num_negatives=8 batch_size=64"
ENDLESS = "dim=4 epochs=1000000 patience=1000000 num_negatives=8 batch_size=64"
COMMAND = """
import sys
from pathlib import Path
from small_datasets import load_small
from reproduction.grid import select_cells
from reproduction.scheduling import reproduce
if __name__ == "__main__":
    cells = select_cells(["ppi5k"], ["complex"], overrides=[sys.argv[2]], quick=True)
    reproduce(cells, Path(sys.argv[1]), workers=int(sys.argv[3]), load=load_small)
"""


def cells(*data: str, override: str = SMALL, **options) -> list[Cell]:
    return select_cells(data or None, ["complex"], overrides=[override], quick=True, **options)


def run(chosen, out: Path, **options):
    return reproduce(chosen, out, **{"load": load_small, "progress": False} | options)


def test_cells_are_trained_and_reported(tmp_path) -> None:
    notes: list[str] = []
    log = run(cells("ppi5k"), tmp_path, note=notes.append)
    plain, focused = log.results.values()
    assert (plain.cell.kind, focused.cell.kind, log.left) == ("plain", "focuse", 0)
    assert (plain.info["settings"]["weight_mode"], focused.info["settings"]["weight_mode"]) == ("none", "focuse")
    assert (focused.info["settings"]["dim"], focused.info["settings"]["negative_sampling"]) == (4, "shared")
    assert {path.name for path in tmp_path.iterdir()} >= {"report.md", "report.json", "cells"}
    assert not any((tmp_path / "runs").iterdir())
    assert notes[0].startswith("[1/2] PPI5K ComplEx")
    assert "cells left: 1" in notes[1]
    assert "paper 0.97" in notes[1]
    json.dumps(log.to_dict(), allow_nan=False)


def test_finished_cells_are_not_trained_again(tmp_path) -> None:
    loaded: list[str] = []

    def load(name: str):
        loaded.append(name)
        return load_small(name)

    first = run(cells("ppi5k", kinds=["plain"]), tmp_path)
    both = run(cells("ppi5k"), tmp_path)
    (name,) = first.results
    assert both.results[name].info == first.results[name].info
    assert len(run(cells("ppi5k"), tmp_path, load=load).results) == 2
    assert loaded == []  # nothing to train: the data is not even loaded
    (trained,) = cells("ppi5k", kinds=["plain"])
    again = CellTrainer(tmp_path, "cpu", load=load_small).train(trained, Reporter())
    assert again is not None
    assert again.info == first.results[name].info


def test_cell_whose_settings_changed_is_trained_again(tmp_path) -> None:
    (before,) = run(cells("ppi5k", kinds=["plain"]), tmp_path).results.values()
    (path,) = (tmp_path / "cells").glob("*.json")
    data = json.loads(path.read_text())
    data["info"]["given"]["lr"] = 0.5
    path.write_text(json.dumps(data))
    (again,) = run(cells("ppi5k", kinds=["plain"]), tmp_path).results.values()
    assert again.info["given"] == before.info["given"]


def test_report_includes_results_of_other_commands(tmp_path) -> None:
    run(cells("ppi5k", kinds=["plain"]), tmp_path)
    run(cells("nl27k", kinds=["plain"]), tmp_path)
    log = run(cells("cn15k"), tmp_path, report_only=True)
    assert [result.cell.data for result in log.results.values()] == ["nl27k", "ppi5k"]
    assert json.loads((tmp_path / "report.json").read_text())["about"]["cells"] == 2


def test_time_limit_saves_the_training(tmp_path) -> None:
    log = run(cells("ppi5k", override=ENDLESS), tmp_path, time_limit=2.0)
    assert (log.left, log.results, log.to_dict()["finished"]) == (2, {}, False)
    assert "time limit reached, cells left: 2; continue with the same command" in str(log)
    (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert (folder / "checkpoint.safetensors").exists()


def test_failing_cell_does_not_stop_the_others(tmp_path) -> None:
    chosen = cells("ppi5k")
    chosen[0] = replace(chosen[0], overrides=chosen[0].overrides | {"lr": 1e30})
    log = run(chosen, tmp_path)
    assert [result.cell.kind for result in log.results.values()] == ["focuse"]
    (reason,) = log.failed.values()
    assert "diverged" in reason
    assert log.to_dict()["finished"] is False


def test_cell_that_another_process_trains_is_skipped(tmp_path) -> None:
    plain, _ = chosen = cells("ppi5k")
    (tmp_path / "cells").mkdir()
    (tmp_path / "runs").mkdir()
    lock = ProcessLock.acquire(tmp_path / "runs" / f"{plain.name}.lock", timeout=0)
    log = run(chosen, tmp_path)
    assert [result.cell.kind for result in log.results.values()] == ["focuse"]
    assert (log.left, log.busy, log.to_dict()["finished"]) == (1, 1, False)
    assert "cells that another command is training: 1" in str(log)
    assert "time limit" not in str(log)
    assert lock is not None
    lock.release()
    assert len(run(chosen, tmp_path).results) == 2


def test_missing_data_is_reported(tmp_path) -> None:
    with pytest.raises(FocuseError, match="onet20k: cannot be found"):
        run(cells("onet20k"), tmp_path)
    assert not tmp_path.joinpath("cells").exists()
    notes: list[str] = []
    log = run(cells("onet20k", "ppi5k", kinds=["plain"]), tmp_path, note=notes.append, skip_missing_data=True)
    assert notes[0] == "left out: onet20k: cannot be found"
    assert [result.cell.data for result in log.results.values()] == ["ppi5k"]


def test_invalid_calls_are_refused(tmp_path) -> None:
    with pytest.raises(FocuseError, match="nothing to report"):
        run(cells("ppi5k"), tmp_path, report_only=True)
    with pytest.raises(FocuseError, match="workers 0: give at least 1"):
        run(cells("ppi5k"), tmp_path, workers=0)
    (tmp_path / "thesis").touch()
    with pytest.raises(FocuseError, match="choose another folder"):
        run(cells("ppi5k"), tmp_path)


def test_leftover_run_with_other_settings_is_restarted(tmp_path) -> None:
    (cell,) = cells("ppi5k", kinds=["plain"])
    data = load_small("ppi5k")
    (tmp_path / "cells").mkdir()
    (tmp_path / "runs").mkdir()
    folder = tmp_path / "runs" / cell.name
    focuse.train(data.train, valid=data.valid, test=data.test, out=folder, dim=9, epochs=1, progress=False)
    (result,) = run([cell], tmp_path).results.values()
    assert result.info["settings"]["dim"] == 4


def test_ukge_is_trained_again_once_its_inferred_triples_are_available(tmp_path) -> None:
    folder, out = tmp_path / "data", tmp_path / "out"
    folder.mkdir()
    found = replace(load_small("nl27k"), folder=folder)
    chosen = select_cells(["nl27k"], ["ukge-logi"], ["ukge"], overrides=[SMALL], part="tables")
    notes: list[str] = []
    (first,) = run(chosen, out, note=notes.append, load=lambda name: found).results.values()
    assert (first.info["inferred"], first.weights) == (0, None)
    assert "WITHOUT inferred triples" in notes[-1]
    assert "Trained without inferred triples" in (out / "report.md").read_text()
    rows = found.train.to_arrow().to_pylist()[:5]
    lines = ["\t".join(str(row[name]) for name in ("head", "relation", "tail", "weight")) for row in rows]
    for name in ("softlogic", "ndcg"):
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    (folder / "test_with_neg.tsv").write_text("\n".join([*lines, "e1\tr0\te1\t0"]) + "\n")
    (again,) = run(chosen, out, note=notes.append, load=lambda name: found).results.values()
    assert again.info["inferred"] == 5
    assert again.weights is not None
    assert "WITHOUT" not in notes[-1]
    assert "Trained without inferred triples" not in (out / "report.md").read_text()


# ---- several processes, signals -------------------------------------------------------------------------------------


def test_results_do_not_depend_on_workers(tmp_path) -> None:
    alone = run(cells("ppi5k"), tmp_path / "alone")
    both = run(cells("ppi5k"), tmp_path / "both", workers=2)
    assert (both.failed, both.left) == ({}, 0)
    for name, result in alone.results.items():
        assert (both.results[name].test.score == result.test.score).all()
    assert not any((tmp_path / "both" / "runs").iterdir())


@pytest.mark.slow
def test_dead_process_fails_its_cell_only(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYTEST_PROCESS", str(os.getpid()))
    with pytest.raises(FocuseError, match="no cell is finished; its process ended unexpectedly; its process ended"):
        run(cells("ppi5k"), tmp_path, workers=2, load=load_for_a_process_that_dies)


def wait_for(condition, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGINT), (2, signal.SIGINT), (2, signal.SIGKILL)])
def test_stopped_command_saves_and_continues_to_the_same_results(tmp_path, workers, number) -> None:
    """After Ctrl-C or a kill no worker goes on, and the same command ends where an uninterrupted one ends."""
    override = "dim=4 epochs=400 patience=1000 num_negatives=8 batch_size=8"
    out = tmp_path / "cut"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    command = [sys.executable, str(script), str(out), override, str(workers)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        wait_for(lambda: len(list(out.glob("runs/*/history.jsonl"))) == workers, process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert "saved; " in errors
        assert "continue with the same command" in errors
    locks = list((out / "runs").glob("*.lock"))
    wait_end = time.monotonic() + 60
    while any((lock := ProcessLock.acquire(path, timeout=0)) is None or lock.release() for path in locks):
        assert time.monotonic() < wait_end
        time.sleep(0.1)
    chosen = cells("ppi5k", override=override)
    continued, whole = run(chosen, out), run(chosen, tmp_path / "whole")
    assert (continued.left, continued.busy) == (0, 0)
    for name, result in whole.results.items():
        assert (continued.results[name].test.score == result.test.score).all()
