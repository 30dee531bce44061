"""FocusE inside PyKEEN: the equations in NumPy, through PyKEEN's own batches, filters, loops and pipeline."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scoring import make_scorer

from focuse.data.datasets import careers
from focuse.data.graph import Graph
from focuse.data.splits import split
from focuse.data.triple_index import TripleIndex
from focuse.errors import FocuseError
from focuse.evaluation.ranking import rank
from focuse.models.registry import make_model
from focuse.objective.focuse import AUTHORS_SHIFT

pytest.importorskip("pykeen")

from pykeen.evaluation import RankBasedEvaluator
from pykeen.losses import UnsupportedLabelSmoothingError
from pykeen.models import ComplEx, TransE
from pykeen.pipeline import pipeline
from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop
from pykeen.triples import TriplesFactory

from focuse.integrations.pykeen import EdgeWeights, FocusELoss


@pytest.fixture(autouse=True, scope="module")
def _little_garbage() -> Iterator[None]:
    """PyKEEN collects garbage after every epoch, which takes longer than the epoch where much is imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


Row = tuple[str, str, str, float]
QUIET = {"use_tqdm": False, "pin_memory": False}


def heavy_and_light(entities: int = 40) -> list[Row]:
    """Steps of 1 and 2 on a ring weigh 1, steps of 5 and 7 weigh a tenth: all of them are regular, half are dear."""
    weights = {1: 1.0, 2: 0.9, 5: 0.1, 7: 0.0}
    return [(f"e{i}", "near", f"e{(i + step) % entities}", w) for i in range(entities) for step, w in weights.items()]


def factory_of(rows: list[Row], **given: Any) -> TriplesFactory:
    return TriplesFactory.from_labeled_triples(np.array([row[:3] for row in rows]), **given)


def softplus(x: Any) -> Any:
    return np.log1p(np.exp(x))


def focused(positive: Any, negative: Any, weight: Any, beta: float, shift: float = 0.0) -> tuple[Any, Any]:
    """The layer, as the paper writes it: [B], [B, N], [B] -> [B], [B, N]."""
    up, down = beta + (1 - weight) * (1 - beta), beta + weight * (1 - beta)
    return up * softplus(positive + shift), down[:, None] * softplus(negative + shift)


def multiclass(positive: Any, negative: Any, counts: Any) -> Any:
    return -np.log(np.exp(positive) / (np.exp(positive) + (np.exp(negative) * counts).sum(1)))


def hinge(positive: Any, negative: Any, counts: Any) -> Any:
    return (np.maximum(0, 2 + negative - positive[:, None]) * counts).sum(1)


# ---- weights ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "kept"), [("max", 4.0), ("mean", 3.0), ("last", 2.0)])
def test_repeated_triples_are_merged_by_the_policy(policy: str, kept: float) -> None:
    rows = [("a", "r", "b", 4.0), ("b", "r", "c", 0.0), ("a", "r", "b", 2.0), ("c", "r", "a", 8.0)]
    factory = factory_of(rows)
    assert len(factory.mapped_triples) == 3
    weights = EdgeWeights.of(factory, rows, normalize="relation", duplicates=policy)
    ids = factory.entity_to_id
    assert weights(ids["a"], 0, ids["b"]).item() == pytest.approx(kept / 8)


def test_weights_are_looked_up_by_ids_whatever_the_order() -> None:
    rows = heavy_and_light()
    factory = factory_of(rows)
    weights = EdgeWeights.of(factory, rows[::-1], normalize="none")
    by_name = {row[:3]: row[3] for row in rows}
    found = weights.weight_triples(factory.mapped_triples).tolist()
    assert found == pytest.approx([by_name[tuple(triple)] for triple in factory.triples.tolist()])
    assert weights(torch.tensor([0]), torch.tensor([0]), None).shape == (40,)
    assert weights(0, 0, 0).isnan()  # no such fact
    assert weights.weight_triples(factory.mapped_triples[:6].view(2, 3, 3)).shape == (2, 3)


def test_normalizers_look_at_the_training_triples_alone() -> None:
    rows = [("a", "r", "b", 1.0), ("b", "r", "a", 3.0), ("a", "r", "a", 1000.0), ("a", "r", "elsewhere", -5.0)]
    factory = factory_of(rows[:2])
    weights = EdgeWeights.of(factory, rows, normalize="relation").weight_triples(factory.mapped_triples)
    assert sorted(weights.tolist()) == [0.0, 1.0]


