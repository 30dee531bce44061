"""A run's files altered by one bit or cut short: is each refused by one line that names it, with nothing changed?"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from faults.children import Child, Moment, command, kind_of, operations
from faults.subject import EPOCHS, MANIFEST, Subject, progress

LONG = 3600.0  # seconds that all attempts may take
FITTED = ("calibration.safetensors", "weights.safetensors", "probability.safetensors")  # made anew if removed
Alter = Callable[[bytes, int], bytes]  # a file's bytes and the number of the attempt
CHECKPOINT, MODEL = "checkpoint.safetensors", "model.safetensors"


@dataclass
class Damage:
    """How often files were altered, how often that was told in a line, and the lines by file.

    `harmless` are cuts of history behind the newest checkpoint, where a kill cuts it, too: what is read is the same.
    """

    tried: int = 0
    told: int = 0
    harmless: int = 0
    files: Counter[str] = field(default_factory=Counter)
    lines: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        return {
            "tried": self.tried,
            "told": self.told,
            "harmless": self.harmless,
            "files": dict(self.files),
            "lines": self.lines,
            "faults": self.faults,
        }


def make_runs(subject: Subject, whole: Path) -> tuple[Path, ...]:
    """`whole` extended and asked, and a run that was killed between two checkpoints.

    In partitions, which are not extended: `whole` asked, and runs that a signal has stopped, in the first epoch, when
    some partitions are as they were written first, and later.
    """
    finished, killed = (subject.room / name for name in ("finished", "killed"))
    if subject.partitioned:
        shutil.copytree(whole, finished)
        runs = (finished, _stopped(subject, "begun", 0), _stopped(subject, "later", EPOCHS // 2))
    else:
        command("extend", whole, subject.more, "--out", finished, "--quiet", "--train-known", "--epochs", "2")
        command(*subject.train(killed), moment=Moment(file=CHECKPOINT, time=6, byte=1000), near=subject.room)
        runs = (finished, killed)
    command("predict", finished, "--head", "e1", "--relation", "r1")
    for run in runs:
        for left in (*run.glob(".*"), run / "training.lock"):
            left.unlink(missing_ok=True)
    return runs


def _stopped(subject: Subject, name: str, epoch: int) -> Path:
    """A run that a signal has stopped in an epoch, counted from 0."""
    folder = subject.room / name
    count = operations(*subject.train(folder, "3"), near=folder).count
    for operation in range(max(count // 9, epoch * count // EPOCHS), count, 2):  # before, nothing is trained yet
        shutil.rmtree(folder, ignore_errors=True)
        command(*subject.train(folder, "3"), moment=Moment(operation=operation, signal=signal.SIGTERM), near=folder)
        at = progress(folder / MANIFEST)
        if at is not None and at["epoch"] >= epoch and at["batch"] and not at["finished"]:
            return folder
    raise SystemExit(f"no training could be stopped in epoch {epoch}")


def flip(runs: tuple[Path, ...], flips: int, random: np.random.Generator, note: Callable[[str], None]) -> Damage:
    """Bits turned over at places by chance, in every file of two runs alike."""

    def alter(data: bytes, number: int) -> bytes:
        place, bit = int(random.integers(len(data))), int(random.integers(8))
        return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]

    return _damage(runs, flips, alter, note)


def truncate(runs: tuple[Path, ...], steps: int, note: Callable[[str], None]) -> Damage:
    """Every file cut at every 1 / `steps` of its length."""
    files = sum(len(_files(run)) for run in runs)
    return _damage(runs, files * steps, lambda data, number: data[: len(data) * (number // files) // steps], note)


def _damage(
    runs: tuple[Path, ...], times: int, alter: Callable[[bytes, int], bytes], note: Callable[[str], None]
) -> Damage:
    """In a child of its own: this process must not begin to compute, so that it can be forked again."""
    with tempfile.TemporaryDirectory() as place:
        answer = Path(place) / "answer"

        def work() -> None:
            answer.write_text(json.dumps(_try_all(runs, times, alter).to_dict()), encoding="utf-8")
            os._exit(0)

        ended = Child(["--version"], work).wait(LONG)
        if ended.code:
            return Damage(faults=[ended.text])
        found = json.loads(answer.read_text(encoding="utf-8"))
    note(f"{found['told']} of {found['tried']} told")
    return Damage(**found | {"files": Counter(found["files"])})


def _try_all(runs: tuple[Path, ...], times: int, alter: Alter) -> Damage:
    found = Damage()
    files = [(run, path) for run in runs for path in _files(run)]
    for number in range(times):
        run, path = files[number % len(files)]
        kind, name = kind_of(str(path)), f"{run.name}/{path.relative_to(run)}"
        whole = _contents(run)
        changed = alter(whole[path], number)
        if changed == whole[path]:
            continue
        path.write_bytes(changed)
        line = _line(run, path)
        after = _contents(run)
        found.tried += 1
        found.files[kind] += 1
        if line is None and path.name == "history.jsonl" and _same_history(run, changed, whole[path]):
            found.harmless += 1
        elif line is None:
            found.faults.append(f"{name}: loaded as if nothing had been (number {number})")
        elif path.name not in line or "\n" in line:
            found.faults.append(f"{name}: {line!r}")
        elif after != {**whole, path: changed}:
            found.faults.append(f"{name}: changed files")
        else:
            found.told += 1
            found.lines.setdefault(kind, line.replace(str(run), "RUN"))
        for each in after.keys() - whole.keys():
            each.unlink()
        for each, data in whole.items():
            if after.get(each) != data:
                each.write_bytes(data)
    return found


def _files(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file())


def _contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in _files(run)}


def _same_history(run: Path, changed: bytes, whole: bytes) -> bool:
    """Whether a run's history is read from an altered file as it was from the whole one."""
    from focuse.storage.run_folder import RunFolder

    rows = []
    for data in (changed, whole):
        (run / "history.jsonl").write_bytes(data)
        rows.append(RunFolder(run).history())
    at = [progress(path) for path in (run / CHECKPOINT, run / MANIFEST) if path.exists()]
    epoch = at[0]["epoch"] if at and at[0] is not None else 0
    seen = [[row for row in each if row["epoch"] <= epoch] for each in rows]
    return bool(seen[0] == seen[1])


def _line(folder: Path, path: Path) -> str | None:
    """What whoever needs the file is told, None if nothing."""
    import focuse
    from focuse.storage.run_folder import RunFolder

    unfinished = (folder / "partitions").is_dir() and not (folder / "model.safetensors").exists()
    try:
        if path.parent != folder or unfinished:
            focuse.resume(folder, progress=False)
        elif path.name == CHECKPOINT or (path.name == "history.jsonl" and not (folder / MODEL).exists()):
            RunFolder(folder).load_checkpoint()
        else:
            run = focuse.load(folder)
            if path.name in FITTED:
                run.predict(head="e1", relation="r1", top=1)
    except focuse.FocuseError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}\n{error}"
    return None


def copies(runs: tuple[Path, ...], room: Path) -> tuple[Path, ...]:
    """Runs of one's own to alter."""
    return tuple(shutil.copytree(run, room / run.name) for run in runs)
