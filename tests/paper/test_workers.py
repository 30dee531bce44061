"""Worker processes: cells are distributed, failures are survived, results do not change."""

import io
import json
import math
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

import focuse
from focuse.data.datasets import Dataset
from focuse.data.splits import split
from focuse.errors import FocuseError, Stopped
from focuse.paper import reproduce as room
from focuse.paper import workers
from focuse.paper.cells import Cell
from focuse.paper.choice import Choice
from focuse.paper.reproduce import Reproducer, reproduce
from focuse.paper.workers import Task, serve, share

# A worker that trains nothing: what it does is said by the seed of the cell.
FAKE = """
import json, os, sys
print(json.dumps({"say": "no task yet"}), flush=True)
options = json.loads(sys.stdin.readline())
for line in sys.stdin:
    seed = json.loads(line)["cell"]["seed"]
    print("noise")
    if seed == 1:
        os._exit(7)
    if seed == 9:
        print(json.dumps({"say": "waits"}), flush=True)
        sys.stdin.read()
        print(json.dumps({"stopped": True}), flush=True)
        break
    answer = {2: {"failed": "training diverged"}, 3: {"busy": True}}.get(seed, {"done": float(os.getpid())})
    print(json.dumps({"say": f"seed {seed} of {options['name']}"}), flush=True)
    print(json.dumps(answer), flush=True)
"""
# A worker that has every data set: a small graph.
REAL = """
import sys
sys.path.insert(0, {tests!r})
from conftest import planted
import focuse.paper.reproduce as room
from focuse.data.datasets import Dataset
from focuse.data.splits import split
from pathlib import Path
parts = split(planted(), seed=3)
room.load = lambda name: Dataset(name, name, parts.train, parts.valid, parts.test, Path({folder!r}))
from focuse.paper.workers import serve
serve(sys.stdin, sys.stdout)
"""
SMALL = "dim=4 epochs=3 num_negatives=8 batch_size=64"


def tasks(*seeds: int) -> list[Task]:
    return [Task(Cell("ppi5k", "complex", "plain", seed), f"[{seed}]") for seed in seeds]


def fake(seeds: list[int], number: int = 2, deadline: float = math.inf, say=lambda text: None):
    """How each cell ended, by seed, and whether it was interrupted."""
    ended: dict[int, dict] = {}

    def record(task: Task, answer) -> None:
        ended[task.cell.seed] = dict(answer)

    options = {"name": "fakes", "device": "cpu", "workers": number}
    command = [sys.executable, "-S", "-c", FAKE]
    stopped = share(tasks(*seeds), number, options, say, record, deadline, command)
    return ended, stopped


def test_failing_cell_does_not_affect_others_and_dead_worker_is_replaced() -> None:
    said: list[str] = []
    ended, stopped = fake([0, 1, 2, 3, 4, 5], number=1, say=said.append)
    assert not stopped
    assert ended[1] == {"failed": "its process ended with code 7"}
    assert ended[2] == {"failed": "training diverged"}
    assert ended[3] == {"busy": True}
    assert "[4]: seed 4 of fakes" in said
    first, *others = (ended[seed]["done"] for seed in (0, 4, 5))
    assert len(set(others)) == 1
    assert first != others[0]  # the second process


def test_several_workers_share_the_cells() -> None:
    ended, _ = fake([0, 4, 5, 6, 7, 8], number=3)
    assert set(ended) == {0, 4, 5, 6, 7, 8}
    assert os.getpid() not in {answer["done"] for answer in ended.values()}


def test_no_cell_is_started_after_the_deadline() -> None:
    assert fake([0, 4], deadline=time.monotonic() - 1) == ({}, False)


def test_interrupt_asks_all_workers_to_save_and_stop() -> None:
    before = signal.getsignal(signal.SIGINT)
    waiting = threading.Semaphore(0)

    def press() -> None:
        for _ in range(2):
            waiting.acquire(timeout=20)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    ended, stopped = fake([9, 9, 0], say=lambda text: waiting.release() if text.endswith("waits") else None)
    assert stopped
    assert ended == {9: {"stopped": True}}
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch, small: focuse.Graph, tmp_path) -> None:
    """Every data set is a small one, here and in workers."""
    parts = split(small, seed=3)
    found = Dataset("ppi5k", "PPI5K", parts.train, parts.valid, parts.test, tmp_path)
    monkeypatch.setattr(room, "load", lambda name: found)
    script = REAL.format(tests=str(Path(__file__).parents[2]), folder=str(tmp_path))
    monkeypatch.setattr(workers, "COMMAND", (sys.executable, "-c", script))


