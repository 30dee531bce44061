"""Ranking on a GPU gives the counts of torch: on a GPU if there is one, else in Triton's interpreter."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch
from scoring import make_scorer

from focuse.data.triple_index import TripleIndex
from focuse.engines import scorer as engines_ranking
from focuse.engines.scorer import Targets, torch_count_competitors
from focuse.evaluation.ranking import Ranking, rank
from focuse.models.registry import make_model

PLAIN = ("complex", "distmult", "transe", "transe-l2", "ukge-logi", "ukge-rect")

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
TRITON = find_spec("triton") is not None
if TRITON:
    if not GPU:
        os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are first imported
    from focuse.engines.triton.ranking_kernels import count_competitors, distances
pytestmark = pytest.mark.skipif(not TRITON, reason="needs triton: pip install -e '.[kernels]'")
SHAPES = [(1, 1, 1), (3, 15, 3), (17, 17, 7), (35, 600, 21), (2, 5, 200), (0, 4, 2), (3, 5, 0)]


def table(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@pytest.mark.parametrize("similarity", ["l1", "l2"])
@pytest.mark.parametrize(("queries", "rows", "width"), SHAPES)
def test_distances_match_float64(similarity: str, queries: int, rows: int, width: int) -> None:
    asked, others = table(queries, width), table(rows, width, 1)
    apart = (asked.double()[:, None] - others.double()).abs()
    expected = apart.sum(-1) if similarity == "l1" else apart.square().sum(-1).sqrt()
    torch.testing.assert_close(distances(asked, others, similarity), expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(distances(asked, others, similarity, -1.0), -expected.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("similarity", ["l1", "l2"])
@pytest.mark.parametrize("rows", [2, 37, 1001])
def test_equal_rows_have_equal_distances(similarity: str, rows: int) -> None:
    copy = torch.randint(0, 3, (rows,), generator=torch.Generator().manual_seed(rows)).to(DEVICE)
    found = distances(table(18, 30), table(3, 30, 1)[copy], similarity)
    for one in range(3):
        equal = found[:, copy == one]
        assert bool((equal == equal[:, :1]).all())


@pytest.mark.parametrize("entities", [1, 15, 17, 1024, 1030])
@pytest.mark.parametrize("bad", [None, torch.nan, torch.inf, -torch.inf])
def test_competitors_match_those_of_torch(entities: int, bad: float | None) -> None:
    """Scores with many ties; queries with several targets or none; more known answers than fit one look."""
    draw = torch.Generator().manual_seed(entities)
    queries = 6
    scores = torch.randint(-2, 3, (queries, entities), generator=draw).float()
    if bad is not None:
        scores[3, -1] = bad
    first = torch.tensor([0, 1, 4, 4, 6, 7, 10])
    target = torch.randint(0, entities, (10,), generator=draw)
    facts = torch.randint(0, 2 * queries * entities, (3 * entities,), generator=draw)
    facts = torch.unique(torch.cat([facts, torch.arange(5 * entities, 6 * entities)]))
    start, stop = (torch.searchsorted(facts, (torch.arange(queries) + 2 + step) * entities) for step in (0, 1))
    scores, *parts = (part.to(DEVICE) for part in (scores, first, target, start, stop, facts))
    found = count_competitors(scores, Targets(*parts))
    assert found.tolist() == torch_count_competitors(scores, Targets(*parts)).tolist()
    assert (found < 0).all(1).tolist() == [bad is not None and 4 <= i < 6 for i in range(10)]
    assert found.device.type == DEVICE


def test_no_targets_give_no_counts() -> None:
    none = torch.zeros(2, dtype=torch.int64, device=DEVICE)
    assert count_competitors(table(2, 3), Targets(none[:1].repeat(3), none[:0], none, none, none[:0])).shape == (0, 4)


@pytest.mark.parametrize("name", PLAIN)
def test_ranking_matches_that_of_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entities with equal rows included; whole numbers, so that no rounding decides."""
    draw = torch.Generator().manual_seed(0)
    model = make_model(name)
    entity = torch.randint(-2, 3, (20, model.widths(3)[0]), generator=draw).float()[torch.arange(24) % 20]
    relation = torch.randint(-1, 2, (2, model.widths(3)[1]), generator=draw).float()
    facts = torch.stack([torch.randint(0, most, (60,), generator=draw) for most in (24, 2, 24)])

    def ranking(device: str) -> Ranking:
        engine = make_scorer(model, entity.to(device), relation.to(device))
        known = TripleIndex(*facts.to(device), 24, 2)
        return rank(engine, *facts[:, :30], known, max_scores=7 * 24)

    expected = ranking("cpu")
    monkeypatch.setattr(engines_ranking, "_on_gpu", lambda tensor: tensor.device.type == DEVICE)
    found = ranking(DEVICE)
    for protocol in ("raw", "filtered"):
        for ties in ("best", "worst"):
            one, other = (getattr(part, protocol).ranks(ties) for part in (expected, found))
            assert one.tolist() == other.tolist()
    assert found.score.tolist() == pytest.approx(expected.score.tolist())
