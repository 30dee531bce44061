"""Pieces of work side by side, each in a process of its own with its own chance and its own folder."""

from __future__ import annotations

import json
import os
import sys
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Work = Callable[[np.random.Generator, Path], dict[str, Any]]  # chance and a folder in, what was found out
Job = list[Work]  # pieces whose findings are put together


def do_all(
    jobs: dict[str, Job], workers: int, seed: int, room: Path, note: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """All jobs, `workers` pieces at a time; what is found does not depend on how many that are.

    Pieces are forked from this process, which must not have begun to compute, and fork their own children.
    """
    waiting = [(name, number, work) for name, job in jobs.items() for number, work in enumerate(job)]
    running: dict[int, str] = {}
    answers = {
        name: [room / f"{zlib.crc32(name.encode()):08x}-{at}.json" for at in range(len(job))]
        for name, job in jobs.items()
    }
    while waiting or running:
        while waiting and len(running) < max(1, workers):
            name, number, work = waiting.pop()  # what is largest stands last
            child = os.fork()
            if not child:
                os._exit(_do(work, name, number, seed, answers[name][number]))
            running[child] = name
        child, _ = os.wait()
        name = running.pop(child)
        if name not in running.values() and all(each != name for each, _, _ in waiting):
            note(f"{name}: {len(_found(answers[name])['faults'])} faults")
    return {name: _found(files) for name, files in answers.items()}


def _do(work: Work, name: str, number: int, seed: int, answer: Path) -> int:
    """In a process of its own."""
    place = answer.with_suffix("")
    place.mkdir()
    try:
        found = work(np.random.default_rng([seed, zlib.crc32(name.encode()), number]), place)
    except BaseException:
        traceback.print_exc()
        return 1
    answer.write_text(json.dumps(found), encoding="utf-8")
    sys.stderr.flush()
    return 0


def _found(files: list[Path]) -> dict[str, Any]:
    """What all pieces of a job have found."""
    made: dict[str, Any] = {}
    for file in files:
        if not file.exists():
            raise SystemExit("a piece of the campaign failed itself; what it printed says why")
        made = merged(made, json.loads(file.read_text(encoding="utf-8")))
    return made


def merged(one: Any, other: Any) -> Any:
    """Counts added, lists one after the other, tables by their keys; of two texts the first.

    >>> merged({"kills": 2, "faults": ["a"]}, {"kills": 3, "faults": []})
    {'kills': 5, 'faults': ['a']}
    """
    if isinstance(one, dict):
        return {**one, **{key: merged(one[key], value) if key in one else value for key, value in other.items()}}
    return one if isinstance(one, str) else one + other
