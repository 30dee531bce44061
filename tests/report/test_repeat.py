"""The printed command and code reproduce the run bit by bit."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import focuse
from focuse.report.repeat import _share, fingerprints, in_python, repeat_command, settings_text

TRAINING = ["--dim", "6", "--epochs", "3", "--device", "cpu", "--quiet"]


def same_tables(one: focuse.Run, other: focuse.Run) -> bool:
    pairs = zip(one.scorer.tables.items(), other.scorer.tables.items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.parametrize(
    "options",
    [
        ["--valid-fraction", "0.15", "--test-fraction", "0.05"],
        ["--model", "transe-l2", "--weight-mode", "focuse", "--beta-decay-epochs", "2"],
        ["--valid", "valid.tsv", "--test", "test.tsv", "--seed", "7"],
    ],
)
def test_printed_command_reproduces_the_run(
    options: list[str], small: focuse.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from focuse.cli.main import app

    monkeypatch.chdir(tmp_path)
    part = np.arange(len(small)) % 10
    small.select(part > 1).write("a graph.tsv")
    small.select(part == 0).write("valid.tsv")
    small.select(part == 1).write("test.tsv")
    app(["train", "a graph.tsv", "--out", "first", *TRAINING, *options], standalone_mode=False)
    run = focuse.load("first", device="cpu")
    Path("settings.toml").write_text(settings_text(run), encoding="utf-8")
    printed = shlex.split(repeat_command(run))
    assert printed[:3] == ["focuse", "train", "a graph.tsv"]
    app([*printed[1:], "--quiet"], standalone_mode=False)
    assert Path("first/model.safetensors").read_bytes() == Path("again/model.safetensors").read_bytes()
    assert fingerprints(run) == fingerprints(focuse.load("again", device="cpu"))


def test_printed_python_reproduces_the_run(small: focuse.Graph, tmp_path: Path) -> None:
    run = focuse.train(small, dim=6, epochs=3, device="cpu", out=tmp_path / "run", progress=False)
    text = in_python(run)
    assert repr((tmp_path / "run").as_posix()) in text
    names: dict[str, Any] = {}
    exec(text.replace("**run.settings.to_dict()", "progress=False, **run.settings.to_dict()"), names)
    assert same_tables(names["again"], run)
    assert fingerprints(names["again"]) == fingerprints(run)


def test_printed_command_reproduces_a_run_with_weight_columns(small: focuse.Graph, with_columns: Any) -> None:
    run = focuse.train(with_columns(small), dim=4, epochs=2, label_exponent=1.0, device="cpu", progress=False)
    again = focuse.train(
        run.graph, valid=run.splits.valid or None, test=run.splits.test or None,
        valid_fraction=0, test_fraction=0, progress=False, **run.settings.to_dict(),
    )  # fmt: skip
    assert same_tables(again, run)


@given(st.integers(1, 10**6), st.floats(0, 0.45))
def test_shares_hold_out_as_many_rows(total: int, share: float) -> None:
    size = min(int(share * total), 20_000)
    text = _share(size, total, 1)
    assert min(int((0.1 if text is None else float(text)) * total), 20_000) == size


def test_fingerprints_detect_every_change(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=4, epochs=1, label_exponent=1.0, progress=False)
    before = fingerprints(run)
    run.splits.train.weight[0] += 1e-12
    after = fingerprints(run)
    assert {name for name in before if before[name] != after[name]} == {"train"}
    run.splits.train.weight[0] = small.weight[0]
