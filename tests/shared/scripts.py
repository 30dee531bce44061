"""Runs scripts one by one, each in a process of its own that has torch and focuse imported already."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
PRELOADED = ["focuse", "focuse.demo", "focuse.integrations", "pandas", "sklearn.ensemble", "scipy.stats"]


def run_script(path: Path, words: list[str], output: Path, seconds: float) -> int | None:
    """Exit code of a script with these arguments, None where it took too long; what it prints is in `output`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)  # of no effect where the server runs already: then scripts import more
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))  # read when the server imports torch
    try:
        process = context.Process(target=_run, args=(str(path), words, str(output)))
        process.start()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return None
    return process.exitcode


def _run(path: str, words: list[str], output: str) -> None:
    """The script as the interpreter runs it."""
    with open(output, "wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    os.environ.update(dict.fromkeys(THREADS, "1"))
    sys.argv = [path, *words]
    sys.path.insert(0, os.path.dirname(path))
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
