"""KBGAT's encoder against loops over entities and facts, and that it sees nothing but train."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import focuse
from focuse.models import KBGAT, Context, Reciprocal

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
    dense = {name: value.double() * 2 for name, value in KBGAT().dense_start(DIM, random).items()}
    columns = torch.from_numpy(EDGES).unbind(1)
    model = KBGAT().with_context(Context(edges=columns)).with_dense(dense)
    return model, *(torch.randn(n, DIM, generator=random, dtype=torch.float64) for n in (ENTITIES, RELATIONS))


def test_tables_are_encoded_as_by_loops() -> None:
    model, entity, relation = model_and_tables()
    dense = {name: value.numpy() for name, value in model.dense.items()}
    h, g = entity.numpy(), relation.numpy()
    both = np.concatenate([heard(h, g, dense["mix"][at], dense["look"][at]) for at in range(2)], axis=1)
    steps = g @ dense["relations"]
    last = elu(heard(elu(both), steps, dense["last_mix"], dense["last_look"]))
    expected = h @ dense["entities"] + last
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    made, told = model.encode(entity, relation)
    np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(told, steps, rtol=1e-12)
    score = -np.abs(expected[0] + steps[2] - expected[5]).sum()
    found = model.score(made[:1], told[2:3], made[5:6])
    np.testing.assert_allclose(found, [score], rtol=1e-9)


def test_the_order_of_the_facts_says_nothing() -> None:
    model, entity, relation = model_and_tables()
    turned = model.with_context(Context(edges=torch.from_numpy(EDGES[::-1].copy()).unbind(1)))
    assert torch.equal(model.encode(entity, relation)[0], turned.encode(entity, relation)[0])


def test_attention_is_dropped_in_training_alone() -> None:
    model, entity, relation = model_and_tables()
    one, same, other = (model.in_training(key).encode(entity, relation)[0] for key in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(model.encode(entity, relation)[0], model.encode(entity, relation)[0])


def test_no_held_out_triple_reaches_the_tables(small: focuse.Graph) -> None:
    """Whatever valid and test hold, training ends in the same bits; train itself does matter."""
    rows = np.arange(len(small))
    train, held, others = small.select(rows < 400), small.select(rows[400:500]), small.select(rows[500:])
    asked = {"model": "kbgat", "dim": 8, "epochs": 3, "sharpness": 1.0, "filter_negatives": True, "progress": False}

    def trained(graph: focuse.Graph, valid: focuse.Graph, test: focuse.Graph) -> dict[str, torch.Tensor]:
        run = focuse.train(graph, valid=valid, test=test, **asked)
        assert run.last is not None
        return run.last.tables | {f"made {name}": value for name, value in run.engine.finished().items()}

    one = trained(train, held, others)
    two = trained(train, others, held)
    tables = [name for name in one if not name.startswith("made")]
    assert len(tables) == 8
    assert all(torch.equal(one[name], two[name]) for name in tables)
    three = trained(small.select(rows < 399), held, others)
    assert not torch.equal(one["entity"], three["entity"])


def test_an_uneven_dim_is_refused(small: focuse.Graph) -> None:
    with pytest.raises(focuse.FocuseError, match="'kbgat' needs a dim that 2 divides, not 7"):
        focuse.train(small, model="kbgat", dim=7)


def test_an_inverse_relation_is_encoded_like_any_other() -> None:
    """f(?, r, t) = f(t, r⁻¹, ?): with equal rows for r and r⁻¹, asking for heads is asking for tails."""
    model, entity, relation = model_and_tables()
    twin = Reciprocal(model)
    other = relation.flip(0)
    made, both = twin.encode(entity, torch.cat([relation, other], dim=1))
    alone, steps = model.encode(entity, relation)
    torch.testing.assert_close(made, alone)
    torch.testing.assert_close(both, torch.cat([steps, model.encode(entity, other)[1]], dim=1))
    made, both = twin.encode(entity, torch.cat([relation, relation], dim=1))
    torch.testing.assert_close(
        twin.score(made[:3], both, made[3:6], "head"), twin.score(made[3:6], both, made[:3], "tail")
    )
