"""Order of rows: a random permutation, in memory or computed."""

import numpy as np
import pytest
import torch

from focuse.objective import randomness
from focuse.objective.negatives import draw_negatives
from focuse.objective.randomness import ComputedBatches, Permutation, epoch_order
from focuse.random_streams import RandomStream


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 63, 64, 65, 1000, 4097, 100_003])
@pytest.mark.parametrize("key", [0, 1, 2**62])
def test_permutation_contains_every_number_once(size: int, key: int) -> None:
    found = Permutation(size, key)(np.arange(size))
    np.testing.assert_array_equal(np.sort(found), np.arange(size))
    some = np.random.default_rng(0).integers(0, size, 50)
    np.testing.assert_array_equal(Permutation(size, key)(some), found[some])  # each by itself


def test_permutation_beyond_32_bits_is_injective() -> None:
    size = 10**11
    places = np.random.default_rng(0).integers(0, size, 10_000)
    found = Permutation(size, 5)(places)
    assert ((found >= 0) & (found < size)).all()
    assert len(np.unique(found)) == len(np.unique(places))
    assert np.mean(found) == pytest.approx(size / 2, rel=0.02)


def test_permutation_is_statistically_random() -> None:
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


def test_computed_batches_can_be_read_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "ROWS_PER_BLOCK", 64)
    wanted = torch.from_numpy(Permutation(1000, 7)(np.arange(1000))).split(30)
    found = ComputedBatches(1000, 30, 7)
    assert len(found) == len(wanted)
    for number in (33, 0, 5, 6, 12, 2):
        assert torch.equal(found[number], wanted[number])
    assert all(torch.equal(one, other) for one, other in zip(found[4:9], wanted[4:9], strict=True))
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    with pytest.raises(IndexError):
        found[34]


def test_small_epochs_use_torch_randperm() -> None:
    wanted = torch.randperm(100, generator=torch.Generator().manual_seed(9)).split(30)
    order = epoch_order(100, 30, 9)
    assert order.rows == 100
    assert all(torch.equal(one, other) for one, other in zip(order.batches, wanted, strict=True))


def test_large_epochs_are_the_same_in_memory_or_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "MIN_COMPUTED_ROWS", 100)
    computed = epoch_order(1000, 30, 3)
    assert isinstance(computed.batches, ComputedBatches)
    numbers = np.arange(1000) * 2
    held = epoch_order(1000, 30, 3, rows=numbers)
    assert not isinstance(held.batches, ComputedBatches)
    for one, other in zip(computed.batches, held.batches, strict=True):
        assert torch.equal(2 * one, other)


def test_random_streams_are_distinct() -> None:
    members = RandomStream.__members__
    aliases = {name for name, stream in members.items() if stream.name != name}
    # Their seeds are equal, but one is read through SplitMix64 and the other through torch's generator.
    assert aliases == {"COLD_START"}
    assert RandomStream.COLD_START is RandomStream.VALIDATION_NEGATIVES
    batches, masks = 1 << 40, 1 << 56
    keys = [value for value in RandomStream if batches <= value < masks]
    assert min(np.diff(sorted(keys))) >= 1 << 40  # as many batches or stages fit between two of them
    small = [value for value in RandomStream if value < batches]
    assert len(small) + len(keys) + 3 == len(RandomStream)  # and three masks for the seed of a batch


def test_registered_kernels_replace_the_torch_implementation() -> None:
    """A kernel that returns None leaves the work to torch."""
    device = torch.device("meta")
    assert randomness.run_kernel("draw_integers", device, 1) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomness, "_KERNELS", {})
        expected = draw_negatives((1, 2, 3), (50,), 1000, torch.device("cpu"))
        randomness.register_kernel("draw_negatives", "cpu", lambda *arguments: None)
        declined = draw_negatives((1, 2, 3), (50,), 1000, torch.device("cpu"))
        randomness.register_kernel("draw_negatives", "cpu", lambda *arguments: "drawn")
        assert draw_negatives((1, 2, 3), (50,), 1000, torch.device("cpu")) == "drawn"
    import focuse.engines.base  # noqa: F401 - registers the kernels

    fast = draw_negatives((1, 2, 3), (50,), 1000, torch.device("cpu"))
    for entities, replaces_tail in (declined, fast):
        assert torch.equal(entities, expected[0])
        assert torch.equal(replaces_tail, expected[1])
