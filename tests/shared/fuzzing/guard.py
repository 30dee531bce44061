"""One case at a time, under limits: what came of it, how long it took, how much memory it wanted."""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import resource
import signal
import struct
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from focuse.errors import FocuseError

SECONDS = 5.0  # of a processor that a case may take; a small file that takes longer hangs
ROOM = 2 << 30  # bytes of address space above what the worker has at its start
GROWTH = 256 << 20  # bytes that one case may add to the worker's peak
LARGEST = 1 << 16  # bytes of a case
LONGEST = 4_000  # letters of a message


class WrongError(AssertionError):
    """Something was read, and it is not what the file says."""


class HangError(BaseException):
    """The time of a case is up. No Exception: no reader may take it for a fault of its file."""


@dataclass
class Counts:
    """What came of the cases of one target by one driver."""

    target: str
    driver: str
    cases: int = 0
    accepted: int = 0
    refused: int = 0
    crashes: int = 0
    hangs: int = 0
    wrong: int = 0
    blown: int = 0  # cases that wanted too much memory
    slowest: float = 0.0
    peak: int = 0  # bytes that the worker had at most above its start
    seconds: float = 0.0
    faults: dict[str, str] = field(default_factory=dict)  # a place in the code: the case's file

    @property
    def bad(self) -> int:
        return self.crashes + self.hangs + self.wrong + self.blown

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


class Guard:
    """Runs cases of one target, counts, and keeps the input of every fault under `folder`."""

    def __init__(self, target: str, call: Callable[[bytes], object], driver: str, folder: Path) -> None:
        self.call, self.folder = call, folder
        self.counts = Counts(target, driver)
        self.started = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        # The case that runs lies in a mapped file: of a worker that dies it is all that is left.
        current = folder / f"{target}.{driver}.current"
        current.write_bytes(bytes(LARGEST + 4))
        with current.open("r+b") as file:
            self.current = mmap.mmap(file.fileno(), LARGEST + 4)
        signal.signal(signal.SIGPROF, _hang)
        self.base = self.peak = _peak()

    def limit(self) -> None:
        """From here on this process can have no more than ROOM on top of what it has."""
        has = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (has + ROOM, has + ROOM))

    def __call__(self, data: bytes) -> None:
        data = data[:LARGEST]
        self.current[: len(data) + 4] = struct.pack("<I", len(data)) + data
        counts = self.counts
        counts.cases += 1
        start = time.process_time()  # others may keep the machine busy
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                self.call(data)
            counts.accepted += 1
        except FocuseError as error:
            counts.refused += 1
            self._check_line(error, data)
        except HangError as error:
            counts.hangs += 1
            self._fault(error, data)
        except WrongError as error:
            counts.wrong += 1
            self._fault(error, data)
        except MemoryError as error:
            counts.blown += 1
            self._fault(error, data)
        except BaseException as error:  # what a library written in Rust panics with is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            counts.crashes += 1
            self._fault(error, data)
        finally:
            with suppress(HangError):
                signal.setitimer(signal.ITIMER_PROF, 0)
        counts.slowest = max(counts.slowest, time.process_time() - start)
        peak = _peak()
        if peak > self.peak + GROWTH:
            counts.blown += 1
            self._fault(MemoryError(f"{(peak - self.peak) >> 20} MiB for one case"), data)
        self.peak = max(peak, self.peak)
        counts.peak = self.peak - self.base
        counts.seconds = time.monotonic() - self.started

    def _check_line(self, error: FocuseError, data: bytes) -> None:
        """A refusal is one line that a terminal can show; that of a rule has the rule below it."""
        text = str(error)
        lines = text.split("\n") if type(error).__name__ == "RuleError" else [text]
        if not all(line.isprintable() for line in lines) or len(text) > LONGEST or not text:
            self.counts.wrong += 1
            self._fault(WrongError(f"a message that is not one line: {text[:80]!r}"), data)

    def _fault(self, error: BaseException, data: bytes) -> None:
        """Keep the shortest input of each place that faults come from."""
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "guard.py" not in frame.filename]
        ours = [frame for frame in frames if "focuse" in frame.filename] or frames
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        told = re.sub(r"[0-9]+", "0", str(error))[:60] if isinstance(error, WrongError) else ""
        key = f"{type(error).__name__} {place} {told}"
        name = f"{self.counts.target}-{hashlib.sha256(key.encode(errors='replace')).hexdigest()[:12]}"
        path = self.folder / f"{name}.case"
        if not path.exists() or len(data) < path.stat().st_size:
            path.write_bytes(data)
            text = "".join(traceback.format_exception(error))
            path.with_suffix(".txt").write_text(f"{key}\n{text}", encoding="utf-8", errors="backslashreplace")
        self.counts.faults[key] = path.name

    def write(self, path: Path) -> None:
        """What was counted so far, as JSON."""
        path.write_text(json.dumps(self.counts.to_dict()), encoding="utf-8")


def current_case(folder: Path, target: str, driver: str) -> bytes:
    """The case that a dead worker had in hand."""
    whole = (folder / f"{target}.{driver}.current").read_bytes()
    return whole[4 : 4 + struct.unpack_from("<I", whole)[0]]


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _hang(number: int, frame: FrameType | None) -> None:
    raise HangError(f"more than {SECONDS:g} s")
