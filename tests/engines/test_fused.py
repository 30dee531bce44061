"""The GPU engine against the reference, step by step: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch

from focuse.engines import Batch, FusedEngine, Hints, ReferenceEngine, make_engine
from focuse.errors import FocuseError
from focuse.evaluation.known import Known
from focuse.focus import Focus, default_nonlinearity
from focuse.models import MODELS, make_model
from focuse.training.losses import Objective, SquaredError, make_loss
from focuse.training.negatives import Sampler
from focuse.training.optimisers import make_optimiser
from focuse.training.regularisers import Regulariser

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
if not GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are first imported
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton: pip install -e '.[kernels]'")
ENTITIES, RELATIONS, ROWS = 11, 3, 7


def tables_of(model: str, dim: int = 67) -> dict[str, torch.Tensor]:
    made, random = make_model(model), torch.Generator().manual_seed(5)
    shapes = {"entity": (ENTITIES, made.entity_width(dim)), "relation": (RELATIONS, made.relation_width(dim))}
    tables = {name: torch.randn(shape, generator=random) * 0.3 for name, shape in shapes.items()}
    return {name: table.to(DEVICE) for name, table in {**tables, **made.dense_start()}.items()}


def batch_of(seed: int = 0, rows: int = ROWS) -> Batch:
    random = torch.Generator().manual_seed(seed)
    ids = [torch.randint(size, (rows,), generator=random) for size in (ENTITIES, RELATIONS, ENTITIES)]
    return Batch(*(part.to(DEVICE) for part in (*ids, torch.rand(rows, generator=random))))


def trained(kind, model: str, sampler: Sampler, objective, penalty: Regulariser | None, hinted: bool, steps: int = 4):
    tables = tables_of(model)
    optimiser = make_optimiser("adam", tables, 1e-2)
    made = make_model(model)
    dense = {name: tables[name] for name in made.dense}
    engine = kind(made, tables["entity"], tables["relation"], optimiser, dense)
    losses = []
    for step in range(steps):
        batch = batch_of(step)
        corruptions = sampler(batch, (0, 0, step))
        hints = Hints(batch_of(step + 100, rows=5), objective.shortfall) if hinted else None
        losses.append(float(engine.step(batch, corruptions, objective, 0.4, penalty, 0.5, hints)))
    return losses, tables, optimiser.state()


def assert_same(model: str, sampler: Sampler, loss: str = "multiclass-nll", penalty: Regulariser | None = None) -> None:
    assert_alike(
        model, sampler, Objective(make_loss(loss), Focus(default_nonlinearity(make_model(model).form))), penalty
    )


def assert_alike(model: str, sampler: Sampler, objective, penalty: Regulariser | None, hinted: bool = False) -> None:
    kinds = (ReferenceEngine, FusedEngine)
    theirs, ours = (trained(kind, model, sampler, objective, penalty, hinted) for kind in kinds)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        assert mine.keys() == other.keys()
        for name in mine:
            # Adam turns tiny differences of tiny gradients into steps: as close as float32 lets them be.
            torch.testing.assert_close(mine[name], other[name], rtol=1e-3, atol=2e-5)


@needs_triton
@pytest.mark.parametrize("count", [30, 33])
@pytest.mark.parametrize("model", MODELS)
def test_own_corruptions_of_every_model(model: str, count: int) -> None:
    assert_same(model, Sampler("independent", count, ENTITIES), penalty=Regulariser(3, 0.1))


@needs_triton
@pytest.mark.parametrize("kind", ["shared", "all"])
@pytest.mark.parametrize("model", ["complex", "transe"])
def test_pools(model: str, kind: str) -> None:
    assert_same(model, Sampler(kind, 6, ENTITIES), penalty=Regulariser(3, 0.1))


@needs_triton
@pytest.mark.parametrize("penalty", [None, *(Regulariser(p, 0.2, s) for p in (1, 2, 3) for s in ("tables", "rows"))])
def test_penalties(penalty: Regulariser | None) -> None:
    assert_same("distmult", Sampler("independent", 5, ENTITIES), penalty=penalty)


@needs_triton
@pytest.mark.parametrize("loss", ["pairwise-nll", "nll", "bce", "margin", "self-adversarial"])
def test_losses_and_masks(loss: str) -> None:
    batch = batch_of()
    known = Known(batch.head, batch.relation, batch.tail, ENTITIES, RELATIONS)
    assert_same("complex", Sampler("independent", 9, ENTITIES, known), loss)


@needs_triton
@pytest.mark.parametrize("hinted", [False, True])
@pytest.mark.parametrize("kind", ["independent", "shared", "all"])
@pytest.mark.parametrize("model", ["ukge-logi", "ukge-rect"])
def test_confidences_and_what_rules_infer(model: str, kind: str, hinted: bool) -> None:
    """The dense tensors too: they are trained, and no penalty lies on them, of tables or of rows."""
    batch = batch_of()
    known = Known(batch.head, batch.relation, batch.tail, ENTITIES, RELATIONS)
    penalty = Regulariser(2, 0.1, "rows" if kind == "shared" else "tables")
    objective = SquaredError(make_model(model).trained, 0.7)
    assert_alike(model, Sampler(kind, 6, ENTITIES, known), objective, penalty, hinted)


@needs_triton
def test_equal_rows_pull_nowhere() -> None:
    """A distance of 0 has no direction; torch says its gradient is 0, and so must the kernel."""
    from focuse.engines.kernels import own_gradients, own_scores

    rows = torch.ones(2, 5, device=DEVICE)
    asked = (torch.ones(1, 2, 5, device=DEVICE), rows, torch.tensor([[0, 1]], device=DEVICE))
    tails = torch.tensor([[True, False]], device=DEVICE)
    for form in ("l1", "l2"):
        scores, into = own_scores(*asked, tails, form), torch.zeros_like(rows)
        of_queries = own_gradients(*asked, tails, form, scores, torch.ones(1, 2, device=DEVICE), into)
        assert scores.abs().max() == into.abs().max() == of_queries.abs().max() == 0


@pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("model", ["complex", "ukge-logi"])
def test_replayed_training_follows_the_reference(small, model) -> None:
    """Graphs included: rows, β and random numbers of every batch reach the recorded step, those of hints too."""
    import focuse

    settings = {"dim": 20, "epochs": 6, "batch_size": 64, "decay": 4, "device": "cuda", "progress": False, "lr": 1e-2}
    hints = [(f"e{i}", "r0", f"e{i + 1}", 0.9) for i in range(9)] if make_model(model).confident else None
    histories, tables = [], []
    for engine in ("reference", "fused"):
        run = focuse.train(small, model=model, engine=engine, soft_logic=hints, **settings)
        histories.append([row["loss"] for row in run.history])
        tables.append(run.engine.tables["entity"])
    assert histories[0] == pytest.approx(histories[1], rel=1e-3)
    assert (tables[0] - tables[1]).abs().max() < 0.1 * tables[0].abs().max()


def test_an_engine_that_cannot_serve_says_why() -> None:
    tables = {name: table.cpu() for name, table in tables_of("complex").items()}
    with pytest.raises(FocuseError, match="engine 'fused': it needs an NVIDIA GPU"):
        make_engine("fused", make_model("complex"), tables, make_optimiser("adam", tables, 0.1))
    engine = make_engine("auto", make_model("complex"), tables, make_optimiser("adam", tables, 0.1))
    assert type(engine) is ReferenceEngine
