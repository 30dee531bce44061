"""Trainings of two processes that share their tables: one of them killed, or both, then all started again.

Processes are forked like all others here and meet as torchrun's workers do, over gloo. A few are started by torchrun
itself, which has to notice that a worker is gone and to start both again.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from faults.children import PATIENCE, Child, Counting, Ended, Moment, Operations, wait_until, watch
from faults.kills import Campaign, phase
from faults.subject import Subject, differences

COUNT = 2  # processes
AGAIN, MOST = 0.4, 4  # chance that resumed ones are killed, too, and kills of one training
NOTICE = 20.0  # seconds in which a process that has met the other must see that it is gone
# Rows are exchanged by torch.distributed for the first optimizer, and by TorchRec for the second where it is installed.
OPTIMIZERS = ("sparse-adam", "sparse-adagrad")
LOST = "another process of this training has ended"
EPOCHS = "40"  # by torchrun, where killing is by the clock: long enough to be hit


def preload(optimizers: set[str]) -> None:
    """What the workers import."""

    if "sparse-adagrad" in optimizers and find_spec("torchrec"):
        import fbgemm_gpu  # noqa: F401
        import torchrec.distributed.embedding
        import torchrec.sparse.jagged_tensor  # noqa: F401


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Workers:
    """Processes of one training; `prepare(rank)` is called in each."""

    def __init__(self, words: list[object], prepare: Callable[[int], None] = lambda rank: None) -> None:
        port = str(_port())

        def begin(rank: int) -> None:
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "LOCAL_RANK": str(rank)}
            os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(COUNT), **meeting})
            prepare(rank)

        asked = [str(word) for word in words]
        self.children = [Child(asked, lambda rank=rank: begin(rank)) for rank in range(COUNT)]  # type: ignore[misc]

    def wait(self) -> list[Ended]:
        """Wait for the end of all; once one is gone, the others have a while to notice, then they go, too."""
        wait_until(lambda: not all(child.is_running() for child in self.children))
        wait_until(lambda: not any(child.is_running() for child in self.children), NOTICE)
        for child in self.children:
            child.signal(signal.SIGKILL)
        return [child.wait() for child in self.children]

    def end(self) -> None:
        for child in self.children:
            child.signal(signal.SIGKILL)


@dataclass(frozen=True)
class Undisturbed:
    """A training that nobody killed: its folder, seconds, and file operations of each process."""

    folder: Path
    seconds: float
    operations: list[Operations]

    @classmethod
    def train(cls, subject: Subject, every: str) -> Undisturbed:
        folder = subject.room / "whole"
        counting = [Counting(subject.room) for _ in range(COUNT)]
        start = time.perf_counter()
        ended = Workers(subject.train(folder, every), lambda rank: counting[rank].prepare()).wait()
        if any(each.code for each in ended):
            raise SystemExit(f"the deferred_signals training failed: {[each.text[-500:] for each in ended]}")
        return cls(folder, time.perf_counter() - start, [each.found() for each in counting])


def kill_workers(subject: Subject, kills: int, random: np.random.Generator, note: Callable[[str], None]) -> Campaign:
    """Kill one worker, or all, by chance: who is left must say so and end, and the resumed end in the same bits."""
    found = Campaign()
    every = ("1", "3", "0.0000001s")[int(random.integers(3))]
    whole = Undisturbed.train(subject, every)
    while found.kills < kills:
        with tempfile.TemporaryDirectory(dir=subject.room) as place:
            folder, killed, words = Path(place) / "run", 0, subject.train(Path(place) / "run", every)
            while True:
                asked = not killed or (killed < MOST and random.random() < AGAIN)
                strike = _Strike.by_chance(random, whole) if asked and found.kills < kills else None
                ended, wrong = _trained(words, strike, Path(place))
                if wrong or strike is None or not any(each.killed for each in ended):
                    break
                killed += 1
                found.kills += 1
                found.phases[phase(folder)] += 1
                noticed = ", which the other noticed" if any(LOST in each.line for each in ended) else ""
                found.kinds[f"{strike.moment.kind}, {strike.victims}{noticed}"] += 1
                if folder.exists():
                    words = ["train", "--resume", folder, "--quiet"]
            if not killed and not wrong:
                continue  # its moment never came
            found.trainings += 1
            wrong += [f"exit code {each.code}: {each.line}" for each in ended if each.code and not wrong]
            wrong = wrong or differences(folder, whole.folder)
            found.same += not wrong
            found.faults += [
                f"training {found.trainings} ({subject.options[-1]}, every {every}): {each}" for each in wrong
            ]
            note(f"sharded: {found.kills} kills, {found.same} of {found.trainings} trainings the same")
    return found


@dataclass(frozen=True)
class _Strike:
    """Who is killed and when: one, whose survivors must notice, or with it all others at once."""

    rank: int
    everyone: bool
    moment: Moment

    @property
    def victims(self) -> str:
        return "all" if self.everyone else f"process {self.rank}"

    @classmethod
    def by_chance(cls, random: np.random.Generator, of: Undisturbed) -> _Strike:
        rank, everyone = int(random.integers(COUNT)), bool(random.random() < 1 / 3)
        if random.random() < 1 / 2:
            return cls(rank, everyone, Moment(seconds=float(random.uniform(0, of.seconds))))
        return cls(rank, everyone, Moment(operation=int(random.integers(1, of.operations[rank].count + 1))))


def _trained(words: list[object], strike: _Strike | None, place: Path) -> tuple[list[Ended], list[str]]:
    """How all ended, and what was wrong with who was left."""
    if strike is None:
        return Workers(words).wait(), []
    moment, near = strike.moment, str(place)
    met = [place / f"met-{rank}" for rank in range(COUNT)]
    for mark in met:
        mark.unlink(missing_ok=True)

    def prepare(rank: int) -> None:
        _marked(met[rank])
        if rank == strike.rank and moment.seconds is None:
            watch(moment, near)

    workers = Workers(words, prepare)
    victim = workers.children[strike.rank]
    end = victim.started + (PATIENCE if moment.seconds is None else moment.seconds)
    wait_until(lambda: not victim.is_running() or time.monotonic() >= end)
    victim.signal(signal.SIGKILL)
    alone = strike.everyone or not all(mark.exists() for mark in met)
    if alone:  # who has not met the other may wait for it for minutes: torchrun would end it
        workers.end()
    ended = workers.wait()
    if alone or not ended[strike.rank].killed:
        return ended, []
    left = [each for rank, each in enumerate(ended) if rank != strike.rank]
    return ended, [
        f"who was left ended with {each.code}: {each.text.strip()[-300:]}"
        for each in left
        if not (each.code == 0 or (each.code == 2 and LOST in each.line and len(each.text.strip().splitlines()) == 1))
    ]


def _marked(path: Path) -> None:
    """Have a file appear when this process has met the other."""
    import torch.distributed as meeting

    meet = meeting.init_process_group

    def met(*given: Any, **more: Any) -> None:
        meet(*given, **more)
        path.touch()

    meeting.init_process_group = met


def kill_under_torchrun(
    subject: Subject, kills: int, random: np.random.Generator, note: Callable[[str], None]
) -> Campaign:
    """Workers of torchrun killed by the clock: it starts all again, and they end in the same bits."""
    found = Campaign()
    words = [*subject.train(subject.room / "whole"), "--epochs", EPOCHS, "--patience", EPOCHS]
    if any(each.code for each in Workers(words).wait()):
        raise SystemExit("the deferred_signals training failed")
    while found.kills < kills:
        with tempfile.TemporaryDirectory(dir=subject.room) as place:
            folder = Path(place) / "run"
            words = [*subject.train(folder), "--epochs", EPOCHS, "--patience", EPOCHS]
            code, text, killed = _under_torchrun([str(word) for word in words], folder, random)
            found.kills += killed
            found.trainings += 1
            found.phases["by torchrun's own restart"] += killed
            wrong = (
                [f"torchrun ended with {code}: {text[-300:]}"] if code else differences(folder, subject.room / "whole")
            )
            found.same += not wrong
            found.faults += wrong
            note(f"torchrun: {found.kills} kills, {found.same} of {found.trainings} trainings the same")
    return found


def _under_torchrun(words: list[str], folder: Path, random: np.random.Generator) -> tuple[int, str, int]:
    """Its exit code, what it said, and how many workers were killed."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(COUNT)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*launcher, "--max-restarts", "3", "-m", "focuse", *words], stdout=said, stderr=subprocess.STDOUT
        )
        try:
            wait_until(lambda: folder.exists() or process.poll() is not None)
            time.sleep(float(random.uniform(0, 1.5)))
            there = workers_of(process.pid)
            victims = there if random.random() < 1 / 3 else [there[int(random.integers(len(there)))]] if there else []
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            code = process.wait(300)
        finally:
            for left in (*workers_of(process.pid), *([process.pid] if process.poll() is None else [])):
                os.kill(left, signal.SIGKILL)
            process.wait()
        said.seek(0)
        return code, said.read().decode(errors="replace"), len(victims)


def workers_of(parent: int) -> list[int]:
    """Processes that a process has started, by /proc."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = status.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(after[1]) == parent and after[0] != "Z":
            found.append(int(status.parent.name))
    return sorted(found)
