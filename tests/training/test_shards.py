"""Rows of random tables, and who holds which."""

import pytest
import torch

from focuse.errors import FocuseError
from focuse.models import make_model
from focuse.training import shards
from focuse.training.loop import initial_tables
from focuse.training.settings import Settings
from focuse.training.shards import alike, home_of, normal_rows, own_rows


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (16, 1), (17, 3), (815, 5), (801, 7), (1000, 8)])
@pytest.mark.parametrize("at_once", [1, 256, 1 << 24])
def test_rows_made_in_pieces_are_those_made_at_once(
    shape: tuple[int, int], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "AT_ONCE", at_once)
    one, other = (torch.Generator().manual_seed(3) for _ in range(2))
    whole, rows = torch.randn(shape, generator=one), slice(shape[0] // 3, shape[0] // 2 + 1)
    assert torch.equal(normal_rows(shape, other, rows), whole[rows])
    assert torch.equal(torch.randn(7, 4, generator=one), torch.randn(7, 4, generator=other))  # and so do those after it


@pytest.mark.parametrize("name", ["complex", "beurre", "conve", "cp"])
def test_own_rows_of_first_tables_are_those_of_one_process(name: str) -> None:
    settings = Settings.of(model=name, dim=12)
    model = settings.make_model()
    whole, some = (initial_tables(settings, model, 70, 5, rows) for rows in (slice(None), slice(20, 45)))
    assert torch.equal(some["entity"], whole["entity"][20:45])
    assert all(torch.equal(some[table], whole[table]) for table in whole if table != "entity")


def test_a_model_that_looks_at_all_first_rows_is_not_alike() -> None:
    assert alike(make_model("complex"))
    assert alike(make_model("cp", True))
    assert not alike(make_model("beurre"))


def test_one_process_holds_every_row() -> None:
    assert own_rows(Settings(), 9) == slice(None)
    with pytest.raises(FocuseError, match="torchrun --nproc-per-node 2"):
        own_rows(Settings(engine="sharded"), 9)


def test_rows_may_lie_in_main_memory() -> None:
    asked = Settings(engine="sharded:host", device="cuda")
    assert [home_of(asked, table) for table in ("entity", "relation")] == ["cpu", "cuda"]
    assert home_of(Settings(engine="sharded", device="cuda"), "entity") == "cuda"
