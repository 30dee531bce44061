"""Attributes of entities in training: models, files of a run, and their effect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import focuse
from focuse.config import Config
from focuse.data.splits import split
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step
from focuse.engines.optimizers import make_optimizer
from focuse.errors import FocuseError
from focuse.models.literals import regress_attributes
from focuse.models.registry import MODELS
from focuse.objective.losses import FocusedLoss, make_loss
from focuse.objective.negatives import Batch, Negatives
from focuse.storage.tensors import read_tensors, write_arrays, write_tensors
from focuse.training.callbacks import Reporter
from focuse.training.preparation import with_node_attributes
from focuse.training.problem import build_model, init_tables

NAMES = [name for name, kind in MODELS.items() if "attributes" in kind.requires]
QUICK = {
    "dim": 4,
    "epochs": 2,
    "eval_every": 1,
    "eval_start": 0,
    "batch_size": 64,
    "weight_mode": "none",
    "progress": False,
}
Rows = list[tuple[str, str, float | None]]


@pytest.fixture(scope="module")
def numbers(small) -> Rows:
    """Two attributes of conftest's small graph, a third of the values missing."""
    draw = np.random.default_rng(1)
    every = [(name, attribute, float(draw.normal())) for name in small.entities for attribute in ("x", "y")]
    return [row for row in every if draw.random() < 0.67]


def train(graph, name: str, numbers: Rows, **more) -> focuse.Run:
    return focuse.train(graph, model=name, node_attributes=numbers, **{**QUICK, **more})


def same(one: focuse.Run, other: focuse.Run) -> bool:
    mine, theirs = one.scorer.tables, other.scorer.tables
    return set(mine) == set(theirs) and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("name", NAMES)
class TestEveryModel:
    @pytest.mark.parametrize(
        "settings",
        [
            {"weight_mode": "focuse", "negative_sampling": "per-triple", "num_negatives": 3, "reciprocal": True},
            {
                "weight_mode": "focuse",
                "negative_sampling": "shared",
                "num_negatives": 8,
                "regularizer": "n3:1e-2",
                "regularizer_scope": "rows",
            },
            {"weight_mode": "soft-labels", "label_exponent": 1.0, "negative_sampling": "all", "reciprocal": True},
            {
                "weight_mode": "soft-labels",
                "label_exponent": 2.0,
                "negative_sampling": "per-triple",
                "num_negatives": 3,
                "optimizer": "adam",
                "lr": 0.05,
            },
        ],
        ids=["focuse-per-triple", "focuse-shared", "soft-labels-all", "soft-labels-adam"],
    )
    def test_every_attribute_model_trains_with_focus_and_every_sampling(self, small, numbers, name, settings):
        run = train(small, name, numbers, **settings)
        assert all(np.isfinite(row["loss"]) for row in run.history)
        if run.settings.weight_mode == "soft-labels":  # the paper's loss changes with β
            assert run.history[-1]["loss"] < run.history[0]["loss"]
        start = init_tables(run.settings, build_model(run.settings, run.splits), len(small.entities), 3)
        for table, value in run.scorer.tables.items():
            assert torch.equal(value, start[table]) == (table in MODELS[name].buffers), table

    def test_loaded_run_predicts_without_the_attribute_file(self, small, numbers, name, tmp_path):
        path = tmp_path / "numbers.tsv"
        path.write_text("".join(f"{entity}\t{attribute}\t{value!r}\n" for entity, attribute, value in numbers))
        run = train(small, name, path, out=tmp_path / "run")
        path.unlink()
        loaded = focuse.load(tmp_path / "run", device="cpu")
        assert same(run, loaded)
        assert loaded.splits.attributes.names == ("x", "y")
        np.testing.assert_array_equal(loaded.splits.attributes.values, run.splits.attributes.values)
        assert loaded.evaluate().all == run.evaluate().all
        if name == "kblrn":
            asked = {"head": small.entities[0], "relation": small.relations[0]}
            assert loaded.predict(**asked) == run.predict(**asked)

    def test_resumed_run_has_identical_tables(self, small, numbers, name, tmp_path):
        whole = train(small, name, numbers, epochs=3)
        train(small, name, numbers, epochs=1, out=tmp_path / "run")
        assert same(whole, focuse.resume(tmp_path / "run", epochs=3, progress=False))

    def test_missing_attributes_are_an_error_before_the_graph_is_read(self, name):
        with pytest.raises(FocuseError, match=f"model '{name}' needs node_attributes: give a file"):
            focuse.train("nowhere.tsv", model=name)