def test_inverse_triples_have_the_weights_of_their_triples() -> None:
    rows = heavy_and_light()
    factory = factory_of(rows, create_inverse_triples=True)
    weights = EdgeWeights.of(factory, rows, normalize="none")
    head, _, tail = factory.mapped_triples.unbind(1)
    zeros = torch.zeros_like(head)
    assert torch.equal(weights(head, zeros, tail), weights(tail, zeros + 1, head))
    assert not weights(head, zeros, tail).isnan().any()


def test_faulty_weights_are_refused() -> None:
    rows = heavy_and_light()
    factory = factory_of(rows)
    with pytest.raises(FocuseError, match=r"1 of 160 training triples have no weight there, the first is \(e\d+, near"):
        EdgeWeights.of(factory, rows[1:])
    with pytest.raises(FocuseError, match="max, mean or last"):
        EdgeWeights.of(factory, rows, duplicates="keep")
    with pytest.raises(FocuseError, match="unknown normalizer"):
        EdgeWeights.of(factory, rows, normalize="nothing")
    with pytest.raises(FocuseError, match=r"lie in \[0, 1\]"):
        EdgeWeights(factory.mapped_triples, torch.full((160,), 2.0), 40, 1)
    with pytest.raises(FocuseError, match="160 triples have 159 weights; give one each"):
        EdgeWeights(factory.mapped_triples, torch.ones(159), 40, 1)
    with pytest.raises(FocuseError, match="ids reach beyond 39 entities or 1 relations"):
        EdgeWeights(factory.mapped_triples, torch.ones(160), 39, 1)
    with pytest.raises(FocuseError, match="takes the weights itself"):
        FocusELoss(loss="confidence-margin")
    with pytest.raises(FocuseError, match="two weights"):
        EdgeWeights(factory.mapped_triples.repeat(2, 1), torch.ones(320), 40, 1)


# ---- the loss, on PyKEEN's own batches ----------------------------------------------------------------------------


def loop_of(kind: Any, loss: Any, rows: list[Row], filtered: bool = False, **given: Any) -> tuple[Any, Any, Any]:
    """A training loop over random embeddings, its model and its factory."""
    factory = factory_of(rows, **given)
    model = ComplEx(triples_factory=factory, embedding_dim=6, random_seed=3, loss=loss, regularizer=None)
    more: dict[str, Any] = {}
    if kind is SLCWATrainingLoop:
        sampling = {"num_negs_per_pos": 7, "filtered": filtered, "filterer": "python-set" if filtered else None}
        more = {"negative_sampler_kwargs": sampling}
    loop = kind(
        model=model,
        triples_factory=factory,
        optimizer=torch.optim.Adam(model.get_grad_params(), lr=0.05),
        loss_weighter=EdgeWeights.of(factory, rows, normalize="none"),
        automatic_memory_optimization=False,
        **more,
    )
    return loop, model, factory


def first_batch(loop: Any, factory: Any, size: int) -> Any:
    loader = loop._create_training_data_loader(factory, batch_size=size, drop_last=False, sampler=None)
    return next(iter(loader))


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize(
    ("name", "equation", "shift"),
    [
        ("multiclass-nll", multiclass, 0.0),
        ("margin:margin=2", hinge, 0.0),
        ("multiclass-nll", multiclass, AUTHORS_SHIFT),
    ],
)
def test_slcwa_step_matches_the_papers_equations(name: str, equation: Any, shift: float, filtered: bool) -> None:
    rows = heavy_and_light(12)
    loss = FocusELoss(name, "shifted-softplus" if shift else "softplus", fixed_beta=0.3, reduction="sum")
    loop, model, factory = loop_of(SLCWATrainingLoop, loss, rows, filtered)
    batch = first_batch(loop, factory, 32)
    value = loop._process_batch(batch, 0, 32).item()
    with torch.no_grad():
        score = model.score_hrt(batch["positives"])[:, 0].double().numpy()
        others = model.score_hrt(batch["negatives"].view(-1, 3)).view(32, 7).double().numpy()
    by_name = {row[:3]: row[3] for row in rows}
    names = factory.label_triples(batch["positives"])
    weight = np.array([by_name[tuple(triple)] for triple in names.tolist()])
    facts = {tuple(triple) for triple in factory.mapped_triples.tolist()}
    known = np.array([[tuple(triple) in facts for triple in one] for one in batch["negatives"].tolist()])
    assert known.any()
    expected = equation(*focused(score, others, weight, 0.3, shift), ~known if filtered else np.ones_like(known))
    assert value == pytest.approx(expected.sum(), rel=1e-5)


