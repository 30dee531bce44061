"""Optimizers against torch's own, step by step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from focuse.engines.optimizers import OPTIMIZERS, make_optimizer

SHAPES = {"entity": (6, 3), "relation": (2, 4)}
STEPS = 6
WHOLE: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adagrad": torch.optim.Adagrad,
    "sgd": torch.optim.SGD,
}
LAZY: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sparse-adam": torch.optim.SparseAdam,
    "sparse-adagrad": torch.optim.Adagrad,
}
# Entities met in each step: a row may rest for a while, come back, or never appear (row 5).
MET = [[0, 1], [1, 2, 4], [3], [0, 3], [1], [0, 1, 2, 3, 4]]

Gradient = tuple[Tensor | None, Tensor]


def first_tables(dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=random, dtype=dtype) for name, shape in SHAPES.items()}


def whole_gradients(step: int, dtype: torch.dtype = torch.float64) -> dict[str, Gradient]:
    random = torch.Generator().manual_seed(100 + step)
    return {name: (None, torch.randn(shape, generator=random, dtype=dtype)) for name, shape in SHAPES.items()}


def row_gradients(step: int, dtype: torch.dtype = torch.float64) -> dict[str, Gradient]:
    result: dict[str, Gradient] = {}
    for name, (_, gradient) in whole_gradients(step, dtype).items():
        ids = torch.tensor(MET[step] if name == "entity" else [step % 2])
        result[name] = (ids, gradient[ids])
    return result


def gradients(name: str, step: int, dtype: torch.dtype = torch.float64) -> dict[str, Gradient]:
    return (row_gradients if name in LAZY else whole_gradients)(step, dtype)


def test_every_optimizer_is_checked_here() -> None:
    assert set(OPTIMIZERS) == set(WHOLE) | set(LAZY)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_table_optimizers_match_torch(name: str) -> None:
    tables, copies = first_tables(), first_tables()
    ours, theirs = make_optimizer(name, tables, 0.05), WHOLE[name](list(copies.values()), lr=0.05)
    assert not ours.rows_only
    for step in range(STEPS):
        ours.update(whole_gradients(step))
        for table, (_, gradient) in whole_gradients(step).items():
            copies[table].grad = gradient
        theirs.step()
        for table in SHAPES:
            torch.testing.assert_close(tables[table], copies[table], rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own Adagrad builds sparse tensors unchecked
@pytest.mark.parametrize("name", LAZY)
def test_row_optimizers_match_torch_with_sparse_gradients(name: str) -> None:
    tables, copies = first_tables(), first_tables()
    ours, theirs = make_optimizer(name, tables, 0.05), LAZY[name](list(copies.values()), lr=0.05)
    assert ours.rows_only
    for step in range(STEPS):
        ours.update(row_gradients(step))
        for table, (ids, gradient) in row_gradients(step).items():
            assert ids is not None
            shape = copies[table].shape
            copies[table].grad = torch.sparse_coo_tensor(ids[None], gradient, shape, check_invariants=True).coalesce()
        theirs.step()
        for table in SHAPES:  # torch's SparseAdam adds its ε before the bias is taken out
            torch.testing.assert_close(tables[table], copies[table], rtol=1e-5, atol=1e-7)


def test_row_adam_with_every_row_is_adam() -> None:
    tables, copies = first_tables(), first_tables()
    ours, theirs = make_optimizer("sparse-adam", tables, 0.05), torch.optim.Adam(list(copies.values()), lr=0.05)
    for step in range(STEPS):
        ours.update(whole_gradients(step))
        for table, (_, gradient) in whole_gradients(step).items():
            copies[table].grad = gradient
        theirs.step()
    for table in SHAPES:
        torch.testing.assert_close(tables[table], copies[table], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", LAZY)
def test_update_of_all_rows_by_id_equals_update_of_the_table(name: str) -> None:
    by_id, as_whole = first_tables(), first_tables()
    one, other = make_optimizer(name, by_id, 0.05), make_optimizer(name, as_whole, 0.05)
    for step in range(3):
        whole = whole_gradients(step)
        other.update(whole)
        one.update({table: (torch.arange(len(gradient)), gradient) for table, (_, gradient) in whole.items()})
    for table in SHAPES:
        torch.testing.assert_close(by_id[table], as_whole[table], rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", LAZY)
def test_rows_without_gradient_do_not_change(name: str) -> None:
    tables = first_tables(torch.float32)
    optimizer = make_optimizer(name, tables, 0.05)
    for step in range(STEPS):
        before = {key: value.clone() for key, value in {**tables, **optimizer.state()}.items()}
        optimizer.update(row_gradients(step, torch.float32))
        after = {**tables, **optimizer.state()}
        for key, value in before.items():
            table = key.partition(".")[0]
            if table not in SHAPES:
                continue
            ids = row_gradients(step)[table][0]
            assert ids is not None
            rest = torch.ones(len(value), dtype=torch.bool)
            rest[ids] = False
            assert torch.equal(after[key][rest], value[rest]), key
            assert (after[key][ids] != value[ids]).any(dim=1).all(), key


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_loaded_state_continues_identically(name: str, stop: int) -> None:
    through = first_tables(torch.float32)
    whole = make_optimizer(name, through, 0.05)
    for step in range(stop):
        whole.update(gradients(name, step, torch.float32))
    resumed = {table: value.clone() for table, value in through.items()}
    second = make_optimizer(name, resumed, 0.05)
    second.load(whole.state())
    # The first goes on before the second: what was loaded must not be shared with it.
    for step in range(stop, STEPS):
        whole.update(gradients(name, step, torch.float32))
    for step in range(stop, STEPS):
        second.update(gradients(name, step, torch.float32))
    for table in SHAPES:
        assert torch.equal(through[table], resumed[table])
    ends = whole.state(), second.state()
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(value, ends[1][key]) for key, value in ends[0].items())


def test_state_is_flat_and_named_by_table() -> None:
    adam = make_optimizer("adam", first_tables(), 0.1)
    adam.update(whole_gradients(0))
    parts = {f"{table}.{part}" for table in SHAPES for part in ("step", "exp_avg", "exp_avg_sq")}
    assert set(adam.state()) == parts
    assert set(make_optimizer("sparse-adagrad", first_tables(), 0.1).state()) == {
        "entity.sum",
        "relation.sum",
        "all.steps",
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_name_of_a_parameter_may_contain_a_dot(name: str) -> None:
    tables = {"mlp.weight": torch.ones(2)}
    optimizer = make_optimizer(name, tables, 0.1)
    optimizer.update({"mlp.weight": (None, torch.ones(2))})
    other = make_optimizer(name, tables, 0.1)
    other.load(optimizer.state())
    assert other.state().keys() == optimizer.state().keys()


def test_whole_table_optimizers_reject_row_gradients() -> None:
    with pytest.raises(ValueError, match="gradients of whole tables"):
        make_optimizer("adam", first_tables(), 0.1).update(row_gradients(0))


def test_adam_moments_can_be_exchanged_with_torch() -> None:
    """An engine that does the step itself starts from zeros and leaves a state that torch goes on from."""
    tables = {"entity": torch.randn(4, 3), "relation": torch.randn(2, 3)}
    fresh = make_optimizer("adam", tables, 0.1)
    assert all(float(part.abs().sum()) == 0 for part in fresh.moments("entity"))
    assert set(fresh.state()) == {f"entity.{part}" for part in ("step", "exp_avg", "exp_avg_sq")}
    stepped = make_optimizer("adam", tables, 0.1)
    gradients = {name: (None, torch.ones_like(table)) for name, table in tables.items()}
    stepped.update(gradients)
    mean, square, steps = stepped.moments("entity")
    assert torch.allclose(mean, torch.full((4, 3), 0.1))
    assert torch.allclose(square, torch.full((4, 3), 0.001))
    assert float(steps) == 1
