"""Negatives: reproducible, uniform, and filtered as asked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from focuse.config import SETTINGS
from focuse.data.triple_index import TripleIndex
from focuse.objective.negatives import Batch, Negatives, NegativeSampler
from focuse.objective.randomness import draw_integers, generator, stream_seed

SAMPLINGS = [each for each in SETTINGS["negative_sampling"].choices if each != "none"]

ENTITIES, RELATIONS = 9, 2
PLACES = st.tuples(st.integers(0, 2**31), st.integers(0, 5000), st.integers(0, 100_000))


def batch_of(triples: list[tuple[int, int, int]]) -> Batch:
    head, relation, tail = torch.tensor(triples).unbind(1)
    return Batch(head, relation, tail, torch.rand(len(triples)))


def facts(seed: int = 0, count: int = 60) -> list[tuple[int, int, int]]:
    random = np.random.default_rng(seed)
    columns = [random.integers(size, size=count).tolist() for size in (ENTITIES, RELATIONS, ENTITIES)]
    return list(zip(*columns, strict=True))


def known_of(triples: list[tuple[int, int, int]]) -> TripleIndex:
    return TripleIndex(*torch.tensor(triples).unbind(1), ENTITIES, RELATIONS)


def drawn(groups: list[Negatives]) -> list[Tensor]:
    parts = [part for group in groups for part in (group.entities, group.replaces_tail, group.valid_mask(ENTITIES))]
    return [part for part in parts if part is not None]


# ---- a pure function of its place -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SAMPLINGS)
@settings(deadline=None, max_examples=30)
@given(place=PLACES, noise=st.integers(0, 1000))
def test_same_key_gives_the_same_negatives(kind: str, place: tuple[int, int, int], noise: int) -> None:
    batch, sampler = batch_of(facts(count=6)), NegativeSampler(kind, 8, ENTITIES)
    one = drawn(sampler(batch, place))
    torch.manual_seed(noise)  # no global state plays a part, nor what was drawn before
    sampler(batch, (noise, 1, 2))
    again = drawn(NegativeSampler(kind, 8, ENTITIES)(batch, place))
    assert len(one) == len(again) > 0
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))


@settings(deadline=None, max_examples=30)
@given(st.lists(PLACES, min_size=2, max_size=6, unique=True))
def test_different_keys_give_different_streams(places: list[tuple[int, int, int]]) -> None:
    streams = {tuple(torch.randint(2**31, (6,), generator=generator(*place)).tolist()) for place in places}
    assert len(streams) == len(places)


@pytest.mark.parametrize("kind", ["per-triple", "shared"])
def test_neighboring_keys_differ(kind: str) -> None:
    batch, sampler = batch_of(facts(count=6)), NegativeSampler(kind, 30, 1000)
    places = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1)]
    seen = {tuple(drawn(sampler(batch, place))[0].flatten().tolist()) for place in places}
    assert len(seen) == len(places)


def splitmix(key: int, count: int) -> list[int]:
    """SplitMix64 in Python's own numbers."""
    whole, outputs = (1 << 64) - 1, []
    for _ in range(count):
        key = (key + 0x9E3779B97F4A7C15) & whole
        bits = ((key ^ key >> 30) * 0xBF58476D1CE4E5B9) & whole
        bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & whole
        outputs.append(bits ^ bits >> 31)
    return outputs


@settings(deadline=None, max_examples=30)
@given(place=PLACES, below=st.integers(1, 2**32 - 1))
def test_random_numbers_are_those_of_splitmix64(place: tuple[int, int, int], below: int) -> None:
    expected = [(bits >> 33) * below >> 31 for bits in splitmix(stream_seed(*place), 12)]
    drawn = draw_integers(place, (3, 4), below, torch.device("cpu"))
    assert drawn.flatten().tolist() == expected
    assert 0 <= min(expected) <= max(expected) < below


def test_seed_can_be_given_in_place_of_its_key() -> None:
    """As a number or as a tensor, which a recorded GPU step reads anew every time."""
    place, cpu = (3, 1, 4), torch.device("cpu")
    expected = draw_integers(place, (50,), 1000, cpu)
    for key in (stream_seed(*place), torch.tensor(stream_seed(*place))):
        assert torch.equal(draw_integers(key, (50,), 1000, cpu), expected)


# ---- per-triple -----------------------------------------------------------------------------------------------------


def test_independent_negatives_have_shape_and_range() -> None:
    (group,) = NegativeSampler("per-triple", 500, ENTITIES)(batch_of(facts(count=7)), (3, 1, 4))
    assert group.side == "both"
    assert group.entities is not None
    assert group.replaces_tail is not None
    assert group.entities.shape == group.replaces_tail.shape == (7, 500)
    assert group.entities.dtype == torch.int64
    assert group.replaces_tail.dtype == torch.bool
    assert set(group.entities.flatten().tolist()) == set(range(ENTITIES))


