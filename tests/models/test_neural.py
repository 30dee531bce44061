"""Neural models and their layers against equations and loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

import focuse
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step
from focuse.engines.optimizers import make_optimizer
from focuse.errors import FocuseError
from focuse.models import Context
from focuse.models import base as pieces
from focuse.models import neural as conve
from focuse.models.base import Model, score_triples
from focuse.models.neural import (
    KBGAT,
    ConvE,
    ConvKB,
    attend,
    batch_norm,
    check_rectangle,
    dropout,
    rectangle_height,
    softmax_within,
)
from focuse.objective.losses import FocusedLoss, make_loss
from focuse.objective.negatives import Batch, Negatives


def in_training(model: Model, seed: int) -> Any:
    """The model in a training step."""
    return model.bind(context=model.context.in_training(seed))


# ---- layers ---------------------------------------------------------------------------------------------------------

NEURAL = {"conve": {"dim": 8}, "convkb": {"dim": 4}, "kbgat": {"dim": 8}}


def test_dropout_is_a_pure_function_of_its_seed() -> None:
    values = torch.rand(200, 50) + 1
    first, again = (dropout(values, 0.3, 7, 0) for _ in range(2))
    assert torch.equal(first, again)
    for other in (dropout(values, 0.3, 8, 0), dropout(values, 0.3, 7, 1)):
        assert not torch.equal(first == 0, other == 0)
    assert dropout(values, 0.3, None, 0) is values
    gone = first == 0
    assert gone.float().mean().item() == pytest.approx(0.3, abs=0.02)
    torch.testing.assert_close(first[~gone], values[~gone] / 0.7)


def test_dropout_drops_whole_feature_maps() -> None:
    found = dropout(torch.ones(60, 32, 4, 3), 0.2, 3, 1, rank=2)
    each = (found != 0).flatten(2).float().mean(2)
    assert set(each.flatten().tolist()) == {0.0, 1.0}
    assert each.mean().item() == pytest.approx(0.8, abs=0.04)


def test_group_softmax_matches_a_loop() -> None:
    random = np.random.default_rng(0)
    logit, group = random.normal(size=30) * 50, random.integers(0, 6, 30)
    expected = np.empty(30)
    for one in range(6):
        mine = group == one
        powers = np.exp(logit[mine] - logit[mine].max()) if mine.any() else np.empty(0)
        expected[mine] = powers / powers.sum()
    found = softmax_within(torch.from_numpy(logit), torch.from_numpy(group), 8)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_gradients_of_attention_match_finite_differences() -> None:
    random = torch.Generator().manual_seed(1)
    shapes = ((5, 3), (2, 3), (3, 3, 4), (4,))
    parts = [torch.randn(shape, generator=random, dtype=torch.float64, requires_grad=True) for shape in shapes]
    edges = torch.tensor([0, 0, 1, 3, 3, 3]), torch.tensor([0, 1, 1, 0, 0, 1]), torch.tensor([1, 2, 0, 4, 3, 1])

    def heard(entity, relation, mix, look):
        return attend(entity, relation, edges, mix, look, lambda share: share)

    assert gradcheck(heard, parts)
    assert torch.equal(heard(*parts)[[2, 4]], torch.zeros(2, 4))  # nothing leads there


def test_dim_of_conve_must_be_a_rectangle() -> None:
    assert [rectangle_height(dim) for dim in (8, 64, 100, 200, 210)] == [2, 8, 10, 10, 14]
    for dim, near in ((7, 8), (4, 6), (1, 6), (101, 102)):
        with pytest.raises(FocuseError, match=rf"'conve' needs a dim that makes a rectangle, not {dim}; try {near}$"):
            check_rectangle(ConvE(), dim)
    for dim in (6, 8, 9, 64, 100, 200):
        check_rectangle(ConvE(), dim)


def test_batch_normalization_learns_running_statistics_for_ranking() -> None:
    dense = ConvE().init_parameters(8, torch.Generator())
    model = ConvE().bind(dense)
    values = torch.randn(400, 8, generator=torch.Generator().manual_seed(3)) * 3 + 5
    trained = batch_norm(in_training(model, 1), "hidden", values)
    torch.testing.assert_close(trained, (values - values.mean(0)) / values.std(0, correction=0), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(dense["seen_hidden"][0], 0.1 * values.mean(0))
    torch.testing.assert_close(dense["seen_hidden"][1], 0.9 + 0.1 * values.var(0))
    for _ in range(100):
        batch_norm(in_training(model, 1), "hidden", values)
    kept = dense["seen_hidden"].clone()
    torch.testing.assert_close(batch_norm(model, "hidden", values[:3]), trained[:3], atol=0.02, rtol=0.02)
    batch_norm(in_training(model, 1), "hidden", values[:1])  # of one row there is no variance
    assert torch.equal(dense["seen_hidden"], kept)


@pytest.mark.parametrize("name", NEURAL)
@pytest.mark.parametrize(
    "more",
    [
        {"negative_sampling": "shared"},
        {"negative_sampling": "all"},
        {"negative_sampling": "per-triple", "weight_mode": "focuse"},
    ],
)
def test_loss_of_neural_models_falls(small: focuse.Graph, name: str, more: dict[str, str]) -> None:
    asked = {
        "model": name,
        "epochs": 6,
        "lr": 0.01,
        "num_negatives": None if more["negative_sampling"] == "all" else 20,
        "label_exponent": None if "weight_mode" in more else 1.0,
        **more,
    }
    run = focuse.train(small, **NEURAL[name], **asked, batch_size=97, progress=False)
    losses = [row["loss"] for row in run.history]
    assert losses[-1] < losses[0] or "weight_mode" in more
    assert np.isfinite(run.evaluate().all.mrr)


# ---- conve ----------------------------------------------------------------------------------------------------------


def dense_of(dim: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(1)
    start = ConvE().init_parameters(dim, random)
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


def test_conve_score_matches_loops_over_the_convolution() -> None:
    dense = dense_of(8)
    head, relation, tail = np.random.default_rng(2).normal(size=(3, 4, 9))
    expected = [by_loops(dense, h[:8], r[:8], t[:8], t[8]) for h, r, t in zip(head, relation, tail, strict=True)]
    h, r, t = map(torch.from_numpy, (head, relation, tail))
    found = score_triples(ConvE().bind(dense), h, r[:, :8], t)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_conve_scores_tails_only() -> None:
    with pytest.raises(NotImplementedError, match="inverse relations"):
        ConvE().bind(dense_of(8)).query(torch.ones(3, 9), torch.ones(3, 8), "head")


def test_conve_bias_is_the_last_number_of_an_entity_and_starts_at_0() -> None:
    model = ConvE()
    start = model.init_table("entity", torch.ones(3, model.widths(8)[0]))
    assert start.shape == (3, 9)
    assert start[:, -1].tolist() == [0, 0, 0]
    rows = torch.randn(2, 9, dtype=torch.float64)
    relation = torch.randn(2, 8, dtype=torch.float64)
    higher = rows.clone()
    higher[:, -1] += 2
    bound = model.bind(dense_of(8))
    torch.testing.assert_close(
        score_triples(bound, rows, relation, higher), score_triples(bound, rows, relation, rows) + 2
    )


def test_conve_running_statistics_are_not_changed_by_gradients() -> None:
    model, random = ConvE(), torch.Generator().manual_seed(5)
    tables = {"entity": torch.randn(6, 9, generator=random), "relation": torch.randn(4, 8, generator=random)}
    dense = model.init_parameters(8, random)
    optimizer = make_optimizer("adam", {**tables, **dense}, 0.1)
    engine = AutogradEngine(model, tables | dense, optimizer, inverse_relations=True)
    ids = torch.arange(4)
    batch = Batch(ids, ids % 2, ids + 2, torch.ones(4))
    before = {name: value.clone() for name, value in engine.tables.items()}
    every = [Negatives("tail", None, target=batch.tail), Negatives("head", None, target=batch.head)]
    engine.step(Step(batch, every, FocusedLoss(make_loss("multiclass-nll"), None), 1.0, seed=3))
    assert all(not torch.equal(before[name], engine.tables[name]) for name in before)
    pictures = torch.stack([before["entity"][batch.head, :8], before["relation"][batch.relation]], 1)
    of_heads = torch.stack([before["entity"][batch.tail, :8], before["relation"][batch.relation + 2]], 1)
    mean = torch.cat([pictures, of_heads]).mean()  # both sides are one batch, and asked once
    torch.testing.assert_close(engine.tables["seen_input"][0, 0], 0.1 * mean)
    assert not any(name.startswith("seen") for name in optimizer.state())


def test_conve_ranking_is_deterministic(small: focuse.Graph) -> None:
    run = focuse.train(small, model="conve", dim=8, epochs=1, label_exponent=1.0, progress=False)
    known, relation = torch.arange(6), torch.arange(6) % 3
    scores = run.scorer.score_all(known, relation, "tail")
    assert torch.equal(scores, run.scorer.score_all(known, relation, "tail"))
    torch.testing.assert_close(scores[2:3], run.scorer.score_all(known[2:3], relation[2:3], "tail"))


def test_conve_queries_are_computed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, random = ConvE().bind(dense_of(8)), torch.Generator().manual_seed(6)
    known, relation = (torch.randn(50, width, generator=random, dtype=torch.float64) for width in (9, 8))
    whole, sizes, seen = model.query(known, relation, "tail"), [], ConvE._convolve
    monkeypatch.setattr("focuse.models.neural.CHUNK_ROWS", 20)
    monkeypatch.setattr(ConvE, "_convolve", lambda self, *rows: sizes.append(len(rows[0])) or seen(self, *rows))
    torch.testing.assert_close(model.query(known, relation, "tail"), whole)
    assert sizes == [20, 20, 10]
    in_training(model, 1).query(known, relation, "tail")
    assert sizes[3:] == [50]  # in training the whole batch has one mean


def test_conve_needs_inverse_relations_and_a_rectangle(small: focuse.Graph) -> None:
    with pytest.raises(FocuseError, match="'conve' can only predict tails; it needs reciprocal=True"):
        focuse.train(small, model="conve", reciprocal=False, dim=8)
    with pytest.raises(FocuseError, match="not 13; try 14"):
        focuse.train(small, model="conve", dim=13)
    assert focuse.train(small, model="conve", dim=8, epochs=1, label_exponent=1.0, progress=False).settings.reciprocal


def test_conve_training_drops_inputs_feature_maps_and_hidden_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of the picture (.2), whole maps (.2) and hidden numbers (.3), each by its own draw of the seed."""
    asked = []

    def spy(values: Tensor, share: float, seed: int | None, layer: int, rank: int | None = None) -> Tensor:
        asked.append((tuple(values.shape), share, seed, layer, rank))
        return dropout(values, share, seed, layer, rank)

    monkeypatch.setattr(conve, "dropout", spy)
    dense, random = dense_of(8), torch.Generator().manual_seed(4)
    known, relation = (torch.randn(5, width, generator=random, dtype=torch.float64) for width in (9, 8))
    in_training(ConvE().bind(dense), 7).query(known, relation, "tail")
    maps = len(dense["filters"])
    assert asked == [
        ((5, 1, 4, 4), 0.2, 7, 0, None),
        ((5, maps, 2, 2), 0.2, 7, 1, 2),
        ((5, 8), 0.3, 7, 2, None),
    ]


