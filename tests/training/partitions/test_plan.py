"""Every pair of partitions meets once an epoch, with few loads."""

from itertools import pairwise

import pytest

from focuse.errors import FocuseError
from focuse.training.partitions.plan import loads_of, stages_of

SHAPES = [(1, 1), (2, 2), (3, 2), (5, 2), (6, 3), (8, 3), (8, 4), (8, 7), (16, 4), (32, 9), (33, 10)]


@pytest.mark.parametrize(("partitions", "slots"), SHAPES)
def test_each_bucket_is_trained_once_by_partitions_that_are_in_memory(partitions: int, slots: int) -> None:
    stages = stages_of(partitions, slots, 0, 0)
    met = [bucket for stage in stages for bucket in stage.buckets]
    assert sorted(met) == [(one, two) for one in range(partitions) for two in range(partitions)]
    for stage in stages:
        assert {part for bucket in stage.buckets for part in bucket} <= set(stage.active)
        assert len(stage.active) == slots == len(set(stage.active))


@pytest.mark.parametrize(("partitions", "slots"), SHAPES)
def test_one_comes_into_the_free_slot_and_the_others_stay_where_they_are(partitions: int, slots: int) -> None:
    stages = stages_of(partitions, slots, 4, 2)
    for before, after in pairwise(stages):
        changed = [slot for slot, part in enumerate(after.slots) if part >= 0 and before.slots[slot] != part]
        assert len(changed) == 1
        assert before.slots[changed[0]] == -1  # free, so it can be read while the others are trained


@pytest.mark.parametrize(("partitions", "slots"), [(8, 3), (16, 4), (32, 9), (64, 8)])
def test_loads_are_near_the_fewest_possible(partitions: int, slots: int) -> None:
    pairs = partitions * (partitions - 1) / 2
    fewest = slots + (pairs - slots * (slots - 1) / 2) / (
        slots - 1
    )  # every load meets all the others for the first time
    assert fewest <= loads_of(stages_of(partitions, slots, 0, 0)) <= 1.3 * fewest


def test_a_plan_is_a_pure_function_and_differs_by_epoch() -> None:
    assert stages_of(9, 3, 1, 5) == stages_of(9, 3, 1, 5)
    assert stages_of(9, 3, 1, 5) != stages_of(9, 3, 1, 6)


@pytest.mark.parametrize(("partitions", "slots"), [(5, 2), (8, 4), (9, 3)])
def test_rounds_meet_each_part_of_a_bucket_once(partitions: int, slots: int) -> None:
    stages = stages_of(partitions, slots, 0, 0, rounds=3)
    met = sorted((bucket, stage.part) for stage in stages for bucket in stage.buckets)
    pairs = [(one, two) for one in range(partitions) for two in range(partitions)]
    assert met == [(pair, (number, 3)) for pair in pairs for number in range(3)]
    for before, after in pairwise(stages):  # also from round to round one comes at a time
        assert len(set(after.active) - set(before.active)) <= 1


@pytest.mark.parametrize(("partitions", "slots"), [(0, 0), (4, 1), (4, 5), (5000, 3)])
def test_plans_that_cannot_be(partitions: int, slots: int) -> None:
    with pytest.raises(FocuseError, match="partitions"):
        stages_of(partitions, slots, 0, 0)
