"""Distributions of negatives, compared with probabilities counted triple by triple."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import focuse
from focuse.config import Config
from focuse.data.triple_index import TripleIndex
from focuse.engines.native import library
from focuse.errors import FocuseError
from focuse.objective.focuse import SoftLabels
from focuse.objective.negatives import (
    ENTITY_DISTRIBUTIONS,
    RANDOM_BITS,
    SIDE_DISTRIBUTIONS,
    Batch,
    NegativeSampler,
    _alias_table,
    make_negative_distribution,
)
from focuse.objective.randomness import draw_integers, stream_seed
from focuse.training.problem import log_sampling_correction

Triple = tuple[int, int, int]
ENTITIES, RELATIONS = 9, 3
# Relation 0 has many tails a head, 1 many heads of a single tail, 2 a loop and a repeated triple; entity 8 has no edge.
FACTS: list[Triple] = [
    (0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 0, 4), (5, 0, 1), (5, 0, 6),
    (1, 1, 7), (2, 1, 7), (3, 1, 7),
    (4, 2, 4), (4, 2, 0), (6, 2, 0), (6, 2, 0),
]  # fmt: skip
OTHERS = [(corrupt, corrupt_side) for corrupt in ENTITY_DISTRIBUTIONS for corrupt_side in SIDE_DISTRIBUTIONS][1:]


def batch_of(triples: list[Triple]) -> Batch:
    head, relation, tail = torch.tensor(triples).unbind(1)
    return Batch(head, relation, tail, torch.rand(len(triples)))


def sampler_of(
    corrupt: str,
    corrupt_side: str = "uniform",
    count: int = 8,
    kind: str = "per-triple",
    facts: list[Triple] = FACTS,
    **more: Any,
) -> NegativeSampler:
    chances = make_negative_distribution(corrupt, corrupt_side, batch_of(facts), ENTITIES, RELATIONS)
    return NegativeSampler(kind, count, ENTITIES, distribution=chances, **more)


def own(sampler: NegativeSampler, batch: Batch, place: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    (group,) = sampler(batch, place)
    assert group.side == "both"
    assert group.entities is not None
    assert group.replaces_tail is not None
    return group.entities, group.replaces_tail, group.mask


# ---- brute force ----------------------------------------------------------------------------------------------------


def entity_chances(corrupt: str, triple: Triple, tail: bool, facts: list[Triple] = FACTS) -> dict[int, float]:
    """The probability of each entity as a corruption of one side of a triple."""
    weight = dict.fromkeys(range(ENTITIES), 1.0)
    if corrupt == "degree":
        weight = {e: sum((h == e) + (t == e) for h, _, t in facts) ** 0.75 for e in range(ENTITIES)}
    if corrupt == "type":
        end = 2 if tail else 0
        seen = {fact[end] for fact in facts if fact[1] == triple[1]} - {triple[end]}
        weight = dict.fromkeys(seen, 1.0) if seen else weight
    total = sum(weight.values())
    return {e: value / total for e, value in weight.items() if value}


def tail_chance(corrupt_side: str, relation: int, facts: list[Triple] = FACTS) -> float:
    """hpt / (tph + hpt), both as Wang et al. define them: averages over the heads and over the tails."""
    if corrupt_side == "uniform":
        return 0.5
    pairs = {(h, t) for h, r, t in facts if r == relation}
    per_head = np.mean(list(Counter(h for h, _ in pairs).values()))
    per_tail = np.mean(list(Counter(t for _, t in pairs).values()))
    return float(per_tail / (per_head + per_tail))


@pytest.mark.parametrize(("corrupt", "corrupt_side"), OTHERS)
def test_frequencies_match_probabilities(corrupt: str, corrupt_side: str) -> None:
    """χ² of (side, entity) for every triple: of d degrees of freedom, 99.99 % lie below d + 4√(2d) + 12."""
    batch, count = batch_of(FACTS), 4000
    entities, tails, _ = own(sampler_of(corrupt, corrupt_side, count), batch, (3, 1, 4))
    assert entities.shape == tails.shape == (len(FACTS), count)
    assert (entities.dtype, tails.dtype) == (torch.int64, torch.bool)
    for row, triple in enumerate(FACTS):
        found = Counter(zip(tails[row].tolist(), entities[row].tolist(), strict=True))
        share = tail_chance(corrupt_side, triple[1])
        expected = {
            (tail, e): count * chance * (share if tail else 1 - share)
            for tail in (True, False)
            for e, chance in entity_chances(corrupt, triple, tail).items()
        }
        assert set(found) <= set(expected)  # nothing impossible
        square = sum((found[cell] - often) ** 2 / often for cell, often in expected.items())
        freedom = len(expected) - 1
        assert square < freedom + 4 * math.sqrt(2 * freedom) + 12


def test_shared_pool_by_degree_matches_its_probabilities() -> None:
    tail, head = sampler_of("degree", count=40_000, kind="shared")(batch_of(FACTS), (0, 2, 5))
    assert tail.entities is head.entities
    assert tail.entities is not None
    assert tail.target is not None
    found = np.bincount(tail.entities.numpy(), minlength=ENTITIES)
    chances = entity_chances("degree", FACTS[0], True)
    assert found[8] == 0
    square = sum((found[e] - 40_000 * chance) ** 2 / (40_000 * chance) for e, chance in chances.items())
    assert square < 7 + 4 * math.sqrt(14) + 12


def masses(own: list[int], alias: list[int]) -> np.ndarray:
    """How much of all columns each entity has."""
    mass = np.array(own)
    np.add.at(mass, alias, (1 << RANDOM_BITS) - np.array(own))
    return mass


@settings(max_examples=100)
@given(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 7, 40, 1000]), min_size=1, max_size=40).filter(any))
def test_alias_table_matches_its_weights(degree: list[int]) -> None:
    own, alias = _alias_table(np.array(degree) ** 0.75)
    assert own.min() >= 0
    assert own.max() <= 1 << RANDOM_BITS
    exact = len(degree) * 2.0**RANDOM_BITS * np.array(degree) ** 0.75 / (np.array(degree) ** 0.75).sum()
    np.testing.assert_allclose(masses(own.tolist(), alias.tolist()), exact, rtol=0, atol=1.01)


def test_alias_table_of_a_million_entities_is_exact() -> None:
    """To a few of E · 2³¹ units, also of a million entities, and none for who has no edge."""
    random = np.random.default_rng(0)
    ends = np.minimum((random.pareto(1.2, 300_000) * 3).astype(np.int64), 999_999)
    facts = Batch(*(torch.from_numpy(ends[part::3]) for part in range(3)), torch.ones(100_000))
    chances = make_negative_distribution("degree", "uniform", facts, 1_000_000, 1)
    assert chances is not None
    assert chances.by_degree is not None
    degree = np.bincount(np.concatenate([ends[0::3], ends[2::3]]), minlength=1_000_000)
    exact = 1e6 * 2.0**RANDOM_BITS * degree**0.75 / (degree**0.75).sum()
    mass = masses(chances.by_degree.threshold.tolist(), chances.by_degree.alias.tolist())
    np.testing.assert_allclose(mass, exact, rtol=1e-9, atol=4)
    assert (mass[degree == 0] == 0).all()


# ---- hypothesis: any graph, any place -------------------------------------------------------------------------------

GRAPHS = st.lists(
    st.tuples(*(st.integers(0, size - 1) for size in (ENTITIES, RELATIONS, ENTITIES))), min_size=1, max_size=25
)
PLACES = st.tuples(st.integers(0, 2**31), st.integers(0, 5000), st.integers(0, 100_000))


def by_hand(
    corrupt: str, corrupt_side: str, facts: list[Triple], batch: list[Triple], key: int, count: int
) -> list[Any]:
    """(entity, replaces the tail) of every corruption, from the same random numbers in Python's own."""
    size = len(batch) * count
    bits = draw_integers(key, (2 * size,), 1 << RANDOM_BITS, torch.device("cpu")).tolist()
    found = []
    for place in range(size):
        triple = batch[place // count]
        heads, tails = ({fact[end] for fact in facts if fact[1] == triple[1]} for end in (0, 2))
        tail = bits[place] >= 1 << (RANDOM_BITS - 1)
        if corrupt_side == "bernoulli":
            tail = bits[place] * (len(heads) + len(tails)) >> RANDOM_BITS < len(heads)
        if corrupt == "degree":
            own, alias = _alias_table(
                np.array([sum((h == e) + (t == e) for h, _, t in facts) for e in range(9)]) ** 0.75
            )
            column, rest = divmod(bits[size + place] * ENTITIES, 1 << RANDOM_BITS)
            found.append((column if rest < own[column] else int(alias[column]), tail))
        else:
            others = sorted(entity_chances(corrupt, triple, tail, facts))
            found.append((others[bits[size + place] * len(others) >> RANDOM_BITS], tail))
    return found


@settings(max_examples=60)
@given(facts=GRAPHS, other=GRAPHS, place=PLACES, kind=st.sampled_from(OTHERS))
def test_distributions_of_any_graph_match_loops(
    facts: list[Triple], other: list[Triple], place: Any, kind: tuple[str, str]
) -> None:
    """Batches of triples that are no facts too, as false ones are; relations that train does not have."""
    rows = [*facts[:4], *((h, r, t) for h, r, t in other[:4] if any(fact[1] == r for fact in facts))]
    entities, tails, _ = own(sampler_of(*kind, 5, facts=facts), batch_of(rows), place)
    found = list(zip(entities.flatten().tolist(), tails.flatten().tolist(), strict=True))
    assert found == by_hand(*kind, facts, rows, stream_seed(*place), 5)


@pytest.mark.parametrize(("corrupt", "corrupt_side"), OTHERS)
@settings(max_examples=10)
@given(place=PLACES, noise=st.integers(0, 1000))
def test_negatives_are_a_pure_function_of_the_stream_key(
    corrupt: str, corrupt_side: str, place: Any, noise: int
) -> None:
    batch = batch_of(FACTS)
    sampler = sampler_of(corrupt, corrupt_side)
    one = own(sampler, batch, place)[:2]
    torch.manual_seed(noise)
    own(sampler, batch, (noise, 7, 7))
    for same in (place, stream_seed(*place), torch.tensor(stream_seed(*place))):
        again = own(sampler_of(corrupt, corrupt_side), batch, same)[:2]
        assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    different = own(sampler, batch, (place[0], place[1], place[2] + 1))[:2]
    assert not all(torch.equal(a, b) for a, b in zip(one, different, strict=True))


# ---- with the rest --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("corrupt", "corrupt_side"), OTHERS)
def test_known_triples_are_masked(corrupt: str, corrupt_side: str) -> None:
    known = TripleIndex(*torch.tensor(FACTS).unbind(1), ENTITIES, RELATIONS)
    entities, tails, mask = own(sampler_of(corrupt, corrupt_side, 60, known=known), batch_of(FACTS), (0, 0, 0))
    assert mask is not None
    for row, (h, r, t) in enumerate(FACTS):
        cells = zip(entities[row].tolist(), tails[row].tolist(), mask[row].tolist(), strict=True)
        for entity, is_tail, counts in cells:
            assert counts == (((h, r, entity) if is_tail else (entity, r, t)) not in FACTS)
    assert 0 < mask.float().mean() < 1


def test_shared_pool_by_degree_masks_known_triples() -> None:
    known = TripleIndex(*torch.tensor(FACTS).unbind(1), ENTITIES, RELATIONS)
    groups = sampler_of("degree", count=30, kind="shared", known=known)(batch_of(FACTS), (0, 0, 0))
    for group, end in zip(groups, (2, 0), strict=True):
        mask = group.valid_mask(ENTITIES)
        assert mask is not None
        assert group.entities is not None
        for row, fact in enumerate(FACTS):
            for entity, counts in zip(group.entities.tolist(), mask[row].tolist(), strict=True):
                corrupted = (*fact[:end], entity, *fact[end + 1 :])
                assert counts == (corrupted not in FACTS)


@pytest.mark.parametrize("label_exponent", [1.0, 4.0])
def test_log_correction_counts_the_candidates_that_can_be_drawn(label_exponent: float) -> None:
    label, facts = SoftLabels(label_exponent), batch_of(FACTS)

    def missing(corrupt: str, corrupt_side: str = "uniform", sampling: str = "per-triple") -> float:
        chosen = Config.from_kwargs(
            negative_sampling=sampling, negative_distribution=corrupt, corrupt_side=corrupt_side, num_negatives=4
        )
        return log_sampling_correction(chosen, label, sampler_of(corrupt, corrupt_side, 4, sampling), facts)

    both = math.log(2 * (ENTITIES - 1) / 4)
    assert missing("uniform") == missing("degree") == missing("uniform", "bernoulli") == pytest.approx(both)
    assert missing("degree", sampling="shared") == missing("uniform", sampling="shared") == pytest.approx(math.log(2))
    rivals = []
    for triple in FACTS:
        sizes = [len(entity_chances("type", triple, tail)) for tail in (True, False)]
        rivals.append(sum(size if size < ENTITIES else ENTITIES - 1 for size in sizes))
    expected = np.mean(np.log(np.array(rivals) / 4))
    assert missing("type") == missing("type", "bernoulli") == pytest.approx(float(expected))
    plain = Config.from_kwargs(negative_sampling="per-triple", negative_distribution="type", num_negatives=4)
    assert log_sampling_correction(plain, SoftLabels(0.0), sampler_of("type"), facts) == 0.0


QUICK = {"dim": 6, "epochs": 3, "batch_size": 100, "num_negatives": 6, "eval_every": 2, "progress": False}
SAMPLED = [("per-triple", *other) for other in OTHERS] + [("shared", "degree", "uniform")]


def same(one: focuse.Run, other: focuse.Run) -> bool:
    return all(torch.equal(one.scorer.tables[name], table) for name, table in other.scorer.tables.items())


@pytest.mark.skipif(library() is None, reason="the loops were not built: no C++ compiler")
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize(("sampling", "corrupt", "corrupt_side"), SAMPLED)
def test_both_engines_train_to_the_same_result(
    small: focuse.Graph, monkeypatch: pytest.MonkeyPatch, sampling: str, corrupt: str, corrupt_side: str, filtered: bool
) -> None:
    seen: list[list[Tensor]] = [[], []]
    plainly = NegativeSampler.__call__

    def spy(self: NegativeSampler, batch: Batch, place: Any) -> Any:
        groups = plainly(self, batch, place)
        seen[-1] += [part for group in groups for part in (group.entities, group.replaces_tail) if part is not None]
        return groups

    monkeypatch.setattr(NegativeSampler, "__call__", spy)
    asked = {
        **QUICK,
        "negative_sampling": sampling,
        "negative_distribution": corrupt,
        "corrupt_side": corrupt_side,
        "filter_negatives": filtered,
    }
    runs = []
    for engine in ("torch", "native"):
        seen.append([])
        runs.append(focuse.train(small, engine=engine, label_exponent=1.0, **asked))
    assert len(seen[-1]) == len(seen[-2]) > 0
    assert all(torch.equal(one, other) for one, other in zip(seen[-2], seen[-1], strict=True))
    for one, other in zip(*(run.history for run in runs), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    usual = focuse.train(
        small,
        engine="native",
        label_exponent=1.0,
        **{**asked, "negative_distribution": "uniform", "corrupt_side": "uniform"},
    )
    assert not same(runs[1], usual)


def test_a_resumed_run_draws_the_same_negatives(small: focuse.Graph, tmp_path: Any) -> None:
    asked = {
        **QUICK,
        "negative_sampling": "per-triple",
        "negative_distribution": "type",
        "corrupt_side": "bernoulli",
        "label_exponent": 1.0,
    }
    whole = focuse.train(small, **{**asked, "epochs": 4})
    focuse.train(small, out=tmp_path / "run", **{**asked, "epochs": 2})
    again = focuse.resume(tmp_path / "run", epochs=4, progress=False)
    assert (again.settings.negative_distribution, again.settings.corrupt_side) == ("type", "bernoulli")
    assert same(whole, again)


def test_false_triples_have_negatives(small: focuse.Graph) -> None:
    """They stand behind train's edges and are none of the types."""
    triples = [(row["head"], row["relation"], row["tail"]) for row in small.to_arrow().to_pylist()]
    false = [(t, r, h) for h, r, t in triples[:40] if (t, r, h) not in triples]
    run = focuse.train(
        small,
        known_negatives=false,
        **QUICK,
        negative_sampling="per-triple",
        negative_distribution="type",
        label_exponent=1.0,
    )
    assert np.isfinite([row["loss"] for row in run.history]).all()


# ---- what it refuses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampling", "corrupt", "corrupt_side", "word"),
    [
        ("per-triple", "typ", "uniform", "did you mean type"),
        ("per-triple", "uniform", "bernouli", "did you mean bernoulli"),
        ("shared", "type", "uniform", "requires negative_sampling 'per-triple'"),
        ("shared", "degree", "bernoulli", "requires negative_sampling 'per-triple'"),
        ("all", "type", "uniform", "requires negative_sampling 'per-triple'"),
        ("all", "degree", "uniform", "requires negative_sampling '.*'.* not 'all'$"),
        ("all", "uniform", "bernoulli", "requires negative_sampling 'per-triple'"),
    ],
)
def test_unsupported_combinations_are_errors(sampling: str, corrupt: str, corrupt_side: str, word: str) -> None:
    with pytest.raises(FocuseError, match=word) as error:
        Config.from_kwargs(negative_sampling=sampling, negative_distribution=corrupt, corrupt_side=corrupt_side)
    assert "\n" not in str(error.value)


def test_uniform_entities_and_sides_need_no_distribution() -> None:
    """So the negatives of a plain training are what they always were."""
    assert make_negative_distribution("uniform", "uniform", batch_of(FACTS), ENTITIES, RELATIONS) is None


def test_a_relation_with_only_false_triples_has_negatives() -> None:
    """Train has no entity on its sides, so any is drawn; that it is the last relation must not matter."""
    facts = [(f"e{i}", "likes", f"e{i + 1}", 1.0 + i) for i in range(20)]
    facts += [("e1", "zz", "e2", 0.0), ("e3", "zz", "e4", 0.0)]
    settings = {
        "negative_distribution": "type",
        "negative_sampling": "per-triple",
        "zero_weights": "known-negative",
        "dim": 4,
        "epochs": 1,
    }
    run = focuse.train(
        facts, model="distmult", valid_fraction=0, test_fraction=0, progress=False, label_exponent=1.0, **settings
    )
    assert len(run.history) == 1
