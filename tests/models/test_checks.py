"""The check of own models finds what is wrong, and says what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

import focuse
from focuse.errors import FocuseError
from focuse.models import Model, Side
from focuse.models.base import ConfidenceHead, Encoder, FusedForm, Table, TripleModel
from focuse.models.bilinear import ComplEx, DistMult
from focuse.models.checks import check_model, check_scores
from focuse.models.registry import MODELS
from focuse.models.translational import TransE
from focuse.models.uncertain import UkgeLogi

QUICK = ("complex", "transe", "ukge-rect", "literale-distmult")  # the others are slow, and tests/contracts has all


@pytest.mark.parametrize(
    "model",
    [pytest.param(model, id=name, marks=[] if name in QUICK else pytest.mark.slow) for name, model in MODELS.items()],
)
def test_every_built_in_model_passes(model: type[Model]) -> None:
    check_model(model)


@pytest.mark.parametrize("name", MODELS)
def test_fused_form_of_every_built_in_model_is_correct(name: str) -> None:
    check_scores(MODELS[name])


class Whole(TripleModel):
    """What the faulty ones below derive from, and what stays right in every other respect."""

    name = "whole"

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return (head * relation * tail.sin()).sum(-1)


class WithParameters(Whole):
    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"factor": torch.randn(dim, generator=random), "mean": torch.zeros(dim)}

    buffers = frozenset({"mean"})

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return super().triple(head * self.parameters["factor"] + self.parameters["mean"], relation, tail)


class TailOnly(Model):
    """Can only be asked for tails, and so requires inverse relations."""

    name, similarity, requires = "tail-only", "dot", frozenset({"inverse relations"})
    fused = FusedForm()

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        assert side == "tail"
        return (known * relation).tanh()


class Square(Whole):
    def widths(self, dim: int) -> tuple[int, int]:
        if round(dim**0.5) ** 2 != dim:
            raise FocuseError("a square, please")
        return dim, dim


class Sums(Encoder):
    """Every entity is the sum of itself and of those that lead to it, and of its attributes."""

    def encode(self, model: Model, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        assert model.context.edges is not None
        head, _, tail = model.context.edges
        width = relation.shape[1]
        made = entity[:, :width] + model.parameters["slope"] * entity[:, width:].sum(1, keepdim=True)
        return made.index_add(0, tail, made[head]), relation


class Encoded(Whole):
    encoder, requires = Sums(), frozenset({"edges", "attributes"})

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"slope": torch.ones(1)}


@pytest.mark.parametrize("model", [Whole, WithParameters, TailOnly, Square, Encoded], ids=lambda one: one.__name__)
def test_correct_models_pass(model: type[Model]) -> None:
    check_model(model)


class Lopsided(DistMult):
    name = "lopsided"
    fused = None

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation if side == "tail" else known + relation


class Untrue(DistMult):
    name = "untrue"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation * 2


class UntrueSum(TransE):
    name = "untrue-sum"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known + 2 * relation if side == "tail" else known - 2 * relation


class UntrueTurn(ComplEx):
    name = "untrue-turn"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return super().query(known, relation, "head" if side == "tail" else "tail")


class UntrueCandidates(TransE):
    name = "untrue-candidates"
    fused = FusedForm()

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return super().query(known, relation, side) * 2

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return rows * 2


class UntrueEncoder(DistMult):
    name, encoder, requires = "untrue-encoder", Sums(), frozenset({"edges"})

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"slope": torch.ones(1)}


class UntrueSimilarity(Whole):
    fused = FusedForm()


class OtherPool(Whole):
    def score_pool(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return super().score_pool(query, relation, rows, side) + 1


class OtherOwn(Whole):
    def score_negatives(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return super().score_negatives(query, relation, rows.flip(1), side)


class Detached(Whole):
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return super().triple(head, relation.detach(), tail) + super().triple(head, relation, tail)


class Drawn(Whole):
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        noise = 0.0 if self.context.seed is None else torch.randn(())
        return super().triple(head, relation, tail) + noise


class Idle(WithParameters):
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return Whole.triple(self, head, relation, tail)


class Restless(WithParameters):
    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"factor": torch.randn(dim), "mean": torch.zeros(dim)}


class Point(WithParameters):
    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"factor": torch.tensor(1.0), "mean": torch.zeros(dim)}


class Counted(WithParameters):
    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"factor": torch.tensor([1]), "mean": torch.zeros(dim)}


class Cut(Whole):
    def init_table(self, table: Table, values: Tensor) -> Tensor:
        return values[:, 1:] if table == "entity" else values


class Broken(Whole):
    def widths(self, dim: int) -> tuple[int, int]:
        return dim, dim / 1  # type: ignore[return-value]


class Misnamed(Whole):
    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"entity": torch.zeros(dim)}


class Curious(Whole):
    requires = frozenset({"weights"})


class Crossed(Whole):
    """Scores the whole batch by one number."""

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return super().triple(head, relation, tail).sum()


class Doubled(Whole):
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return super().triple(head, relation, tail).double()


class Unlike(Whole):
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return super().triple(head, relation[..., 1:], tail)


class Never(Whole):
    def widths(self, dim: int) -> tuple[int, int]:
        raise FocuseError("no dim suits")


class FallingHead(ConfidenceHead):
    def unclipped(self, score: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        return 1 - torch.sigmoid(score)


class UntrueActivation(UkgeLogi):
    name, confidence_head = "untrue-activation", FallingHead("sigmoid")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Lopsided, r"Lopsided: a triple has another score with its head as the candidate .*inverse relations"),
        (Untrue, r"fused = FusedForm\(query='hadamard'\) does not agree with the model .*: a query is"),
        (UntrueSum, r"fused = FusedForm\(query='translation'\) does not agree with the model"),
        (UntrueTurn, r"fused = FusedForm\(query='complex'\) does not agree with the model"),
        (UntrueCandidates, r"fused = FusedForm\(query=None\) does not agree with the model .*: a score is"),
        (UntrueEncoder, r"does not agree with the model .*: kernels support neither encoders nor"),
        (UntrueActivation, r"the confidence head does not compute the activation 'sigmoid'"),
        (UntrueSimilarity, r"does not agree with the model .*: kernels support the similarities"),
        (OtherPool, r"`score_pool` on side 'tail' differs from `score`: .* instead of"),
        (OtherOwn, r"`score_negatives` on side 'tail' differs from `score`"),
        (Detached, r"the gradient of `score` on side 'tail' differs from finite differences"),
        (Drawn, r"trained twice with one seed, a triple has two scores"),
        (Idle, r"the parameter 'factor' influences no score"),
        (Restless, r"`init_parameters` returns two initial values of 'factor'"),
        (Misnamed, r"a parameter is called 'entity'"),
        (Curious, r"requires \{'weights'\}; choose from edges, attributes"),
        (Crossed, r"`score` of 5 triples has the shape \(\), not \(5,\)"),
        (Doubled, r"`score` of float32 rows is torch.float64"),
        (Unlike, r"Unlike: Tables, parameters and scores .*: RuntimeError: The size of tensor"),
        (Point, r"the parameter 'factor' is torch.float32 \(\); give it a float type and an axis"),
        (Counted, r"the parameter 'factor' is torch.int64 \(1,\); give it a float type and an axis"),
        (Cut, r"`init_table` returns the entity table with the shape \(7, 7\) instead of \(7, 8\)"),
        (Broken, r"Broken: its tables cannot be initialized: TypeError"),
        (Never, r"none of the dims 8 to 64: no dim suits"),
        (int, r"not a subclass of focuse.models.Model"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_faulty_model_is_an_error_of_one_line(model: type[Model], says: str) -> None:
    with pytest.raises(FocuseError, match=says) as error:
        check_model(model)
    assert "\n" not in str(error.value)


def test_check_uses_the_given_dim() -> None:
    with pytest.raises(FocuseError, match="a square, please"):
        check_model(Square, dim=10)
    check_model(Square, dim=4)


def test_training_checks_scores_of_a_custom_model_first(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match=r"NoRows: .*`score` of 5 triples has the shape \(\), not \(5,\)"):
        focuse.train([("a", "r", str(i), i) for i in range(20)], model=NoRows, dim=8, epochs=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class NoRows(TripleModel):
    """One score for all triples."""

    name = "no-rows"

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return (head * relation * tail).sum()
