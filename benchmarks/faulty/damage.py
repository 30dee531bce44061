"""A run's files altered by one bit or cut short: is each refused by one line that names it, with nothing changed?"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from children import Child, Moment, command
from subject import Subject, differences

FITTED = ("calibration.safetensors", "weights.safetensors", "probability.safetensors")  # made anew if removed
Alter = Callable[[bytes, int], bytes]  # a file's bytes and the number of the attempt
CHECKPOINTS = ("checkpoint.safetensors", "checkpoint.previous.safetensors")


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


def make_runs(subject: Subject, whole: Path) -> tuple[Path, Path]:
    """`whole` extended and asked, and a run that was killed between two checkpoints."""
    finished, killed = (subject.room / name for name in ("finished", "killed"))
    command("extend", whole, subject.more, "--out", finished, "--quiet", "--warm", "--epochs", "2")
    command("predict", finished, "--head", "e1", "--relation", "r1")
    command(*subject.train(killed), moment=Moment(name="checkpoint.safetensors", time=6, byte=1000), near=subject.room)
    for run in (finished, killed):
        for left in (*run.glob(".*"), run / "training.lock"):
            left.unlink(missing_ok=True)
    return finished, killed


def flip(runs: tuple[Path, Path], flips: int, random: np.random.Generator, note: Callable[[str], None]) -> Damage:
    """Bits turned over at places by chance, in every file of two runs alike."""

    def alter(data: bytes, number: int) -> bytes:
        place, bit = int(random.integers(len(data))), int(random.integers(8))
        return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]

    return _damage(runs, flips, alter, note)


def truncate(runs: tuple[Path, Path], steps: int, note: Callable[[str], None]) -> Damage:
    """Every file cut at every 1 / `steps` of its length."""
    files = sum(1 for run in runs for path in run.iterdir())
    return _damage(runs, files * steps, lambda data, number: data[: len(data) * (number // files) // steps], note)


def _damage(
    runs: tuple[Path, Path], times: int, alter: Callable[[bytes, int], bytes], note: Callable[[str], None]
) -> Damage:
    """In a child of its own: this process must not begin to compute, so that it can be forked again."""
    with tempfile.TemporaryDirectory() as place:
        answer = Path(place) / "answer"

        def work() -> None:
            answer.write_text(json.dumps(_try_all(runs, times, alter).to_dict()), encoding="utf-8")
            os._exit(0)

        ended = Child(["--version"], work).wait()
        if ended.code:
            return Damage(faults=[ended.text])
        found = json.loads(answer.read_text(encoding="utf-8"))
    note(f"{found['told']} of {found['tried']} told")
    return Damage(**found | {"files": Counter(found["files"])})


def _try_all(runs: tuple[Path, ...], times: int, alter: Alter) -> Damage:
    found = Damage()
    files = [path for run in runs for path in sorted(run.iterdir())]
    for number in range(times):
        path = files[number % len(files)]
        whole = path.read_bytes()
        changed = alter(whole, number)
        if changed == whole:
            continue
        path.write_bytes(changed)
        before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
        line = _line(path)
        after = {each.name: each.read_bytes() for each in path.parent.iterdir()}
        found.tried += 1
        found.files[path.name] += 1
        if line is None and path.name == "history.jsonl" and _same_history(path, whole):
            found.harmless += 1
        elif line is None:
            found.faults.append(f"{path.parent.name}/{path.name}: loaded as if nothing had been (number {number})")
        elif path.name not in line or "\n" in line:
            found.faults.append(f"{path.parent.name}/{path.name}: {line!r}")
        elif before != after:
            found.faults.append(f"{path.parent.name}/{path.name}: changed files")
        else:
            found.told += 1
            found.lines.setdefault(path.name, line.replace(str(path.parent), "RUN"))
        path.write_bytes(whole)
    return found


def _same_history(path: Path, whole: bytes) -> bool:
    """Whether a run's history is read as it was from the whole file."""
    import focuse

    found = focuse.load(path.parent).history
    path.write_bytes(whole)
    return bool(found == focuse.load(path.parent).history)


def _line(path: Path) -> str | None:
    """What whoever needs the file is told, None if nothing."""
    import focuse
    from focuse.training.checkpoints import Store

    folder = path.parent
    try:
        if path.name in CHECKPOINTS:
            if path.name == CHECKPOINTS[1]:  # nobody asks for it while the newest is whole
                Store(folder)._read_checkpoint(path, "cpu", "")
            Store(folder).checkpoint()
        else:
            run = focuse.load(folder)
            if path.name in FITTED:
                run.predict(head="e1", relation="r1", top=1)
    except focuse.FocuseError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}\n{error}"
    return None


def altered_then_resumed(killed: Path, whole: Path, times: int, random: np.random.Generator) -> Damage:
    """Of a killed training, the newest checkpoint altered: it goes on from the one before, to the same bits."""
    found = Damage()
    for _ in range(times):
        with tempfile.TemporaryDirectory(dir=whole.parent) as place:
            folder = Path(place) / "run"
            shutil.copytree(killed, folder)
            path = folder / "checkpoint.safetensors"
            data = bytearray(path.read_bytes())
            data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
            path.write_bytes(data)
            ended = command("train", "--resume", folder)
            told = [line for line in ended.text.splitlines() if "going on from the one before it" in line]
            wrong = differences(folder, whole) if ended.code == 0 else [f"exit code {ended.code}: {ended.line}"]
            found.tried += 1
            found.told += bool(told) and not wrong
            found.faults += wrong or ([] if told else ["nothing was told"])
            found.lines |= {path.name: told[0].replace(str(folder), "RUN")} if told else {}
    return found
