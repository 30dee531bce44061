"""Graphs and normalizers of a run that is extended."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import focuse
from focuse.data.weights import NORMALIZERS, fit_normalizer, with_more_relations
from focuse.errors import FocuseError
from focuse.training.graph_update import RequestedChange, among, hold_out

FIRST = [("a", "r", "b", 0.2), ("a", "r", "c", 0.8), ("b", "s", "c", 0.5), ("b", "s", "a", 0.9)]
MORE = [("a", "new", "b", 0.1), ("b", "new", "c", 0.4), ("c", "new", "a", 0.3), ("a", "r", "d", 0.5)]


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("name", NORMALIZERS)
def test_known_relations_keep_their_scaling_and_new_relations_get_their_own(name: str, lower: bool) -> None:
    """Against a fit on both together, of which new relations are told by their own edges alone."""
    first, both = (
        focuse.read(FIRST).with_lower_is_better(lower),
        focuse.read([*FIRST, *MORE]).with_lower_is_better(lower),
    )
    old = fit_normalizer(name, first)
    made, whole = with_more_relations(old, both.select(np.arange(4, 8)), 2), fit_normalizer(name, both)
    weight, relation = both.weight[:4], both.relation[:4]
    assert np.array_equal(made.transform(weight, relation), old.transform(weight, relation))
    weight, relation = both.weight[4:7], both.relation[4:7]
    if name != "global":  # whose one range is the old graph's
        assert np.allclose(made.transform(weight, relation), whole.transform(weight, relation))
    share = made.transform(weight, relation)
    assert ((share >= 0) & (share <= 1)).all()


def test_among_finds_triples_by_key(small: focuse.Graph) -> None:
    wanted = np.unique(small.keys[::7])
    assert np.array_equal(among(small, wanted), np.isin(small.keys, wanted))
    assert not among(small, np.empty(0, np.int64)).any()


def test_hold_out_leaves_every_new_name_an_edge_in_train(small: focuse.Graph) -> None:
    """Ids from 30 on are new here, and so is relation 2."""
    change = RequestedChange(valid_fraction=0.4, test_fraction=0.4)
    held = hold_out(small, change, 30, 2, seed=3)
    parts = held.train, held.valid, held.test
    assert sum(map(len, parts)) == len(small)
    assert min(map(len, parts)) > 0
    used = {*held.train.head.tolist(), *held.train.tail.tolist()}
    assert set(range(30, len(small.entities))) <= used
    assert 2 in held.train.relation
    assert not np.isin(parts[0].keys, np.concatenate([parts[1].keys, parts[2].keys])).any()
    with pytest.raises(FocuseError, match="must be below 1"):
        hold_out(small, replace(change, valid_fraction=0.7), 30, 2, seed=3)
