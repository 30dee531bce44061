"""Scores in chunks are the same scores and gradients, within bounds of memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from focuse.models import base as pieces
from focuse.models.base import Side, broadcast_in_chunks
from focuse.models.registry import make_model
from focuse.models.translational import PairRE, RotatE

BATCH, POOL, OWN, DIM = 5, 11, 3, 4


def asked(name: str, use: str, side: Side) -> list[Tensor]:
    """Scores and gradients of a use."""
    model, random = make_model(name), torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64).requires_grad_()

    known, relation = draw(BATCH, model.widths(DIM)[0]), draw(BATCH, model.widths(DIM)[1])
    rows = draw(*((BATCH, OWN) if use == "score_negatives" else (POOL,)), model.widths(DIM)[0])
    scores = getattr(model, use)(model.query(known, relation, side), relation, rows, side)
    weight = torch.linspace(1, 2, scores.numel(), dtype=torch.float64).reshape(scores.shape)
    (scores * weight).sum().backward()
    found = [scores.detach(), *(part.grad for part in (known, relation, rows) if part.grad is not None)]
    with torch.no_grad():
        assert torch.equal(getattr(model, use)(model.query(known, relation, side), relation, rows, side), scores)
    return found


@pytest.mark.parametrize("most", [1, 8, 40, 100])  # one comparison at once; some rows; one query; some queries
@pytest.mark.parametrize("use", ["score_negatives", "score_pool"])
@pytest.mark.parametrize("name", ["rotate", "pairre"])
def test_chunk_size_does_not_change_scores_or_gradients(
    monkeypatch: pytest.MonkeyPatch, name: str, use: str, most: int
) -> None:
    for side in ("head", "tail"):
        whole = asked(name, use, side)
        with monkeypatch.context() as patched:
            patched.setattr(pieces, "CHUNK_NUMBERS_CPU", most)
            parts = asked(name, use, side)
        for one, other in zip(whole, parts, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("model", [RotatE(), PairRE()], ids=lambda model: model.name)
def test_no_tensor_exceeds_the_chunk_size(monkeypatch: pytest.MonkeyPatch, model: RotatE | PairRE) -> None:
    """Neither forth nor back."""
    made: list[int] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            found = function(*args, **(kwargs or {}))
            if isinstance(found, Tensor):
                made.append(found.numel())
            return found

    monkeypatch.setattr(pieces, "CHUNK_NUMBERS_CPU", 512)
    known, relation = torch.randn(30, model.widths(DIM)[0]), torch.randn(30, model.widths(DIM)[1])
    pool = torch.randn(300, model.widths(DIM)[0], requires_grad=True)
    with Watch():
        scores = model.score_pool(model.query(known, relation, "tail"), relation, pool, "tail")
        made = [size for size in made if size != scores.numel()]
        scores.sum().backward()
    assert max(made) <= pool.numel()  # the pool itself; all comparisons at once would be 30 times as much


@pytest.mark.parametrize("shapes", [[(7, 1, 4), (7, 1, 4), (1, 9, 4)], [(6, 4), (6, 4), (6, 4)], [(5, 1, 4), (1, 4)]])
def test_broadcast_chunks_equal_the_whole(monkeypatch: pytest.MonkeyPatch, shapes: list[tuple[int, ...]]) -> None:
    random = torch.Generator().manual_seed(2)
    parts = [torch.randn(shape, generator=random, dtype=torch.float64, requires_grad=True) for shape in shapes]
    largest = []

    def product(*rows: torch.Tensor) -> torch.Tensor:
        largest.append(torch.broadcast_shapes(*(part.shape[:-1] for part in rows)).numel())
        found = rows[0]
        for other in rows[1:]:
            found = (found * other).tanh()
        return found.sum(-1)

    expected = product(*parts)
    wanted = torch.autograd.grad(expected.square().sum(), parts)
    monkeypatch.setattr(pieces, "CHUNK_NUMBERS_CPU", 12)
    largest.clear()
    found = broadcast_in_chunks(product, parts, 4)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), parts), wanted)
    assert max(largest) <= 3
    assert sum(largest) == 2 * expected.numel()  # all of it, and once more for the gradient
    with torch.no_grad():
        torch.testing.assert_close(broadcast_in_chunks(product, parts, 400), expected.detach())
