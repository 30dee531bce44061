"""PYTHONPATH=tests/shared python -m fuzzing --cases 1000000 --seed 0: the table of docs/input.md."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from fuzzing.guard import Counts, current_case
from fuzzing.targets import TARGETS

DRIVERS = {"atheris": 0.6, "mutator": 0.3, "hypothesis": 0.1}
STAGES = (0.03, 0.2, 0.6, 1.0)  # shares of the cases after which every target has had as many: faults show early
DEATHS = 20  # of workers by one target and driver, then it is left alone
SUMS = ("cases", "accepted", "refused", "crashes", "hangs", "wrong", "blown", "seconds")


class Book:
    """What is counted so far, in a file, so that a later call goes on."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.path = folder / f"counts-{seed}.json"
        found = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else []
        known = {field.name for field in fields(Counts)}
        self.rows = {
            (row["target"], row["driver"]): Counts(**{key: value for key, value in row.items() if key in known})
            for row in found
        }

    def row(self, target: str, driver: str) -> Counts:
        return self.rows.setdefault((target, driver), Counts(target, driver))

    def add(self, more: dict[str, Any]) -> None:
        row = self.row(more["target"], more["driver"])
        for name in SUMS:
            setattr(row, name, getattr(row, name) + more[name])
        row.slowest, row.peak = max(row.slowest, more["slowest"]), max(row.peak, more["peak"])
        row.faults |= more["faults"]
        self.path.write_text(json.dumps([each.to_dict() for each in self.rows.values()]), encoding="utf-8")


def work(book: Book, target: str, driver: str, upto: int, seed: int, until: float, folder: Path) -> None:
    """Cases of a target by a driver until it has had `upto`; a worker that dies is a crash, and another goes on."""
    deaths = 0
    while (row := book.row(target, driver)).cases < upto and time.time() < until and deaths < DEATHS:
        result = folder / f"{target}.{driver}.json"
        result.unlink(missing_ok=True)
        asked = {"target": target, "driver": driver, "cases": upto - row.cases, "until": until, "folder": str(folder)}
        asked["seed"] = seed * 1_000_003 + row.cases  # another stream in each worker
        environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        memory = Path("/dev/shm")  # files in memory, where there are such
        place = str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="focuse-fuzz-", dir=place) as scratch:  # whatever becomes of the worker
            command = [sys.executable, "-m", "fuzzing.worker", json.dumps({**asked, "work": scratch})]
            done = subprocess.run(command, capture_output=True, env=environment, check=False)
        counted = (
            json.loads(result.read_text(encoding="utf-8")) if result.exists() else Counts(target, driver).to_dict()
        )
        if done.returncode:
            deaths += 1
            kept = folder / f"{target}-died-{row.cases}.case"
            if not (folder / f"{target}.{driver}.current").exists():  # it did not come so far as to take a case
                raise SystemExit(f"{target} by {driver}: {done.stderr.decode(errors='replace')[-2000:]}")
            kept.write_bytes(current_case(folder, target, driver))
            kept.with_suffix(".txt").write_bytes(done.stderr[-20_000:])
            counted["cases"], counted["crashes"] = counted["cases"] + 1, counted["crashes"] + 1
            counted["faults"][f"died {done.returncode}"] = kept.name
        book.add(counted)


def total(rows: list[Counts], driver: str = "") -> Counts:
    """The sums of a driver's rows, or of all."""
    whole = Counts("all", driver)
    for row in rows:
        if driver in ("", row.driver):
            for name in SUMS:
                setattr(whole, name, getattr(whole, name) + getattr(row, name))
            whole.slowest, whole.peak = max(whole.slowest, row.slowest), max(whole.peak, row.peak)
    return whole


def table(rows: list[Counts]) -> str:
    """The counts as text, with their sums."""
    lines = [
        f"{'target':17} {'driver':11} {'cases':>9} {'accepted':>9} {'refused':>9} {'crashes':>8} {'hangs':>6} "
        f"{'wrong':>6} {'memory':>7} {'slowest':>8} {'peak':>8}"
    ]
    for row in [*rows, *(total(rows, name) for name in dict.fromkeys(row.driver for row in rows)), total(rows)]:
        lines.append(
            f"{row.target:17} {row.driver:11} {row.cases:9,} {row.accepted:9,} {row.refused:9,} {row.crashes:8,} "
            f"{row.hangs:6,} {row.wrong:6,} {row.blown:7,} {row.slowest:6.2f} s {row.peak >> 20:4} MiB"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000, help="of all targets and drivers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", default="", help=f"some of {', '.join(TARGETS)}")
    parser.add_argument("--drivers", default="", help=f"some of {', '.join(DRIVERS)}")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many; call again to go on")
    parser.add_argument("--out", type=Path, default=Path("fuzz-results"), help="folder of the counts and of bad cases")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    targets = [name for name in TARGETS if not given.targets or name in given.targets.split(",")]
    drivers = {name: share for name, share in DRIVERS.items() if not given.drivers or name in given.drivers.split(",")}
    if "atheris" in drivers and importlib.util.find_spec("atheris") is None:
        print("atheris is not installed (pip install '.[check]'): its cases go to the others", file=sys.stderr)
        del drivers["atheris"]
    book = Book(given.out, given.seed)
    until = time.time() + 60 * given.minutes
    whole = sum(TARGETS[name].share for name in targets) * sum(drivers.values())
    for stage in STAGES if given.cases >= 100_000 else STAGES[-1:]:
        for target in targets:
            for driver, share in drivers.items():
                upto = -int(-given.cases * stage * TARGETS[target].share * share / whole // 1)
                work(book, target, driver, upto, given.seed, until, given.out)
        if not given.json and time.time() < until:
            print(f"{stage:.0%} of {given.cases:,}", file=sys.stderr, flush=True)
    rows = [row for (target, driver), row in book.rows.items() if target in targets and driver in drivers]
    bad = sum(row.bad for row in rows)
    if given.json:
        print(
            json.dumps({"cases": sum(row.cases for row in rows), "bad": bad, "rows": [row.to_dict() for row in rows]})
        )
    else:
        print(table(rows))
        for row in rows:
            for fault, name in row.faults.items():
                print(f"{row.target} by {row.driver}: {fault}: {given.out / name}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
