"""γ Σ|x|ᵖ against NumPy. What an engine hands to it is in tests/engines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from focuse.errors import FocuseError
from focuse.models.base import moduli
from focuse.models.registry import make_model
from focuse.objective.losses import Regularizer, make_regularizer


def parts() -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(9)
    shapes = ((4, 3), (2, 6))
    return [torch.randn(shape, generator=random, dtype=torch.float64).requires_grad_() for shape in shapes]


def penalty(text: str) -> Regularizer:
    made = make_regularizer(text)
    assert made is not None
    return made


@pytest.mark.parametrize("power", [1, 2, 3])
def test_penalty_is_the_sum_of_powers(power: int) -> None:
    tables = parts()
    expected = 0.02 * sum((np.abs(part.detach().numpy()) ** power).sum() for part in tables)
    value = torch.as_tensor(penalty(f"l{power}:0.02")(tables))
    assert value.item() == pytest.approx(expected, rel=1e-12)
    assert gradcheck(lambda *rows: penalty(f"l{power}:0.02")(rows), tables)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_gradient_at_zero_is_zero(power: int) -> None:
    rows = torch.zeros(2, 3, requires_grad=True)
    torch.as_tensor(penalty(f"l{power}:1")([rows])).backward()
    assert rows.grad is not None
    assert (rows.grad == 0).all()


def test_n3_is_the_sum_of_cubed_moduli() -> None:
    """γ Σ|a + bi|³ of the sizes that a model with complex numbers gives; of any other model it is l3."""
    rows, made = parts()[1], penalty("n3:0.02")
    assert made.moduli
    assert not penalty("l3:0.02").moduli
    array = rows.detach().numpy()
    expected = 0.02 * (np.abs(array[:, :3] + 1j * array[:, 3:]) ** 3).sum()

    def of(model: str) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda rows: torch.as_tensor(made([moduli(make_model(model), "entity", rows)]))

    assert of("complex")(rows).item() == pytest.approx(expected, rel=1e-12)
    assert gradcheck(of("complex"), rows)
    for model in ("distmult", "transe"):
        assert of(model)(rows).item() == torch.as_tensor(penalty("l3:0.02")([rows])).item()


def test_n3_gradient_of_a_complex_zero_is_zero() -> None:
    rows = torch.zeros(2, 6, requires_grad=True)
    torch.as_tensor(penalty("n3:1")([moduli(make_model("complex"), "entity", rows)])).backward()
    assert rows.grad is not None
    assert (rows.grad == 0).all()


def test_spec_sets_power_strength_and_scope() -> None:
    assert make_regularizer("n3:1e-2", "rows") == Regularizer(3, 1e-2, "rows", moduli=True)
    assert make_regularizer("l3:1e-3") == Regularizer(3, 1e-3, "tables")
    assert make_regularizer("l2:0.5", "rows") == Regularizer(2, 0.5, "rows")
    assert make_regularizer("none") is None
    assert make_regularizer("l3:0") is None


@pytest.mark.parametrize(
    ("text", "scope", "word"),
    [
        ("l4:1", "tables", "unknown regularizer 'l4'"),
        ("l3", "tables", "strength"),
        ("l3:-1", "tables", "strength"),
        ("l3:1,2", "tables", "strength"),
        ("l3:gamma=1", "tables", "strength"),
        ("l3:inf", "tables", "not a number"),
    ],
)
def test_wrong_regularizer_options_are_errors(text: str, scope: str, word: str) -> None:
    with pytest.raises(FocuseError, match=word):
        make_regularizer(text, scope)
