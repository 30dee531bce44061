"""Full disks, folders that cannot be written, two trainings at once, signals and clocks that jump."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from faults.children import Child, Ended, Moment, command, operations, wait_until
from faults.subject import Subject, differences

DISK = 4 << 20  # bytes of a disk that is to be full
LONG = ("--epochs", "100000", "--patience", "100000")


@dataclass
class Faults:
    """How often something was tried, how often it went as it should, and the lines that were printed."""

    tried: int = 0
    good: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        return {"tried": self.tried, "good": self.good, "lines": self.lines, "faults": self.faults}

    def count(self, line: str, wrong: list[str]) -> None:
        """One more, with the line that it printed and what is wrong."""
        self.tried += 1
        self.good += not wrong
        self.faults += wrong
        if line:
            self.lines[line] = self.lines.get(line, 0) + 1


def tidy(line: str, folder: Path) -> str:
    """A line without what differs from time to time."""
    import re

    line = line.replace(str(folder), "RUN").replace(str(folder.parent), "DISK")
    line = re.sub(r"\d+ epochs? and \d+ batch(es)?", "N epochs and M batches", line)
    line = re.sub(r"-\d+(\.\d+)?\.safetensors", "-N.safetensors", line)
    return re.sub(r"\(process \d+ on [^)]*\)", "(process N on HOST)", line)


def one_line(ended: Ended, code: int) -> list[str]:
    """What is wrong with how it ended, where it should end with a code and one line."""
    lines = ended.text.strip().splitlines()
    if ended.code == code and len(lines) == 1 and "Traceback" not in ended.text:
        return []
    return [f"exit code {ended.code}, {len(lines)} lines: {ended.text.strip()[-300:]}"]


def ended_as(ended: Ended, folder: Path, whole: Path) -> list[str]:
    """What is wrong where a run should have ended as the deferred_signals one."""
    return [f"exit code {ended.code}: {ended.line}"] if ended.code else differences(folder, whole)


@contextmanager
def disk(room: Path) -> Iterator[Path | None]:
    """A small disk in memory, where this process may mount one; else None."""
    with tempfile.TemporaryDirectory(dir=room) as place:
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", place]
        if os.name != "posix" or subprocess.run(words, capture_output=True, check=False).returncode:
            yield None
            return
        try:
            yield Path(place)
        finally:
            subprocess.run(["umount", place], check=True)


def full_disk(subject: Subject, whole: Path, times: int, random: np.random.Generator) -> Faults:
    """A training on a disk with too little room left, which then is made: it goes on to the same bits."""
    found = Faults()
    size = sum(path.stat().st_size for path in whole.rglob("*.*"))
    for _ in range(times):
        left = int(random.integers(4096, 2 * size))
        with disk(subject.room) as place:
            if place is None:
                ended, folder, after = _limited(subject, left)
            else:
                ballast, folder = place / "ballast", place / "run"
                with ballast.open("wb") as file:
                    file.write(bytes(DISK - left))
                ended = command(*subject.train(folder))
                ballast.unlink()
                after = _after(subject, folder)
            if ended.code == 0:
                continue  # it had room enough
            found.count(tidy(ended.line, folder), one_line(ended, 2) or ended_as(after, folder, whole))
            if place is None:
                shutil.rmtree(folder.parent)
    return found


def _after(subject: Subject, folder: Path) -> Ended:
    return command("train", "--resume", folder, "--quiet") if folder.exists() else command(*subject.train(folder))


def _limited(subject: Subject, most: int) -> tuple[Ended, Path, Ended]:
    """Where no disk can be had: no file may be longer than so many bytes, which writers are told in the same way."""
    folder = Path(tempfile.mkdtemp(dir=subject.room)) / "run"
    limit = (most // 8, resource.RLIM_INFINITY)
    words = [str(word) for word in subject.train(folder)]
    ended = Child(words, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)).wait()
    return ended, folder, _after(subject, folder)


def read_only(subject: Subject, whole: Path, killed: Path) -> Faults:
    """A training into a folder that cannot be written, a resume in one, and readers, who may."""
    found = Faults()
    with disk(subject.room) as mounted, tempfile.TemporaryDirectory(dir=subject.room) as place:
        folder = mounted or Path(place)
        for name, run in (("whole", whole), ("killed", killed)):
            shutil.copytree(run, folder / name)
        _shut(folder, mounted is not None)
        jobs: list[tuple[list[object], int]] = [
            (subject.train(folder / "run"), 2),
            (["train", "--resume", folder / "killed", "--quiet"], 2),
            (["train", "--resume", folder / "killed", "--quiet", "--epochs", "99"], 2),
            (["train", "--resume", folder / "whole", "--quiet", "--epochs", "99"], 2),
            (["extend", folder / "whole", subject.more, "--out", folder / "more", "--quiet"], 2),
            (["train", "--resume", folder / "whole", "--quiet"], 2),
            (["evaluate", folder / "whole"], 0),
            (["predict", folder / "killed", "--head", "e1", "--relation", "r1"], 0),
        ]
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for words, code in jobs:
            ended = command(*words)
            wrong = one_line(ended, 2) if code else ([] if ended.code == 0 else [f"{words[0]}: {ended.text[-300:]}"])
            if {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} != before:
                wrong.append(f"{words[0]} changed something")
            found.count(ended.line.replace(str(folder), "SHUT") if code else "", wrong)
        if mounted is None:
            for path in (folder, *folder.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
    return found


def _shut(folder: Path, mounted: bool) -> None:
    """Let nobody write there: the whole disk where it is one, for root may write anywhere."""
    if mounted:
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        return
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)


def two_trainings(subject: Subject, whole: Path, times: int) -> Faults:
    """Two at once in one folder: one of them trains, the other is told; readers go on reading."""
    found = Faults()
    with tempfile.TemporaryDirectory(dir=subject.room) as place:
        folder = Path(place) / "run"
        first = Child([str(word) for word in [*subject.train(folder), *LONG]])
        wait_until(lambda: (folder / subject.checkpoint).exists())
        reads = 2 if subject.partitioned else 0  # its tables are in partitions still, which is told
        jobs: list[tuple[list[object], int]] = [
            (["train", "--resume", folder, "--quiet"], 2),
            (["train", "--resume", folder, "--quiet", "--epochs", "200000"], 2),
            (subject.train(folder), 2),
            (["extend", folder, subject.more, "--out", folder, "--quiet"], 2),
            (["predict", folder, "--head", "e1", "--relation", "r1"], reads),
            (["evaluate", folder], reads),
        ]
        for words, code in jobs:
            ended = command(*words)
            wrong = one_line(ended, 2) if code else ([] if ended.code == 0 else [f"{words[0]}: {ended.text[-300:]}"])
            wrong += [] if first.is_running() else ["the first has ended"]
            found.count(tidy(ended.line, folder) if code else "", wrong)
        first.signal(signal.SIGKILL)
        first.wait()
    for _ in range(times):
        with tempfile.TemporaryDirectory(dir=subject.room) as place:
            folder = Path(place) / "run"
            words = [str(word) for word in subject.train(folder)]
            ended = sorted([child.wait() for child in [Child(words), Child(words)]], key=lambda each: each.code)
            wrong = [] if ended[0].code == 0 else [ended[0].text]
            found.count(tidy(ended[1].line, folder), wrong or one_line(ended[1], 2) or differences(folder, whole))
    return found


def signals(subject: Subject, whole: Path, times: int, random: np.random.Generator) -> Faults:
    """SIGTERM, SIGINT or SIGHUP before file operations by chance and by the clock; every third time two of them."""
    found = Faults()
    with tempfile.TemporaryDirectory(dir=subject.room) as place:
        count = operations(*subject.train(Path(place) / "run", "3"), near=Path(place)).count
    for number in range(times):
        asked = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)[number % 3]
        with tempfile.TemporaryDirectory(dir=subject.room) as place:
            folder, twice = Path(place) / "run", bool(random.random() < 1 / 3)
            if number % 4:
                when = Moment(operation=int(random.integers(1, count + 1)), signal=asked, twice=twice)
                ended = command(*subject.train(folder, "3"), moment=when, near=Path(place))
            else:
                ended = _signalled(subject.train(folder, "3"), folder, asked, twice, random)
            early = ended.code == -asked and not folder.exists()  # before the command had begun to listen
            wrong = [] if ended.code == 0 or early else one_line(ended, 130)
            wrong += [f"left behind: {path.name}" for path in Path(place).glob("**/.*.*")]
            wrong += ended_as(_after(subject, folder), folder, whole)
            line = "(it had not begun)" if early else tidy(ended.line, folder)
            found.count("(it finished all the same)" if ended.code == 0 else line, wrong)
    return found


def _signalled(words: list[object], folder: Path, number: int, twice: bool, random: np.random.Generator) -> Ended:
    """A training that gets a signal, perhaps two, some time after its folder is there."""
    child = Child([str(word) for word in words])
    wait_until(lambda: folder.exists() or not child.is_running())
    for _ in range(1 + twice):
        time.sleep(float(random.uniform(0, 0.05)))
        child.signal(number)
    return child.wait()


def clocks(subject: Subject, whole: Path, times: int, random: np.random.Generator) -> Faults:
    """The clock on the wall jumps by years at every look, forth and back; checkpoints come by the second."""
    found = Faults()
    for _ in range(times):
        with tempfile.TemporaryDirectory(dir=subject.room) as place:
            folder = Path(place) / "run"
            jump = _jumping(int(random.integers(1 << 30)))
            first = Child([str(word) for word in subject.train(folder, "0.01s")], jump)
            time.sleep(0.3)
            first.signal(signal.SIGTERM)
            ended = first.wait()
            if ended.code and folder.exists():
                ended = Child(["train", "--resume", str(folder), "--quiet"], jump).wait()
            elif ended.code:
                ended = Child([str(word) for word in subject.train(folder, "0.01s")], jump).wait()
            found.count("", ended_as(ended, folder, whole))
    return found


def _jumping(seed: int) -> Callable[[], None]:
    """What makes time.time and its like jump in a child."""

    def prepare() -> None:
        random, now = np.random.default_rng(seed), time.time
        time.time = lambda: now() + float(random.normal()) * 1e8
        time.time_ns = lambda: int(time.time() * 1e9)

    return prepare
