"""focuse beside other libraries, one after the other on this machine: pace, ranking, memory, MRR.

    python benchmarks/peers.py --data careers
    FOCUSE_DATA=folder python benchmarks/peers.py --data ppi5k --seeds 3 --json peers.json

Makes an environment for each peer (once, gigabytes), trains every system on the same split with the same model, number
of dimensions, negatives, batch size and threads, each in a process of its own, and prints a Markdown table. All
embeddings are ranked by one ranker, focuse's: the whole test set, filtered, both sides, ties at their worst.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import smoke

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import environments
import floor
import machine
from ranker import Ranker, Splits
from systems import NOTES, OWN, SYSTEMS, System, SystemFailedError, rates, run

from focuse.config import default_batch_size

PEERS = tuple(environments.STEPS)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ppi5k", help="a data set of focuse.datasets, or careers")
    parser.add_argument("--peers", default=",".join(PEERS), help="some of %(default)s, or none")
    parser.add_argument("--model", default="complex", choices=("complex", "distmult", "transe"))
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--negatives", type=int, default=30)
    parser.add_argument("--batch-size", type=int, help="for all systems (default: focuse's, about 64 batches an epoch)")
    parser.add_argument("--epochs", type=int, default=3, help="the first one warms up and is not timed")
    parser.add_argument("--lr", type=float, default=0.0, help="for all systems (default: each its own)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each system")
    parser.add_argument("--rank", type=int, default=1000, help="test triples that each system ranks itself, timed")
    parser.add_argument("--engine", default="auto", help="focuse's engine")
    parser.add_argument("--environments", type=Path, default=environments.default_folder())
    parser.add_argument("--json", type=Path, help="write everything there, too")
    smaller = {"dim": 4, "negatives": 2, "epochs": 1, "seeds": 1, "rank": 10, "threads": 1}
    return smoke.parse(parser, data=smoke.GRAPH, peers="none", **smaller)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    chosen = arguments()
    peers = [] if chosen.peers in ("", "none") else chosen.peers.split(",")
    unknown = set(peers) - set(PEERS)
    if unknown:
        sys.exit(f"unknown peer {', '.join(sorted(unknown))}: choose from {', '.join(PEERS)}")
    load = machine.busy()
    splits = Splits.named(chosen.data)
    size = len(splits.train), len(splits.train.entities)
    chosen.batch_size = chosen.batch_size or default_batch_size(*size, "per-triple")
    pythons: dict[str, Path | str] = {"focuse": sys.executable}
    for peer in peers:
        pythons[peer] = environments.python_of(peer, chosen.environments, say)
    systems = [OWN] if chosen.smoke else [system for system in SYSTEMS if system.peer in pythons]
    with tempfile.TemporaryDirectory() as folder:
        found = measure(chosen, systems, pythons, splits, Path(folder))
    width = chosen.dim * (2 if chosen.model == "complex" else 1)
    measured = (len(splits.train.entities), width, chosen.threads)
    speed = floor.measure(*measured, size=64) if chosen.smoke else rates(*measured)
    for row in found:
        row["floor"] = floor_of(row, speed, width)
    result = {
        "machine": machine.describe(),
        "data": {"name": chosen.data, "triples": size[0], "entities": size[1], "test": len(splits.test)},
        "settings": {name: value for name, value in vars(chosen).items() if name not in ("environments", "json")},
        "load": load,
        "rates": speed,
        "systems": found,
    }
    print(table(result))
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(
    chosen: argparse.Namespace,
    systems: list[System],
    pythons: dict[str, Path | str],
    splits: Splits,
    folder: Path,
) -> list[dict[str, Any]]:
    """All systems once with each seed, in turn: a machine that slows down then slows all of them."""
    paths, ranker = splits.write(folder), Ranker(splits)
    found: list[dict[str, Any]] = [
        {"label": one.label, "peer": one.peer, "sampling": one.flags.get("sampling"), "runs": [], "failed": ""}
        for one in systems
    ]
    names = ("model", "dim", "negatives", "batch_size", "epochs", "lr", "threads", "rank")
    asked = {name.replace("_", "-"): getattr(chosen, name) for name in names} | paths
    for seed in range(chosen.seeds):
        for row, system in zip(found, systems, strict=True):
            if row["failed"]:
                continue
            saved = folder / f"{systems.index(system)}-{seed}"
            flags = asked | {"seed": seed, "save": saved} | dict(system.flags)
            if system.peer == "focuse":
                flags["engine"] = chosen.engine
            try:
                one = run(system.peer, pythons[system.peer], flags, say)
            except SystemFailedError as error:
                row["failed"] = str(error)
                say(row["failed"])
                continue
            (file,) = saved.glob("epoch-*.npz")
            row["runs"].append(one | {"mrr_whole_test": ranker.saved(file)})
    return found


def floor_of(row: dict[str, Any], speed: dict[str, float], width: int) -> dict[str, float] | None:
    """The floor of what this system computes, for the triples that it takes for an epoch."""
    if not row["runs"]:
        return None
    one = row["runs"][0]
    used = one["settings"]
    if row["sampling"] == "shared":
        return floor.shared_pool(speed, one["rows"], used["negatives"], width, used["batch_size"])
    return floor.own_negatives(speed, one["rows"], used["negatives"], width)


# ---- the table ------------------------------------------------------------------------------------------------------


def table(result: dict[str, Any]) -> str:
    """The comparison in Markdown, with what it was measured on and what was counted."""
    chosen, data, systems = result["settings"], result["data"], result["systems"]
    own = next((row for row in systems if row["label"] == OWN.label and row["runs"]), None)
    epochs = f"{chosen['epochs']} epoch{'s' if chosen['epochs'] > 1 else ''}"
    lines = [
        f"{data['name']}: {data['triples']:,} training triples, {data['entities']:,} entities; {chosen['model']}, "
        f"k = {chosen['dim']}, {chosen['negatives']} negatives, batch {chosen['batch_size']:,}, "
        f"{chosen['threads']} threads, medians of {chosen['seeds']} runs (least to most)",
        "",
        machine.sentence(result["machine"]) + result["load"],
        "",
        f"| system | s/epoch | ÷ focuse | ÷ floor | ranking {chosen['rank']:,} test triples, s | ÷ focuse "
        f"| peak memory, MiB | MRR after {epochs} |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_row(row, own) for row in systems]
    return "\n".join([*lines, "", *_counted(result)])


def _row(row: dict[str, Any], own: dict[str, Any] | None) -> str:
    runs = row["runs"]
    if not runs:
        return f"| {row['label']} | failed | | | | | | |"
    pace, ranking = (_median(row, name) for name in ("seconds_per_epoch", "ranking_seconds"))
    cells = [f"{row['label']} ({runs[0]['version']})", _spread(row, "seconds_per_epoch")]
    cells.append(f"{pace / _median(own, 'seconds_per_epoch'):.1f}" if own else "–")
    cells.append(f"{pace / row['floor']['seconds']:.1f}")
    cells.append(_spread(row, "ranking_seconds"))
    cells.append(f"{ranking / _median(own, 'ranking_seconds'):.1f}" if own and ranking else "–")
    cells.append(f"{_median(row, 'peak_memory_mib'):,.0f}")
    cells.append(f"{_median(row, 'mrr_whole_test'):.3f}")
    return f"| {' | '.join(cells)} |"


def _values(row: dict[str, Any], name: str) -> list[float]:
    return [one[name] for one in row["runs"] if one[name] is not None]


def _median(row: dict[str, Any], name: str) -> float:
    values = _values(row, name)
    return statistics.median(values) if values else 0.0


def _spread(row: dict[str, Any], name: str) -> str:
    values = _values(row, name)
    if not values:
        return "–"
    ends = f" ({min(values):.3g}–{max(values):.3g})" if len(values) > 1 else ""
    return f"{statistics.median(values):.3g}{ends}"


def _counted(result: dict[str, Any]) -> list[str]:
    """The floor in words, and what is to be known of the peers."""
    speed = result["rates"]
    lines = [
        f"Floor: random rows are read at {speed['bytes'] / 1e9:.1f} GB/s and fp32 matrices multiplied at "
        f"{speed['flops'] / 1e9:.0f} GFLOP/s on this machine."
    ]
    seen = set()
    for row in result["systems"]:
        kind = "a shared pool" if row["sampling"] == "shared" else "own negatives"
        if row["floor"] is None or row["peer"] != "focuse" or kind in seen:
            continue
        seen.add(kind)
        one = row["floor"]
        lines.append(
            f"An epoch with {kind} reads {one['bytes'] / 1e9:.2f} GB of embeddings (each row once for the scores, once "
            f"for the gradients) and takes {one['flops'] / 1e9:.2f} GFLOP: {one['seconds']:.4f} s."
        )
    peers = dict.fromkeys(row["peer"] for row in result["systems"])
    return lines + [NOTES[peer] + "." for peer in peers if peer in NOTES]


if __name__ == "__main__":
    main()
