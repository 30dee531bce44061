"""The CUDA graph engine takes the reference's steps: one by one on any device, replayed on a GPU."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

import focuse
from focuse.config import SETTINGS, Config
from focuse.data.datasets import careers
from focuse.engines.autograd import AutogradEngine, FixedSizeTableView, TableView
from focuse.engines.base import Step
from focuse.engines.gpu import WARM_UP_STEPS, CudaGraphEngine, CudaGraphRunner
from focuse.engines.optimizers import make_optimizer
from focuse.models import Context, Model
from focuse.models.base import RandomnessUnavailableError
from focuse.models.bilinear import DistMult
from focuse.models.registry import MODELS, make_model
from focuse.objective.losses import make_regularizer
from focuse.objective.negatives import Batch, NegativeSampler
from focuse.objective.randomness import stream_seed
from focuse.training.problem import make_objective

SAMPLINGS = [each for each in SETTINGS["negative_sampling"].choices if each != "none"]

ENTITIES, RELATIONS, ROWS = 12, 3, 8
OPTIMIZERS = ("adam", "sparse-adam", "sparse-adagrad")
DRAWING = {"conve", "kbgat"}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


class Scaled(DistMult):
    """A model that reads numbers while it computes, so that it waits for the GPU."""

    name = "scaled"
    fused = None

    def query(self, known: Tensor, relation: Tensor, side: str) -> Tensor:
        return known * relation * (2.0 if float(known.detach().sum()) > -1e9 else 1.0)


def batch_of(seed: int) -> Batch:
    random = torch.Generator().manual_seed(seed)
    ids = [torch.randint(size, (ROWS,), generator=random) for size in (ENTITIES, RELATIONS, ENTITIES)]
    return Batch(*ids, torch.rand(ROWS, generator=random))


def context_for(model: Model) -> Context:
    random, facts = torch.Generator().manual_seed(1), batch_of(1)
    numbers = torch.randn(ENTITIES, 2, generator=random) if "attributes" in model.requires else None
    present = torch.rand(ENTITIES, 2, generator=random) > 0.3 if "attributes" in model.requires else None
    edges = (facts.head, facts.relation, facts.tail) if "edges" in model.requires else None
    return Context(edges, numbers, present)


def steps(kind: type[AutogradEngine], settings: Config, penalty: str = "none", key: int | None = 0):
    """Tables and losses after three steps."""
    model = settings.make_model()
    model = model.bind(context=context_for(model))
    random = torch.Generator().manual_seed(2)
    shapes = {
        "entity": (ENTITIES, model.widths(settings.dim)[0]),
        "relation": (RELATIONS * (2 if settings.reciprocal else 1), model.widths(settings.dim)[1]),
    }
    tables = {name: torch.randn(shape, generator=random) * 0.4 for name, shape in shapes.items()}
    tables |= model.init_parameters(settings.dim, random)
    optimizer = make_optimizer(settings.optimizer, tables, 0.05)
    engine = kind(model, tables, optimizer, settings.reciprocal)
    objective = make_objective(
        settings, settings.make_focuse_layer(), 0.0 if settings.weight_mode == "soft-labels" else None
    )
    sampler, losses = NegativeSampler(settings.negative_sampling, 4, ENTITIES), []
    for number in range(3):
        batch = batch_of(number)
        negatives = sampler(batch, stream_seed(0, 0, number))
        regularizer = make_regularizer(penalty, "touched" if settings.optimizer.startswith("row") else "tables")
        losses.append(float(engine.step(Step(batch, negatives, objective, 0.6, regularizer, 1.0, None, key))))
    return engine.tables, losses


def assert_same(settings: Config, penalty: str = "none") -> None:
    expected, expected_losses = steps(AutogradEngine, settings, penalty)
    found, losses = steps(CudaGraphEngine, settings, penalty)
    assert losses == pytest.approx(expected_losses, rel=1e-5)
    for name, table in expected.items():
        torch.testing.assert_close(
            found[name], table, rtol=1e-5, atol=1e-6, msg=lambda why, name=name: f"{name}: {why}"
        )


def sampled(name: str, sampling: str) -> dict[str, Any]:
    """Return the setting of a sampling, nothing for a model that has no negatives."""
    return {} if MODELS[name].defaults.get("negative_sampling") == "none" else {"negative_sampling": sampling}


@pytest.mark.parametrize(("place", "name"), list(enumerate(MODELS)))
def test_every_model_takes_the_references_steps(place: int, name: str) -> None:
    sampling, optimizer = SAMPLINGS[place % 3], OPTIMIZERS[place // 3 % 3]
    negatives = sampled(name, sampling)
    assert_same(Config.from_kwargs(model=name, dim=36, optimizer=optimizer, **negatives))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("penalty", ["none", "l1:1e-2", "l3:1e-2", "n3:1e-2"])
def test_every_sampling_optimizer_and_regularizer_takes_the_references_steps(
    penalty: str, sampling: str, optimizer: str
) -> None:
    weight_mode = {"none": "none", "l1:1e-2": "focuse", "l3:1e-2": "soft-labels", "n3:1e-2": "soft-labels"}[penalty]
    more = {"soft-labels": {"label_exponent": 2.0}, "focuse": {"nonlinearity": "softplus"}, "none": {}}[weight_mode]
    assert_same(
        Config.from_kwargs(
            model="complex", dim=3, negative_sampling=sampling, optimizer=optimizer, weight_mode=weight_mode, **more
        ),
        penalty,
    )


def test_a_fixed_view_has_each_row_once_and_repeats_the_first() -> None:
    table = torch.arange(12.0).view(6, 2)
    ids = torch.tensor([4, 1, 4, 4, 2])
    fixed, plain = FixedSizeTableView(table), TableView(table)
    for place in (fixed, plain):
        place.gather(ids)
        (place.rows(ids) * torch.arange(5.0)[:, None]).sum().backward()
    assert fixed.ids.tolist() == [1, 2, 4, 1, 1]
    assert torch.equal(fixed.rows(ids), table[ids])
    assert torch.equal(fixed.touched()[3:], torch.zeros(2, 2))
    assert torch.equal(fixed.gradient()[:3], plain.gradient())
    assert torch.equal(fixed.gradient()[3:], plain.gradient()[:1].expand(2, 2))


def test_a_fixed_view_has_no_more_rows_than_the_table() -> None:
    place = FixedSizeTableView(torch.zeros(3, 2))
    place.gather(torch.tensor([0, 1, 2, 0, 1, 2, 2]))
    assert place.ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", list(MODELS))
def test_model_with_random_draws_needs_a_seed(name: str) -> None:
    settings = Config.from_kwargs(model=name, dim=36, **sampled(name, "per-triple"))
    if name in DRAWING:
        with pytest.raises(RandomnessUnavailableError, match="draws random numbers in training"):
            steps(CudaGraphEngine, settings, key=None)
    else:
        with_key, without = steps(CudaGraphEngine, settings), steps(CudaGraphEngine, settings, key=None)
        assert with_key[1] == without[1]


# ---- on a GPU -------------------------------------------------------------------------------------------------------


def train(monkeypatch: pytest.MonkeyPatch, **settings):
    """A training on the GPU, and how many graphs were captured."""
    recorded = count()
    plainly = CudaGraphRunner._capture

    def counted(self, held, keys):
        made = plainly(self, held, keys)
        next(recorded)
        return made

    monkeypatch.setattr(CudaGraphRunner, "_capture", counted)
    graph = careers()
    numbers = [(name, "letters", len(name)) for name in graph.entities]
    wants = "attributes" in make_model(settings["model"]).requires if isinstance(settings["model"], str) else False
    given = {"node_attributes": numbers} if wants else {}
    basis = {
        "dim": 36,
        "epochs": 4,
        "batch_size": 64,
        "num_negatives": 5,
        "device": "cuda",
        "progress": False,
        "eval_start": 99,
    }
    if settings.get("negative_sampling") == "all":
        del basis["num_negatives"]
    run = focuse.train(graph, **{**basis, **settings}, **given)
    return run, next(recorded)


@needs_gpu
@pytest.mark.parametrize(
    "name", [name for name, model in MODELS.items() if model.fused is None or model.fused.query is None]
)
def test_replayed_steps_are_the_references(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = (
        {}
        if MODELS[name].confidence_head is not None or MODELS[name].defaults.get("weight_mode") == "none"
        else {"weight_mode": "focuse"}
    )
    if name.startswith("passleaf"):
        more["semi_supervised"] = "none"  # what a pool holds changes from step to step
    found, recorded = train(monkeypatch, model=name, **more)
    expected, never = train(monkeypatch, model=name, engine="torch", **more)
    assert (recorded > 0, never) == (name not in DRAWING, 0)
    assert len(found.history) == 4 > WARM_UP_STEPS
    apart = 2e-2 if name in DRAWING else 2e-3  # attention sums along edges in any order
    for row, twin in zip(found.history, expected.history, strict=True):
        assert row["loss"] == pytest.approx(twin["loss"], rel=apart), row["epoch"]


@needs_gpu
def test_model_that_synchronizes_is_trained_without_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    found, recorded = train(monkeypatch, model=Scaled, weight_mode="focuse")
    expected, _ = train(monkeypatch, model=Scaled, weight_mode="focuse", engine="torch")
    assert recorded == 0
    assert found.history[-1]["loss"] == pytest.approx(expected.history[-1]["loss"], rel=2e-3)


@needs_gpu
@pytest.mark.parametrize("loss", ["confidence-margin:margin=2,power=1"])
def test_steps_of_an_objective_without_kernels_are_captured(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, recorded = train(monkeypatch, model="transe", loss=loss, weight_mode="none")
    assert recorded > 0
