"""Initial tables, and which process holds which rows."""

import pytest
import torch

from focuse.config import Config
from focuse.training import problem as shards
from focuse.training.problem import init_tables, normal_rows


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (16, 1), (17, 3), (815, 5), (801, 7), (1000, 8)])
@pytest.mark.parametrize("at_once", [1, 256, 1 << 24])
def test_rows_initialized_in_chunks_equal_those_initialized_at_once(
    shape: tuple[int, int], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RANDOM_NUMBERS_PER_CHUNK", at_once)
    one, other = (torch.Generator().manual_seed(3) for _ in range(2))
    whole, rows = torch.randn(shape, generator=one), slice(shape[0] // 3, shape[0] // 2 + 1)
    assert torch.equal(normal_rows(shape, other, rows), whole[rows])
    assert torch.equal(torch.randn(7, 4, generator=one), torch.randn(7, 4, generator=other))  # and so do those after it


@pytest.mark.parametrize("name", ["complex", "beurre", "conve", "cp"])
def test_initial_rows_of_each_process_equal_those_of_a_single_process(name: str) -> None:
    settings = Config.from_kwargs(model=name, dim=12)
    model = settings.make_model()
    whole, some = (init_tables(settings, model, 70, 5, rows) for rows in (slice(None), slice(20, 45)))
    assert torch.equal(some["entity"], whole["entity"][20:45])
    assert all(torch.equal(some[table], whole[table]) for table in whole if table != "entity")
