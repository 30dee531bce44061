"""PyKEEN's interactions as models: equal scores, training, ranking and resuming."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import focuse
from focuse.errors import FocuseError, Stopped
from focuse.integrations import pykeen_models as adapter
from focuse.integrations.pykeen_models import PykeenModel, interaction_model
from focuse.models import Model
from focuse.models import base as pieces
from focuse.models.base import score_triples
from focuse.models.registry import make_model, model_name

pytest.importorskip("pykeen")

NAMES = list(adapter.interactions())
DIM = 12
SETTINGS: dict[str, Any] = {
    "dim": 8, "epochs": 4, "batch_size": 64, "num_negatives": 4, "lr": 0.01, "seed": 1, "progress": False,
}  # fmt: skip


def in_training(model: Model, seed: int) -> Any:
    """The model in a training step."""
    return model.bind(context=model.context.in_training(seed))


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, str, str, float]]:
    """A graph in which who is near whom decides: 20 entities on a ring, two relations, weights by distance."""
    random = np.random.default_rng(0)
    found = {}
    for _ in range(260):
        head, relation, step = int(random.integers(20)), int(random.integers(2)), int(random.integers(1, 4))
        found[f"e{head}", f"r{relation}", f"e{(head + (1 + relation) * step) % 20}"] = 1.0 / step
    return [(*triple, weight) for triple, weight in found.items()]


def ready(name: str, dim: int = DIM) -> PykeenModel:
    """A model whose dense tensors are not at their first values."""
    model = make_model(f"pykeen:{name}")
    start = model.init_parameters(dim, torch.Generator().manual_seed(3))
    made = model.bind({name: 0.7 * value.double() + 0.3 for name, value in start.items()})
    assert isinstance(made, PykeenModel)
    return made


def tensors_of(row: torch.Tensor, shapes: list[tuple[int, ...]], is_complex: bool) -> list[torch.Tensor]:
    """Rows taken apart number by number, in NumPy."""
    numbers = row.numpy()
    if is_complex:
        half = numbers.shape[1] // 2
        numbers = numbers[:, :half] + 1j * numbers[:, half:]
    found, start = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        found.append(torch.from_numpy(numbers[:, start : start + size].reshape(-1, *shape)))
        start += size
    return found


def tamed(name: str, table: str, parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """What PyKEEN's own normalizers and bounds make of an interaction's tensors."""
    from pykeen.nn import quaternion
    from pykeen.utils import complex_normalize

    if (name, table) == ("RotatE", "relation"):
        return [complex_normalize(parts[0])]
    if (name, table) == ("QuatE", "relation"):
        return [quaternion.normalize(parts[0])]
    if (name, table) == ("TransH", "relation"):
        return [parts[0] / (parts[0] ** 2).sum(-1, keepdim=True).sqrt(), parts[1]]
    if (name, table) == ("PairRE", "entity"):
        return [parts[0] / (parts[0] ** 2).sum(-1, keepdim=True).sqrt()]
    if name == "KG2E":
        return [parts[0], 0.05 + 4.95 / (1 + (-parts[1]).exp())]
    return parts


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_pykeens_own(name: str) -> None:
    """Its Interaction.score_hrt, given the same parameters and representations that are taken apart by hand."""
    model = ready(name)
    interaction = model.build(DIM).double().eval()
    state = interaction.state_dict()
    for key, value in model.parameters.items():
        state[key.replace("-", ".")] = value.reshape(state[key.replace("-", ".")].shape)
    interaction.load_state_dict(state)
    random = torch.Generator().manual_seed(7)
    widths = [model.widths(DIM)[0], model.widths(DIM)[1], model.widths(DIM)[0]]
    head, relation, tail = (torch.randn(6, width, generator=random, dtype=torch.float64) for width in widths)
    sizes = {"d": DIM, "e": DIM, "f": DIM, "k": {"CP": 1}.get(name, 4), "s": 1}
    shapes = {
        "entity": [tuple(sizes[letter] for letter in shape) for shape in interaction.entity_shape],
        "relation": [tuple(sizes[letter] for letter in shape) for shape in interaction.relation_shape],
    }
    h, r, t = (
        tamed(name, table, tensors_of(row, shapes[table], interaction.is_complex))
        for table, row in (("entity", head), ("relation", relation), ("entity", tail))
    )
    h, t = [h[i] for i in interaction.head_indices], [t[i] for i in interaction.tail_indices]
    own = interaction.score_hrt(*(part[0] if len(part) == 1 else part for part in (h, r, t)))
    assert own.abs().max() > 0
    torch.testing.assert_close(score_triples(model, head, relation, tail), own[:, 0])


@pytest.mark.parametrize("name", NAMES)
def test_every_interaction_trains_and_ranks(name: str, rows: list[Any]) -> None:
    options = {
        "ConvKB": ":num_filters=4",
        "Transformer": ":num_layers=1,dim_feedforward=8",
        "TuckER": ":head_dropout=0.0,relation_dropout=0.0,head_relation_dropout=0.0",  # too much for 8 numbers
    }.get(name, "")
    run = focuse.train(rows, model=f"pykeen:{name}{options}", label_exponent=1.0, **SETTINGS)
    losses = [row["loss"] for row in run.history]
    assert losses[-1] < losses[0]
    assert 0 < run.evaluate().all.mrr <= 1


@pytest.mark.parametrize("sampling", ["per-triple", "shared", "all"])
@pytest.mark.parametrize("name", ["RotatE", "ConvE", "ERMLP"])
def test_every_sampling_and_the_focuse_layer_train(name: str, sampling: str, rows: list[Any]) -> None:
    settings = {**SETTINGS, "num_negatives": None if sampling == "all" else 4}
    run = focuse.train(rows, model=f"pykeen:{name}", weight_mode="focuse", negative_sampling=sampling, **settings)
    assert run.history[-1]["beta"] < 1
    assert np.isfinite(run.history[-1]["loss"])
    assert run.settings.nonlinearity == ("shifted-softplus" if name == "RotatE" else "softplus")


def test_random_draws_are_a_pure_function_of_the_key() -> None:
    model = ready("ConvE")
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(6, model.widths(DIM)[0], generator=random, dtype=torch.float64)
    kinds = torch.randn(6, DIM, generator=random, dtype=torch.float64)
    before = torch.get_rng_state()
    bound = in_training(model, 5)
    first, second = score_triples(bound, rows, kinds, rows), score_triples(bound, rows, kinds, rows)
    again, other = (score_triples(in_training(model, key), rows, kinds, rows) for key in (5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, second)  # positives and negatives of a step do not share their dropout
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(score_triples(model, rows, kinds, rows), score_triples(model, rows, kinds, rows))


def test_running_statistics_change_in_training_only() -> None:
    model = ready("ERMLPE")
    assert model.buffers == {f"mlp-{place}-running_{kind}" for place in (3, 7) for kind in ("mean", "var")}
    rows, kinds = torch.randn(6, DIM, dtype=torch.float64), torch.randn(6, DIM, dtype=torch.float64)
    before = {name: model.parameters[name].clone() for name in model.buffers}
    score_triples(model, rows, kinds, rows)
    assert all(torch.equal(model.parameters[name], value) for name, value in before.items())
    score_triples(in_training(model, 1), rows, kinds, rows)
    assert not any(torch.equal(model.parameters[name], value) for name, value in before.items())
    # One row has no spread: it is scored as in ranking instead of being an error.
    assert torch.equal(
        score_triples(in_training(model, 1), rows[:1], kinds[:1], rows[:1]),
        score_triples(model, rows[:1], kinds[:1], rows[:1]),
    )


def test_resumed_run_has_identical_tables(rows: list[Any], tmp_path: Path) -> None:
    """Dropout, batch norm and a network's own parameters."""
    settings = SETTINGS | {"model": "pykeen:ConvE:output_channels=2", "label_exponent": 1.0, "optimizer": "adam"}
    whole = focuse.train(rows, **settings, out=tmp_path / "whole")
    with pytest.raises(Stopped):
        focuse.train(rows, **settings, out=tmp_path / "parts", deadline=time.monotonic())
    resumed = focuse.resume(tmp_path / "parts", progress=False)
    assert set(whole.scorer.tables) > {"entity", "relation", "hr2d-2-weight", "hr1d-2-running_mean"}
    for name, table in whole.scorer.tables.items():
        assert torch.equal(resumed.scorer.tables[name], table), name
    again = focuse.load(tmp_path / "whole")
    assert again.evaluate().all == whole.evaluate().all


