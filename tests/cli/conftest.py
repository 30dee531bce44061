"""A graph file and a run made of it by the command itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

# Small batches: the epochs last long enough to be interrupted in.
TRAINING = "--dim 6 --epochs 20 --batch-size 4 --weight-mode focuse --beta-decay-epochs 12 --lr 0.01 --num-negatives 4"
OPTIONS = f"{TRAINING} --eval-every 2 --patience 99 --checkpoint-every 2".split()


class Trained(NamedTuple):
    folder: Path
    data: dict[str, Any]
    errors: str


@pytest.fixture(scope="session")
def options() -> list[str]:
    return OPTIONS


@pytest.fixture(scope="session")
def graph_file(small, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "small.tsv"
    small.write(path)
    return path


@pytest.fixture(scope="session")
def trained(command, graph_file, tmp_path_factory) -> Trained:
    """`focuse train GRAPH --out RUN --json`, its folder and what it printed."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    done = command("train", graph_file, "--out", folder, "--json", *OPTIONS, check=True)
    return Trained(folder, json.loads(done.stdout), done.stderr)


@pytest.fixture(scope="session")
def refused(command):
    """`refused(…)`: the one line on stderr of a command that exits with 2 and prints nothing else."""

    def run(*arguments, **options: Any) -> str:
        done = command(*arguments, **options)
        assert done.returncode == 2, done
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith("focuse: ")
        return lines[0]

    return run


@pytest.fixture
def inside(capsys):
    """`inside(…)`: what a command prints, without a process of its own, which takes seconds to start."""
    from focuse.cli.main import app

    def run(*arguments) -> str:
        capsys.readouterr()
        app([str(argument) for argument in arguments], standalone_mode=False)
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused_inside(inside, capsys):
    """The one line that such a command is refused with; it has printed nothing."""
    from focuse.errors import FocuseError

    def run(*arguments) -> str:
        with pytest.raises(FocuseError) as error:
            inside(*arguments)
        assert capsys.readouterr().out == ""
        return str(error.value)

    return run
