"""The contract itself: how small it is, what it derives, and the components that models hold."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor

import focuse
from focuse.models import Context, Model, Side
from focuse.models.base import (
    HINTS,
    FusedForm,
    RandomnessUnavailableError,
    default_settings,
    join_inverse_relations,
    score_triples,
    split_inverse_relations,
)
from focuse.models.bilinear import DistMult
from focuse.models.registry import MODELS

SOURCE = Path(focuse.__file__).parent


def test_the_contract_has_at_most_12_fields_and_10_methods() -> None:
    """Private ones count as well: nothing hides behind an underscore."""
    fields = set(Model.__annotations__)
    methods = [name for name, value in vars(Model).items() if inspect.isfunction(value) or isinstance(value, property)]
    assert len(fields) <= 12, fields
    assert len(methods) <= 10, methods
    assert Model.__abstractmethods__ == {"query"}


def test_no_code_inspects_overridden_methods_or_makes_subclasses_of_a_model() -> None:
    for path in (*(SOURCE / "engines").rglob("*.py"), *(SOURCE / "models").rglob("*.py"), SOURCE / "config.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Attribute) and node.attr in ("__mro__", "__class__")), path
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute):
                assert ast.unparse(node.comparators[0]).partition(".")[0] != "Model", path


@pytest.mark.parametrize("name", MODELS)
def test_defaults_are_settings_or_hints(name: str) -> None:
    focuse.config.Config.from_kwargs(model=name)
    assert set(MODELS[name].defaults) - set(default_settings(MODELS[name])) <= HINTS


class Own(Model):
    """A model of one's own in the fewest lines."""

    name, similarity, fused = "own", "dot", FusedForm(query="hadamard")

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation


def test_custom_model_is_computed_by_the_fused_engine(small: focuse.Graph) -> None:
    asked = {"dim": 8, "epochs": 2, "label_exponent": 1.0, "progress": False}
    own = focuse.train(small, model=Own, engine="native", **asked)
    built_in = focuse.train(small, model="distmult", engine="native", **asked)
    assert torch.equal(own.scorer.tables["entity"], built_in.scorer.tables["entity"])


def test_bind_returns_a_copy_and_keeps_other_fields() -> None:
    model, context = DistMult(), Context(evaluation=True)
    parameters = {"scale": torch.tensor([2.0, 1.0])}
    bound = model.bind(parameters).bind(context=context)
    assert bound.parameters is parameters
    assert bound.context is context
    assert model.parameters == {}
    assert model.context == Context()


def test_scale_maps_similarities_to_scores() -> None:
    model, rows = DistMult().bind({"scale": torch.tensor([2.0, 1.0])}), torch.ones(2, 3)
    query = model.query(rows, rows, "tail")
    assert score_triples(model, rows, rows, rows).tolist() == [7.0, 7.0]
    assert model.score_pool(query, rows, rows, "tail").tolist() == [[7.0, 7.0], [7.0, 7.0]]
    assert model.score_negatives(query, rows, rows[:, None], "tail").tolist() == [[7.0], [7.0]]


def test_context_without_a_seed_cannot_draw() -> None:
    assert Context().seed is None
    assert Context().in_training(3).seed == 3
    with pytest.raises(RandomnessUnavailableError):
        _ = Context().in_training(None).seed
    assert Context(evaluation=True).in_training(3).seed is None


def test_missing_attributes_are_zero_and_marked() -> None:
    context = Context(None, torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]]))
    assert context.attribute_columns().tolist() == [[1.0, 0.0, 1.0, 0.0]]
    assert Context().attribute_columns() is None


def test_rows_of_a_relation_and_its_inverse_are_split_and_joined() -> None:
    table = torch.arange(12.0).reshape(2, 6)
    split = split_inverse_relations(table)
    assert split.tolist() == [[0, 1, 2], [6, 7, 8], [3, 4, 5], [9, 10, 11]]
    assert torch.equal(join_inverse_relations(split), table)