@pytest.mark.parametrize("name", ["TransE", "ConvKB", "NTN"])
def test_chunk_size_does_not_change_ranking(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ready(name, 6)
    widths = [model.widths(6)[0], model.widths(6)[1]]
    known, kinds = (torch.randn(5, width, dtype=torch.float64) for width in widths)
    pool = torch.randn(17, widths[0], dtype=torch.float64)
    with torch.no_grad():
        whole = model.score_pool(model.query(known, kinds, "tail"), kinds, pool, "tail")
        for numbers in (1, 40_000):
            monkeypatch.setattr(pieces, "CHUNK_NUMBERS_CPU", numbers)
            parts = model.score_pool(model.query(known, kinds, "tail"), kinds, pool, "tail")
            torch.testing.assert_close(parts, whole)


def test_threads_do_not_share_an_interaction(rows: list[Any]) -> None:
    """Ranking asks from several threads at once, and putting tensors into an interaction changes it for a while."""
    run = focuse.train(rows, model="pykeen:ERMLP", label_exponent=1.0, **SETTINGS)
    alone, threads = run.evaluate().all, torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        assert all(run.evaluate().all == alone for _ in range(5))
    finally:
        torch.set_num_threads(threads)


def test_options_reach_the_interaction() -> None:
    assert interaction_model("pykeen:transe:p=2,power_norm=true").build(4).power_norm
    assert make_model("pykeen:TransR:e=3").widths(5)[1] == 3 + 5 * 3
    assert make_model("pykeen:CP:k=7").widths(5)[0] == 2 * 7 * 5
    assert type(interaction_model("pykeen:ERMLP:activation=tanh").build(4).activation) is torch.nn.Tanh
    assert make_model("pykeen:ERMLP:hidden_dim=3").init_parameters(5, torch.Generator())["hidden-weight"].shape == (
        3,
        15,
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pykeen:RotatF", "did you mean RotatE"),
        ("pykeen:", "unknown interaction"),
        ("pykeen:rgcn", "unknown interaction of PyKEEN 'rgcn'"),
        ("pykeen:TransE:q2", "write options like pykeen:TransE:p=2"),
        ("pykeen:TransE:norm=2", "TransE has no option 'norm'; it takes p, power_norm"),
        ("pykeen:ERMLP:activation=nothing", "PyKEEN says"),
        ("pykeen:Transformer:num_heads=1000", "cannot have dim"),
    ],
)
def test_unknown_interactions_are_refused(name: str, said: str) -> None:
    with pytest.raises(FocuseError, match=said) as error:
        make_model(name)
    assert "\n" not in str(error.value)


