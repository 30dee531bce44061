"""What every process of test_together.py does: write a run's files together, and read them again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from focuse.engines.company import Company
from focuse.errors import FocuseError
from focuse.training.checkpoints import Checkpoint, Progress, Store
from focuse.training.together import SharedStore, _by_the_first

FOLDER = Path(os.environ.get("TOGETHER_FOLDER", "."))


def whole() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(5)
    return {"entity": torch.randn(13, 5, generator=random), "relation": torch.randn(3, 4, generator=random)}


def state() -> dict[str, torch.Tensor]:
    return {
        "entity.sum": whole()["entity"] ** 2,
        "relation.sum": whole()["relation"] ** 2,
        "all.steps": torch.tensor(7),
    }


def cut(tensors: dict[str, torch.Tensor], company: Company) -> dict[str, torch.Tensor]:
    return {
        name: value[company.part(len(value))] if name.startswith("entity") else value for name, value in tensors.items()
    }


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) and found[name].dtype == wanted[name].dtype for name in wanted)


def work(company: Company) -> None:
    store = SharedStore(FOLDER)
    before = FOLDER / "checkpoint.safetensors"
    if before.exists():  # of another number of processes
        read(store, company)
    company.wait()
    pool = {"weight": torch.tensor([0.5, 0.25]), "count": torch.tensor([2])}
    progress = Progress(3, 1, 0.5)
    store.save(Checkpoint(progress, cut(whole(), company), cut(state(), company), cut(whole(), company), [], pool))
    store.finish(Checkpoint(progress, cut(whole(), company), cut(state(), company), None, [], pool))
    store.append({"epoch": 1, "loss": 0.5})
    company.wait()
    read(store, company)
    assert len((FOLDER / "history.jsonl").read_text(encoding="utf-8").splitlines()) == 1
    company.wait()
    if company.leads:
        (FOLDER / "history.jsonl").unlink()
        assert not list(FOLDER.glob(".*"))
    with pytest.raises(FocuseError, match="cannot be written"):
        SharedStore(FOLDER / "nowhere").save(Checkpoint(progress, cut(whole(), company), {}))
    with pytest.raises(FocuseError, match="this is why"):
        _by_the_first(fail)


def fail() -> None:
    raise FocuseError("this is why")


def read(store: SharedStore, company: Company) -> None:
    """Its own rows by a process, and all of them by whoever knows nothing of it."""
    mine = store.checkpoint()
    assert mine is not None
    assert mine.progress == Progress(3, 1, 0.5)
    same(mine.tables, cut(whole(), company))
    same(mine.optimiser, cut(state(), company))
    same(store.model("cpu")[0], cut(whole(), company))
    plain = Store(FOLDER).checkpoint()
    assert plain is not None
    same(plain.tables, whole())
    same(plain.optimiser, state())
    same(plain.pool, {"weight": torch.tensor([0.5, 0.25]), "count": torch.tensor([2])})
    same(load_file(FOLDER / "model.safetensors"), whole())
