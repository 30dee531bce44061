"""Whether a model of your own keeps what every model promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn, cast

import torch
from torch import Tensor
from torch.autograd import gradcheck

from focuse.errors import FocuseError
from focuse.models.base import Context, Model, Side
from focuse.models.reciprocal import Reciprocal

BATCH, OWN, POOL, ENTITIES, RELATIONS = 5, 4, 7, 6, 3
DIMS = range(8, 65)
SIDES: tuple[Side, Side] = ("tail", "head")


def check_model(kind: type[Model], dim: int | None = None) -> None:
    """Raise a FocuseError that says what is wrong with a model, if something is.

    Its uses (one triple, own others, a pool shared by all) are compared with each other on both sides, its gradients
    with finite differences, and what it says about itself (`turn`, `sided`, `wants`, dense tensors) with what it does.
    All of it is done with random rows of `dim`, by default the first of 8 to 64 that the model can have.

    >>> from focuse.models import ComplEx
    >>> check_model(ComplEx)
    """
    from focuse.models import kind_of, name_of

    kind = kind_of(name_of(kind))
    _run(_trial(kind, dim), (_shapes, _sides, _uses, _turn, _repeats, _gradients, _zeros, _dense, _confidence))


def check_scores(kind: type[Model]) -> None:
    """The quick part of `check_model`: before a training, a model's scores have their shapes, and its uses agree."""
    _run(_trial(kind, None), (_shapes, _sides, _uses))


def _trial(kind: type[Model], dim: int | None) -> Trial:
    try:
        return Trial.of(kind, dim)
    except FocuseError:
        raise
    except Exception as error:
        raise FocuseError(f"{kind.__name__}: no tables can be made for it: {type(error).__name__}: {error}") from error


