"""Ranks among sampled candidates, compared with loops over the sampled entities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scoring import make_scorer

import focuse
from focuse.data.graph import AlignedGraph
from focuse.data.triple_index import TripleIndex, build_triple_index, id_tensors
from focuse.engines.autograd import AutogradEngine
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.evaluation.evaluate import evaluate
from focuse.evaluation.ranking import (
    DEFAULT_CANDIDATES,
    SEEDS,
    CandidateSampler,
    Ranking,
    rank,
    sample_size,
)
from focuse.models.bilinear import DistMult
from focuse.models.neural import ConvKB
from focuse.models.registry import make_model

ENTITIES, RELATIONS, FACTS = 30, 3, 160


@pytest.fixture(scope="module")
def triples() -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(1)
    return tuple(torch.randint(size, (FACTS,), generator=random) for size in (ENTITIES, RELATIONS, ENTITIES))


@pytest.fixture(scope="module")
def known(triples: tuple[torch.Tensor, ...]) -> TripleIndex:
    return TripleIndex(*triples, ENTITIES, RELATIONS)


def engine_of(name: str = "distmult", reciprocal: bool = False) -> AutogradEngine:
    """Whole numbers, so that scores tie."""
    model, random = make_model(name), torch.Generator().manual_seed(2)
    tables = [
        torch.randn(rows, width, generator=random).round()
        for rows, width in zip((ENTITIES, RELATIONS * (2 if reciprocal else 1)), model.widths(4), strict=True)
    ]
    return make_scorer(model, *tables, inverse_relations=reciprocal)


def by_loops(engine: Any, triples: Any, known: TripleIndex, candidates: int) -> Callable[[str], np.ndarray]:
    """Higher and same for each triple and side, raw and filtered: [n, 2, 2]."""
    facts = {tuple(map(int, triple)) for triple in zip(*triples, strict=True)}
    samples = {side: CandidateSampler(side, candidates, known) for side in SEEDS}
    scores = {
        side: {
            (given, kind): engine.score_all(torch.tensor([given]), torch.tensor([kind]), side)[0]
            for given in range(ENTITIES)
            for kind in range(RELATIONS)
        }
        for side in SEEDS
    }

    def count(kind_of_rank: str) -> np.ndarray:
        found = np.zeros((len(triples[0]), 2, 2), int)
        for row, (h, r, t) in enumerate(zip(*(part.tolist() for part in triples), strict=True)):
            for place, (side, given, true) in enumerate((("tail", h, t), ("head", t, h))):
                mine = scores[side][given, r]
                for other in samples[side](torch.tensor([given]), torch.tensor([r]))[0].tolist():
                    triple = (h, r, other) if side == "tail" else (other, r, t)
                    if other == true or (kind_of_rank == "filtered" and triple in facts):
                        continue
                    found[row, place, 0] += int(mine[other] > mine[true])
                    found[row, place, 1] += int(mine[other] == mine[true])
        return found

    return count


@pytest.mark.parametrize(("name", "reciprocal"), [("distmult", False), ("transe", False), ("complex", True)])
def test_sampled_counts_match_loops(triples: Any, known: TripleIndex, name: str, reciprocal: bool) -> None:
    engine = engine_of(name, reciprocal)
    found, count = rank(engine, *triples, known, candidates=7), by_loops(engine, triples, known, 7)
    for kind in ("raw", "filtered"):
        rivals, expected = getattr(found, kind), count(kind)
        np.testing.assert_array_equal(rivals.higher, expected[..., 0])
        np.testing.assert_array_equal(rivals.equal, expected[..., 1])
    assert found.raw.equal.any()  # or ties were not looked at
    assert (found.raw.higher != found.filtered.higher).any()


def test_a_sample_of_everything_is_the_full_ranking(triples: Any, known: TripleIndex) -> None:
    engine = engine_of()
    sampled, full = rank(engine, *triples, known, candidates=ENTITIES), rank(engine, *triples, known)

    def parts(ranking: Ranking) -> list[np.ndarray]:
        counts = [getattr(kind, name) for kind in (ranking.raw, ranking.filtered) for name in ("higher", "equal")]
        return [*counts, ranking.score, ranking.head_score]

    for one, two in zip(parts(sampled), parts(full), strict=True):
        np.testing.assert_array_equal(one, two)


def test_block_size_changes_no_count(triples: Any, known: TripleIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rank(engine_of(), *triples, known, candidates=7)
    monkeypatch.setattr("focuse.evaluation.ranking.MAX_SAMPLED_SCORES", 40)
    again = rank(engine_of(), *triples, known, candidates=7)
    np.testing.assert_array_equal(whole.filtered.higher, again.filtered.higher)
    np.testing.assert_array_equal(whole.score, again.score)


def test_sample_of_a_query_is_distinct_and_deterministic(known: TripleIndex) -> None:
    given = torch.arange(ENTITIES).repeat(RELATIONS)
    relation = torch.arange(RELATIONS).repeat_interleave(ENTITIES)
    for side in SEEDS:
        found = CandidateSampler(side, 12, known)(given, relation)
        assert all(len(set(row)) == 12 for row in found.tolist())
        assert torch.equal(CandidateSampler(side, 12, known)(given[5:6], relation[5:6])[0], found[5])
        assert len({tuple(sorted(row)) for row in found.tolist()}) > 20  # not one sample for all
    assert not torch.equal(*(CandidateSampler(side, 12, known)(given, relation) for side in SEEDS))


def test_entities_are_sampled_uniformly() -> None:
    """Of many queries each entity meets the share candidates / entities: ranks shrink by it on average."""
    known = TripleIndex(*[torch.tensor([0])] * 3, 200, 50)
    given, relation = torch.arange(200).repeat(50), torch.arange(50).repeat_interleave(200)
    drawn = torch.bincount(CandidateSampler("tail", 20, known)(given, relation).flatten(), minlength=200) / len(given)
    assert drawn.mean().item() == pytest.approx(0.1)
    assert drawn.min() > 0.07
    assert drawn.max() < 0.13


def test_expensive_scorers_are_ranked_against_a_sample(known: TripleIndex) -> None:
    cheap, dear = make_scorer(DistMult(), torch.ones(3, 4), torch.ones(2, 4)), engine_of("convkb")
    assert sample_size(cheap, None, 10_000) is None
    assert sample_size(cheap, 20, 10_000) == 20
    assert sample_size(dear, None, 10_000) == DEFAULT_CANDIDATES == 500
    assert sample_size(dear, None, 400) is None
    assert sample_size(dear, 10_000, 10_000) is None
    with pytest.raises(FocuseError, match="candidates 0: give a whole number"):
        sample_size(cheap, 0, 10)


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, model="convkb", dim=4, epochs=1, label_exponent=1.0, progress=False)


class TestEvaluation:
    def test_evaluation_states_the_number_of_candidates(self, run: focuse.Run) -> None:
        found = run.evaluate(sample_candidates=10)
        assert found.settings["candidates"] == 10
        assert found.to_dict()["settings"]["candidates"] == 10
        assert "ranked against 10 sampled entities per side, not all 40" in str(found)
        assert found.suggestions is None
        assert found.order is not None
        assert found.all.mr <= 11
        full = run.evaluate()  # 40 entities are no more than the usual sample
        assert "candidates" not in full.settings
        assert "sampled" not in str(full)
        assert full.all.mr > found.all.mr
        assert full.all.mrr < found.all.mrr

    def test_expensive_model_never_scores_every_entity(
        self, run: focuse.Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, read_page: Any, listen: Any
    ) -> None:
        monkeypatch.setattr("focuse.evaluation.ranking.DEFAULT_CANDIDATES", 15)
        asked = []
        score_all = TableScorer.score_all
        monkeypatch.setattr(
            TableScorer, "score_all", lambda self, *ids: asked.append(len(ids[0])) or score_all(self, *ids)
        )
        assert run.evaluate().settings["candidates"] == 15
        weighed = run.evaluate_weights()
        assert "convkb" not in weighed.ndcg
        assert "no nDCG of convkb" in str(weighed)
        run.calibrate()
        run.evaluate_probabilities()
        listener = listen()
        again = focuse.train(run.graph, model="convkb", dim=4, epochs=1, weight_mode="none")  # judged
        assert "validation ranks against 15 sampled entities per side, not all" in listener.notes
        assert again.history[-1]["valid_mrr"] > 0
        assert asked == []
        texts = " ".join(read_page(run.report(tmp_path / "page.html").read_text(encoding="utf-8")).texts)
        assert "ranked against 15 sampled entities per side, not all 40" in texts
        assert asked == []  # new links come from blocks

    def test_any_scorer_can_be_ranked_against_a_sample(self, small: focuse.Graph) -> None:
        graph = small.select(np.arange(20))
        table = torch.randn(len(small.entities), 4, generator=torch.Generator().manual_seed(0))
        engine = make_scorer(DistMult(), table, torch.ones(3, 4))
        known = build_triple_index([small])
        found = evaluate(engine, AlignedGraph(graph), small, known, sample_candidates=5)
        ranks = rank(engine, *id_tensors(graph), known, candidates=5).filtered.ranks()
        assert found.all.mrr == pytest.approx((1 / ranks).mean())


def test_non_finite_scores_are_errors(triples: Any, known: TripleIndex) -> None:
    engine = engine_of()
    engine.tables["entity"][3] = torch.nan
    with pytest.raises(FocuseError, match="not finite"):
        rank(engine, *triples, known, candidates=25)


def test_convkb_is_expensive_to_rank() -> None:
    assert ConvKB.defaults["expensive_to_rank"]
