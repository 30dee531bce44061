"""The command as a child process that starts at once, and the moments at which it may be killed.

Children are forked from this process, which has imported everything, so that a kill costs little. What they print goes
to a file; they end with the command's own exit code, or by a signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KILLED = (signal.SIGKILL, signal.SIGXFSZ)  # the second is how a process ends that writes past its limit
PATIENCE = 120.0  # seconds that a child may take
OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "shutil.rmtree")


@dataclass(frozen=True)
class Moment:
    """When a child is killed: `seconds` after its start, before its file operation number `operation`, or when it has
    written `byte` bytes of a `file` of that kind, the `time`th that it makes. `signal` may be another than kill -9's,
    and come `twice`, before the next operation, too."""

    seconds: float | None = None
    operation: int | None = None
    file: str | None = None
    time: int = 1
    byte: int = 0
    signal: int = signal.SIGKILL
    twice: bool = False

    @property
    def kind(self) -> str:
        if self.seconds is not None:
            return "by the clock"
        return "before a file operation" if self.operation is not None else "at a byte of a file"


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (negative: a signal's number), and what it printed, standard error last."""

    code: int
    text: str

    @property
    def killed(self) -> bool:
        return self.code < 0 and -self.code in KILLED

    @property
    def line(self) -> str:
        """The last line it printed."""
        lines = self.text.strip().splitlines()
        return lines[-1] if lines else ""


class Child:
    """A running command."""

    def __init__(self, arguments: Sequence[str], prepare: Callable[[], None] | None = None) -> None:
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by wait
        self.started = time.monotonic()
        sys.stdout.flush()
        self.process = os.fork()
        if not self.process:
            os._exit(self._live(arguments, prepare))

    def _live(self, arguments: Sequence[str], prepare: Callable[[], None] | None) -> int:
        """What the interpreter does with the command."""
        from focuse.cli.main import run

        os.dup2(self.output.fileno(), 1)
        os.dup2(self.output.fileno(), 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        sys.argv = ["focuse", *arguments]
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = 0
        try:
            if prepare is not None:
                prepare()
            run()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 99  # nothing should come so far
        sys.stdout.flush()
        sys.stderr.flush()
        from focuse.engines.process_group import destroy_group

        destroy_group()  # as at the interpreter's exit
        return code

    def is_running(self) -> bool:
        return os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, number)

    def wait(self, patience: float = PATIENCE) -> Ended:
        """Wait for its end; one that hangs is a fault, too."""
        while self.is_running():
            if time.monotonic() - self.started > patience:
                self.signal(signal.SIGKILL)
                os.waitpid(self.process, 0)
                return Ended(98, "it hung")
            time.sleep(0.001)
        _, status = os.waitpid(self.process, 0)
        self.output.seek(0)
        text = self.output.read().decode(errors="replace")
        self.output.close()
        return Ended(os.waitstatus_to_exitcode(status), text)


def command(*arguments: object, moment: Moment | None = None, near: Path | None = None) -> Ended:
    """Run `focuse ARGUMENTS` to its end, or to `moment`; file operations are counted that lie `near` a folder."""
    words = [str(word) for word in arguments]
    if moment is None:
        return Child(words).wait()
    if moment.seconds is None:
        watched = str(near)
        return Child(words, lambda: watch(moment, watched)).wait()
    child = Child(words)
    wait_until(lambda: not child.is_running() or time.monotonic() - child.started >= moment.seconds)
    child.signal(signal.SIGKILL)
    return child.wait()


def wait_until(reached: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """Look again and again; whether it was reached in time."""
    end = time.monotonic() + patience
    while not reached():
        if time.monotonic() > end:
            return False
        time.sleep(0.0003)
    return True


def hear(near: str, each: Callable[[str, bool], None]) -> None:
    """In a child: call `each` before every file operation near a folder, with the path and whether a file is made."""

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in OPERATIONS and arguments and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            if path.startswith(near):
                each(path, event == "open" and bool(arguments[2] & os.O_CREAT))

    flush = os.fsync

    def fsync(handle: int) -> None:
        each("", False)
        flush(handle)

    os.fsync = fsync  # the system is not asked who hears of it
    sys.addaudithook(heard)


def watch(moment: Moment, near: str) -> None:
    """In a child: end it as kill -9 does, at a moment of its own work."""
    seen = {"operations": 0, "times": 0}
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # here: partitions are written by a thread, which may not

    def each(path: str, made: bool) -> None:
        seen["operations"] += 1
        last = None if moment.operation is None else moment.operation + moment.twice
        if seen["operations"] in (moment.operation, last):
            os.kill(os.getpid(), moment.signal)
        if made and kind_of(path) == moment.file:
            seen["times"] += 1
            if seen["times"] == moment.time:
                resource.setrlimit(resource.RLIMIT_FSIZE, (moment.byte, resource.RLIM_INFINITY))

    hear(near, each)


def kind_of(path: str) -> str:
    """What a file is, whoever writes it half and whichever version it is: 'part-*.safetensors', 'manifest.json'."""
    name = re.sub(r"^\.(.+)\.\d+(-[0-9a-f]+)?$", r"\1", os.path.basename(path))
    return re.sub(r"-\d+(\.\d+)?\.safetensors$", "-*.safetensors", name)


@dataclass(frozen=True)
class Operations:
    """How many file operations a command makes near a folder, and how many of them make a file of each kind."""

    count: int
    made: dict[str, int]


class Counting:
    """Counts the file operations of a child near a folder."""

    def __init__(self, near: Path) -> None:
        self.near, self.file = str(near), tempfile.TemporaryFile()  # noqa: SIM115 - closed by found

    def prepare(self) -> None:
        """In the child."""
        seen: dict[str, int] = {"": 0}

        def each(path: str, made: bool) -> None:
            seen[""] += 1
            if made:
                seen[kind_of(path)] = seen.get(kind_of(path), 0) + 1
            os.pwrite(self.file.fileno(), json.dumps(seen).encode(), 0)  # never shorter than before

        hear(self.near, each)

    def found(self) -> Operations:
        """When the child has ended."""
        with self.file:
            self.file.seek(0)
            seen = json.loads(self.file.read() or b'{"": 0}')
        return Operations(seen.pop(""), seen)


def operations(*arguments: object, near: Path) -> Operations:
    """What a command does near a folder when nothing disturbs it."""
    counting = Counting(near)
    Child([str(word) for word in arguments], counting.prepare).wait()
    return counting.found()
