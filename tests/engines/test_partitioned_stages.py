"""Every pair of partitions meets in an epoch, and negatives are drawn as if all partitions were in memory."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
import torch

from focuse.engines.partitioned import PartitionedNegativeSampler, Stage, check_partitions, epoch_stages
from focuse.errors import FocuseError
from focuse.objective.negatives import Batch
from focuse.objective.randomness import draw_integers

SHAPES = [(1, 1), (2, 2), (3, 2), (5, 2), (6, 3), (8, 3), (8, 4), (8, 7), (16, 4), (32, 9), (33, 10)]


def met(stages: Iterable[Stage]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """For each pair of partitions, which parts of its edges were trained, in their order."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for stage in stages:
        for i, one in enumerate(stage.active):
            for j, two in enumerate(stage.active):
                part = int(stage.number[i, j]), int(stage.parts[i, j])
                found.setdefault((one, two), []).append(part)
    return found


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize(("partitions", "slots"), SHAPES)
def test_each_part_of_the_edges_of_each_pair_is_trained_once(partitions: int, slots: int, rounds: int) -> None:
    stages = list(epoch_stages(partitions, slots, 0, 0, rounds))
    assert all(len(stage.active) == slots == len(set(stage.active)) for stage in stages)
    found = met(stages)
    assert sorted(found) == [(one, two) for one in range(partitions) for two in range(partitions)]
    for pair, parts in found.items():
        assert parts == [(number, len(parts)) for number in range(len(parts))]
        assert len(parts) >= (rounds if slots < partitions else 1), pair


@pytest.mark.parametrize(("partitions", "slots"), SHAPES)
def test_one_partition_is_loaded_into_the_free_slot_and_the_others_stay(partitions: int, slots: int) -> None:
    stages = list(epoch_stages(partitions, slots, 4, 2, rounds=2))
    for before, after in pairwise(stages):
        changed = [slot for slot, part in enumerate(after.slots) if part >= 0 and before.slots[slot] != part]
        assert len(changed) <= 1  # none where a round begins with those that are there
        assert not changed or before.slots[changed[0]] == -1  # free, so it can be read while the others are trained


@pytest.mark.parametrize(("partitions", "slots"), [(8, 3), (16, 4), (32, 9), (64, 8)])
def test_an_epoch_takes_about_partitions_squared_by_slots_loads(partitions: int, slots: int) -> None:
    loaded: set[int] = set()
    loads = 0
    for stage in epoch_stages(partitions, slots, 0, 0):
        loads += len(set(stage.active) - loaded)
        loaded = set(stage.active)
    assert loads <= partitions**2 / slots + slots


@pytest.mark.parametrize(("partitions", "slots"), [(16, 4), (32, 8)])
def test_no_active_partition_has_most_of_the_edges_of_a_stage(partitions: int, slots: int) -> None:
    for stage in epoch_stages(partitions, slots, 0, 0):
        edges = 1 / stage.parts  # of buckets that are equally large
        ends = (edges.sum(0) + edges.sum(1)) / (2 * edges.sum())
        assert ends.max() <= 2.2 / slots


def test_stages_are_a_pure_function_and_differ_by_epoch() -> None:
    def slots(epoch: int) -> list[tuple[int, ...]]:
        return [stage.slots for stage in epoch_stages(9, 3, 1, epoch)]

    assert slots(5) == slots(5)
    assert slots(5) != slots(6)


@pytest.mark.parametrize(("partitions", "slots"), [(0, 0), (4, 1), (4, 5), (5000, 3)])
def test_impossible_numbers_of_partitions_are_errors(partitions: int, slots: int) -> None:
    with pytest.raises(FocuseError, match="partitions"):
        check_partitions(partitions, slots)


# ---- negatives -------------------------------------------------------------------------------------------------------

ROWS = 20


def sampler(sampling: str, stage: Stage, partitions: int, negatives: int = 40) -> PartitionedNegativeSampler:
    return PartitionedNegativeSampler.for_stage(sampling, negatives, stage, np.full(partitions, ROWS), ROWS)


def edge(stage: Stage, partitions: int, one: int, two: int) -> Batch:
    """An edge from a row of partition `one` to a row of `two`, where they lie in memory."""
    slot = stage.slot_of(partitions)
    ids = (torch.tensor([int(slot[part]) * ROWS + row]) for part, row in ((one, 3), (two, 5)))
    head, tail = ids
    return Batch(head, torch.zeros(1, dtype=torch.int64), tail, torch.ones(1))