def test_unsuitable_dimension_is_refused_before_training(rows: list[Any]) -> None:
    with pytest.raises(FocuseError, match=r"cannot have dim 4 .*Kernel size"):
        focuse.train(rows, model="pykeen:ConvE", dim=4, progress=False)


def test_every_interaction_of_pykeen_is_supported() -> None:
    from pykeen.nn.modules import interaction_resolver

    assert len(NAMES) == len(set(interaction_resolver.lookup_dict.values())) >= 34


def test_missing_pykeen_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pykeen.nn.modules", None)
    interaction_model.cache_clear()
    with pytest.raises(FocuseError, match=r"needs PyKEEN .*pip install .*'\.\[pykeen\]'"):
        make_model("pykeen:TransE")


@pytest.mark.parametrize(
    "name",
    [
        "TransE:z=3",
        "TransE:=4",
        "TransE:d=4",
        "NTN:k=foo",
        "NTN:k=2.5",
        "NTN:k=0",
        "TransE:p={[]:1}",
        "TransE:p=1,p=2",
        "TransE:p=" + "-" * 5000 + "1",
    ],
)
def test_invalid_options_are_refused(name: str) -> None:
    with pytest.raises(FocuseError, match="model 'pykeen:"):
        interaction_model(f"pykeen:{name}")


def test_interaction_class_keeps_its_name() -> None:
    for name in ("pykeen:TransE", "pykeen:TransE:p=2"):
        assert model_name(interaction_model(name)) == name


@pytest.mark.parametrize(("name", "own"), [("CrossE", True), ("TuckER", False), ("Transformer", True)])
def test_recomputed_chunk_draws_the_same_numbers(name: str, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slope along the gradient is the gradient's length, also where comparisons come a few at a time."""
    monkeypatch.setattr(pieces, "CHUNK_NUMBERS_CPU", 40)
    model, random = ready(name), torch.Generator().manual_seed(2)
    head, relation = (torch.randn(6, width, generator=random).double() for width in model.widths(DIM))
    others = torch.randn(*((6, 5) if own else (5,)), model.widths(DIM)[0], generator=random).double()

    def loss(head: torch.Tensor) -> torch.Tensor:
        bound = in_training(model, 7)
        use = bound.score_negatives if own else bound.score_pool
        return use(bound.query(head, relation, "tail"), relation, others, "tail").square().mean()

    head.requires_grad_()
    (slope,) = torch.autograd.grad(loss(head), head)
    size, step = slope.norm(), 1e-6
    ahead, behind = (loss((head + sign * step * slope / size).detach().requires_grad_()) for sign in (1, -1))
    assert (ahead - behind).item() / (2 * step) == pytest.approx(size.item(), rel=1e-4)


def test_running_statistics_change_once_for_recomputed_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "CHUNK_NUMBERS_CPU", 60)
    model, random = ready("ConvE"), torch.Generator().manual_seed(2)
    rows = [torch.randn(6, width, generator=random).double() for width in model.widths(DIM)]
    others = torch.randn(6, 5, model.widths(DIM)[0], generator=random).double()
    bound = in_training(model, 3)
    found = bound.score_negatives(bound.query(rows[0].requires_grad_(), rows[1], "tail"), rows[1], others, "tail")
    seen = {name: value.clone() for name, value in model.parameters.items() if name in model.buffers}
    found.sum().backward()
    assert seen
    assert all(torch.equal(model.parameters[name], value) for name, value in seen.items())


def test_divergences_get_the_nonlinearity_of_distances() -> None:
    for name in ("KG2E", "TransE"):
        assert interaction_model(f"pykeen:{name}").defaults["nonlinearity"] == "shifted-softplus"
    assert "nonlinearity" not in interaction_model("pykeen:DistMult").defaults
