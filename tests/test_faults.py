"""What a training survives: the campaign of benchmarks/faults.py, small here and whole where it may take long."""

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

ROOT = Path(__file__).parent.parent
SOURCE = Path(focuse.__file__).parent
# Times of the day that somebody is told; nothing is decided by them.
TOLD = {"training/tracking/mlflow.py"}

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it forks, mounts and kills")


def campaign(*words: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    script = [sys.executable, str(ROOT / "benchmarks" / "faults.py"), "--json", *words]
    done = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_few_kills_and_altered_files() -> None:
    found = campaign("--kills", "3", "--flips", "42", "--steps", "1", "--others", "0", "--seed", "1")
    assert found["kill -9"]["kills"] == 3
    assert found["kill -9"]["same"] == found["kill -9"]["trainings"]
    assert found["a bit turned over"]["told"] == found["a bit turned over"]["tried"] == 42
    assert found["a file cut short"]["told"] == found["a file cut short"]["tried"] > 19


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_kills_and_all_the_rest() -> None:
    found = campaign("--seed", "2")
    assert found["kill -9"]["kills"] == 200
    assert len(found["kill -9"]["phases"]) >= 6


def test_no_training_asks_for_the_time_of_day() -> None:
    """Clocks on the wall jump: what is due, and what has taken too long, is told by time.monotonic."""
    files = [*(SOURCE / "training").rglob("*.py"), SOURCE / "run.py", SOURCE / "living.py"]
    for path in files:
        if path.relative_to(SOURCE).as_posix() in TOLD:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert f"{node.value.id}.{node.attr}" not in ("time.time", "time.time_ns", "datetime.now"), path
