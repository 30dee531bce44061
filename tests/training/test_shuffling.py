"""Orders of rows: whole, by chance, and the same however they are held."""

import numpy as np
import pytest
import torch

from focuse.training import shuffling
from focuse.training.shuffling import ComputedBatches, Permutation, order_of


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 63, 64, 65, 1000, 4097, 100_003])
@pytest.mark.parametrize("key", [0, 1, 2**62])
def test_every_number_stands_at_one_place(size: int, key: int) -> None:
    found = Permutation(size, key)(np.arange(size))
    np.testing.assert_array_equal(np.sort(found), np.arange(size))
    some = np.random.default_rng(0).integers(0, size, 50)
    np.testing.assert_array_equal(Permutation(size, key)(some), found[some])  # each by itself


def test_numbers_beyond_those_of_32_bits_stay_apart() -> None:
    size = 10**11
    places = np.random.default_rng(0).integers(0, size, 10_000)
    found = Permutation(size, 5)(places)
    assert ((found >= 0) & (found < size)).all()
    assert len(np.unique(found)) == len(np.unique(places))
    assert np.mean(found) == pytest.approx(size / 2, rel=0.02)


def test_an_order_is_as_uneven_as_chance_is() -> None:
    """Where rows of the same tenth go, by keys and by neighbours: against what a fair shuffle gives."""
    size, keys = 5_000, 60
    orders = np.array([Permutation(size, key)(np.arange(size)) for key in range(keys)])
    tenths = np.array([np.bincount(order[: size // 10] * 10 // size, minlength=10) for order in orders])
    # Of 500 drawn without putting back the count of each tenth has a variance of 500 · .1 · .9 · (1 - 1/10).
    assert ((tenths - 50) ** 2).mean() == pytest.approx(500 * 0.1 * 0.9 * 0.9, rel=0.15)
    near = np.corrcoef(orders[:, :-1].ravel(), orders[:, 1:].ravel())[0, 1]
    assert abs(near) < 4 / np.sqrt(size * keys)
    assert abs(np.corrcoef(orders[0], orders[1])[0, 1]) < 4 / np.sqrt(size)
    fixed = (orders == np.arange(size)).sum(1)  # one on average, as of any fair shuffle
    assert fixed.mean() == pytest.approx(1, abs=4 / np.sqrt(keys))


def test_batches_are_those_of_the_permutation_in_whatever_order_they_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "BLOCK", 64)
    wanted = torch.from_numpy(Permutation(1000, 7)(np.arange(1000))).split(30)
    found = ComputedBatches(1000, 30, 7)
    assert len(found) == len(wanted)
    for number in (33, 0, 5, 6, 12, 2):
        assert torch.equal(found[number], wanted[number])
    assert all(torch.equal(one, other) for one, other in zip(found[4:9], wanted[4:9], strict=True))
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    with pytest.raises(IndexError):
        found[34]


def test_few_rows_are_shuffled_as_ever() -> None:
    wanted = torch.randperm(100, generator=torch.Generator().manual_seed(9)).split(30)
    order = order_of(100, 30, 9)
    assert order.rows == 100
    assert all(torch.equal(one, other) for one, other in zip(order.batches, wanted, strict=True))


def test_many_rows_are_the_same_held_or_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "LARGE", 100)
    computed = order_of(1000, 30, 3)
    assert isinstance(computed.batches, ComputedBatches)
    numbers = np.arange(1000) * 2
    held = order_of(1000, 30, 3, rows=numbers)
    assert not isinstance(held.batches, ComputedBatches)
    for one, other in zip(computed.batches, held.batches, strict=True):
        assert torch.equal(2 * one, other)