# ---- convkb ---------------------------------------------------------------------------------------------------------


def test_convkb_score_is_the_weighted_sum_of_all_filters() -> None:
    random = np.random.default_rng(1)
    head, relation, tail = random.normal(size=(3, 5, 4))
    filters, offsets, weights = random.normal(size=(3, 50)), random.normal(size=50), random.normal(size=(4, 50))
    expected = np.zeros(5)
    for row in range(5):
        for at in range(4):
            column = np.array([head[row, at], relation[row, at], tail[row, at]])
            for one in range(50):
                expected[row] += weights[at, one] * max(filters[:, one] @ column + offsets[one], 0.0)
    dense = {"filters": filters, "offsets": offsets, "weights": weights}
    model = ConvKB().bind({name: torch.from_numpy(value) for name, value in dense.items()})
    found = score_triples(model, *map(torch.from_numpy, (head, relation, tail)))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_convkb_initial_filters_are_a_translation() -> None:
    start = ConvKB().init_parameters(4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(start["filters"].mean(1), torch.tensor([1.0, 1.0, -1.0]), atol=0.1, rtol=0)


@pytest.mark.parametrize("side", ["head", "tail"])
def test_convkb_pool_scores_stay_within_the_chunk_size(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    model = ConvKB().bind(ConvKB().init_parameters(4, torch.Generator().manual_seed(0)))
    rows = [torch.randn(count, 4, requires_grad=True) for count in (6, 6, 11)]
    sizes = []
    filtered = ConvKB._all_filters

    def watched(self: ConvKB, *parts: torch.Tensor) -> torch.Tensor:
        sizes.append(torch.broadcast_shapes(*(part.shape for part in parts)).numel() * 50)
        return filtered(self, *parts)

    monkeypatch.setattr(ConvKB, "_all_filters", watched)
    whole = model.score_pool(model.query(rows[0], rows[1], side), rows[1], rows[2], side)
    wanted = torch.autograd.grad(whole.square().sum(), rows)
    monkeypatch.setattr(pieces, "CHUNK_NUMBERS_CPU", 1000)
    sizes.clear()
    found = model.score_pool(model.query(rows[0], rows[1], side), rows[1], rows[2], side)
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), rows), wanted)
    assert max(sizes) <= 1000
    assert sum(sizes) == 2 * 6 * 11 * 4 * 50  # all of it, and once more for the gradient


