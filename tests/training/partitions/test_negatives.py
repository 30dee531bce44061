"""Corruptions among the partitions in memory, seen over many plans, are of every partition alike."""

import numpy as np
import pytest
import torch

from focuse.engines import Batch
from focuse.training.negatives import draw
from focuse.training.partitions.negatives import ActiveSampler
from focuse.training.partitions.plan import Stage, stages_of
from focuse.training.settings import Settings

ROWS = 20


def sampler(sampling: str, stage: Stage, partitions: int, negatives: int = 40) -> ActiveSampler:
    settings = Settings(sampling=sampling, negatives=negatives)
    return ActiveSampler.of(settings, stage, np.full(partitions, ROWS), ROWS)


def edge(stage: Stage, partitions: int, one: int, two: int) -> Batch:
    """An edge from a row of partition `one` to a row of `two`, where they lie in memory."""
    slot = stage.slot_of(partitions)
    ids = (torch.tensor([int(slot[part]) * ROWS + row]) for part, row in ((one, 3), (two, 5)))
    head, tail = ids
    return Batch(head, torch.zeros(1, dtype=torch.int64), tail, torch.ones(1))


def drawn(stage: Stage, partitions: int, one: int, two: int, sampling: str, place: tuple[int, int, int]) -> np.ndarray:
    """How many corruptions of one edge are of each partition, [P]."""
    group = sampler(sampling, stage, partitions)(edge(stage, partitions, one, two), place)[0]
    assert group.entities is not None
    ids = group.entities.flatten() if group.mask is None else group.entities[group.mask[0]]
    return np.bincount(np.array(stage.slots)[ids.numpy() // ROWS], minlength=partitions)


@pytest.mark.parametrize("sampling", ["shared", "independent"])
@pytest.mark.parametrize(("one", "two"), [(0, 1), (2, 2)])
def test_over_many_plans_every_partition_is_drawn_alike(sampling: str, one: int, two: int) -> None:
    partitions, found, times = 6, np.zeros(6), 0.0
    for seed in range(150):
        for stage in stages_of(partitions, 4, seed, 0):
            if {one, two} <= set(stage.active):
                at = stage.active.index(one), stage.active.index(two)
                part = 1 / stage.parts[at]  # the chance that an edge of the two is trained in this stage
                found += part * drawn(stage, partitions, one, two, sampling, (seed, 0, stage.slots[0] + 1))
                times += part
    assert times == pytest.approx(150)
    assert found.sum() / times == pytest.approx(40, rel=0.02)  # as many as were asked for
    # Evenly among those in memory the own ones would have a quarter each, half as much again.
    assert found / found.sum() == pytest.approx(np.full(6, 1 / 6), rel=0.12)


@pytest.mark.parametrize("two", [0, 1])
def test_where_a_pool_has_less_than_one_of_each_partition_every_batch_has_about_as_many(two: int) -> None:
    counts, own = [], 0
    for batch in range(400):
        stage = next(stage for stage in stages_of(16, 12, batch, 0) if {0, two} <= set(stage.active))
        found = sampler("shared", stage, 16, negatives=8)(edge(stage, 16, 0, two), (0, 0, batch))[0]
        assert found.entities is not None
        assert found.mask is not None
        parts = np.array(stage.slots)[found.entities[found.mask[0]].numpy() // ROWS]
        counts.append(len(parts))
        own += int((parts == 0).sum())
    assert np.mean(counts) == pytest.approx(8, rel=0.03)
    assert min(counts) >= 5
    assert max(counts) <= 11
    assert own / sum(counts) == pytest.approx(1 / 16, rel=0.2)


@pytest.mark.parametrize("sampling", ["shared", "independent"])
@pytest.mark.parametrize(("partitions", "slots"), [(4, 4), (5, 2)])
def test_where_nobody_can_stand_for_others_everyone_in_memory_is_drawn_alike(
    sampling: str, partitions: int, slots: int
) -> None:
    stage = next(iter(stages_of(partitions, slots, 0, 0)))
    one, two = stage.active[:2]
    found = sum(drawn(stage, partitions, one, two, sampling, (0, 0, batch)) for batch in range(100))
    assert np.flatnonzero(found).tolist() == stage.active
    assert found[stage.active] / 4000 == pytest.approx(np.full(slots, 1 / slots), rel=0.1)


def test_every_row_of_a_partition_is_drawn_alike_on_both_sides() -> None:
    stage = next(iter(stages_of(5, 3, 0, 0)))
    one, two = stage.active[:2]
    rows = np.zeros(ROWS)
    sides = 0
    for batch in range(300):
        group = sampler("independent", stage, 5)(edge(stage, 5, one, two), (0, 0, batch))[0]
        assert group.entities is not None
        assert group.tails is not None
        rows += np.bincount(group.entities.flatten().numpy() % ROWS, minlength=ROWS)
        sides += int(group.tails.sum())
    assert rows / rows.sum() == pytest.approx(np.full(ROWS, 1 / ROWS), rel=0.2)
    assert sides / rows.sum() == pytest.approx(0.5, abs=0.02)


def test_one_partition_draws_what_a_training_in_memory_draws() -> None:
    stage = next(iter(stages_of(1, 1, 0, 0)))
    group = sampler("shared", stage, 1)(edge(stage, 1, 0, 0), (0, 0, 7))[0]
    assert group.entities is not None
    assert group.entities.tolist() == draw((0, 0, 7), (40,), ROWS, torch.device("cpu")).tolist()


def test_where_all_are_in_memory_every_entity_is_drawn_alike_though_partitions_differ() -> None:
    sizes = np.array([2, 1, 1])
    stage = next(iter(stages_of(3, 3, 0, 0)))
    made = ActiveSampler.of(Settings(sampling="shared", negatives=400), stage, sizes, 2)
    batch = Batch(*(torch.zeros(1, dtype=torch.int64) for _ in range(3)), torch.ones(1))
    found = np.zeros(6)
    for number in range(20):
        groups = made(batch, (0, 0, number))
        assert groups[0].entities is not None
        assert groups[0].entities is groups[1].entities
        found += np.bincount(groups[0].entities.numpy(), minlength=6)
    assert found / 8000 == pytest.approx([0.25, 0.25, 0.25, 0, 0.25, 0], abs=0.03)
