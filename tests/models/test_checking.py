"""The check of own models finds what is wrong, and says what."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

import focuse
from focuse.errors import FocuseError
from focuse.models import MODELS, ComplEx, DistMult, Model, Side, TransE, TripleModel, UkgeLogi, check_model
from focuse.models.base import Form

QUICK = ("complex", "transe", "ukge-rect", "literale-distmult")  # the others are slow, and tests/contracts has all


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=name, marks=[] if name in QUICK else pytest.mark.slow) for name, kind in MODELS.items()],
)
def test_every_built_in_model_passes(kind: type[Model]) -> None:
    check_model(kind)


class Whole(TripleModel):
    """What the faulty ones below derive from, and what stays right in every other respect."""

    name = "whole"

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return (head * relation * tail.sin()).sum(-1)


class WithDense(Whole):
    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"scale": torch.randn(dim, generator=random), "mean": torch.zeros(dim)}

    kept = frozenset({"mean"})

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return super().triple(head * self.dense["scale"] + self.dense["mean"], relation, tail)


class OneWay(Model):
    """Knows only tails, and so needs reciprocal relations."""

    name, form, defaults = "one-way", "dot", {"reciprocal": True}

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        assert side == "tail"
        return (known * relation).tanh()


class Square(Whole):
    def check(self, dim: int) -> None:
        if round(dim**0.5) ** 2 != dim:
            raise FocuseError("a square, please")


class Encoder(Whole):
    """Every entity as the mean of itself and of those that it leads to; by edges and numbers."""

    encodes, wants = True, frozenset({"edges", "numbers"})

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"slope": torch.ones(1)}

    def encode(self, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        assert self.context.edges is not None
        head, _, tail = self.context.edges
        width = relation.shape[1]
        made = entity[:, :width] + self.dense["slope"] * entity[:, width:].sum(1, keepdim=True)
        return made.index_add(0, tail, made[head]), relation


@pytest.mark.parametrize("kind", [Whole, WithDense, OneWay, Square, Encoder], ids=lambda kind: kind.__name__)
def test_right_ones_of_many_kinds_pass(kind: type[Model]) -> None:
    check_model(kind)


class Lopsided(DistMult):
    name = "lopsided"
    turn = "other"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation if side == "tail" else known + relation


class Untrue(DistMult):
    name = "untrue"
    turn = "product"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation * 2


class UntrueSum(TransE):
    name = "untrue-sum"
    turn = "sum"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known + 2 * relation if side == "tail" else known - 2 * relation


class UntrueTurn(ComplEx):
    name = "untrue-turn"
    turn = "complex"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return super().query(known, relation, "head" if side == "tail" else "tail")


class OtherPool(Whole):
    def shared(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return super().shared(query, relation, rows, side) + 1


class OtherOwn(Whole):
    def own(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return super().own(query, relation, rows.flip(1), side)


class Detached(Whole):
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return super().triple(head, relation.detach(), tail) + super().triple(head, relation, tail)


class Root(Whole):
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return -(head + relation - tail).square().sum(-1).sqrt()


class Drawn(Whole):
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        noise = 0.0 if self.key is None else torch.randn(())
        return super().triple(head, relation, tail) + noise


class Idle(WithDense):
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return Whole.triple(self, head, relation, tail)


class Restless(WithDense):
    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"scale": torch.randn(dim), "mean": torch.zeros(dim)}


class Point(WithDense):
    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"scale": torch.tensor(1.0), "mean": torch.zeros(dim)}


class Counted(WithDense):
    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"scale": torch.tensor([1]), "mean": torch.zeros(dim)}


class Cut(Whole):
    def table_start(self, table: str, values: Tensor) -> Tensor:
        return values[:, 1:] if table == "entity" else values


class Broken(Whole):
    def relation_width(self, dim: int) -> int:
        return dim / 1  # type: ignore[return-value]


class Misnamed(Whole):
    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return {"entity": torch.zeros(dim)}


class Curious(Whole):
    wants = frozenset({"weights"})


class Crossed(Whole):
    """Scores the whole batch by one number."""

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return super().triple(head, relation, tail).sum()


class Doubled(Whole):
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return super().triple(head, relation, tail).double()


class Unlike(Whole):
    form: ClassVar[Form] = "other"

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return super().triple(head, relation[..., 1:], tail)


class Never(Whole):
    def check(self, dim: int) -> None:
        raise FocuseError("no dim suits")


class Falling(UkgeLogi):
    name = "falling"

    def confidence(self, score: Tensor) -> Tensor:
        return 1 - super().confidence(score)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Lopsided, r"Lopsided: asked for the head, a triple has another score .*sided = True"),
        (Untrue, r"does not do what turn = 'product' says"),
        (UntrueSum, r"does not do what turn = 'sum' says"),
        (UntrueTurn, r"does not do what turn = 'complex' says"),
        (OtherPool, r"`shared` on side 'tail' does not score as `score` does: .* instead of"),
        (OtherOwn, r"`own` on side 'tail' does not score as `score` does"),
        (Detached, r"the gradient of `score` on side 'tail' is not that of finite differences"),
        (Root, r"rows of zeros have a gradient that is not finite"),
        (Drawn, r"trained twice with one key, a triple has two scores"),
        (Idle, r"the dense tensor 'scale' bears on no score"),
        (Restless, r"`dense_start` gives 'scale' two first values"),
        (Misnamed, r"a dense tensor is called 'entity'"),
        (Curious, r"wants \{'weights'\}; there are only 'edges' and 'numbers'"),
        (Crossed, r"`score` of 5 triples has the shape \(\), not \(5,\)"),
        (Doubled, r"`score` of float32 rows is torch.float64"),
        (Unlike, r"Unlike: Its tables and scores .*: RuntimeError: The size of tensor"),
        (Point, r"the dense tensor 'scale' is torch.float32 \(\); make it floats with an axis"),
        (Counted, r"the dense tensor 'scale' is torch.int64 \(1,\); make it floats with an axis"),
        (Cut, r"`table_start` makes the entity table \(7, 7\) instead of \(7, 8\)"),
        (Broken, r"Broken: no tables can be made for it: TypeError"),
        (Never, r"none of the dims 8 to 64: no dim suits"),
        (Falling, r"`confidence` does not rise with the score"),
        (int, r"no subclass of focuse.models.Model"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_wrong_is_said_in_one_line(kind: type[Model], says: str) -> None:
    with pytest.raises(FocuseError, match=says) as error:
        check_model(kind)
    assert "\n" not in str(error.value)


def test_a_dim_can_be_asked_for() -> None:
    with pytest.raises(FocuseError, match="a square, please"):
        check_model(Square, dim=10)
    check_model(Square, dim=4)


def test_a_training_looks_at_an_own_models_scores_first(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match=r"NoRows: .*`score` of 5 triples has the shape \(\), not \(5,\)"):
        focuse.train([("a", "r", str(i), i) for i in range(20)], model=NoRows, dim=8, epochs=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class NoRows(TripleModel):
    """One score for all triples."""

    name = "no-rows"

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return (head * relation * tail).sum()
