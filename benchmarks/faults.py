"""What a training survives: kill -9, full disks, altered files, two trainings in one folder, signals, clocks.

    python benchmarks/faults.py [--kills 200] [--flips 500] [--seed 0] [--json] [--room FOLDER]

Trains a small graph with the command itself, in child processes forked from this one, and disturbs it: killed before a
file operation, at a byte of a checkpoint or by the clock, all by chance of --seed, then resumed, perhaps killed again,
until it ends; every tensor of model and checkpoint, the progress and the history are then compared bit for bit with
those of a training that nobody disturbed. Then the other faults, each with its count and the lines that were printed.
Exits with 1 if anything went wrong. Needs a system with fork (Linux); as root, full disks are real ones of 4 MB.
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
os.environ["FOCUSE_GRAPH_CACHE"] = "off"
sys.path.insert(0, str(Path(__file__).parent / "faulty"))

import damage
import kills
import numpy as np
import others
from children import Moment, command
from subject import Subject

Row = tuple[str, int, int, str]


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="kill -9 of trainings [default: 200]")
    parser.add_argument("--flips", type=int, default=500, help="bits turned over in files of runs [default: 500]")
    parser.add_argument("--steps", type=int, default=100, help="lengths to which each file is cut [default: 100]")
    parser.add_argument("--others", type=int, default=20, help="of each other fault, 0: none [default: 20]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", type=Path, help="folder to work in [default: the system's for such things]")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args(words)


def preload() -> None:
    """Import all that the command needs, so that no child does."""
    import sklearn.ensemble
    import sklearn.isotonic
    import sklearn.linear_model  # noqa: F401

    import focuse.living
    import focuse.run  # noqa: F401
    from focuse.cli.main import app

    with contextlib.redirect_stdout(io.StringIO()):
        app(["train", "--model", "list"], standalone_mode=False)


def campaign(options: argparse.Namespace, note: Callable[[str], None]) -> dict[str, Any]:
    """All faults; what came of each."""
    preload()
    random = np.random.default_rng(options.seed)
    made = Path(tempfile.mkdtemp(dir=options.room))
    subject = Subject.make(made)
    few = options.others
    try:
        found: dict[str, Any] = {"kill -9": kills.kill_trainings(subject, options.kills, random, note).to_dict()}
        for name, each in kills.kill_others(subject, few, random, note).items() if few else ():
            found[f"kill -9, {name}"] = each.to_dict()
        whole, killed = made / "undisturbed", made / "stopped"
        command(*subject.train(whole))
        command(*subject.train(killed), moment=Moment(name="checkpoint.safetensors", time=5, byte=1000), near=made)
        runs = damage.make_runs(subject, whole)
        jobs: dict[str, Callable[[], Any]] = {
            "a bit turned over": lambda: damage.flip(runs, options.flips, random, note),
            "a file cut short": lambda: damage.truncate(runs, options.steps, note),
        }
        rest: dict[str, Callable[[], Any]] = {
            "an altered checkpoint, resumed": lambda: damage.altered_then_resumed(runs[1], whole, few, random),
            "a full disk": lambda: others.full_disk(subject, whole, few, random),
            "a folder that cannot be written": lambda: others.read_only(subject, whole, killed),
            "two trainings in one folder": lambda: others.two_trainings(subject, whole, few // 2),
            "SIGTERM, SIGINT, SIGHUP": lambda: others.signals(subject, whole, 3 * few, random),
            "a clock that jumps": lambda: others.clocks(subject, whole, few // 2, options.seed),
        }
        for name, job in (jobs | (rest if few else {})).items():
            found[name] = job().to_dict()
            note(f"{name}: {len(found[name]['faults'])} faults")
        return found
    finally:
        shutil.rmtree(made, ignore_errors=True)


def rows(found: dict[str, Any]) -> list[Row]:
    """What was done, how often, how often it went well, and what is to say of it."""
    made: list[Row] = []
    for name, each in found.items():
        if "kills" in each:
            phases = ", ".join(f"{count} {phase}" for phase, count in each["phases"].items())
            made.append((f"{name} ({each['kills']} kills)", each["trainings"], each["same"], phases))
        elif "told" in each:
            about = f"{len(each['files'] or each['lines'])} kinds of files"
            about += f", {each['harmless']} cuts behind what counts" if each["harmless"] else ""
            made.append((name, each["tried"], each["told"] + each["harmless"], about))
        else:
            made.append((name, each["tried"], each["good"], f"{len(each['lines'])} different lines"))
    return made


def table(found: dict[str, Any]) -> str:
    """Markdown, then the lines that were printed, then what went wrong."""
    text = "| fault | tried | as it should be | |\n| --- | ---: | ---: | --- |\n"
    text += "".join(f"| {name} | {tried} | {good} | {about} |\n" for name, tried, good, about in rows(found))
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
