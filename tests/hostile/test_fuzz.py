"""A share of the fuzzed cases (tests/shared/fuzzing), and every case that was once a fault."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource")  # limits of memory and time are those of Linux and macOS

from fuzzing.guard import Guard, HangError, WrongError
from fuzzing.mutating import Mutator
from fuzzing.targets import TARGETS

QUICK = {"runs": 12, "graphs": 25, "spaces": 25}


def tried(name: str, cases: list[bytes], folder: Path, count: int = 0, seed: str = "test") -> Guard:
    """The seeds of a target, these cases, and so many more."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    call, seeds = TARGETS[name].make(work)
    guard = Guard(name, call, "mutator", folder / "faults")
    mutator = Mutator(seeds, seed)
    for case in [*(seeds if not cases else []), *cases, *(mutator.case() for _ in range(count))]:
        guard(case)
    return guard


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_files_are_read_or_refused_with_one_line(name: str, tmp_path: Path) -> None:
    guard = tried(name, [], tmp_path, QUICK.get(name, 60))
    assert guard.counts.bad == 0, guard.counts.faults
    assert guard.counts.refused


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_mutated_files_are_read_or_refused_with_one_line(name: str, tmp_path: Path) -> None:
    guard = tried(name, [], tmp_path, 40 * QUICK.get(name, 60), "slow")
    assert guard.counts.bad == 0, guard.counts.faults


# What was once a fault, as short as it was found.
FOUND = [
    ("text", b"\x07a\x1b[2J\tb\n"),
    ("text", b"\x04" + b"x" * 6_000 + b",b,c,d,e\n"),
    ("questions", b"a\tr\tzz\xff\nb\tr\t\n"),
    ("questions", b"a,r,zz\n\xc3(,r,b\n"),
    ("questions", b'"!\xc3\x1fv\x07S\xe7'),
    ("tables", b'\x00{"\\ud800": "a", "head": "a", "tail": "b"}'),
    ("graphml", b'<?xml version="1.0" encoding="UTF2"?>\n<graphml><graph>'),
    ("graphml", b'<?xml version="1.0" encoding="utf-7"?><graphml/>'),
    ("relation_weights", b'"(g"r;1\n";;0\x1f\n"rg3'),
    ("settings", b"dim = " + b"[" * 3_000),
    ("settings", b"dim = " + b"9" * 5_000),
    ("spaces", b"lr=" + b"[" * 3_000),
    ("words", b"\x0e" + b"<a>" * 2_000),
    ("rules", "&".join(f"r(x{i}, x{i + 1})" for i in range(400, 0, -1)).encode() + b" -> r(x1, x2)"),
]


@pytest.mark.parametrize(("name", "case"), FOUND)
def test_earlier_faults_do_not_come_back(name: str, case: bytes, tmp_path: Path) -> None:
    guard = tried(name, [case], tmp_path)
    assert guard.counts.cases == 1
    assert guard.counts.bad == 0, guard.counts.faults


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["atheris", "hypothesis", "mutator"])
def test_command_counts_the_cases_of_each_driver(driver: str, tmp_path: Path) -> None:
    if driver == "atheris" and importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed")
    command = [sys.executable, "-m", "fuzzing", "--targets", "rules,text", "--drivers", driver]
    command += ["--cases", "400", "--json", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(2):  # the second call finds all of them done
        done = subprocess.run(command, capture_output=True, env=environment, check=False, encoding="utf-8")
        found = json.loads(done.stdout)
        assert (done.returncode, found["bad"]) == (0, 0), done.stdout
        assert 400 <= found["cases"] <= 404
        assert all(row["accepted"] and row["refused"] for row in found["rows"])


def test_guard_detects_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no fault would ever be found."""
    from fuzzing import guard as module

    from focuse.errors import FocuseError

    monkeypatch.setattr(module, "SECONDS", 0.05)
    kept: list[bytes] = []

    def call(data: bytes) -> None:
        if data == b"hang":
            while True:
                pass
        if data == b"blow":
            kept.append(data)
        raise {b"wrong": WrongError("x"), b"crash": KeyError("x"), b"no": FocuseError("x")}.get(data) or SystemExit

    monkeypatch.setattr(module, "_peak", lambda: 2 * module.GROWTH * len(kept))
    guard = Guard("none", call, "mutator", tmp_path)
    for data in (b"hang", b"wrong", b"crash", b"no", b"exit", b"blow"):
        guard(data)
    counts = guard.counts
    assert (counts.cases, counts.hangs, counts.wrong, counts.refused) == (6, 1, 1, 1)
    assert counts.crashes == 3  # of another exception, of SystemExit, and that beside the memory
    assert counts.blown == 1
    assert {path.read_bytes() for path in tmp_path.glob("*.case")} >= {b"wrong", b"crash"}
    assert issubclass(HangError, BaseException)
    assert not issubclass(HangError, Exception)
