"""Record the golden values anew: `python tests/golden/record.py` writes losses.json and metrics.json.

Do this only where numbers are meant to change, and say in the commit why: the files are what a refactoring is held to.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # as tests/conftest.py does; before torch is loaded
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from tests.golden import cases, scenarios, vocabulary


def about() -> dict[str, str]:
    """Return where the values come from."""
    return {
        "recorded by": "python tests/golden/record.py",
        "torch": torch.__version__,
        "processor": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
    }


def write(path: Path, recorded: dict[str, Any]) -> None:
    """Write one case a line, so that a change of one is a change of one line."""
    lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in {"about": about(), **recorded}.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{path}: {len(recorded)} cases")


def main() -> None:
    """Train every case, and see that those which should be refused are."""
    losses: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    for name, case in cases.CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                run = case.run(Path(folder))
            except vocabulary.Error as error:
                if not case.refused:
                    sys.exit(f"{name}: refused, but listed as one that trains: {error}")
                continue
            if case.refused:
                sys.exit(f"{name}: trains, but listed as refused")
            losses[name] = {"losses": vocabulary.losses(run)}
            if name in cases.EMBEDDED:
                losses[name]["embeddings"] = scenarios.summary(run, Path(folder))
    for name, scenario in scenarios.SCENARIOS.items():
        with tempfile.TemporaryDirectory() as folder:
            metrics[name] = scenario(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        found, validated = scenarios.two_processes(Path(folder))
    losses |= {name: {"losses": values} for name, values in found.items()}
    write(cases.LOSSES, losses)
    write(cases.METRICS, metrics | validated)


if __name__ == "__main__":
    main()