def test_old_names_of_parameters_are_loaded(small, numbers, tmp_path):
    run = train(small, "kblrn", numbers, out=tmp_path / "run")
    for file in ("model.safetensors", "checkpoint.safetensors"):
        tensors, metadata = read_tensors(tmp_path / "run" / file, "cpu")
        renamed = {name.replace("centers", "centres"): value for name, value in tensors.items()}
        assert renamed.keys() != tensors.keys()
        write_tensors(tmp_path / "run" / file, renamed, metadata)
    assert same(run, focuse.load(tmp_path / "run", device="cpu"))
    assert len(focuse.resume(tmp_path / "run", epochs=4, progress=False).history) == 4


def test_attributes_for_a_plain_model_suggest_models_that_use_them(small, numbers):
    with pytest.raises(FocuseError, match="model 'complex' does not use node attributes; train one of") as error:
        focuse.train("nowhere.tsv", node_attributes=numbers)
    assert all(name in str(error.value) for name in NAMES)


def test_notes_state_the_attributes_read_and_left_out(small, numbers, listen):
    heard = listen()
    train(small, "transea", [*numbers, ("nobody", "x", 1.0), ("e0", "z", None)], epochs=1, progress=heard)
    assert any("entities is not in the graph and left out: 'nobody'" in note for note in heard.notes)
    assert any("no entity of the graph has 'z'" in note for note in heard.notes)
    assert any("2 attributes (x, y) of" in note for note in heard.notes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model": "transea", "attribute_loss_weight": 1.0},
            "attribute_loss_weight 1: give a number of at least 0 and below 1",
        ),
        ({"model": "transea", "attribute_loss_weight": -0.1}, "give a number"),
        ({"model": "transea", "attribute_loss_weight": float("nan")}, "give a number"),
        (
            {"model": "kblrn", "attribute_loss_weight": 0.5},
            "attribute_loss_weight requires model 'transea', not 'kblrn'",
        ),
    ],
)
def test_attribute_share_is_only_for_models_with_an_auxiliary_loss(settings, message):
    with pytest.raises(FocuseError, match=message):
        Config.from_kwargs(**settings)
    assert Config.from_kwargs(model="transea").attribute_loss_weight == 0.3
    assert Config.from_kwargs(model="transea", attribute_loss_weight=0.6).attribute_loss_weight == 0.6


def test_attribute_share_changes_the_result(small, numbers):
    one, other = (train(small, "transea", numbers, attribute_loss_weight=share) for share in (0.1, 0.8))
    assert not same(one, other)
    assert same(other, train(small, "transea", numbers, attribute_loss_weight=0.8))


@pytest.mark.parametrize("damage", ["gone", "cut", "other entities"])
def test_damaged_attribute_file_of_a_run_is_reported(small, numbers, tmp_path, damage):
    train(small, "transea", numbers, epochs=1, out=tmp_path / "run")
    path = tmp_path / "run" / "node_attributes.safetensors"
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-8])
    else:
        splits = with_node_attributes(split(focuse.read([("e0", "r", "e1")]), 0, 0), numbers, Reporter())
        write_arrays(path, splits.attributes.arrays())
    with pytest.raises(FocuseError, match=r"node_attributes\.safetensors: damaged file"):
        focuse.load(tmp_path / "run")


@pytest.mark.parametrize("name", NAMES)
def test_row_gradients_equal_those_of_the_whole_table(small, numbers, name):
    """A step that encodes and joins numbers to the rows it touches gives those the gradient of a step over all."""
    splits = with_node_attributes(split(small), numbers, Reporter())
    settings = Config.from_kwargs(model=name, dim=4, device="cpu", engine="torch")
    model = build_model(settings, splits)
    draw = torch.Generator().manual_seed(2)
    head, relation, tail = (torch.randint(size, (5,), generator=draw) for size in (40, 3, 40))
    batch = Batch(head, relation, tail, torch.rand(5, generator=draw))
    corruptions = [Negatives("both", torch.randint(40, (5, 3), generator=draw), torch.rand(5, 3, generator=draw) > 0.5)]
    moved = []
    for rule in ("adagrad", "sparse-adagrad"):
        tables = init_tables(settings, model, 40, 3)
        engine = AutogradEngine(model, tables, make_optimizer(rule, tables, 0.1))
        engine.step(Step(batch, corruptions, FocusedLoss(make_loss("multiclass-nll"), None), 1.0))
        moved.append(engine.tables)
    for key in moved[0]:
        torch.testing.assert_close(moved[0][key], moved[1][key], rtol=1e-4, atol=1e-5)


