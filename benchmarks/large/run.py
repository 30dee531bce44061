"""Preparing and training a graph larger than memory: seconds, edges a second, peak memory and disk traffic.

    python benchmarks/large/run.py [--entities 10000000] [--edges 100000000] [--limit 6GB] [--folder large] [--keep]

Generates the graph (graph.py), then reads and trains it for an epoch, ComplEx k = 64 with Adagrad's state, in a process
of its own whose memory is limited by a control group where one can be made; pages of files count there too. Beside it
two floors: what the disk takes for the bytes that moved, and what a training in memory takes for as many edges.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import smoke
from graph import Recipe

FITTING = (500_000, 5_000_000)  # entities and edges of a graph that fits into memory
DISK = 2 << 30  # bytes written and read to see how fast the disk is
GROUP = Path("/sys/fs/cgroup")
SAME = {"dim": 64, "epochs": 1, "label_exponent": 2.0, "progress": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=10_000_000)
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--limit", default="6GB", help="memory of the training process")
    parser.add_argument("--folder", type=Path, default=Path("large"))
    parser.add_argument("--keep", action="store_true", help="leave graph and run in the folder")
    parser.add_argument("--inside", choices=["train", "memory"], help=argparse.SUPPRESS)
    parser.add_argument("--fitting", type=int, nargs=2, default=FITTING, help=argparse.SUPPRESS)
    parser.add_argument("--disk", type=int, default=DISK, help=argparse.SUPPRESS)
    given = smoke.parse(parser, entities=200, edges=2000, limit="1GB", fitting=(200, 2000), disk=1 << 24)
    if given.inside:
        return inside(given)
    if given.smoke:
        given.folder = Path(tempfile.mkdtemp())
    given.folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"entities": given.entities, "edges": given.edges, "limit": given.limit}
    path = given.folder / f"graph-{given.entities}-{given.edges}.tsv"
    started = time.perf_counter()
    if not path.exists():
        Recipe(given.entities, given.edges).write(path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    figures |= {"generate_s": time.perf_counter() - started, "text_GB": path.stat().st_size / 1e9}
    figures |= disk_speed(given.folder, given.disk)
    shutil.rmtree(given.folder / "run", ignore_errors=True)
    with control_group(given.limit) as group:
        figures |= child(given, "train", group)
        if group is not None:
            figures["group_peak_GB"] = peak_of(group) / 1e9
        figures["enforced"] = group is not None
    figures |= child(given, "memory", None)
    shown(figures)
    if not given.keep:
        shutil.rmtree(given.folder)


def shown(figures: dict[str, Any]) -> None:
    """All figures, with what follows from them."""
    moved = figures["read_GB"] / figures["disk_read_GB_s"] + figures["written_GB"] / figures["disk_write_GB_s"]
    figures["edges_a_second"] = figures["edges"] / figures["epoch_s"]
    figures["disk_floor_s"] = moved
    figures["compute_floor_s"] = figures["edges"] / figures["in_memory_edges_a_second"]
    figures["epoch_over_floor"] = figures["epoch_s"] / max(moved, figures["compute_floor_s"])
    for name, value in figures.items():
        print(f"{name:28} {value:,.3f}" if isinstance(value, float) else f"{name:28} {value}")
    print(json.dumps(figures))


def child(given: argparse.Namespace, what: str, group: Path | None) -> dict[str, Any]:
    """One part in a process of its own; its figures, the last line that it prints."""
    command = [sys.executable, __file__, "--inside", what, "--limit", given.limit, "--folder", str(given.folder)]
    command += ["--entities", str(given.entities), "--edges", str(given.edges)]
    command += ["--fitting", *map(str, given.fitting)]

    def join() -> None:
        if group is not None:
            (group / ("cgroup.procs" if (group / "cgroup.procs").exists() else "tasks")).write_text(str(os.getpid()))

    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=join)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def inside(given: argparse.Namespace) -> None:
    import focuse

    if given.inside == "memory":
        fits = given.folder / "fits.parquet"
        Recipe(*given.fitting).write(fits)
        run = focuse.train(
            focuse.read(fits), valid_fraction=0.0, engine="auto", memory_limit="64GB", **SAME
        )  # steps alone
        print(json.dumps({"in_memory_edges_a_second": len(run.splits.train) / run.history[0]["seconds"]}))
        return
    with peaks() as found:
        started = time.perf_counter()
        graph = focuse.read(given.folder / f"graph-{given.entities}-{given.edges}.tsv")
        found["encode_s"] = time.perf_counter() - started
        started = time.perf_counter()
        run = focuse.train(graph, out=given.folder / "run", memory_limit=given.limit, **SAME)
        found["train_s"] = time.perf_counter() - started
        found["epoch_s"] = run.history[0]["seconds"]
        found["valid_mrr"] = run.history[0].get("valid_mrr")
        found["partitions"] = run.settings.partitions
    print(json.dumps(found))


@contextmanager
def peaks() -> Iterator[dict[str, Any]]:
    """What the block of this process takes: anonymous memory at its peak, and bytes to and from disk."""
    found: dict[str, Any] = {"anonymous_peak_GB": 0.0}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            told = Path("/proc/self/status").read_text(encoding="ascii")
            anonymous = next(int(line.split()[1]) for line in told.splitlines() if line.startswith("RssAnon"))
            found["anonymous_peak_GB"] = max(found["anonymous_peak_GB"], anonymous * 1024 / 1e9)

    before = _traffic()
    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        over.set()
        watching.join()
        after = _traffic()
        found |= {f"{name}_GB": (after[key] - before[key]) / 1e9 for name, key in KINDS.items()}


KINDS = {"read": "read_bytes", "written": "write_bytes"}


def _traffic() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return {line.split(":")[0]: int(line.split(":")[1]) for line in lines}


@contextmanager
def control_group(limit: str) -> Iterator[Path | None]:
    """A control group of so much memory, version 1 or 2; None where none can be made."""
    from focuse.system import parse_memory

    old = (GROUP / "memory").is_dir()
    group = (GROUP / "memory" if old else GROUP) / f"focuse-large-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(parse_memory(limit)))
    except OSError as error:
        print(f"no control group ({error}); the limit is asked for, not enforced", file=sys.stderr)
        with suppress(OSError):
            group.rmdir()
        yield None
        return
    try:
        yield group
    finally:
        with suppress(OSError):
            group.rmdir()


def peak_of(group: Path) -> int:
    old = group / "memory.max_usage_in_bytes"
    return int((old if old.exists() else group / "memory.peak").read_text())


def disk_speed(folder: Path, size: int) -> dict[str, float]:
    """Gigabytes a second of one long file, written to disk and read back from it."""
    path, piece = folder / "speed", os.urandom(1 << 24)
    try:
        started = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            for _ in range(size >> 24):
                file.write(piece)
            os.fsync(file.fileno())
            wrote = time.perf_counter() - started
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        started = time.perf_counter()
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
        return {"disk_write_GB_s": size / 1e9 / wrote, "disk_read_GB_s": size / 1e9 / (time.perf_counter() - started)}
    finally:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
