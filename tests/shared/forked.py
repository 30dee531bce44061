"""Processes that start at once: forked from one that has imported everything, which takes seconds each time.

They are processes like any other, with their own output, folder and exit code. Where there is no fork, or where more is
asked for (another environment, pipes of one's own), an ordinary process is started.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import Any

HEAVY = ("numpy", "pyarrow.csv", "pyarrow.parquet", "torch", "sklearn.linear_model", "sklearn.ensemble")
OURS = ("focuse.api", "focuse.cli.main", "focuse.inference.predict", "focuse.integrations.pykeen")


def run(arguments: list[str], folder: str | Path | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """As subprocess.run([python, *arguments]): '-m focuse …', '-c TEXT' or 'FILE …'; output is captured as text."""
    special = options.keys() - {"check", "timeout"}
    if special or not hasattr(os, "fork") or sys.platform == "darwin":
        options = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 120} | options
        return subprocess.run([sys.executable, *arguments], cwd=folder, **options)
    with tempfile.TemporaryDirectory() as place:
        files = [str(Path(place) / name) for name in ("out", "err")]
        asked = {"arguments": arguments, "folder": str(folder or Path.cwd()), "files": files, "env": dict(os.environ)}
        code = _parent().ask(asked)
        out, err = (Path(file).read_text(encoding="utf-8") for file in files)
    done = subprocess.CompletedProcess([sys.executable, *arguments], code, out, err)
    if options.get("check"):
        done.check_returncode()
    return done


class Parent:
    """The process that forks, asked by lines of JSON."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        atexit.register(self.process.kill)

    def ask(self, asked: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


@cache
def _parent() -> Parent:
    return Parent()


def _serve() -> None:
    """Fork for each line, wait for the child, tell its exit code."""
    from importlib import import_module
    from importlib.util import find_spec

    for name in (*HEAVY, *OURS):
        if name != "focuse.integrations.pykeen" or find_spec("pykeen"):
            import_module(name)
    told = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            os._exit(_child(asked))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=told, flush=True)


def _child(asked: dict[str, Any]) -> int:
    """What the interpreter does: run it, and make an exit code of how it ended."""
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["folder"])
    for number, file in enumerate(asked["files"], 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    try:
        _execute(asked["arguments"])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _execute(arguments: list[str]) -> None:
    if arguments[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments[2:]], ""
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(compile(arguments[1], "<string>", "exec"), main.__dict__)
    elif arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], ""
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    _serve()