def test_lcwa_step_matches_the_papers_equations() -> None:
    rows = heavy_and_light(12)
    loop, model, factory = loop_of(LCWATrainingLoop, FocusELoss(fixed_beta=0.3), rows, create_inverse_triples=True)
    batch = first_batch(loop, factory, 24)
    value = loop._process_batch(batch, 0, 24).item()
    with torch.no_grad():
        scores = model.score_t(torch.as_tensor(batch["pairs"])).double().numpy()
    by_ids = {(factory.entity_to_id[head], factory.entity_to_id[tail]): weight for head, _, tail, weight in rows}
    losses = []
    for row, (given, relation) in enumerate(batch["pairs"].tolist()):
        true = [other for other in range(12) if ((given, other) if relation == 0 else (other, given)) in by_ids]
        false = [other for other in range(12) if other not in true]
        for other in true:
            weight = by_ids[(given, other) if relation == 0 else (other, given)]
            parts = focused(scores[row, [other]], scores[row, false][None], np.array([weight]), 0.3)
            losses.append(multiclass(*parts, 1.0)[0])
    assert value == pytest.approx(np.mean(losses), rel=1e-5)


def test_a_positive_without_any_negative_left_has_no_loss_and_no_gradient() -> None:
    loss = FocusELoss(fixed_beta=0.5)
    positive = torch.tensor([[0.3], [0.4]], requires_grad=True)
    left = torch.tensor([[True, True], [False, False]])
    negative = torch.tensor([0.1, 0.2], requires_grad=True)  # PyKEEN hands in what the filter lets through
    value = loss.process_slcwa_scores(positive, negative, batch_filter=left, pos_weights=torch.tensor([0.5, 0.9]))
    value.backward()
    assert positive.grad is not None
    assert negative.grad is not None
    assert positive.grad[1].item() == 0
    assert positive.grad.isfinite().all()
    assert negative.grad.abs().min() > 0


# ---- training -----------------------------------------------------------------------------------------------------


def trained(rows: list[Row], weighed: list[Row], loss: FocusELoss, epochs: int = 6, **given: Any) -> Any:
    factory = factory_of(rows)
    settings: dict[str, Any] = {
        "model": "ComplEx",
        "model_kwargs": {"embedding_dim": 8},
        "optimizer_kwargs": {"lr": 0.05},
        "training_loop": "slcwa",
        "training_loop_kwargs": {"loss_weighter": EdgeWeights.of(factory, weighed, normalize="none")},
        "training_kwargs": {"num_epochs": epochs, "batch_size": 64, "callbacks": loss.callback(), **QUIET},
        "evaluation_kwargs": {"use_tqdm": False},
        "random_seed": 5,
        "device": "cpu",
    }
    return pipeline(training=factory, testing=factory, loss=loss, **(settings | given))


def shuffled(rows: list[Row]) -> list[Row]:
    order = np.random.default_rng(1).permutation(len(rows))
    return [(*row[:3], rows[place][3]) for row, place in zip(rows, order, strict=True)]


def test_weights_have_an_effect_once_beta_falls() -> None:
    rows = heavy_and_light()
    for fixed, same in ((1.0, True), (0.0, False)):
        first, second = (
            trained(rows, weighed, FocusELoss(fixed_beta=fixed), 2).model.entity_representations[0](None).detach()
            for weighed in (rows, shuffled(rows))
        )
        assert torch.equal(first, second) == same


def test_beta_falls_to_its_floor_epoch_by_epoch() -> None:
    rows = heavy_and_light()
    loss = FocusELoss(beta_decay_epochs=4, beta_min=0.2)
    callback = loss.callback()
    trained(rows, rows, loss, training_kwargs={"num_epochs": 6, "batch_size": 64, "callbacks": callback, **QUIET})
    assert callback.betas == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.2, 0.2])
    assert loss.beta == 0.2


def test_resumed_training_continues_with_its_beta(tmp_path: Any) -> None:
    rows = heavy_and_light()
    stored = {"checkpoint_directory": tmp_path, "checkpoint_name": "c.pt", "checkpoint_frequency": 0, **QUIET}
    for epochs, betas in ((2, [1.0, 0.75]), (4, [0.5, 0.25])):
        loss = FocusELoss(beta_decay_epochs=4)
        callback = loss.callback()
        loop, _, factory = loop_of(SLCWATrainingLoop, loss, rows)
        loop.train(factory, num_epochs=epochs, batch_size=64, callbacks=callback, **stored)
        assert callback.betas == pytest.approx(betas)