# ---- kbgat ----------------------------------------------------------------------------------------------------------

ENTITIES, RELATIONS, DIM = 7, 3, 6
EDGES = np.array([[0, 0, 1], [2, 1, 1], [3, 2, 1], [1, 0, 0], [4, 2, 5], [5, 1, 5], [2, 1, 1]])  # h, r, t; one twice


def elu(value: np.ndarray) -> np.ndarray:
    return np.where(value > 0, value, np.exp(np.minimum(value, 0)) - 1)


def heard(entity: np.ndarray, relation: np.ndarray, mix: np.ndarray, look: np.ndarray) -> np.ndarray:
    """Attention one entity and one fact at a time."""
    matrix = np.concatenate(mix)  # W₁ of [h_i ‖ h_j ‖ g_k]
    found = np.zeros((len(entity), len(look)))
    for one in range(len(entity)):
        messages, powers = [], []
        for head, kind, tail in sorted({tuple(edge) for edge in EDGES.tolist()}):
            if tail == one:
                message = np.concatenate([entity[one], entity[head], relation[kind]]) @ matrix
                judged = look @ message
                messages.append(message)
                powers.append(np.exp(judged if judged > 0 else 0.2 * judged))
        for message, power in zip(messages, powers, strict=True):
            found[one] += power / sum(powers) * message
    return found


