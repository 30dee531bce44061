"""Every pair of partitions meets in an epoch, and its edges are spread over the times that it does."""

from collections.abc import Iterable
from itertools import pairwise

import pytest

from focuse.errors import FocuseError
from focuse.training.partitions.plan import Stage, loads_of, stages_of

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
    stages = list(stages_of(partitions, slots, 0, 0, rounds))
    assert all(len(stage.active) == slots == len(set(stage.active)) for stage in stages)
    found = met(stages)
    assert sorted(found) == [(one, two) for one in range(partitions) for two in range(partitions)]
    for pair, parts in found.items():
        assert parts == [(number, len(parts)) for number in range(len(parts))]
        assert len(parts) >= (rounds if slots < partitions else 1), pair


@pytest.mark.parametrize(("partitions", "slots"), SHAPES)
def test_one_comes_into_the_free_slot_and_the_others_stay_where_they_are(partitions: int, slots: int) -> None:
    stages = list(stages_of(partitions, slots, 4, 2, rounds=2))
    for before, after in pairwise(stages):
        changed = [slot for slot, part in enumerate(after.slots) if part >= 0 and before.slots[slot] != part]
        assert len(changed) <= 1  # none where a round begins with those that are there
        assert not changed or before.slots[changed[0]] == -1  # free, so it can be read while the others are trained


@pytest.mark.parametrize(("partitions", "slots"), [(8, 3), (16, 4), (32, 9), (64, 8)])
def test_an_epoch_takes_no_more_loads_than_said(partitions: int, slots: int) -> None:
    assert loads_of(stages_of(partitions, slots, 0, 0)) <= partitions**2 / slots + slots


@pytest.mark.parametrize(("partitions", "slots"), [(16, 4), (32, 8)])
def test_no_one_in_memory_has_most_of_a_stage_s_edges(partitions: int, slots: int) -> None:
    for stage in stages_of(partitions, slots, 0, 0):
        edges = 1 / stage.parts  # of buckets that are equally large
        ends = (edges.sum(0) + edges.sum(1)) / (2 * edges.sum())
        assert ends.max() <= 2.2 / slots


def test_a_plan_is_a_pure_function_and_differs_by_epoch() -> None:
    def slots(epoch: int) -> list[tuple[int, ...]]:
        return [stage.slots for stage in stages_of(9, 3, 1, epoch)]

    assert slots(5) == slots(5)
    assert slots(5) != slots(6)


@pytest.mark.parametrize(("partitions", "slots"), [(0, 0), (4, 1), (4, 5), (5000, 3)])
def test_plans_that_cannot_be(partitions: int, slots: int) -> None:
    with pytest.raises(FocuseError, match="partitions"):
        list(stages_of(partitions, slots, 0, 0))
