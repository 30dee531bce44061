"""Known negatives: negative weights, zero weights and files."""

from __future__ import annotations

import numpy as np
import pytest

from focuse.data.readers import read
from focuse.errors import FocuseError
from focuse.training.preparation import read_known_negatives, split_known_negatives

ROWS = [("a", "r", "b", 2), ("a", "r", "c", -1), ("b", "r", "c", 0), ("c", "s", "d", -4), ("a", "s", "b", 0.5)]


@pytest.mark.parametrize(
    ("negative", "zero", "facts", "false"),
    [
        (False, False, [2, -1, 0, -4, 0.5], None),
        (True, False, [2, 0, 0.5], [0.25, 1.0]),
        (False, True, [2, -1, -4, 0.5], [1.0]),
        (True, True, [2, 0.5], [0.25, 1.0, 1.0]),
    ],
)
def test_negative_and_zero_weights_are_split_from_positives_as_asked(
    negative: bool, zero: bool, facts: list[float], false: list[float] | None
) -> None:
    graph = read(ROWS)
    kept, known_negatives = split_known_negatives(graph, negative, zero)
    assert kept.weight.tolist() == facts
    assert (known_negatives.weight.tolist() if known_negatives else None) == false
    assert kept.entities is graph.entities  # d is named by a false triple alone and keeps its place
    if known_negatives:
        assert known_negatives.entities is graph.entities
        assert not set(kept.keys) & set(known_negatives.keys)


def test_triple_is_a_known_negative_only_if_all_its_columns_are() -> None:
    rows = [("a", "r", "b", -1, None), ("a", "r", "c", -2, 5), ("b", "r", "c", -2, 0), ("c", "r", "d", 1, 1)]
    kept, known_negatives = split_known_negatives(read(rows), negative=True, zero=True)
    assert known_negatives is not None
    assert known_negatives.weight.tolist() == [0.5, 1.0]
    assert known_negatives.columns is None
    np.testing.assert_array_equal(kept.columns.values, [[-2, 5], [1, 1]])
    # Where lower is better, a number never does.
    kept, known_negatives = split_known_negatives(read(rows).with_lower_is_better(["w2"]), negative=True, zero=True)
    assert known_negatives is not None
    assert known_negatives.weight.tolist() == [0.5]


def test_known_negatives_need_positives_and_higher_is_better() -> None:
    with pytest.raises(FocuseError, match="lower is better"):
        split_known_negatives(read(ROWS).with_lower_is_better(True), negative=True)
    with pytest.raises(FocuseError, match="no positive to train on"):
        split_known_negatives(read([("a", "r", "b", -1)]), negative=True)
    graph = read([("a", "r", "b")])
    assert split_known_negatives(graph, True, True) == (graph, None)


def test_given_known_negatives_are_scaled_to_unit_evidence() -> None:
    assert read_known_negatives([("a", "r", "b"), ("a", "r", "c")]).weight.tolist() == [1, 1]
    assert read_known_negatives([("a", "r", "b", 0), ("a", "r", "c", 0)]).weight.tolist() == [1, 1]
    assert read_known_negatives([("a", "r", "b", -5), ("a", "r", "c", 10)]).weight.tolist() == [0.5, 1]
    with pytest.raises(FocuseError, match="1 of 2 known negatives have evidence of strength 0"):
        read_known_negatives([("a", "r", "b", 0), ("a", "r", "c", 1)])
