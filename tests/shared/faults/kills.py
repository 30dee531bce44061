"""kill -9 at moments by chance, again and again, then on to the end: is it the run that nobody disturbed?"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from faults.children import Moment, Operations, command, kind_of, operations
from faults.subject import CHECKPOINT, EPOCHS, MANIFEST, MODEL, Subject, differences, progress

EVERY = ("1", "3", "0.0000001s")  # epochs, or at every batch
AGAIN = 0.5  # chance that a resumed training is killed, too
MOST = 6  # kills of one training
IN_MEMORY = (CHECKPOINT, CHECKPOINT, CHECKPOINT, MODEL)  # files at a byte of which one is killed, each as likely
IN_PARTITIONS = (
    "part-*.safetensors",
    "part-*.safetensors",
    "shared-*.safetensors",
    "manifest.json",
    "edges.safetensors",
    MODEL,
)


@dataclass
class Campaign:
    """What came of it."""

    kills: int = 0
    trainings: int = 0
    same: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        counts = {"kills": self.kills, "trainings": self.trainings, "same": self.same}
        where = {"phases": dict(self.phases.most_common()), "kinds": dict(self.kinds.most_common())}
        return {**counts, **where, "faults": self.faults}


def phase(folder: Path) -> str:
    """Where a training stood when it was killed, by what it left."""
    if not folder.exists():
        made = any(folder.parent.glob(f".{folder.name}.*"))
        return "while its folder was made" if made else "before its folder was made"
    if not (folder / "run.toml").exists():
        return "while its input was read" if not (folder / ".metadata").exists() else "while its splits were written"
    parted = (folder / "partitions").is_dir()
    newest = folder / (MANIFEST if parted else CHECKPOINT)
    at, model = progress(newest), (folder / MODEL).exists()
    if at is not None and at["finished"]:
        return "after the last checkpoint"
    halves = {path.name.split(".")[1] for path in folder.glob("**/.*.*.[0-9]*")}
    if "model" in halves:
        return "while the model was written"
    if parted and at is None:
        return "while edges and first partitions were written"
    if "manifest" in halves:
        return "while the last manifest was written" if model else "while a manifest was written"
    if "checkpoint" in halves:
        if model:
            return "while the last checkpoint was written"
        return "while a checkpoint was written"
    if model:
        return "between the model and the last checkpoint"
    if "history" in halves or "run" in halves:
        return "while history or settings were written"
    if at is None:
        return "before the first checkpoint"
    if parted and not all(map(_whole, (folder / "partitions").glob("*-*.safetensors"))):
        return "while a partition was written"
    lines = (folder / "history.jsonl").read_bytes().count(b"\n") if (folder / "history.jsonl").exists() else 0
    return "between history and checkpoint" if lines > at["epoch"] else "between two checkpoints"


def _whole(path: Path) -> bool:
    """Whether a file of tensors is as long as its head says."""
    try:
        with safe_open(path, framework="np"):
            return True
    except (OSError, SafetensorError):
        return False


@dataclass(frozen=True)
class Undisturbed:
    """A training that nobody killed: its folder, seconds, file operations, and bytes of its files by their kinds."""

    folder: Path
    seconds: float
    operations: Operations
    sizes: dict[str, int]

    @classmethod
    def train(cls, subject: Subject, every: str) -> Undisturbed:
        folder, place = subject.room / f"whole-{EVERY.index(every)}", subject.room / "counted"
        start = time.perf_counter()
        ended = command(*subject.train(folder, every))
        seconds = time.perf_counter() - start
        if ended.code:
            raise SystemExit(f"the deferred_signals training failed: {ended.line}")
        count = operations(*subject.train(place / "run", every), near=place)
        shutil.rmtree(place)
        sizes = {kind_of(str(path)): path.stat().st_size for path in folder.glob("**/*.*")}
        return cls(folder, seconds, count, sizes)


def moment(random: np.random.Generator, of: Undisturbed) -> Moment:
    """One by chance of what an deferred_signals training has: its seconds, its file operations, its bytes."""
    kind = random.integers(4)
    if kind == 0:
        return Moment(seconds=float(random.uniform(0, of.seconds)))
    if kind == 3:
        files = IN_PARTITIONS if "manifest.json" in of.sizes else IN_MEMORY
        file = files[int(random.integers(len(files)))]
        which, byte = (int(random.integers(1, most + 1)) for most in (of.operations.made[file], of.sizes[file] - 1))
        return Moment(file=file, time=which, byte=byte)
    return Moment(operation=int(random.integers(1, of.operations.count + 1)))


def kill_trainings(subject: Subject, kills: int, random: np.random.Generator, note: Callable[[str], None]) -> Campaign:
    """Kill trainings until there were so many kills; each ends at last and is compared with one that nobody killed."""
    found = Campaign()
    whole: dict[str, Undisturbed] = {}
    first = int(random.integers(len(EVERY)))
    while found.kills < kills:
        every = EVERY[(first + found.trainings) % len(EVERY)]
        if every not in whole:
            whole[every] = Undisturbed.train(subject, every)
        with tempfile.TemporaryDirectory(dir=subject.room) as place:
            folder, killed, words = Path(place) / "run", 0, subject.train(Path(place) / "run", every)
            while True:
                asked = not killed or (killed < MOST and random.random() < AGAIN)
                when = moment(random, whole[every]) if asked and found.kills < kills else None
                ended = command(*words, moment=when, near=Path(place))
                if not ended.killed or when is None:
                    break
                killed += 1
                found.kills += 1
                found.phases[phase(folder)] += 1
                found.kinds[when.kind] += 1
                if folder.exists():
                    words = ["train", "--resume", folder, "--quiet"]
            if not killed:
                continue  # its moment never came
            found.trainings += 1
            wrong = (
                [f"exit code {ended.code}: {ended.line}"] if ended.code else differences(folder, whole[every].folder)
            )
            found.same += not wrong
            found.faults += [f"training {found.trainings} (every {every}): {each}" for each in wrong]
            note(f"{found.kills} kills, {found.same} of {found.trainings} trainings the same")
    return found


OTHERS = ("extend (saves a run)", "extend --train-known", "train --resume --epochs")


def kill_other(subject: Subject, kills: int, random: np.random.Generator, name: str) -> Campaign:
    """Do the same with other writers: a run extended (new names only, or all of them), or trained for more epochs."""
    base = subject.room / "base"
    command(*subject.train(base))
    words: list[object] = ["extend", base, subject.more, "--quiet", "--out"]
    more: list[object] = ["--train-known", "--epochs", "4"] if name == OTHERS[1] else ["--epochs", "5"]
    if name == OTHERS[2]:
        words, more = ["train", "--quiet", "--epochs", str(EPOCHS + 4), "--resume"], []
    return _kill_one(subject, words, more, base, kills, random)


def _kill_one(
    subject: Subject, words: list[object], more: list[object], base: Path, kills: int, random: np.random.Generator
) -> Campaign:
    found = Campaign()
    grows, room = "--resume" in words, subject.room

    def begin(place: Path) -> Path:
        place.mkdir(exist_ok=True)
        if grows:
            shutil.copytree(base, place / "run")
        return place / "run"

    with tempfile.TemporaryDirectory(dir=room) as first:
        deferred_signals = begin(Path(first) / "whole")
        command(*words, deferred_signals, *more)
        counted = Path(first) / "counted"
        count = operations(*words, begin(counted), *more, near=counted)
        while found.kills < kills:
            place = Path(first) / f"trial-{found.trainings}"
            folder = begin(place)
            ended = command(
                *words, folder, *more, moment=Moment(operation=int(random.integers(1, count.count + 1))), near=place
            )
            if ended.killed:
                found.kills += 1
                found.phases[phase(folder)] += 1
                again = not folder.exists() or (grows and _untouched(folder, subject.checkpoint))
                ended = command(*words, folder, *more) if again else command("train", "--resume", folder, "--quiet")
            found.trainings += 1
            wrong = [f"exit code {ended.code}: {ended.line}"] if ended.code else differences(folder, deferred_signals)
            found.same += not wrong
            found.faults += wrong
            shutil.rmtree(place)
    return found


def _untouched(folder: Path, checkpoint: str) -> bool:
    """Whether a run was killed before anything of it changed: it is asked for more epochs once more."""
    at = progress(folder / checkpoint)
    text = (folder / "run.toml").read_text(encoding="utf-8")
    return at is not None and bool(at["finished"]) and f"epochs = {EPOCHS}\n" in text
