"""Several processes that train cells of one folder, each one cell at a time.

`share` starts them and hands out the cells. A worker is `python -m focuse.paper.workers`: it reads what to
train as lines of JSON and answers in lines of JSON. When its input ends, it saves and ends, so nothing goes on where
the command was killed. They are processes of their own, not forks: a GPU does not survive a fork.
"""

from __future__ import annotations

import _thread
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from focuse.errors import FocuseError, Stopped
from focuse.paper.cells import Cell
from focuse.storage.atomic import ProcessLock
from focuse.system import interruptible

if TYPE_CHECKING:
    from focuse.paper.results import Result

OUTCOMES = ("done", "failed", "stopped", "busy")
COMMAND = (sys.executable, "-m", "focuse.paper.workers")
PATIENCE = 0.1  # seconds between two looks at Ctrl-C

Say = Callable[[str], None]
Answer = Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """A cell and what it is called in messages."""

    cell: Cell
    label: str


def share(
    tasks: Sequence[Task],
    number: int,
    options: Mapping[str, Any],
    say: Say,
    record: Callable[[Task, Answer], None],
    deadline: float,
    command: Sequence[str] | None = None,
) -> bool:
    """Have `number` workers train `tasks` in their order; whether Ctrl-C ended it.

    `options` are those of `serve`. `record` is told how each that was begun ended: {"done": seconds}, {"failed": why},
    {"stopped": true} or {"busy": true}. After `deadline` (of time.monotonic) no other is begun.
    """
    pool = _Pool(tasks, options, say, record, deadline, command or COMMAND)
    threads = [threading.Thread(target=pool.drive, daemon=True) for _ in range(min(number, len(tasks)))]
    try:
        with interruptible() as interrupted:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(PATIENCE)
                if interrupted.is_set():
                    pool.stop()
    finally:  # a second Ctrl-C does not wait
        pool.kill()
    return interrupted.is_set()


class _Pool:
    """What the threads that look after one worker each share."""

    def __init__(
        self,
        tasks: Sequence[Task],
        options: Mapping[str, Any],
        say: Say,
        record: Callable[[Task, Answer], None],
        deadline: float,
        command: Sequence[str],
    ) -> None:
        self.tasks, self.options, self.deadline, self.command = deque(tasks), options, deadline, command
        self._say, self._record = say, record
        self.lock = threading.RLock()
        self.stopping = False
        self.workers: list[_Worker] = []

    def drive(self) -> None:
        """Start a worker and give it one task after the other; one that died is replaced."""
        worker: _Worker | None = None
        while (task := self._next()) is not None:
            if worker is None or not worker.alive:
                worker = self._start()
            answer = worker.train(task, self.say)
            if "stopped" not in answer and "failed" in answer and self.stopping:
                answer = {"stopped": True}  # it was ended, not ill
            with self.lock:
                self._record(task, answer)
        if worker is not None:
            worker.end()

    def say(self, text: str) -> None:
        with self.lock:
            self._say(text)

    def stop(self) -> None:
        """Ask every worker to save and end."""
        with self.lock:
            self.stopping = True
            workers = list(self.workers)
        for worker in workers:
            worker.end()

    def kill(self) -> None:
        self.stop()
        for worker in self.workers:
            worker.kill()

    def _next(self) -> Task | None:
        with self.lock:
            wanted = self.tasks and not self.stopping and time.monotonic() <= self.deadline
            return self.tasks.popleft() if wanted else None

    def _start(self) -> _Worker:
        with self.lock:
            worker = _Worker(self.command, self.options)
            self.workers.append(worker)
        return worker


class _Worker:
    """One process."""

    def __init__(self, command: Sequence[str], options: Mapping[str, Any]) -> None:
        environment = dict(os.environ)
        if str(options.get("device", "")).startswith("cuda"):  # on a CPU the bits depend on the number of threads
            environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(options["workers"]))))
        # A session of its own: Ctrl-C comes to the command, which asks its workers to end, and not to them as well.
        self.process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
            env=environment,
        )
        self.lock = threading.Lock()
        self._write(options)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def train(self, task: Task, say: Say) -> Answer:
        """Hand out a task and wait for its end; what the worker says before goes to `say` under the task's name."""
        self._write({"cell": task.cell.to_dict()})
        for line in self.process.stdout or ():
            try:
                answer = json.loads(line)
            except ValueError:
                continue
            if "say" in answer:
                say(f"{task.label}: {answer['say']}")
            if any(name in answer for name in OUTCOMES):
                if "failed" in answer and answer.get("ill"):
                    self.process.wait()
                return dict(answer)
        return {"failed": f"its process ended with code {self.process.wait()}"}

    def end(self) -> None:
        with self.lock:
            try:
                if self.process.stdin is not None:
                    self.process.stdin.close()
            except OSError:  # it has ended already
                pass

    def kill(self) -> None:
        if self.alive:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _write(self, data: Mapping[str, Any]) -> None:
        with self.lock:
            try:
                if self.process.stdin is not None:
                    self.process.stdin.write(json.dumps(data) + "\n")
                    self.process.stdin.flush()
            except (OSError, ValueError):  # it has ended, or was told to; what it answers says so
                pass


# ---- in which order: whole tables first, and in each the longest training first --------------------------------------

