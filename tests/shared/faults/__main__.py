"""What a training survives: kill -9, full disks, altered files, two trainings in one folder, signals, clocks.

    PYTHONPATH=tests/shared python -m faults [--kills 200] [--partitioned 100] [--sharded 20] [--seed 0] [--json]

Trains a small graph with the command itself, in child processes forked from this one, and disturbs it: killed before a
file operation, at a byte of a checkpoint or by the clock, all by chance of --seed, then resumed, perhaps killed again,
until it ends; every tensor of model and checkpoint, the progress and the history are then compared bit for bit with
those of a training that nobody disturbed. Trainings are in memory, by partitions on disk, and of two processes that
share their tables. Then the other faults, each with its count and the lines that were printed. Exits with 1 if anything
went wrong. Needs a system with fork (Linux); as root, full disks are real ones of 4 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # bits depend on the number of threads, and forks on there being one
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as the command has it, but torch is imported before it here

from faults import damage, kills, others, sharded
from faults.children import Moment, command
from faults.jobs import Job, Work, do_all
from faults.subject import CHECKPOINT, Subject

Row = tuple[str, int, int, str]
PARTITIONS = ("4:2", "5:3:2")
PIECE, WORKERS = 25, 5  # kills of one piece of work, of workers


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200, help="kill -9 of trainings in memory [default: 200]")
    parser.add_argument("--partitioned", type=int, default=100, help="of trainings by partitions [default: 100]")
    parser.add_argument("--sharded", type=int, default=20, help="of workers of two processes each [default: 20]")
    parser.add_argument("--torchrun", type=int, default=3, help="of workers that torchrun has started [default: 3]")
    parser.add_argument("--flips", type=int, default=500, help="bits turned over in files of runs [default: 500]")
    parser.add_argument("--steps", type=int, default=100, help="lengths to which each file is cut [default: 100]")
    parser.add_argument("--others", type=int, default=20, help="of each other fault, 0: none [default: 20]")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="faults at a time [default: cores]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", type=Path, help="folder to work in [default: the system's for such things]")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args(words)


def preload(optimizers: set[str] | None = None) -> None:
    """Import all that the command needs, so that no child does."""
    import sklearn.ensemble
    import sklearn.isotonic
    import sklearn.linear_model  # noqa: F401

    from focuse.cli.main import app

    if optimizers:
        sharded.preload(optimizers)
    with contextlib.redirect_stdout(io.StringIO()):
        app(["train", "--model", "list"], standalone_mode=False)


def campaign(options: argparse.Namespace, note: Callable[[str], None]) -> dict[str, Any]:
    """All faults; what came of each."""
    preload(set(sharded.OPTIMIZERS[: len(pieces(options.sharded, WORKERS))]))
    made = Path(tempfile.mkdtemp(dir=options.room))
    try:
        subject = Subject.make(made)
        jobs = in_memory(subject, options, note) | by_partitions(subject, options, note)
        jobs |= several(subject, options, note)
        return do_all(jobs, options.workers, options.seed, made, note)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def pieces(most: int, size: int = PIECE) -> list[int]:
    """How many of each piece of work: about `size`."""
    count = -(-most // size)
    return [most * (number + 1) // count - most * number // count for number in range(count)]


def in_memory(subject: Subject, options: argparse.Namespace, note: Callable[[str], None]) -> dict[str, Job]:
    """Trainings in memory, and whatever else writes."""
    few = options.others
    jobs: dict[str, Job] = {}
    if options.kills:
        jobs["kill -9"] = [_killing(subject, count, note) for count in pieces(options.kills)]
    if few:
        for name in kills.OTHERS:
            jobs[f"kill -9, {name}"] = [_killing_other(subject, few, name)]
    if options.flips or options.steps or few:
        whole, killed = subject.room / "deferred_signals", subject.room / "stopped"
        command(*subject.train(whole))
        command(*subject.train(killed), moment=Moment(file=CHECKPOINT, time=5, byte=1000), near=subject.room)
        runs = damage.make_runs(subject, whole)
        jobs |= altered("", runs, options, note)
    if few:
        jobs |= disturbed("", subject, whole, few)
        jobs["a folder that cannot be written"] = [
            lambda random, room: others.read_only(subject.in_room(room), whole, killed).to_dict()
        ]
    return jobs


def by_partitions(subject: Subject, options: argparse.Namespace, note: Callable[[str], None]) -> dict[str, Job]:
    """The same of trainings by partitions."""
    kinds = [subject.with_options("--engine", "partitioned", "--partitions", each) for each in PARTITIONS]
    counts, few = pieces(options.partitioned), options.others
    if not counts:
        return {}
    jobs: dict[str, Job] = {}
    jobs["kill -9, partitioned"] = [_killing(kinds[at % len(kinds)], each, note) for at, each in enumerate(counts)]
    parted = kinds[0].in_room(subject.room / "parted")
    whole = parted.room / "deferred_signals"
    command(*parted.train(whole))
    if few:
        jobs["kill -9, partitioned train --resume --epochs"] = [_killing_other(parted, few, kills.OTHERS[2])]
    if options.flips or options.steps:
        jobs |= altered(", partitioned", damage.make_runs(parted, whole), options, note)
    return jobs | (disturbed(", partitioned", parted, whole, few) if few else {})


def several(subject: Subject, options: argparse.Namespace, note: Callable[[str], None]) -> dict[str, Job]:
    """Trainings of two processes."""
    jobs: dict[str, Job] = {}
    kinds = [subject.with_options("--engine", "sharded", "--optimizer", each) for each in sharded.OPTIMIZERS]
    counts = pieces(options.sharded, WORKERS)
    if counts:
        jobs["kill -9, sharded"] = [
            _killing_workers(kinds[at % len(kinds)], each, note) for at, each in enumerate(counts)
        ]
    if options.torchrun:
        jobs["kill -9, sharded by torchrun"] = [
            lambda random, room: sharded.kill_under_torchrun(
                kinds[0].in_room(room), options.torchrun, random, note
            ).to_dict()
        ]
    return jobs


def altered(
    name: str, runs: tuple[Path, ...], options: argparse.Namespace, note: Callable[[str], None]
) -> dict[str, Job]:
    """Every file of two runs altered."""
    steps = -(-options.steps // (5 if name else 1))  # of partitions there are many files alike
    jobs: dict[str, Job] = {}
    if options.flips:
        jobs[f"a bit turned over{name}"] = [
            lambda random, room: damage.flip(damage.copies(runs, room), options.flips, random, note).to_dict()
        ]
    if options.steps:
        jobs[f"a file cut short{name}"] = [
            lambda random, room: damage.truncate(damage.copies(runs, room), steps, note).to_dict()
        ]
    return jobs


def disturbed(name: str, subject: Subject, whole: Path, few: int) -> dict[str, Job]:
    """What else may happen to a training."""
    return {
        f"a full disk{name}": [
            lambda random, room: others.full_disk(subject.in_room(room), whole, few, random).to_dict()
        ],
        f"two trainings in one folder{name}": [
            lambda random, room: others.two_trainings(subject.in_room(room), whole, few // 2).to_dict()
        ],
        f"SIGTERM, SIGINT, SIGHUP{name}": [
            lambda random, room: others.signals(subject.in_room(room), whole, few, random).to_dict() for _ in range(3)
        ],
        f"a clock that jumps{name}": [
            lambda random, room: others.clocks(subject.in_room(room), whole, few // 2, random).to_dict()
        ],
    }


def _killing(subject: Subject, count: int, note: Callable[[str], None]) -> Work:
    return lambda random, room: kills.kill_trainings(subject.in_room(room), count, random, note).to_dict()


def _killing_other(subject: Subject, count: int, name: str) -> Work:
    return lambda random, room: kills.kill_other(subject.in_room(room), count, random, name).to_dict()


def _killing_workers(subject: Subject, count: int, note: Callable[[str], None]) -> Work:
    return lambda random, room: sharded.kill_workers(subject.in_room(room), count, random, note).to_dict()


def rows(found: dict[str, Any]) -> list[Row]:
    """What was done, how often, how often it went well, and what is to say of it."""
    from focuse.errors import counted

    made: list[Row] = []
    for name, each in found.items():
        if "kills" in each:
            phases = f"{counted(len(each['phases']), 'phases')}, below" if each["phases"] else ""
            made.append((f"{name} ({each['kills']} kills)", each["trainings"], each["same"], phases))
        elif "told" in each:
            about = f"{counted(len(each['files'] or each['lines']), 'kinds')} of files"
            about += f", {each['harmless']} cuts behind what counts" if each["harmless"] else ""
            made.append((name, each["tried"], each["told"] + each["harmless"], about))
        else:
            made.append((name, each["tried"], each["good"], f"{counted(len(each['lines']), 'different lines')} told"))
    return made


def table(found: dict[str, Any]) -> str:
    """Markdown, then when it was killed, the lines that were printed, and what went wrong."""
    text = "| fault | tried | as it should be | |\n| --- | ---: | ---: | --- |\n"
    text += "".join(f"| {name} | {tried} | {good} | {about} |\n" for name, tried, good, about in rows(found))
    for name, each in found.items():
        if each.get("phases"):
            ordered = sorted(each["phases"].items(), key=lambda item: -item[1])
            text += f"\n{name}:\n\n" + "".join(f"- {count} {phase}\n" for phase, count in ordered)
    for name, each in found.items():
        lines = each.get("lines") or {}
        text += "".join(f"\n{name}: {line if isinstance(count, int) else count}" for line, count in lines.items())
    faults = [f"{name}: {fault}" for name, each in found.items() for fault in each["faults"]]
    return text + "".join(f"\nFAULT {fault}" for fault in faults) + f"\n{len(faults)} faults"


def main(words: list[str] | None = None) -> int:
    options = arguments(words)
    found = campaign(options, lambda text: print(text, file=sys.stderr, flush=True))
    print(json.dumps(found, indent=1, ensure_ascii=False) if options.json else table(found))
    return int(any(each["faults"] for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