def choose() -> Choice:
    return Choice.of(["ppi5k"], ["complex"], changes=[SMALL], quick=True)


@pytest.mark.slow
def test_numbers_do_not_depend_on_workers(tmp_path, pretend) -> None:
    said: list[str] = []
    alone = reproduce(choose(), tmp_path / "alone", progress=False)
    both = reproduce(choose(), tmp_path / "both", say=said.append, workers=2)
    assert not both.failed
    assert both.left == 0
    for ours, theirs in zip(both.results, alone.results, strict=True):
        assert ours.cell == theirs.cell
        assert (ours.test.score == theirs.test.score).all()
        assert ours.facts["times"]["workers"] == 2
        assert ours.facts["times"]["command"] <= ours.facts["times"]["start"] <= ours.facts["times"]["end"]
    assert any(line.startswith("[1/2] PPI5K ComplEx") and "epoch 3/3" in line for line in said)
    assert not any((tmp_path / "both" / "runs").iterdir())
    assert "## Time" in (tmp_path / "both" / "report.md").read_text()


def test_invalid_number_of_workers_is_refused(tmp_path) -> None:
    with pytest.raises(FocuseError, match="workers 0: give at least 1"):
        reproduce(choose(), tmp_path, workers=0)


class Served:
    """A worker in this very process, its input a pipe."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("cells", "runs"):
            (out / name).mkdir(parents=True, exist_ok=True)
        reading, writing = os.pipe()
        self.lines, self.input, self.answers = os.fdopen(reading), os.fdopen(writing, "w"), io.StringIO()
        self.tell(Reproducer(out, workers=2).options(progress=False))

    def tell(self, data: dict) -> None:
        self.input.write(json.dumps(data) + "\n")
        self.input.flush()

    def run(self, *cells: Cell) -> list[dict]:
        for cell in cells:
            self.tell({"cell": cell.to_dict()})
        before = signal.getsignal(signal.SIGINT)
        try:
            serve(self.lines, self.answers)
        finally:
            signal.signal(signal.SIGINT, before)
            self.input.close()  # its listener ends
        return [json.loads(line) for line in self.answers.getvalue().splitlines()]


def test_a_worker_saves_when_its_input_ends(tmp_path, pretend, monkeypatch) -> None:
    served, trained = Served(tmp_path / "out", monkeypatch), room.train

    def train(*arguments, **options):
        served.input.close()  # the command has ended while this trains
        return trained(*arguments, **options)

    monkeypatch.setattr(room, "train", train)
    longer = Choice.of(["ppi5k"], ["complex"], ["plain"], changes=[SMALL.replace("3", "300")], quick=True)
    (cell,) = longer.cells(["ppi5k"])
    assert served.run(cell) == [{"stopped": True}]
    assert not any((tmp_path / "out" / "cells").iterdir())
    assert [path.name for path in (tmp_path / "out" / "runs").iterdir()] in ([], [cell.name])


def test_worker_stops_after_an_unexpected_error(tmp_path, pretend, monkeypatch, capsys) -> None:
    served = Served(tmp_path / "out", monkeypatch)
    failing = iter([FocuseError("training diverged"), RuntimeError("CUDA error"), Stopped("never asked")])

    def train(*arguments, **options):
        raise next(failing)

    monkeypatch.setattr(room, "train", train)
    cells = choose().cells(["ppi5k"])
    with pytest.raises(SystemExit):
        served.run(*cells, *cells)
    answers = [json.loads(line) for line in served.answers.getvalue().splitlines()]
    assert answers == [{"failed": "training diverged"}, {"failed": "RuntimeError: CUDA error", "ill": True}]
    assert "Traceback" in capsys.readouterr().err