def model_and_tables() -> tuple[KBGAT, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(3)
    dense = {name: value.double() * 2 for name, value in KBGAT().init_parameters(DIM, random).items()}
    columns = torch.from_numpy(EDGES).unbind(1)
    model = KBGAT().bind(context=Context(edges=columns)).bind(dense)
    return model, *(torch.randn(n, DIM, generator=random, dtype=torch.float64) for n in (ENTITIES, RELATIONS))


def test_kbgat_encoding_matches_loops() -> None:
    model, entity, relation = model_and_tables()
    dense = {name: value.numpy() for name, value in model.parameters.items()}
    h, g = entity.numpy(), relation.numpy()
    both = np.concatenate([heard(h, g, dense["mix"][at], dense["look"][at]) for at in range(2)], axis=1)
    steps = g @ dense["relations"]
    last = elu(heard(elu(both), steps, dense["last_mix"], dense["last_look"]))
    expected = h @ dense["entities"] + last
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    made, told = model.encoder.encode(model, entity, relation)
    np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(told, steps, rtol=1e-12)
    score = -np.abs(expected[0] + steps[2] - expected[5]).sum()
    found = score_triples(model, made[:1], told[2:3], made[5:6])
    np.testing.assert_allclose(found, [score], rtol=1e-9)


def test_kbgat_edge_order_has_no_effect() -> None:
    model, entity, relation = model_and_tables()
    turned = model.bind(context=Context(edges=torch.from_numpy(EDGES[::-1].copy()).unbind(1)))
    assert torch.equal(
        model.encoder.encode(model, entity, relation)[0], turned.encoder.encode(turned, entity, relation)[0]
    )


def test_kbgat_attention_is_dropped_in_training_only() -> None:
    model, entity, relation = model_and_tables()
    steps = [in_training(model, seed) for seed in (1, 1, 2)]
    one, same, other = (step.encoder.encode(step, entity, relation)[0] for step in steps)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_kbgat_no_held_out_triple_reaches_the_tables(small: focuse.Graph) -> None:
    """Whatever valid and test hold, training ends in the same bits; train itself does matter."""
    rows = np.arange(len(small))
    train, held, others = small.select(rows < 400), small.select(rows[400:500]), small.select(rows[500:])
    asked = {
        "model": "kbgat",
        "dim": 8,
        "epochs": 3,
        "label_exponent": 1.0,
        "filter_negatives": True,
        "progress": False,
    }

    def trained(graph: focuse.Graph, valid: focuse.Graph, test: focuse.Graph) -> dict[str, torch.Tensor]:
        run = focuse.train(graph, valid=valid, test=test, **asked)
        assert run.last is not None
        return run.last.tables | {f"made {name}": value for name, value in run.scorer.encoded_tables().items()}

    one = trained(train, held, others)
    two = trained(train, others, held)
    tables = [name for name in one if not name.startswith("made")]
    assert len(tables) == 8
    assert all(torch.equal(one[name], two[name]) for name in tables)
    three = trained(small.select(rows < 399), held, others)
    assert not torch.equal(one["entity"], three["entity"])


def test_kbgat_odd_dim_is_refused(small: focuse.Graph) -> None:
    with pytest.raises(focuse.FocuseError, match="'kbgat' needs a dim that 2 divides, not 7"):
        focuse.train(small, model="kbgat", dim=7)


def test_kbgat_inverse_relations_are_encoded_like_any_other() -> None:
    model, entity, relation = model_and_tables()
    other = relation.flip(0)
    made, both = model.encoder.encode(model, entity, torch.cat([relation, other]))
    alone, steps = model.encoder.encode(model, entity, relation)
    torch.testing.assert_close(made, alone)
    torch.testing.assert_close(both, torch.cat([steps, model.encoder.encode(model, entity, other)[1]]))