# ---- numbers that carry the signal ----------------------------------------------------------------------------------


def near(shift: float, entities: int = 250, seed: int = 0) -> tuple[list[tuple[str, str, str, float]], Rows]:
    """A sparse graph in which h is linked to t only if t's number lies within 0.05 of h's plus `shift`."""
    draw = np.random.default_rng(seed)
    x = draw.uniform(-1, 1, size=entities)
    edges = []
    for h in range(entities):
        found = np.flatnonzero(np.abs(x - x[h] - shift) < 0.05)
        found = draw.permutation(found[found != h])[:2]
        edges += [(f"e{h}", "r", f"e{t}", float(draw.random())) for t in found]
    return edges, [(f"e{place}", "x", float(value)) for place, value in enumerate(x)]


def dealt(numbers: Rows, seed: int = 1) -> Rows:
    """The same numbers, each at another entity."""
    values = np.random.default_rng(seed).permutation([value for *_, value in numbers])
    return [(entity, name, float(value)) for (entity, name, _), value in zip(numbers, values, strict=True)]


SIGNAL = {
    "dim": 16, "epochs": 12, "eval_every": 6, "eval_start": 0, "negative_sampling": "all", "batch_size": 64,
    "valid_min_weight": 0.0, "regularizer": "l3:1e-1", "valid_fraction": 0.15, "test_fraction": 0.2, "progress": False,
}  # fmt: skip
FOCUSED: dict[str, Callable[..., dict]] = {"none": dict, "focuse": dict, "soft-labels": lambda: {"label_exponent": 1.0}}


@pytest.mark.parametrize(
    ("name", "twin", "shift", "weight_mode"),
    [
        ("kblrn", "distmult", 0.6, "none"),
        ("kblrn", "distmult", 0.0, "focuse"),
        ("literale-distmult", "distmult", 0.0, "soft-labels"),
        ("literale-complex", "complex", 0.0, "none"),
        ("transea", "transe", 0.6, "none"),
    ],
)
def test_informative_attributes_improve_ranks_and_shuffled_ones_do_not(name, twin, shift, weight_mode):
    """Mean ranks: with numbers far better than without, and dealt out anew they lose most of that."""
    edges, numbers = near(shift)
    settings = {**SIGNAL, "weight_mode": weight_mode, **FOCUSED[weight_mode]()}
    if name == "transea":
        settings |= {"lr": 0.03, "epochs": 20}
    own = {"attribute_loss_weight": 0.7} if name == "transea" else {}
    without = focuse.train(edges, model=twin, **settings).evaluate().all.mr
    found, lost = (
        focuse.train(edges, model=name, node_attributes=given, **own, **settings).evaluate().all.mr
        for given in (numbers, dealt(numbers))
    )
    assert found < 0.85 * without
    assert without - lost < 0.5 * (without - found)


def test_transea_predicts_held_out_attributes():
    """Held-out values are regressed from embeddings with less error than their mean has."""
    edges, numbers = near(0.0, entities=150)
    hidden = {entity for entity, *_ in numbers[::5]}
    shown = [row for row in numbers if row[0] not in hidden]
    run = focuse.train(
        edges, model="transea", node_attributes=shown, **{**SIGNAL, "weight_mode": "none", "lr": 0.02, "epochs": 40}
    )
    names, scale = list(run.graph.entities), run.splits.attributes
    predicted = regress_attributes(run.scorer.model, run.scorer.encoded_tables()["entity"])
    told = (predicted.numpy() * scale.deviation + scale.mean)[:, 0]
    truth = {entity: value for entity, _, value in numbers}
    held = [place for place, entity in enumerate(names) if entity in hidden]
    errors = [(told[place] - truth[names[place]]) ** 2 for place in held]
    around_mean = [(scale.mean[0] - truth[names[place]]) ** 2 for place in held]
    assert np.mean(errors) < 0.7 * np.mean(around_mean)
