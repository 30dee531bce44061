"""The sample pool of PASSLEAF: its schedule, its batches, and resuming."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import focuse
from focuse import FocuseError
from focuse.config import SETTINGS, merge_settings
from focuse.data.graph import Graph
from focuse.data.triple_index import TripleIndex
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step
from focuse.engines.fused_cpu import FusedCpuEngine
from focuse.engines.optimizers import make_optimizer
from focuse.errors import Stopped
from focuse.models.base import ConfidenceHead, confidence
from focuse.models.uncertain import UkgeLogi
from focuse.objective.losses import SquaredError
from focuse.objective.negatives import Batch, NegativeSampler
from focuse.objective.semi_supervised import PoolSchedule, SamplePool, make_pool_schedule
from focuse.training.trainer import Trainer

SAMPLINGS = [each for each in SETTINGS["negative_sampling"].choices if each != "none"]

ENTITIES, RELATIONS, DIM = 30, 3, 6
EAGER = PoolSchedule(start=1, wait=0, growth=0.25, share=0.5, size=50)
SETTINGS = {
    "dim": 6, "epochs": 6, "batch_size": 64, "lr": 1e-2, "num_negatives": 4, "eval_every": 2, "eval_start": 0,
    "semi_supervised": "pool:start=2,wait=1,growth=0.2,share=0.6,size=300",
}  # fmt: skip


def engine_of(kind: type[AutogradEngine], optimizer: str = "sparse-adam") -> AutogradEngine:
    random = torch.Generator().manual_seed(8)
    entity, relation = (torch.randn(n, DIM, generator=random) for n in (ENTITIES, RELATIONS))
    tables = {"entity": entity, "relation": relation, "scale": torch.tensor([1.2, -0.3])}
    return kind(UkgeLogi(), tables, make_optimizer(optimizer, tables, 1e-2))


def batch_of(size: int, seed: int = 0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    head, relation, tail = (torch.randint(n, (size,), generator=random) for n in (ENTITIES, RELATIONS, ENTITIES))
    return Batch(head, relation, tail, torch.rand(size, generator=random))


class TestSchedule:
    def test_share_grows_after_the_wait_to_its_maximum(self) -> None:
        schedule = PoolSchedule(start=20, wait=10, growth=0.02, share=0.8)
        assert [schedule.fraction_at(epoch) for epoch in (1, 20, 30)] == [0.0] * 3
        assert schedule.fraction_at(31) == pytest.approx(0.02)
        assert schedule.fraction_at(45) == pytest.approx(0.3)
        assert schedule.fraction_at(70) == schedule.fraction_at(1000) == 0.8

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("pol", "unknown semi-supervised learning 'pol'"),
            (
                "none:start=3",
                "write 'none', or 'pool' with any of start, wait, growth, share, size, like 'pool:start=5",
            ),
            ("pool:begin=3", "with any of start"),
            ("pool:3", "with any of start"),
            ("pool:start=2.5", "semi_supervised start=2.5: give a whole number of at least 0"),
            ("pool:growth=-1", "semi_supervised growth=-1: give a number of at least 0"),
            ("pool:share=1.5", "the share at most 1"),
            ("pool:size=0", "the size must be 1 to"),
            ("pool:size=1e30", "the size must be 1 to"),
        ],
    )
    def test_wrong_schedule_is_an_error(self, text: str, says: str) -> None:
        with pytest.raises(FocuseError, match=says):
            make_pool_schedule(text)

    def test_only_confidence_models_have_a_pool(self, small: Graph) -> None:
        with pytest.raises(FocuseError, match=r"requires a confidence model \(ukge-rect, .*, not 'complex'"):
            focuse.train(small, model="complex", semi_supervised="pool")


class TestSamplePool:
    def test_stores_negatives_with_their_confidence_and_overwrites_the_oldest(self) -> None:
        engine, pool, batch = engine_of(AutogradEngine), SamplePool(EAGER), batch_of(20)
        for key in range(4):
            pool(batch, [], 1, key, engine.scorer)
            assert len(pool) == min(50, 20 * (key + 1))
        assert pool.count == 80
        held = [pool.columns[name].long() for name in ("head", "relation", "tail")]
        expected = confidence(engine.model, engine.scorer.score(*held))
        torch.testing.assert_close(pool.columns["weight"], expected)
        # rows 60 to 79 were the last to enter, at 10 to 29 of the ring: one end is the positive's, all relations are
        place = torch.arange(10, 30)
        same = (held[0][place] == batch.head) | (held[2][place] == batch.tail)
        assert same.all()
        assert torch.equal(held[1][place], batch.relation)

    def test_a_batch_larger_than_the_pool_keeps_its_last_rows(self) -> None:
        small, large = SamplePool(PoolSchedule(start=1, size=7)), SamplePool(PoolSchedule(start=1, size=100))
        engine, batch = engine_of(AutogradEngine), batch_of(20)
        for pool in (small, large):
            pool(batch, [], 1, 5, engine.scorer)
        for name, column in small.columns.items():
            order = torch.arange(13, 20) % 7
            assert torch.equal(column[order], large.columns[name][13:20])

    def test_start_and_wait_delay_filling_and_sampling(self) -> None:
        pool, engine, batch = SamplePool(PoolSchedule(start=3, wait=2)), engine_of(AutogradEngine), batch_of(20)
        corruptions = NegativeSampler("shared", 5, ENTITIES)(batch, 1)
        for epoch, held in ((1, 0), (2, 0), (3, 20), (4, 40), (5, 60)):
            joined, same = pool(batch, corruptions, epoch, epoch, engine.scorer)
            assert (len(pool), joined, same) == (held, batch, corruptions)

    def test_pool_continues_from_its_saved_state(self) -> None:
        engine, batch, pool = engine_of(AutogradEngine), batch_of(20), SamplePool(EAGER)
        for key in range(3):
            pool(batch, [], 1, key, engine.scorer)
        again = SamplePool(EAGER, state={name: value.clone() for name, value in pool.state().items()})
        for one in (pool, again):
            one(batch_of(20, 1), [], 2, 9, engine.scorer)
        assert again.count == pool.count == 80
        assert all(torch.equal(again.columns[name], pool.columns[name]) for name in pool.columns)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_pool_samples_replace_some_negatives_of_a_batch(sampling: str, known: bool) -> None:
    """The loss of what it becomes, beside its parts one by one: the share m is 1/2 of 20 positives."""
    engine, pool, batch = engine_of(AutogradEngine), SamplePool(EAGER), batch_of(20)
    pool(batch_of(40, 2), [], 1, 3, engine.scorer)
    facts = TripleIndex(batch.head, batch.relation, batch.tail, ENTITIES, RELATIONS) if known else None
    groups = NegativeSampler(sampling, 6, ENTITIES, facts)(batch, 11)
    joined, widened = pool(batch, groups, 3, 4, engine.scorer)
    joined = replace(joined, weight=torch.cat([batch.weight, 0.8 * joined.weight[20:]]))
    assert len(joined) == 30
    assert torch.equal(joined.head[:20], batch.head)
    phi, total = torch.sigmoid, 0.0
    for group in groups:
        mask = group.valid_mask(ENTITIES)
        for row in range(20):
            h, r, t, w = (column[row] for column in (batch.head, batch.relation, batch.tail, batch.weight))
            total += float((phi(engine.scorer.score(h[None], r[None], t[None])) - w).square())
            if row < 10:  # these have no corruptions any more
                continue
            others = torch.arange(ENTITIES) if group.entities is None else group.entities
            others = others[row] if others.dim() == 2 else others
            tails = torch.full_like(others, group.side == "tail", dtype=torch.bool)
            tails = group.replaces_tail[row] if group.replaces_tail is not None else tails
            heads, ends = torch.where(tails, h, others), torch.where(tails, others, t)
            errors = phi(engine.scorer.score(heads, r.expand_as(others), ends)).square()
            kept = errors if mask is None else errors[mask[row]]
            total += float(kept.mean()) if len(kept) else 0.0
    samples = [column[20:] for column in (joined.head, joined.relation, joined.tail)]
    total += len(groups) * float((phi(engine.scorer.score(*samples)) - joined.weight[20:]).square().sum())
    found = engine.step(Step(joined, widened, SquaredError(ConfidenceHead("sigmoid")), 1.0))
    assert found == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_fused_engine_takes_the_same_step(sampling: str) -> None:
    engines = [engine_of(kind) for kind in (AutogradEngine, FusedCpuEngine)]
    if FusedCpuEngine.unsupported_reason(engines[1].model, torch.device("cpu"), engines[1].optimizer):  # type: ignore[arg-type]
        pytest.skip("the loops were not built")
    losses = []
    for engine in engines:
        pool, batch = SamplePool(EAGER), batch_of(20)
        pool(batch_of(40, 2), [], 1, 3, engine.scorer)
        joined, groups = pool(batch, NegativeSampler(sampling, 6, ENTITIES)(batch, 11), 3, 4, engine.scorer)
        # As if the model had moved on: else errors of samples are but rounding, and so are Adam's steps.
        joined = replace(joined, weight=0.8 * joined.weight)
        losses.append(engine.step(Step(joined, groups, SquaredError(ConfidenceHead("sigmoid")), 1.0)))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for name, table in engines[0].tables.items():
        torch.testing.assert_close(engines[1].tables[name], table, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", ["passleaf-complex", "passleaf-rotate", "suke"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_sampling_trains_with_a_pool(small: Graph, sampling: str, model: str) -> None:
    settings = merge_settings(SETTINGS, {"model": model, "negative_sampling": sampling})
    run = focuse.train(small, progress=False, **settings)
    assert run.history[-1]["loss"] < run.history[0]["loss"]


def test_the_pool_changes_the_training(small: Graph) -> None:
    entity = [
        focuse.train(small, model="ukge-logi", progress=False, **{**SETTINGS, "semi_supervised": how}).scorer.tables[
            "entity"
        ]
        for how in ("none", SETTINGS["semi_supervised"])
    ]
    assert not torch.equal(*entity)


@pytest.mark.parametrize("step", [3, 9, 14])
def test_resume_after_any_interrupt_gives_identical_tables(
    small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    asked: dict[str, Any] = {"model": "passleaf-complex", "progress": False, **SETTINGS}
    whole = focuse.train(small, out=tmp_path / "whole", **asked)
    real, taken = Trainer._train_batch, []

    def stopping(self: Trainer, *rest: Any) -> Any:
        taken.append(1)
        if len(taken) == step:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, *rest)

    monkeypatch.setattr(Trainer, "_train_batch", stopping)
    with pytest.raises(Stopped):
        focuse.train(small, out=tmp_path / "run", **asked)
    run = focuse.resume(tmp_path / "run", progress=False)
    assert len(taken) > step
    assert all(torch.equal(run.scorer.tables[name], table) for name, table in whole.scorer.tables.items())
    ends = [load_file(tmp_path / name / "checkpoint.safetensors") for name in ("whole", "run")]
    assert {key for key in ends[0] if key.startswith("pool/")} == {
        f"pool/{name}" for name in ("head", "relation", "tail", "weight", "count")
    }
    assert all(torch.equal(ends[1][key], value) for key, value in ends[0].items())


@pytest.mark.parametrize(("epochs", "told"), [(3, True), (4, False)])
def test_unused_pool_gives_a_note(small: Graph, epochs: int, told: bool, capsys) -> None:
    focuse.train(small, model="ukge-logi", **{**SETTINGS, "epochs": epochs}, progress=True)
    said = " ".join(capsys.readouterr().err.split())
    assert ("semi-supervised training starts in epoch 4, but training ends after epoch 3" in said) is told