def _run(trial: Trial, checks: Iterable[Callable[[Trial], None]]) -> None:
    for check in checks:
        try:
            check(trial)
        except FocuseError:
            raise
        except Exception as error:
            what = (check.__doc__ or "").rstrip(".")
            raise FocuseError(f"{trial.name}: {what}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Trial:
    """A model in a small graph, with dense tensors off their first values, and float64 tables.

    `entity` [ENTITIES, d] and `relation` [RELATIONS, r] are `tables` as the model takes them.
    """

    name: str
    model: Model
    dim: int
    tables: tuple[Tensor, Tensor]
    entity: Tensor
    relation: Tensor

    @classmethod
    def of(cls, kind: type[Model], dim: int | None, attributes: int = 2) -> Trial:
        model = Reciprocal(kind()) if kind.one_way or kind.defaults.get("reciprocal") else kind()
        dim = _first_dim(model) if dim is None else dim
        model.check(dim)
        if not model.wants <= {"edges", "numbers"}:
            raise FocuseError(f"{kind.__name__}: wants {set(model.wants)}; there are only 'edges' and 'numbers'")
        model = model.with_context(_context(model, attributes))
        random = torch.Generator().manual_seed(3)
        start = model.dense_start(dim, random)
        for name in {"entity", "relation"} & set(start):
            raise FocuseError(f"{kind.__name__}: a dense tensor is called {name!r}, as a table is; rename it")
        model = model.with_dense({name: 0.7 * value.double() + 0.3 for name, value in start.items()})
        widths = {ENTITIES: model.entity_width(dim), RELATIONS: model.relation_width(dim)}
        entity, relation = (torch.randn(*shape, generator=random, dtype=torch.float64) for shape in widths.items())
        return cls(kind.__name__, model, dim, (entity, relation), *encoded(model, entity, relation))

    def entities(self, *shape: int, seed: int = 0) -> Tensor:
        """Rows of entities drawn by chance: [*shape, d]."""
        return self.entity[torch.randint(ENTITIES, shape, generator=torch.Generator().manual_seed(seed))]

    def relations(self, count: int) -> Tensor:
        """Rows of relations: [count, r]."""
        return self.relation[torch.arange(count) % RELATIONS]

    def fail(self, fault: str) -> NoReturn:
        raise FocuseError(f"{self.name}: {fault}")

    def same(self, found: Tensor, expected: Tensor, fault: str) -> None:
        """Raise where two tensors are not nearly the same."""
        if found.shape != expected.shape:
            self.fail(f"{fault}: shape {tuple(found.shape)} instead of {tuple(expected.shape)}")
        apart = ~torch.isclose(found, expected, rtol=1e-6, atol=1e-8, equal_nan=True)
        if apart.any():
            one, other = found[apart][0].item(), expected[apart][0].item()
            self.fail(f"{fault}: {one:.6g} instead of {other:.6g}")


def encoded(model: Model, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
    """Tables as an engine hands them to a model: with the numbers of entities, and encoded."""
    columns = model.context.columns()
    if columns is not None:
        entity = torch.cat([entity, columns[: len(entity)].to(entity.dtype)], dim=1)
    return model.encode(entity, relation) if model.encodes else (entity, relation)


def _first_dim(model: Model) -> int:
    for dim in DIMS:
        try:
            model.check(dim)
        except FocuseError as error:
            last = error
        else:
            return dim
    raise FocuseError(f"model {model.name!r}: it can have none of the dims {DIMS[0]} to {DIMS[-1]}: {last}")


def _context(model: Model, attributes: int) -> Context:
    random = torch.Generator().manual_seed(5)
    edges = torch.tensor([0, 1, 2, 3, 5, 0]), torch.tensor([0, 1, 1, 2, 0, 1]), torch.tensor([1, 2, 0, 4, 3, 5])
    numbers = torch.randn(ENTITIES, attributes, generator=random, dtype=torch.float64)
    present = torch.rand(ENTITIES, attributes, generator=random) > 0.3
    return Context(
        edges if "edges" in model.wants else None,
        numbers if "numbers" in model.wants else None,
        present if "numbers" in model.wants else None,
    )


def _shapes(trial: Trial) -> None:
    """Its tables and scores have the shape and the kind of number that they should."""
    widths = {"entity": trial.model.entity_width(trial.dim), "relation": trial.model.relation_width(trial.dim)}
    for name, width in widths.items():
        made = trial.model.table_start(name, torch.randn(POOL, width, generator=torch.Generator().manual_seed(0)))
        if made.shape != (POOL, width):
            trial.fail(f"`table_start` makes the {name} table {tuple(made.shape)} instead of {(POOL, width)}")
    for name, value in trial.model.dense_start(trial.dim, torch.Generator().manual_seed(0)).items():
        if not value.dim() or not value.is_floating_point():
            trial.fail(f"the dense tensor {name!r} is {value.dtype} {tuple(value.shape)}; make it floats with an axis")
    head, relation, tail = trial.entities(BATCH), trial.relations(BATCH), trial.entities(BATCH, seed=1)
    for side in SIDES:
        score = trial.model.score(head, relation, tail, side)
        if score.shape != (BATCH,):
            trial.fail(f"`score` of {BATCH} triples has the shape {tuple(score.shape)}, not ({BATCH},)")
        if not score.isfinite().all():
            trial.fail("`score` of random rows is not finite")
        if len(trial.model.query(head, relation, side)) != BATCH:
            trial.fail(f"`query` of {BATCH} rows does not give one query a row")
        small = trial.model.with_dense({name: value.float() for name, value in trial.model.dense.items()})
        single = small.score(head.float(), relation.float(), tail.float(), side)
        if single.dtype != torch.float32:
            trial.fail(f"`score` of float32 rows is {single.dtype}; make no tensor of another dtype in it")


def _sides(trial: Trial) -> None:
    """Asking for the head and asking for the tail give a triple one score, or the model is sided."""
    rows = trial.entities(BATCH), trial.relations(BATCH), trial.entities(BATCH, seed=1)
    if not trial.model.sided:
        of_tail, of_head = (trial.model.score(*rows, side) for side in SIDES)
        trial.same(of_head, of_tail, "asked for the head, a triple has another score (if that is meant: sided = True)")


def _uses(trial: Trial) -> None:
    """The uses agree with single triples."""
    for side in SIDES:
        known, relation, others = trial.entities(BATCH), trial.relations(BATCH), trial.entities(BATCH, OWN, seed=1)
        own = trial.model.own(trial.model.query(known, relation, side), relation, others, side)
        alone = _one_by_one(trial.model, known, relation, others, side)
        trial.same(own, alone, f"`own` on side {side!r} does not score as `score` does")
        for batch in (1, BATCH, POOL):  # as long as the pool too: lengths must not decide what is meant
            known, relation, pool = trial.entities(batch), trial.relations(batch), trial.entities(POOL, seed=2)
            shared = trial.model.shared(trial.model.query(known, relation, side), relation, pool, side)
            alone = _one_by_one(trial.model, known, relation, pool.expand(batch, *pool.shape), side)
            trial.same(shared, alone, f"`shared` on side {side!r} does not score as `score` does")


def _one_by_one(model: Model, known: Tensor, relation: Tensor, others: Tensor, side: Side) -> Tensor:
    """Each triple scored alone: [B, d], [B, r], [B, N, d] -> [B, N]."""
    scores = torch.empty(others.shape[:2], dtype=torch.float64)
    for row in range(len(others)):
        for place in range(others.shape[1]):
            ends = known[row : row + 1], others[row, place : place + 1]
            head, tail = ends if side == "tail" else ends[::-1]
            scores[row, place] = model.score(head, relation[row : row + 1], tail, side)[0]
    return scores


def _turn(trial: Trial) -> None:
    """What `turn` says of the query is what `query` does: the same as a built-in model's of that turn."""
    from focuse.models import MODELS

    model = trial.model
    alike = [kind() for kind in MODELS.values() if kind.turn == model.turn and kind().plain()]
    if not model.plain() or not alike:
        return
    known, relation = trial.entities(BATCH), trial.relations(BATCH)
    for side in SIDES:
        found, expected = (one.query(known, relation, side) for one in (model, alike[0]))
        fault = f"its `query` does not do what turn = {model.turn!r} says, by which fused engines go (turn = 'other'?)"
        trial.same(found, expected, fault)


def _repeats(trial: Trial) -> None:
    """The same step twice gives the same scores."""
    rows = trial.entities(BATCH), trial.relations(BATCH), trial.entities(BATCH, seed=1)
    for model, when in ((trial.model, "ranked twice"), (trial.model.in_training(11), "trained twice with one key")):
        trial.same(model.score(*rows), model.score(*rows), f"{when}, a triple has two scores; draw by `key` alone")


def _gradients(trial: Trial) -> None:
    """Its gradients are those of finite differences."""
    model = trial.model
    head, relation, tail, others = (
        part.clone().requires_grad_()
        for part in (trial.entity[:2], trial.relation[:2], trial.entity[2:4], trial.entity[3:6].expand(2, 3, -1))
    )
    for side in SIDES:
        _differ(
            trial, f"`score` on side {side!r}", lambda h, r, t, s=side: model.score(h, r, t, s), head, relation, tail
        )
        for use, name, rivals in ((model.own, "own", others), (model.shared, "shared", tail)):
            _differ(
                trial, f"`{name}` on side {side!r}",
                lambda k, r, p, s=side, u=use: u(model.query(k, r, s), r, p, s), head, relation, rivals,
            )  # fmt: skip


def _differ(trial: Trial, what: str, scores: Callable[..., Tensor], *rows: Tensor) -> None:
    if not gradcheck(scores, rows, raise_exception=False):
        trial.fail(f"the gradient of {what} is not that of finite differences; is part of it detached, or rounded?")


def _zeros(trial: Trial) -> None:
    """Its gradients are finite where all rows are 0."""
    model, zero = trial.model, torch.zeros
    entity = zero(RELATIONS, model.entity_width(trial.dim), dtype=torch.float64, requires_grad=True)
    relation = zero(RELATIONS, model.relation_width(trial.dim), dtype=torch.float64, requires_grad=True)
    if model.encodes:  # its edges lead to all entities, and what it makes of zeros are no zeros
        entity = zero(ENTITIES, model.entity_width(trial.dim), dtype=torch.float64, requires_grad=True)
    rows, kinds = encoded(model, entity, relation)
    rows = rows[:RELATIONS]
    query = model.query(rows, kinds, "tail")
    total = model.score(rows, kinds, rows).sum() + model.shared(query, kinds, rows, "tail").sum()
    total = total + model.own(query, kinds, rows[:, None], "tail").sum()
    for found in torch.autograd.grad(total, (entity, relation), allow_unused=True):
        if found is not None and not found.isfinite().all():
            trial.fail("rows of zeros have a gradient that is not finite: a root or a norm of 0, or a division by it")


def _dense(trial: Trial) -> None:
    """Every dense tensor bears on what is learnt, with the right gradient, and starts by its generator alone."""
    model = trial.model
    again = [model.dense_start(trial.dim, torch.Generator().manual_seed(3)) for _ in range(2)]
    for name, value in model.dense.items():
        trial.same(again[0][name], again[1][name], f"`dense_start` gives {name!r} two first values; draw by `random`")
        if name in model.kept:
            continue
        leaf = value.clone().requires_grad_()

        def borne(bound: Tensor, name: str = name) -> Tensor:
            made = model.with_dense({**model.dense, name: bound})
            entity, relation = encoded(made, *trial.tables)
            rows = entity[:2], relation[:2], entity[2:4]
            score, extra = made.score(*rows), made.extra(*rows)
            found = [score, *([] if extra is None else [extra.reshape(-1)])]
            found += [made.trained(score)] if made.confident else []
            found += [made.structure(score)] if made.structured else []
            return torch.cat(found)

        if not borne(leaf).requires_grad:
            trial.fail(f"the dense tensor {name!r} bears on no score; take it from self.dense, or leave it out")
        _differ(trial, f"scores by the dense tensor {name!r}", borne, leaf)


def _confidence(trial: Trial) -> None:
    """A confidence lies in [0, 1] and rises with the score."""
    if not trial.model.confident:
        return
    found = trial.model.confidence(torch.linspace(-30, 30, 601))
    if not cast(bool, ((found >= 0) & (found <= 1)).all().item()):
        trial.fail("`confidence` leaves [0, 1]")
    if not cast(bool, (found.diff() >= 0).all().item()):
        trial.fail("`confidence` does not rise with the score")
