"""The load that `benchmarks/load.py` puts on a real server, in short: no errors, refusals in place, nothing left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "load.py"


def load(run: Path, *options: str) -> dict:
    command = [sys.executable, str(SCRIPT), str(run), "--json", "--soon", "30", *options]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert all(check["ok"] for check in told["checks"])
    return told


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")
def test_load_overload_and_cut_connections(run_folders) -> None:
    told = load(run_folders[0], "--seconds", "1", "--crowd", "90", "--cuts", "4", "--phases", "load,overload,large,cut")
    assert told["load"]["addresses"]["all"]["answers"] > 50
    assert told["overload"]["statuses"]["429"] > 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")
def test_every_kind_of_rude_client(run_folders) -> None:
    load(run_folders[0], "--seconds", "5", "--patience", "2", "--garbage", "1000")
