"""The systems that are compared, and how one of them is run: its own process, its own environment, one JSON line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import THREAD_VARIABLES

HERE = Path(__file__).parent


@dataclass(frozen=True)
class System:
    """A row of the table: whose program, its name, and the flags that make it this row."""

    peer: str
    label: str
    flags: Mapping[str, str]


OWN = System("focuse", "focuse, FocusE, own negatives", {"focus": "on"})
SYSTEMS = (
    System("ampligraph", "AmpliGraph, FocusE", {"focus": "on"}),
    System("ampligraph", "AmpliGraph, plain", {"focus": "off"}),
    System("pykeen", "PyKEEN, plain", {"focus": "off"}),
    System("unkr", "unKR, FocusE", {"focus": "on"}),
    OWN,
    System("focuse", "focuse, plain, own negatives", {"focus": "off"}),
    System("focuse", "focuse, FocusE, shared pool", {"focus": "on", "sampling": "shared"}),
)
NOTES = {
    "ampligraph": "AmpliGraph: weights are min-max by relation; β is fixed at 0.001, a decaying one has no effect",
    "pykeen": "PyKEEN: ignores weights and merges repeated triples",
    "unkr": "unKR: ranks tails only, and keeps test triples out of its training negatives",
}


class SystemFailedError(RuntimeError):
    """A system gave no result; the message is the end of what it said."""


def run(peer: str, python: Path | str, flags: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """The JSON of one run; flags that are '' are given without a value."""
    command = [str(python), "-W", "ignore", str(HERE / f"{peer}_peer.py")]
    for name, value in flags.items():
        command += [f"--{name}"] + ([str(value)] if value != "" else [])
    threads = str(flags["threads"])
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, threads)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise SystemFailedError(f"{peer} failed: {(done.stderr.strip() or done.stdout.strip())[-600:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    say(f"{found['system']} {found['version']}: {found['seconds_per_epoch']:.3f} s/epoch")
    return found


def rates(entities: int, width: int, threads: int) -> dict[str, float]:
    """What floor.py measures, in a process of its own so that threads are as asked for."""
    command = [sys.executable, str(HERE / "floor.py"), "--entities", entities, "--width", width, "--threads", threads]
    environment = os.environ | {name: str(threads) for name in THREAD_VARIABLES}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found
