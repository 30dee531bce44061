"""What every process of test_shared_memory.py does: share edges, and find in them what one process has in memory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from focuse.config import Config
from focuse.data.readers import read
from focuse.data.splits import Splits
from focuse.data.triple_index import build_triple_index
from focuse.engines.process_group import ProcessGroup
from focuse.errors import FocuseError
from focuse.objective import randomness as shuffling
from focuse.training import problem as columns
from focuse.training import shared_memory as sharing
from focuse.training.callbacks import Reporter
from focuse.training.preparation import fit_training_normalizer, make_splits
from focuse.training.problem import TrainingTriples, TripleSource, make_labels
from focuse.training.shared_memory import (
    SharedEdges,
    SharedTripleIndex,
    TriplesInSharedMemory,
    prepare_once_per_machine,
    shared_array,
)
from focuse.training.trainer import make_trainer

FOLDER = Path(os.environ.get("FOCUSE_CACHE", "")) / "scratch"  # named by the test that starts these processes


def prepared(rows: list[Any], false: Any = None, **given: Any) -> tuple[Config, Splits, TrainingTriples]:
    chosen = Config.from_kwargs(dim=4, epochs=2, batch_size=40, engine="sharded", **given)
    splits = make_splits(read(rows), None, None, 0.1, 0.1, chosen, Reporter(), false)
    settings = chosen.resolve(splits.train, "cpu")
    return settings, splits, TrainingTriples.from_splits(settings, splits, fit_training_normalizer(settings, splits))


def edges() -> list[tuple[str, str, str, float]]:
    random = np.random.default_rng(0)
    ids = random.integers(0, (25, 3, 25), (300, 3))
    return [(f"e{h}", f"r{r}", f"e{t}", float(w)) for (h, r, t), w in zip(ids, random.random(300), strict=True)]


def same_rows(group: ProcessGroup) -> None:
    false = [("e1", "r0", "e1", 1.0), ("e2", "r1", "e2", 1.0)]
    for given in ({"weight_scaling": "quantile", "label_exponent": 2.0}, {"weight_mode": "none"}):
        settings, splits, rows = prepared(edges(), false, **given)
        held = TripleSource().load(rows, make_labels(settings, splits), "cpu")
        shared = TriplesInSharedMemory().load(rows, make_labels(settings, splits), "cpu")
        assert isinstance(shared, SharedEdges)
        assert len(shared) == len(held) == len(splits.train) + 2
        for places in (torch.tensor([3, 0, len(held) - 1, 3]), torch.arange(len(held))):
            one, other = shared.take(places), held.take(places)
            for name in ("head", "relation", "tail", "weight"):
                assert torch.equal(getattr(one, name), getattr(other, name)), (given, name)
                assert getattr(one, name).dtype == getattr(other, name).dtype
        assert torch.equal(shared.first(7).tail, held.first(7).tail)


def same_facts() -> None:
    _, splits, _ = prepared(edges())
    train = splits.train
    shared, held = SharedTripleIndex(train), build_triple_index([train])
    every = torch.cartesian_prod(*(torch.arange(size) for size in (25, 3, 25))).unbind(1)
    assert torch.equal(shared.contains(*every), held.contains(*every))
    assert int(shared.contains(*every).sum()) == len(np.unique(train.keys))


def same_training(group: ProcessGroup) -> None:
    """Several weight columns, corruptions by type, an order that is computed: as the reference does it."""
    shuffling.MIN_COMPUTED_ROWS = 50
    two = [(*row, None if number % 5 == 0 else number / 300) for number, row in enumerate(edges())]
    cases: list[tuple[Any, dict[str, Any]]] = [
        (
            two,
            {
                "weight_mode": "focuse",
                "negative_sampling": "per-triple",
                "num_negatives": 3,
            },
        ),
        (
            edges(),
            {
                "negative_distribution": "type",
                "negative_sampling": "per-triple",
                "num_negatives": 3,
                "label_exponent": 1.0,
            },
        ),
    ]
    for rows, given in cases:
        settings, splits, _ = prepared(rows, **given, optimizer="sparse-adam")
        losses = []
        for engine in ("sharded", "torch"):
            trainer = make_trainer(
                replace(settings, engine=engine), splits, fit_training_normalizer(settings, splits), Reporter()
            )
            trainer.run()
            losses.append([row["loss"] for row in trainer.history])
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4, err_msg=str(given))


def prepared_by_one(group: ProcessGroup) -> None:
    """Only the first process of a machine prepares; all have what it made, and its error if it fails."""
    settings, splits, _ = prepared(edges(), [("e1", "r0", "e1", 1.0)], weight_mode="none", lower_is_better=True)
    made = settings, splits, fit_training_normalizer(settings, splits)
    times: list[int] = []

    def prepare() -> Any:
        times.append(1)
        return made

    found, parts, normalizer = prepare_once_per_machine(prepare)
    assert len(times) == group.is_local_main
    assert found == settings
    pairs = (
        (parts.train, splits.train),
        (parts.valid, splits.valid),
        (parts.known_negatives, splits.known_negatives),
    )
    for one, other in pairs:
        assert one is not None
        assert other is not None
        for name in ("head", "relation", "tail", "weight"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert one.lower_is_better == other.lower_is_better
        assert one.entities.column.equals(splits.train.entities.column)
    share = normalizer.transform(parts.train.weight, parts.train.relation)
    np.testing.assert_array_equal(share, made[2].transform(splits.train.weight, splits.train.relation))

    def refuse() -> Any:
        raise FocuseError("line 3: not a number")

    with pytest.raises(FocuseError, match="line 3: not a number"):
        prepare_once_per_machine(refuse)
    assert len(times) == group.is_local_main


def no_room(group: ProcessGroup) -> None:
    """Where the first process cannot write, all say so."""

    def fail(array: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(FocuseError, match="cannot write the training edges: No space left on device; set FOCUSE"):
        shared_array(np.int32, (3,), fail)
    assert shared_array(np.int32, (0, 4), fail).shape == (0, 4)


def work(group: ProcessGroup) -> None:
    columns.CHUNK = sharing.CHUNK = 64
    same_rows(group)
    same_facts()
    same_training(group)
    prepared_by_one(group)
    no_room(group)
    group.barrier()
    assert not list(FOLDER.iterdir())
    if group.is_main:
        print("nothing left")