def drawn(stage: Stage, partitions: int, one: int, two: int, sampling: str, place: tuple[int, int, int]) -> np.ndarray:
    """How many negatives of one edge are of each partition, [P]."""
    group = sampler(sampling, stage, partitions)(edge(stage, partitions, one, two), place)[0]
    assert group.entities is not None
    ids = group.entities.flatten() if group.mask is None else group.entities[group.mask[0]]
    return np.bincount(np.array(stage.slots)[ids.numpy() // ROWS], minlength=partitions)


@pytest.mark.parametrize("sampling", ["shared", "per-triple"])
@pytest.mark.parametrize(("one", "two"), [(0, 1), (2, 2)])
def test_over_many_epochs_every_partition_is_drawn_alike(sampling: str, one: int, two: int) -> None:
    partitions, found, times = 6, np.zeros(6), 0.0
    for seed in range(150):
        for stage in epoch_stages(partitions, 4, seed, 0):
            if {one, two} <= set(stage.active):
                at = stage.active.index(one), stage.active.index(two)
                part = 1 / stage.parts[at]  # the chance that an edge of the two is trained in this stage
                found += part * drawn(stage, partitions, one, two, sampling, (seed, 0, stage.slots[0] + 1))
                times += part
    assert times == pytest.approx(150)
    assert found.sum() / times == pytest.approx(40, rel=0.02)  # as many as were asked for
    # Drawn evenly among those in memory, the edge's own partitions would have a quarter each.
    assert found / found.sum() == pytest.approx(np.full(6, 1 / 6), rel=0.12)


@pytest.mark.parametrize("two", [0, 1])
def test_small_pools_have_about_as_many_negatives_in_every_batch(two: int) -> None:
    counts, own = [], 0
    for batch in range(400):
        stage = next(stage for stage in epoch_stages(16, 12, batch, 0) if {0, two} <= set(stage.active))
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


@pytest.mark.parametrize("sampling", ["shared", "per-triple"])
@pytest.mark.parametrize(("partitions", "slots"), [(4, 4), (5, 2)])
def test_active_rows_are_drawn_alike_if_no_partition_represents_others(
    sampling: str, partitions: int, slots: int
) -> None:
    stage = next(iter(epoch_stages(partitions, slots, 0, 0)))
    one, two = stage.active[:2]
    found = sum(drawn(stage, partitions, one, two, sampling, (0, 0, batch)) for batch in range(100))
    assert np.flatnonzero(found).tolist() == stage.active
    assert found[stage.active] / 4000 == pytest.approx(np.full(slots, 1 / slots), rel=0.1)


def test_every_row_of_a_partition_is_drawn_alike_on_both_sides() -> None:
    stage = next(iter(epoch_stages(5, 3, 0, 0)))
    one, two = stage.active[:2]
    rows = np.zeros(ROWS)
    sides = 0
    for batch in range(300):
        group = sampler("per-triple", stage, 5)(edge(stage, 5, one, two), (0, 0, batch))[0]
        assert group.entities is not None
        assert group.replaces_tail is not None
        rows += np.bincount(group.entities.flatten().numpy() % ROWS, minlength=ROWS)
        sides += int(group.replaces_tail.sum())
    assert rows / rows.sum() == pytest.approx(np.full(ROWS, 1 / ROWS), rel=0.2)
    assert sides / rows.sum() == pytest.approx(0.5, abs=0.02)


def test_one_partition_draws_what_a_training_in_memory_draws() -> None:
    stage = next(iter(epoch_stages(1, 1, 0, 0)))
    group = sampler("shared", stage, 1)(edge(stage, 1, 0, 0), (0, 0, 7))[0]
    assert group.entities is not None
    assert group.entities.tolist() == draw_integers((0, 0, 7), (40,), ROWS, torch.device("cpu")).tolist()


def test_entities_of_active_partitions_of_any_size_are_drawn_alike() -> None:
    sizes = np.array([2, 1, 1])
    stage = next(iter(epoch_stages(3, 3, 0, 0)))
    made = PartitionedNegativeSampler.for_stage("shared", 400, stage, sizes, 2)
    batch = Batch(*(torch.zeros(1, dtype=torch.int64) for _ in range(3)), torch.ones(1))
    found = np.zeros(6)
    for number in range(20):
        groups = made(batch, (0, 0, number))
        assert groups[0].entities is not None
        assert groups[0].entities is groups[1].entities
        found += np.bincount(groups[0].entities.numpy(), minlength=6)
    assert found / 8000 == pytest.approx([0.25, 0.25, 0.25, 0, 0.25, 0], abs=0.03)