def test_per_triple_does_not_filter_by_default() -> None:
    """As in the paper: even the positive itself may be drawn, and counts."""
    (group,) = NegativeSampler("per-triple", 200, 2)(batch_of([(0, 0, 1)]), (0, 0, 0))
    assert group.mask is None


def test_sides_and_entities_are_sampled_uniformly() -> None:
    """χ² of the 2 × 20 table of (side, entity) over many places: 39 degrees of freedom, 99.99% lie below 83."""
    counts = np.zeros((2, 20))
    batch = batch_of([(0, 0, 1)] * 40)
    for number in range(50):
        (group,) = NegativeSampler("per-triple", 20, 20)(batch, (2021, number // 10, number % 10))
        assert group.entities is not None
        assert group.replaces_tail is not None
        np.add.at(counts, (group.replaces_tail.long().numpy(), group.entities.numpy()), 1)
    expected = 40 * 20 * 50 / counts.size
    assert counts.sum() == expected * counts.size
    assert ((counts - expected) ** 2 / expected).sum() < 83
    assert abs(counts[0].sum() - counts[1].sum()) < 4 * np.sqrt(counts.sum())


def test_shared_pool_is_sampled_uniformly() -> None:
    """χ² with 19 degrees of freedom: 99.99% lie below 52."""
    counts = np.zeros(20)
    for number in range(50):
        (group, _) = NegativeSampler("shared", 200, 20)(batch_of([(0, 0, 1)]), (7, 0, number))
        assert group.entities is not None
        counts += np.bincount(group.entities.numpy(), minlength=20)
    assert ((counts - 500) ** 2 / 500).sum() < 52


# ---- masks ----------------------------------------------------------------------------------------------------------


def sides(groups: list[Negatives], batch: Batch) -> list[tuple[str, Tensor, Tensor, list[int]]]:
    """(side, entities [B, N], mask [B, N], the positives' own entities) for the two groups of 'shared' and 'all'."""
    assert [group.side for group in groups] == ["tail", "head"]
    result = []
    for group, target in zip(groups, (batch.tail, batch.head), strict=True):
        mask = group.valid_mask(ENTITIES)
        assert mask is not None
        assert group.replaces_tail is None
        entities = torch.arange(ENTITIES) if group.entities is None else group.entities
        assert mask.shape == (len(batch), len(entities))
        result.append((group.side, entities.expand(len(batch), -1), mask, target.tolist()))
    return result


@pytest.mark.parametrize("kind", ["shared", "all"])
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_only_the_positive_itself_is_masked_by_default(kind: str, seed: int) -> None:
    batch = batch_of(facts(seed, 6))
    for _, entities, mask, target in sides(NegativeSampler(kind, 12, ENTITIES)(batch, (seed, 0, 0)), batch):
        expected = [[entity != target[row] for entity in line] for row, line in enumerate(entities.tolist())]
        assert mask.tolist() == expected


def test_shared_uses_one_pool_for_both_sides() -> None:
    tail, head = NegativeSampler("shared", 12, ENTITIES)(batch_of(facts()), (1, 2, 3))
    assert tail.entities is not None
    assert head.entities is not None
    assert tail.entities.shape == (12,)
    assert torch.equal(tail.entities, head.entities)
    assert 0 <= int(tail.entities.min()) <= int(tail.entities.max()) < ENTITIES


def test_sampling_all_needs_no_list_of_entities() -> None:
    assert [group.entities for group in NegativeSampler("all", 1, ENTITIES)(batch_of(facts()), (0, 0, 0))] == [
        None,
        None,
    ]


@pytest.mark.parametrize("kind", SAMPLINGS)
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_filter_masks_exactly_the_known_triples(kind: str, seed: int) -> None:
    """With filter, a corruption counts if and only if it is no fact of train (a positive of the batch is one)."""
    train = facts(seed)
    batch, truth = batch_of(train[:6]), set(train)
    groups = NegativeSampler(kind, 15, ENTITIES, known_of(train))(batch, (seed, 0, 0))
    if kind == "per-triple":
        (group,) = groups
        assert group.entities is not None
        assert group.replaces_tail is not None
        assert group.mask is not None
        cells = [("both", group.entities, group.mask, group.replaces_tail)]
    else:
        cells = [(side, e, m, torch.full_like(m, side == "tail")) for side, e, m, _ in sides(groups, batch)]
    for _, entities, mask, tails in cells:
        for row, (h, r, t) in enumerate(train[:6]):
            for entity, counts, is_tail in zip(entities[row].tolist(), mask[row], tails[row], strict=True):
                assert bool(counts) == (((h, r, entity) if is_tail else (entity, r, t)) not in truth)


@pytest.mark.parametrize("kind", ["shared", "all"])
def test_filter_masks_the_positive_even_if_it_is_not_known(kind: str) -> None:
    batch = batch_of([(0, 0, 1), (2, 1, 3)])
    sampler = NegativeSampler(kind, 40, ENTITIES, known_of([(5, 0, 6)]))
    for _, entities, mask, target in sides(sampler(batch, (0, 0, 0)), batch):
        assert torch.equal(mask, entities != torch.tensor(target)[:, None])
