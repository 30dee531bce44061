"""Faults during training (tests/shared/faults): a small campaign, and a slow complete one."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import focuse

SHARED = Path(__file__).parent / "shared"
SOURCE = Path(focuse.__file__).parent

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it forks, mounts and kills")


def campaign(*words: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE.parent), str(SHARED)])}
    script = [sys.executable, "-m", "faults", "--json", *words]
    done = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_few_kills_and_altered_files_are_survived_or_reported() -> None:
    few = ["--kills", "3", "--partitioned", "3", "--sharded", "1", "--torchrun", "0", "--flips", "60", "--steps", "1"]
    found = campaign(*few, "--others", "0", "--seed", "1")
    for name, kills in (("kill -9", 3), ("kill -9, partitioned", 3), ("kill -9, sharded", 1)):
        assert found[name]["kills"] == kills
        assert found[name]["same"] == found[name]["trainings"] > 0
    for name, files in (("", 12), (", partitioned", 14)):
        flips, cuts = found[f"a bit turned over{name}"], found[f"a file cut short{name}"]
        assert flips["told"] == flips["tried"] == 60
        assert cuts["told"] == cuts["tried"] > 18
        assert len(cuts["files"]) == files


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_kills_and_all_other_faults_are_survived_or_reported() -> None:
    found = campaign("--seed", "2")
    assert found["kill -9"]["kills"] == 200
    for name in ("kill -9", "kill -9, partitioned"):
        assert len(found[name]["phases"]) >= 6
    assert found["kill -9, sharded"]["same"] == found["kill -9, sharded"]["trainings"] > 9
    assert found["kill -9, sharded by torchrun"]["kills"] >= 3


def test_training_code_never_reads_the_wall_clock() -> None:
    """Clocks on the wall jump: time.monotonic decides what is due, and what has taken too long."""
    packages = ("training", "storage", "objective", "engines")
    files = [path for name in packages for path in (SOURCE / name).rglob("*.py")]
    files.append(SOURCE / "api.py")
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert f"{node.value.id}.{node.attr}" not in ("time.time", "time.time_ns", "datetime.now"), path