TRAINING_ROWS = 200_000  # of a training graph: as many as the paper's have, about
EARLY_STOPPING_EPOCHS = 1000  # epochs above which a training is expected to stop early
PLAIN_EPOCHS = 2000  # a plain model peaks after 1,000 to 2,400
# Seconds a number (row of a batch × its triples × size of an embedding), a step and a cell, on an H200.
SECONDS_PER_NUMBER = {"complex": 3.8e-12, "distmult": 1.8e-12, "transe": 1.8e-12}
OTHER_SECONDS_PER_NUMBER, SECONDS_PER_STEP, SECONDS_PER_CELL = 3e-12, 6e-5, 5.0


def in_order(cells: Sequence[Cell], finished: Iterable[Result] = ()) -> list[Cell]:
    """Seed after seed, the tables before figure 3, and of these the longest first, so that the short ones end it.

    How long a cell takes is known from its other seeds, or estimated.
    """
    known = {}
    for result in finished:
        if "times" in result.facts:
            known[_name_without_seed(Cell(**result.cell))] = float(result.facts["times"]["whole"])
    return sorted(
        cells,
        key=lambda cell: (
            cell.form == "figure3",
            cell.seed,
            -known.get(_name_without_seed(cell), estimated_seconds(cell)),
            cell.name,
        ),
    )


def estimated_seconds(cell: Cell, rows: int = TRAINING_ROWS) -> float:
    """About how many seconds a GPU will need."""
    given = cell.settings(rows)
    epochs = int(given.get("epochs", 100))
    if epochs > EARLY_STOPPING_EPOCHS:  # FocusE peaks about where it is first looked at, at λ/2
        patience = int(given.get("patience", 8)) * int(given.get("eval_every", 25))
        focused = int(given.get("beta_decay_epochs", 800)) // 2 + patience + 50
        epochs = min(epochs, focused if cell.kind == "focuse" else PLAIN_EPOCHS)
    size = int(given.get("batch_size", 512))
    numbers = size * int(given.get("dim", 128)) * (int(given.get("num_negatives") or 20) + 1)
    return SECONDS_PER_CELL + epochs * (rows / size) * (
        SECONDS_PER_STEP + numbers * SECONDS_PER_NUMBER.get(cell.model, OTHER_SECONDS_PER_NUMBER)
    )


def _name_without_seed(cell: Cell) -> str:
    return replace(cell, seed=0).name


# ---- who trains a cell -----------------------------------------------------------------------------------------------
# A lock that the system lets go of when its process ends, however it ends. So two workers, or two commands, never train
# the same cell, and nobody has to find out which claims are stale.


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Claim what the file `path` stands for; yields False, at once, if another process has it.

    The file is removed at the end. One left by a process that was killed is no claim.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "cell.claim"
    >>> with claim(file) as mine, claim(file) as again:
    ...     mine, again
    (True, False)
    """
    try:
        lock = ProcessLock.acquire(path, timeout=0)
    except OSError as error:
        raise FocuseError(f"{path}: {error.strerror or error}; choose an --out that can be written") from None
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


# ---- in the worker --------------------------------------------------------------------------------------------------


def serve(lines: IO[str], answers: IO[str]) -> None:
    """Train the cells that `lines` name until they end; the first line holds the options of a Reproducer."""
    answer = _Answers(answers)
    options = json.loads(lines.readline())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    asked, busy, ended = _listen(lines)
    from focuse.paper.reproduce import Reproducer

    worker = Reproducer.of_worker(options)
    reporter = worker.reporter(bool(options["progress"]), lambda text: answer({"say": text}))
    try:
        while (cell := asked.get()) is not None:
            busy.set()
            try:
                if ended.is_set():
                    raise KeyboardInterrupt
                started = time.monotonic()
                result = worker.train(cell, reporter)
                answer({"busy": True} if result is None else {"done": round(time.monotonic() - started, 3)})
            except (Stopped, KeyboardInterrupt):
                answer({"stopped": True})
            except FocuseError as error:
                answer({"failed": str(error)})
            finally:
                busy.clear()
    except KeyboardInterrupt:
        answer({"stopped": True})
    except Exception as error:  # a GPU is of no use to this process after an error: another one goes on
        traceback.print_exc()
        answer({"failed": f"{type(error).__name__}: {error}", "ill": True})
        sys.exit(1)


class _Answers:
    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def __call__(self, data: Answer) -> None:
        try:
            self.stream.write(json.dumps(data) + "\n")
            self.stream.flush()
        except OSError:  # nobody listens any more
            pass


def _listen(lines: IO[str]) -> tuple[queue.Queue[Cell | None], threading.Event, threading.Event]:
    """Cells as they come, None at the end; whoever is busy when they have ended is interrupted as by Ctrl-C."""
    asked: queue.Queue[Cell | None] = queue.Queue()
    busy, ended = threading.Event(), threading.Event()

    def listen() -> None:
        for line in lines:
            asked.put(Cell(**json.loads(line)["cell"]))
        ended.set()
        asked.put(None)
        if busy.is_set():
            _thread.interrupt_main()

    threading.Thread(target=listen, daemon=True).start()
    return asked, busy, ended


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")  # what others print is no answer
    os.dup2(2, 1)
    serve(sys.stdin, own)
