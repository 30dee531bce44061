"""ConvE against its equations, one number at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import focuse
from focuse.engines import Batch, Corruptions, ReferenceEngine
from focuse.errors import FocuseError
from focuse.models import ConvE, Reciprocal, conve
from focuse.models.layers import dropped
from focuse.training.losses import Objective, make_loss
from focuse.training.optimisers import make_optimiser


def dense_of(dim: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(1)
    start = ConvE().dense_start(dim, random)
    return {name: value.double() + 0.2 * torch.rand(value.shape, generator=random) for name, value in start.items()}


def by_loops(dense: dict[str, Tensor], head: np.ndarray, relation: np.ndarray, tail: np.ndarray, bias: float) -> float:
    """The score of one triple, by what is kept of means and variances."""
    parts = {name: value.numpy() for name, value in dense.items()}

    def normal(value: float, name: str, at: int) -> float:
        (factor, offset), (mean, variance) = parts[f"norm_{name}"][:, at], parts[f"seen_{name}"][:, at]
        return (value - mean) / np.sqrt(variance + 1e-5) * factor + offset

    picture = np.concatenate([head.reshape(2, 4), relation.reshape(2, 4)])
    picture = np.array([[normal(value, "input", 0) for value in line] for line in picture])
    cells = []
    for place, kernel in enumerate(parts["filters"][:, 0]):
        for row in range(2):
            for column in range(2):
                value = (picture[row : row + 3, column : column + 3] * kernel).sum()
                cells.append(max(normal(value, "maps", place), 0.0))
    hidden = np.array(cells) @ parts["weights"]
    looked_for = [max(normal(value, "hidden", place), 0.0) for place, value in enumerate(hidden)]
    return float(np.dot(looked_for, tail) + bias)


def test_score_is_a_picture_filtered_and_held_against_the_tail() -> None:
    dense = dense_of(8)
    head, relation, tail = np.random.default_rng(2).normal(size=(3, 4, 9))
    expected = [by_loops(dense, h[:8], r[:8], t[:8], t[8]) for h, r, t in zip(head, relation, tail, strict=True)]
    h, r, t = map(torch.from_numpy, (head, relation, tail))
    found = ConvE().with_dense(dense).score(h, r[:, :8], t)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_heads_are_asked_for_by_the_inverse_relation() -> None:
    model = Reciprocal(ConvE()).with_dense(dense_of(8))
    random = torch.Generator().manual_seed(4)
    head, relation, tail = (torch.randn(3, width, generator=random, dtype=torch.float64) for width in (9, 16, 9))
    turned = torch.cat(relation.chunk(2, -1)[::-1], dim=-1)
    torch.testing.assert_close(model.score(head, relation, tail, "head"), model.score(tail, turned, head, "tail"))
    with pytest.raises(NotImplementedError, match="reciprocal"):
        ConvE().with_dense(dense_of(8)).query(head, relation[:, :8], "head")


def test_an_entitys_bias_is_its_last_number_and_begins_at_0() -> None:
    model = ConvE()
    start = model.table_start("entity", torch.ones(3, model.entity_width(8)))
    assert start.shape == (3, 9)
    assert start[:, -1].tolist() == [0, 0, 0]
    rows = torch.randn(2, 9, dtype=torch.float64)
    kind = torch.randn(2, 8, dtype=torch.float64)
    higher = rows.clone()
    higher[:, -1] += 2
    bound = model.with_dense(dense_of(8))
    torch.testing.assert_close(bound.score(rows, kind, higher), bound.score(rows, kind, rows) + 2)


def test_what_is_kept_moves_by_looking_not_by_gradients() -> None:
    model, random = Reciprocal(ConvE()), torch.Generator().manual_seed(5)
    tables = {"entity": torch.randn(6, 9, generator=random), "relation": torch.randn(2, 16, generator=random)}
    dense = model.dense_start(8, random)
    optimiser = make_optimiser("adam", {**tables, **dense}, 0.1)
    engine = ReferenceEngine(model, tables["entity"], tables["relation"], optimiser, dense)
    ids = torch.arange(4)
    batch = Batch(ids, ids % 2, ids + 2, torch.ones(4))
    before = {name: value.clone() for name, value in engine.tables.items()}
    every = [Corruptions("tail", None, target=batch.tail), Corruptions("head", None, target=batch.head)]
    engine.step(batch, every, Objective(make_loss("multiclass-nll"), None), 1.0, key=3)
    assert all(not torch.equal(before[name], engine.tables[name]) for name in before)
    pictures = torch.stack([before["entity"][batch.head, :8], before["relation"][batch.relation, :8]], 1)
    of_heads = torch.stack([before["entity"][batch.tail, :8], before["relation"][batch.relation, 8:]], 1)
    mean = torch.cat([pictures, of_heads]).mean()  # both sides are one batch, and asked once
    torch.testing.assert_close(engine.tables["seen_input"][0, 0], 0.1 * mean)
    assert not any(name.startswith("seen") for name in optimiser.state())


def test_ranking_draws_nothing(small: focuse.Graph) -> None:
    run = focuse.train(small, model="conve", dim=8, epochs=1, sharpness=1.0, progress=False)
    known, relation = torch.arange(6), torch.arange(6) % 3
    scores = run.engine.score_all(known, relation, "tail")
    assert torch.equal(scores, run.engine.score_all(known, relation, "tail"))
    torch.testing.assert_close(scores[2:3], run.engine.score_all(known[2:3], relation[2:3], "tail"))


def test_many_queries_are_looked_at_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, random = ConvE().with_dense(dense_of(8)), torch.Generator().manual_seed(6)
    known, relation = (torch.randn(50, width, generator=random, dtype=torch.float64) for width in (9, 8))
    whole, sizes, seen = model.query(known, relation, "tail"), [], ConvE._seen
    monkeypatch.setattr("focuse.models.layers.ROWS_AT_ONCE", 20)
    monkeypatch.setattr(ConvE, "_seen", lambda self, *rows: sizes.append(len(rows[0])) or seen(self, *rows))
    torch.testing.assert_close(model.query(known, relation, "tail"), whole)
    assert sizes == [20, 20, 10]
    model.in_training(1).query(known, relation, "tail")
    assert sizes[3:] == [50]  # in training the whole batch has one mean


def test_it_needs_reciprocal_relations_and_a_rectangle(small: focuse.Graph) -> None:
    with pytest.raises(FocuseError, match="'conve' asks for tails only and needs reciprocal relations"):
        focuse.train(small, model="conve", reciprocal=False, dim=8)
    with pytest.raises(FocuseError, match="not 13; try 14"):
        focuse.train(small, model="conve", dim=13)
    assert focuse.train(small, model="conve", dim=8, epochs=1, sharpness=1.0, progress=False).settings.reciprocal


def test_in_training_input_maps_and_what_is_hidden_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of the picture (.2), whole maps (.2) and hidden numbers (.3), each by its own draw of the key."""
    asked = []

    def told(values: Tensor, share: float, key: int | None, place: int, rank: int | None = None) -> Tensor:
        asked.append((tuple(values.shape), share, key, place, rank))
        return dropped(values, share, key, place, rank)

    monkeypatch.setattr(conve, "dropped", told)
    dense, random = dense_of(8), torch.Generator().manual_seed(4)
    known, relation = (torch.randn(5, width, generator=random, dtype=torch.float64) for width in (9, 8))
    ConvE().with_dense(dense).in_training(7).query(known, relation, "tail")
    maps = len(dense["filters"])
    assert asked == [
        ((5, 1, 4, 4), 0.2, 7, 0, None),
        ((5, maps, 2, 2), 0.2, 7, 1, 2),
        ((5, 8), 0.3, 7, 2, None),
    ]
