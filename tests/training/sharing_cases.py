"""What every process of test_sharing.py does: share edges, and find in them what one process has in memory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from focuse.engines.company import Company
from focuse.errors import FocuseError
from focuse.evaluation.evaluate import known_facts
from focuse.graph import read
from focuse.graph.splits import Splits
from focuse.training import columns, sharing, shuffling
from focuse.training.columns import TrainingRows
from focuse.training.loop import Trainer, label_of
from focuse.training.preparing import make_splits, normaliser_of
from focuse.training.progress import Silent
from focuse.training.settings import Settings
from focuse.training.sharing import SharedEdges, SharedFacts, data_of, prepared_once, shared_array

FOLDER = Path(os.environ.get("FOCUSE_CACHE", "")) / "graphs"  # named by the test that starts these processes


def prepared(rows: list[Any], false: Any = None, **given: Any) -> tuple[Settings, Splits, TrainingRows]:
    chosen = Settings.of(dim=4, epochs=2, batch_size=40, engine="sharded:plain", **given)
    splits = make_splits(read(rows), None, None, 0.1, 0.1, chosen, Silent(), false)
    settings = chosen.resolve(splits.train, "cpu")
    return settings, splits, TrainingRows.of(settings, splits, normaliser_of(settings, splits))


def edges() -> list[tuple[str, str, str, float]]:
    random = np.random.default_rng(0)
    ids = random.integers(0, (25, 3, 25), (300, 3))
    return [(f"e{h}", f"r{r}", f"e{t}", float(w)) for (h, r, t), w in zip(ids, random.random(300), strict=True)]


def same_rows(company: Company) -> None:
    false = [("e1", "r0", "e1", 1.0), ("e2", "r1", "e2", 1.0)]
    for given in ({"normalize": "quantile", "sharpness": 2.0}, {"focus": "off"}):
        settings, splits, rows = prepared(edges(), false, **given)
        held = data_of(replace(settings, engine="reference"), rows, label_of(settings, splits))
        shared = data_of(settings, rows, label_of(settings, splits))
        assert isinstance(shared, SharedEdges)
        assert len(shared) == len(held) == len(splits.train) + 2
        for places in (torch.tensor([3, 0, len(held) - 1, 3]), torch.arange(len(held))):
            one, other = shared.take(places), held.take(places)
            for name in ("head", "relation", "tail", "weight"):
                assert torch.equal(getattr(one, name), getattr(other, name)), (given, name)
                assert getattr(one, name).dtype == getattr(other, name).dtype
        assert torch.equal(shared.first(7).tail, held.first(7).tail)
        # Changed by one process, it is changed for all.
        plain = SharedEdges(rows, None, "cpu")
        plain.weigh(torch.linspace(0, 1, len(held)))
        assert torch.equal(plain.first(len(held)).weight, torch.linspace(0, 1, len(held)))


def same_facts() -> None:
    _, splits, _ = prepared(edges())
    train = splits.train
    shared, held = SharedFacts(train), known_facts([train])
    every = torch.cartesian_prod(*(torch.arange(size) for size in (25, 3, 25))).unbind(1)
    assert torch.equal(shared.contains(*every), held.contains(*every))
    assert int(shared.contains(*every).sum()) == len(np.unique(train.keys))


def same_training(company: Company) -> None:
    """Weights that move with the epoch, corruptions by type, an order that is computed: as the reference does it."""
    shuffling.LARGE = 50
    two = [(*row, None if number % 5 == 0 else number / 300) for number, row in enumerate(edges())]
    cases: list[tuple[Any, dict[str, Any]]] = [
        (two, {"focus": "paper", "decays": {"w1": 1, "w2": 3}, "sampling": "independent", "negatives": 3}),
        (edges(), {"corrupt": "type", "sampling": "independent", "negatives": 3, "sharpness": 1.0}),
    ]
    for rows, given in cases:
        settings, splits, _ = prepared(rows, **given, optimizer="row-adagrad")
        losses = []
        for engine in ("sharded:plain", "reference"):
            trainer = Trainer(replace(settings, engine=engine), splits, normaliser_of(settings, splits), Silent())
            trainer.run()
            losses.append([row["loss"] for row in trainer.history])
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4, err_msg=str(given))


def prepared_by_one(company: Company) -> None:
    """Only the first process of a machine prepares; all have what it made, and its error if it fails."""
    settings, splits, _ = prepared(edges(), [("e1", "r0", "e1", 1.0)], focus="off", lower_is_better=True)
    made = settings, splits, normaliser_of(settings, splits)
    times: list[int] = []

    def prepare() -> Any:
        times.append(1)
        return made

    found, parts, normaliser = prepared_once(settings, prepare)
    assert len(times) == company.first_here
    assert found == settings
    pairs = (parts.train, splits.train), (parts.valid.graph, splits.valid.graph), (parts.false, splits.false)
    for one, other in pairs:
        assert one is not None
        assert other is not None
        for name in ("head", "relation", "tail", "weight"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert one.lower_is_better == other.lower_is_better
        assert one.entities.column.equals(splits.train.entities.column)
    share = normaliser.transform(parts.train.weight, parts.train.relation)
    np.testing.assert_array_equal(share, made[2].transform(splits.train.weight, splits.train.relation))

    def refuse() -> Any:
        raise FocuseError("line 3: not a number")

    with pytest.raises(FocuseError, match="line 3: not a number"):
        prepared_once(settings, refuse)
    prepared_once(replace(settings, engine="reference"), prepare)  # by itself, everyone does
    assert len(times) == company.first_here + 1


def no_room(company: Company) -> None:
    """Where the first process cannot write, all say so."""

    def fail(array: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(FocuseError, match=r"no room for the training's edges: .*No space left on device"):
        shared_array(np.int32, (3,), fail)
    assert shared_array(np.int32, (0, 4), fail).shape == (0, 4)


def work(company: Company) -> None:
    columns.CHUNK = sharing.CHUNK = 64
    same_rows(company)
    same_facts()
    same_training(company)
    prepared_by_one(company)
    no_room(company)
    company.wait()
    assert not list(FOLDER.iterdir())
    if company.leads:
        print("nothing left")