def test_missing_parts_of_the_setup_are_reported() -> None:
    rows = heavy_and_light(12)
    with pytest.raises(FocuseError, match="loss_weighter"):
        trained(rows, rows, FocusELoss(), training_loop_kwargs={})
    with pytest.raises(FocuseError, match="callbacks"):
        trained(rows, rows, FocusELoss(), training_kwargs={"num_epochs": 1, "batch_size": 64, **QUIET})
    with pytest.raises(FocuseError, match="another loss"):
        trained(rows, rows, FocusELoss(), training_kwargs={"callbacks": FocusELoss().callback(), **QUIET})
    with pytest.raises(UnsupportedLabelSmoothingError):
        trained(
            rows, rows, FocusELoss(fixed_beta=0.5), training_kwargs={"num_epochs": 1, "label_smoothing": 0.1, **QUIET}
        )
    strange = EdgeWeights(torch.tensor([[0, 0, 0]]), torch.ones(1), 12, 1)
    with pytest.raises(FocuseError, match="has no weight"):
        trained(rows, rows, FocusELoss(), training_loop_kwargs={"loss_weighter": strange})
    for wrong in ({"loss": "nothing"}, {"nonlinearity": "nothing"}, {"beta_decay_epochs": -1}):
        with pytest.raises(FocuseError):
            FocusELoss(**wrong)


@pytest.mark.slow
def test_high_weight_triples_gain_in_pykeens_pipeline() -> None:
    """ΔMRR by PyKEEN's evaluator: the heaviest tenth of test rises further above the lightest than without weights."""
    graph = careers()
    parts = split(graph.select(np.isin(graph.relation, [0, 1])), valid_fraction=0.0, test_fraction=0.15)
    train, held = _rows(parts.train), _rows(parts.test)
    held.sort(key=lambda row: row[3])
    size = len(held) // 10
    gaps = []
    for fixed in (1.0, None):
        loss = FocusELoss(beta_decay_epochs=5, fixed_beta=fixed)
        result = trained(
            train,
            train,
            loss,
            model_kwargs=dict.fromkeys(["entity_initializer", "relation_initializer"], "xavier_normal")
            | {"embedding_dim": 16},
            optimizer_kwargs={"lr": 0.03},
            negative_sampler_kwargs={"num_negs_per_pos": 5},
            training_kwargs={"num_epochs": 10, "batch_size": 256, "callbacks": loss.callback(), **QUIET},
        )
        top, bottom = (_mrr(result, part, held) for part in (held[-size:], held[:size]))
        gaps.append(top - bottom)
    assert gaps[1] > gaps[0] + 0.03


def _rows(graph: Graph) -> list[Row]:
    names, kinds = list(graph.entities), list(graph.relations)
    ids = zip(graph.head, graph.relation, graph.tail, graph.weight, strict=True)
    return [(names[head], kinds[relation], names[tail], float(weight)) for head, relation, tail, weight in ids]


def _mrr(result: Any, rows: list[Row], held: list[Row]) -> float:
    ids = {"entity_to_id": result.training.entity_to_id, "relation_to_id": result.training.relation_to_id}
    known = [result.training.mapped_triples, factory_of(held, **ids).mapped_triples]
    found = RankBasedEvaluator().evaluate(
        result.model, factory_of(rows, **ids).mapped_triples, additional_filter_triples=known, use_tqdm=False
    )
    return float(found.get_metric("both.realistic.inverse_harmonic_mean_rank"))


# ---- the two libraries beside each other --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["complex", "transe"])
def test_ranks_agree_with_pykeen(name: str) -> None:
    """The same embeddings, ranked by either library: filtered, both sides, ties at their mean."""
    rows = heavy_and_light(14)
    train, test = factory_of(rows), factory_of(rows[::3])
    theirs = (ComplEx if name == "complex" else TransE)(triples_factory=train, embedding_dim=5, random_seed=2)
    tables = []
    for (representation,) in (theirs.entity_representations, theirs.relation_representations):
        table = representation(None).detach()
        tables.append(torch.cat([table.real, table.imag], dim=1) if table.is_complex() else table)
    tables[0][3] = tables[0][5]  # a tie
    with torch.no_grad():
        weight = theirs.entity_representations[0]._embeddings.weight
        weight[3] = weight[5]
    known = TripleIndex(*train.mapped_triples.T.contiguous(), 14, 1)
    ids = test.mapped_triples.T.contiguous()
    ranks = rank(make_scorer(make_model(name), *tables), *ids, known).filtered.ranks("mean", "per-side")
    found = RankBasedEvaluator().evaluate(
        theirs, test.mapped_triples, additional_filter_triples=train.mapped_triples, use_tqdm=False
    )
    own = found.get_metric("both.realistic.inverse_harmonic_mean_rank")
    assert (1 / ranks).mean() == pytest.approx(own, rel=1e-6)
