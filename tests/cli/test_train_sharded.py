"""`torchrun … -m focuse train --engine sharded`, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from torch import equal

from focuse.data.graph import Graph
from focuse.engines.process_group import TORCHRUN_COMMAND

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
SETTINGS = ["--engine", "sharded", "--dim", "8", "--label-exponent", "1", "--eval-every", "2"]


@pytest.fixture
def folder(tmp_path: Path, careers: Graph) -> Path:
    careers.select(np.arange(0, len(careers), 7)).write(tmp_path / "graph.tsv")
    return tmp_path


def start(folder: Path, *arguments: str, count: int = 2, restarts: int = 0) -> subprocess.Popen[str]:
    command = [*TORCHRUN, str(count), "--max-restarts", str(restarts), "-m", "focuse", *arguments]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    return subprocess.Popen(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)


def finish(process: subprocess.Popen[str]) -> str:
    """What it prints; an error that says what it said if it fails, and no process is left behind."""
    try:
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out


def test_sharded_engine_without_torchrun_gives_advice(folder: Path) -> None:
    command = [sys.executable, "-m", "focuse", "train", "graph.tsv", "--out", "run", "--engine", "sharded"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert done.returncode == 2
    assert done.stderr.strip() == f"focuse: engine 'sharded' needs processes that torchrun starts: {TORCHRUN_COMMAND}"
    assert not (folder / "run").exists()


def test_run_of_two_processes_is_evaluated_by_one(folder: Path) -> None:
    asked = ["train", "graph.tsv", "--out", "run", "--optimizer", "sparse-adam", "--epochs", "3", *SETTINGS, "--json"]
    printed = json.loads(finish(start(folder, *asked)))
    assert printed["epochs"] == 3
    assert printed["settings"]["engine"] == "sharded"
    assert (printed["quality"], printed["next"]) == (None, "focuse evaluate run")  # one process has the answers
    assert not list(folder.glob(".*"))
    from focuse.api import load, train

    given = {"dim": 8, "label_exponent": 1, "eval_every": 2, "epochs": 3, "optimizer": "sparse-adam"}
    alone = train(folder / "graph.tsv", **given, engine="torch", progress=False)
    ours, theirs = load(folder / "run"), alone
    assert ours.evaluate().all.mrr == pytest.approx(theirs.evaluate().all.mrr, rel=1e-2)
    assert [row["loss"] for row in ours.history] == pytest.approx([row["loss"] for row in theirs.history], rel=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="workers are found in /proc")
@pytest.mark.parametrize("optimizer", ["sparse-adagrad", "sparse-adam"])  # with and without TorchRec
def test_killed_worker_is_restarted_and_gives_the_same_result(folder: Path, optimizer: str) -> None:
    asked = ["--optimizer", optimizer, "--epochs", "40", *SETTINGS, "--checkpoint-every", "1", "--quiet"]
    finish(start(folder, "train", "graph.tsv", "--out", "whole", *asked))
    process = start(folder, "train", "graph.tsv", "--out", "killed", *asked, restarts=2)
    history = folder / "killed" / "history.jsonl"
    give_up = time.monotonic() + 120
    while not (history.exists() and len(history.read_bytes().splitlines()) > 4):
        assert time.monotonic() < give_up
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(workers_of(process.pid)[-1], signal.SIGKILL)
    finish(process)
    assert not list(folder.glob(".*"))
    whole, killed = (load_file(folder / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(equal(whole[name], killed[name]) for name in whole)
    lines = [(folder / name / "history.jsonl").read_text(encoding="utf-8").splitlines() for name in ("whole", "killed")]
    assert len(lines[0]) == len(lines[1])


@pytest.mark.slow
def test_run_resumes_and_ranks_with_another_number_of_processes(folder: Path) -> None:
    finish(start(folder, "train", "graph.tsv", "--out", "run", "--epochs", "3", *SETTINGS))
    finish(start(folder, "train", "--resume", "run", "--epochs", "6", count=4))
    from focuse.api import load, train

    alone = train(folder / "graph.tsv", dim=8, label_exponent=1, eval_every=2, epochs=6, engine="torch", progress=False)
    losses = [[row["loss"] for row in run.history] for run in (load(folder / "run"), alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    found = json.loads(finish(start(folder, "evaluate", "run", "--json", count=3)))
    wanted = load(folder / "run").evaluate().to_dict()
    assert found["all"] == pytest.approx(wanted["all"], rel=1e-3)
    assert found["delta_mrr"] == pytest.approx(wanted["delta_mrr"], abs=1e-3)


def workers_of(parent: int) -> list[int]:
    """Processes that a process has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = status.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(after[1]) == parent:
            found.append(int(status.parent.name))
    return sorted(found)


def test_training_that_is_killed_while_it_reads_is_resumed_by_several_processes(folder: Path) -> None:
    words = ["train", "graph.tsv", "--optimizer", "sparse-adam", "--epochs", "2", *SETTINGS, "--out"]
    (folder / "killed.py").write_text(
        "import os, focuse.cli.main, focuse.data.readers as readers\n"
        "readers.inspect_file = lambda path: os.kill(os.getpid(), 9)\n"
        "focuse.cli.main.run()\n"
    )
    command = [*TORCHRUN, "2", "killed.py", *words, "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=200, check=False)
    assert done.returncode
    assert {path.name for path in (folder / "run").iterdir()} <= {"request.json", "job.txt", "training.lock"}
    finish(start(folder, "train", "--resume", "run"))
    finish(start(folder, *words, "whole"))
    assert (folder / "run/model.safetensors").read_bytes() == (folder / "whole/model.safetensors").read_bytes()
