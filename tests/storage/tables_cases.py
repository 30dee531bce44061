"""What every process of test_tables.py does: write the files of a run together, and read them again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from focuse.engines.process_group import ProcessGroup
from focuse.errors import FocuseError
from focuse.storage.run_folder import RunFolder
from focuse.storage.tables import Checkpoint, Progress, ShardedTables

FOLDER = Path(os.environ.get("SHARDED_FOLDER", "."))


def whole() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(5)
    return {"entity": torch.randn(13, 5, generator=random), "relation": torch.randn(3, 4, generator=random)}


def state() -> dict[str, torch.Tensor]:
    return {
        "entity.sum": whole()["entity"] ** 2,
        "relation.sum": whole()["relation"] ** 2,
        "all.steps": torch.tensor(7),
    }


def cut(tensors: dict[str, torch.Tensor], group: ProcessGroup) -> dict[str, torch.Tensor]:
    return {
        name: value[group.shard(len(value))] if name.startswith("entity") else value for name, value in tensors.items()
    }


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) and found[name].dtype == wanted[name].dtype for name in wanted)


def work(group: ProcessGroup) -> None:
    store = RunFolder(FOLDER, ShardedTables(group))
    before = FOLDER / "checkpoint.safetensors"
    if before.exists():  # of another number of processes
        read(store, group)
    group.barrier()
    pool = {"weight": torch.tensor([0.5, 0.25]), "count": torch.tensor([2])}
    progress = Progress(3, 1, 0.5)
    store.save(Checkpoint(progress, cut(whole(), group), cut(state(), group), cut(whole(), group), [], pool))
    store.finish(Checkpoint(progress, cut(whole(), group), cut(state(), group), None, [], pool))
    store.append({"epoch": 1, "loss": 0.5})
    group.barrier()
    read(store, group)
    assert len((FOLDER / "history.jsonl").read_text(encoding="utf-8").splitlines()) == 1
    group.barrier()
    if group.is_main:
        (FOLDER / "history.jsonl").unlink()
        assert not list(FOLDER.glob(".*"))
    with pytest.raises(FocuseError, match="No such file or directory"):
        RunFolder(FOLDER / "nowhere", ShardedTables(group)).save(Checkpoint(progress, cut(whole(), group), {}))
    assert group.run_on_main(lambda: group.rank) == 0
    with pytest.raises(FocuseError, match="this is why"):
        group.run_on_main(fail)


def fail() -> None:
    raise FocuseError("this is why")


def read(store: RunFolder, group: ProcessGroup) -> None:
    """Each process reads its own rows, and one by itself all of them."""
    mine = store.load_checkpoint()
    assert mine is not None
    assert mine.progress == Progress(3, 1, 0.5)
    same(mine.tables, cut(whole(), group))
    same(mine.optimizer, cut(state(), group))
    same(store.model("cpu")[0], cut(whole(), group))
    plain = RunFolder(FOLDER).load_checkpoint()
    assert plain is not None
    same(plain.tables, whole())
    same(plain.optimizer, state())
    same(plain.pool, {"weight": torch.tensor([0.5, 0.25]), "count": torch.tensor([2])})
    same(load_file(FOLDER / "model.safetensors"), whole())
