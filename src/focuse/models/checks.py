"""Checks whether a model of one's own keeps the promises of the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn, get_args

import torch
from torch import Tensor
from torch.autograd import gradcheck

from focuse.errors import FocuseError
from focuse.models.base import ACTIVATIONS, Context, FusedForm, Model, Requirement, Side, Table, scaled, score_triples

BATCH, NEGATIVES, POOL, ENTITIES, RELATIONS = 5, 4, 7, 6, 3
DIMS = range(8, 65)
TABLES: tuple[Table, Table] = ("entity", "relation")


def check_model(model: type[Model], dim: int | None = None) -> None:
    """Raise a FocuseError that says what is wrong with a model, if something is.

    Scores of single triples, of per-triple negatives and of a shared pool are compared with each other on both sides,
    gradients with finite differences, and declared fields (`fused`, `requires`, `parameters`) with what the model
    computes. All of it is done with random rows of `dim`, by default the first of 8 to 64 that the model can have.

    >>> from focuse.models.bilinear import ComplEx
    >>> check_model(ComplEx)
    """
    from focuse.models.registry import model_class, model_name

    checks = (_shapes, _sides, _uses, _fused, _initial_rows, _repeats, _gradients, _zeros, _parameters, _confidence)
    _run(_trial(model_class(model_name(model)), dim), checks)


def check_scores(model: type[Model]) -> None:
    """The quick part of `check_model`, done before every training of a model that is not built in."""
    _run(_trial(model, None), (_shapes, _sides, _uses, _fused))


def _trial(model: type[Model], dim: int | None) -> Trial:
    try:
        return Trial.of(model, dim)
    except FocuseError:
        raise
    except Exception as error:
        raise FocuseError(f"{model.__name__}: its tables cannot be made: {type(error).__name__}: {error}") from error


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
    """A model in a small graph, with parameters off their initial values, and float64 tables.

    `entity` [ENTITIES, d] and `relation` [RELATIONS, r] are `tables` as the model takes them. `sides` are those that
    the model can be asked for.
    """

    name: str
    model: Model
    dim: int
    tables: tuple[Tensor, Tensor]
    entity: Tensor
    relation: Tensor
    sides: tuple[Side, ...]

    @classmethod
    def of(cls, model_class: type[Model], dim: int | None, attributes: int = 2) -> Trial:
        name, model = model_class.__name__, model_class()
        unknown = model.requires - set(get_args(Requirement))
        if unknown:
            raise FocuseError(f"{name}: requires {set(unknown)}; possible are {', '.join(get_args(Requirement))}")
        model = model.bind(context=_context(model, attributes))
        dim = _first_dim(model) if dim is None else dim
        widths = model.widths(dim)
        random = torch.Generator().manual_seed(3)
        start = model.init_parameters(dim, random)
        for table in {"entity", "relation"} & set(start):
            raise FocuseError(f"{name}: a parameter is called {table!r}, as a table is; rename it")
        model = model.bind({name: 0.7 * value.double() + 0.3 for name, value in start.items()})
        entity, relation = (
            torch.randn(rows, width, generator=random, dtype=torch.float64)
            for rows, width in zip((ENTITIES, RELATIONS), widths, strict=True)
        )
        sides: tuple[Side, ...] = ("tail",) if "inverse relations" in model.requires else ("tail", "head")
        return cls(name, model, dim, (entity, relation), *encoded(model, entity, relation), sides)

    def entities(self, *shape: int, seed: int = 0) -> Tensor:
        """Rows of random entities: [*shape, d]."""
        return self.entity[torch.randint(ENTITIES, shape, generator=torch.Generator().manual_seed(seed))]

    def relations(self, count: int) -> Tensor:
        """Rows of relations: [count, r]."""
        return self.relation[torch.arange(count) % RELATIONS]

    def triples(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of heads, relations and tails of BATCH triples."""
        return self.entities(BATCH), self.relations(BATCH), self.entities(BATCH, seed=1)

    def fail(self, fault: str) -> NoReturn:
        raise FocuseError(f"{self.name}: {fault}")

    def same(self, found: Tensor, expected: Tensor, fault: str) -> None:
        """Raise unless two tensors are nearly equal."""
        if found.shape != expected.shape:
            self.fail(f"{fault}: shape {tuple(found.shape)} instead of {tuple(expected.shape)}")
        different = ~torch.isclose(found, expected, rtol=1e-6, atol=1e-8, equal_nan=True)
        if different.any():
            one, other = found[different][0].item(), expected[different][0].item()
            self.fail(f"{fault}: {one:.6g} instead of {other:.6g}")


def encoded(model: Model, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
    """Tables as an engine gives them to a model: with the attributes of entities, and encoded."""
    columns = model.context.attribute_columns()
    if columns is not None:
        entity = torch.cat([entity, columns[: len(entity)].to(entity.dtype)], dim=1)
    return (entity, relation) if model.encoder is None else model.encoder.encode(model, entity, relation)


def _first_dim(model: Model) -> int:
    for dim in DIMS:
        try:
            model.widths(dim)
        except FocuseError as error:
            last = error
        else:
            return dim
    raise FocuseError(f"model {model.name!r}: it can have none of the dims {DIMS[0]} to {DIMS[-1]}: {last}")


def _context(model: Model, attributes: int) -> Context:
    random = torch.Generator().manual_seed(5)
    edges = torch.tensor([0, 1, 2, 3, 5, 0]), torch.tensor([0, 1, 1, 2, 0, 1]), torch.tensor([1, 2, 0, 4, 3, 5])
    values = torch.randn(ENTITIES, attributes, generator=random, dtype=torch.float64)
    present = torch.rand(ENTITIES, attributes, generator=random) > 0.3
    return Context(
        edges if "edges" in model.requires else None,
        values if "attributes" in model.requires else None,
        present if "attributes" in model.requires else None,
    )


def _shapes(trial: Trial) -> None:
    """Tables, parameters and scores have the right shape and dtype."""
    model = trial.model
    for name, width in zip(TABLES, model.widths(trial.dim), strict=True):
        table = model.init_table(name, torch.randn(POOL, width, generator=torch.Generator().manual_seed(0)))
        if table.shape != (POOL, width):
            trial.fail(f"`init_table` makes the {name} table {tuple(table.shape)} instead of {(POOL, width)}")
    for parameter, value in model.init_parameters(trial.dim, torch.Generator().manual_seed(0)).items():
        if not value.dim() or not value.is_floating_point():
            trial.fail(
                f"the parameter {parameter!r} is {value.dtype} {tuple(value.shape)}; make it floats with an axis"
            )
    head, relation, tail = trial.triples()
    for side in trial.sides:
        if len(model.query(head, relation, side)) != BATCH:
            trial.fail(f"`query` of {BATCH} rows does not give one query per row")
        score = score_triples(model, head, relation, tail, side)
        if score.shape != (BATCH,):
            trial.fail(f"`score` of {BATCH} triples has the shape {tuple(score.shape)}, not ({BATCH},)")
        if not score.isfinite().all():
            trial.fail("`score` of random rows is not finite")
        small = model.bind({name: value.float() for name, value in model.parameters.items()})
        single = score_triples(small, head.float(), relation.float(), tail.float(), side)
        if single.dtype != torch.float32:
            trial.fail(f"`score` of float32 rows is {single.dtype}; make no tensor of another dtype in it")


def _sides(trial: Trial) -> None:
    """A triple has the same score as an answer for the head and for the tail."""
    if len(trial.sides) == 2:
        of_tail, of_head = (score_triples(trial.model, *trial.triples(), side) for side in trial.sides)
        advice = 'if that is meant: requires = frozenset({"inverse relations"})'
        trial.same(of_head, of_tail, f"as an answer for the head, a triple has another score ({advice})")


def _uses(trial: Trial) -> None:
    """Scores of negatives and of a pool are those of single triples."""
    model = trial.model
    for side in trial.sides:
        known, relation = trial.entities(BATCH), trial.relations(BATCH)
        others = trial.entities(BATCH, NEGATIVES, seed=1)
        found = model.score_negatives(model.query(known, relation, side), relation, others, side)
        alone = _run_eagerly(model, known, relation, others, side)
        trial.same(found, alone, f"`score_negatives` on side {side!r} differs from `score`")
        for batch in (1, BATCH, POOL):  # as long as the pool too: lengths must not decide what is meant
            known, relation, pool = trial.entities(batch), trial.relations(batch), trial.entities(POOL, seed=2)
            found = model.score_pool(model.query(known, relation, side), relation, pool, side)
            alone = _run_eagerly(model, known, relation, pool.expand(batch, *pool.shape), side)
            trial.same(found, alone, f"`score_pool` on side {side!r} differs from `score`")


def _run_eagerly(model: Model, known: Tensor, relation: Tensor, others: Tensor, side: Side) -> Tensor:
    """Each triple scored alone: [B, d], [B, r], [B, N, d] -> [B, N]."""
    scores = torch.empty(others.shape[:2], dtype=torch.float64)
    for row in range(len(others)):
        for place in range(others.shape[1]):
            ends = known[row : row + 1], others[row, place : place + 1]
            head, tail = ends if side == "tail" else ends[::-1]
            scores[row, place] = score_triples(model, head, relation[row : row + 1], tail, side)[0]
    return scores


def _fused(trial: Trial) -> None:
    """The declared fused form is what the model computes."""
    model, head = trial.model, trial.model.confidence_head
    if head is not None and head.activation in ACTIVATIONS:
        scores = torch.linspace(-3, 3, 13, dtype=torch.float64)
        expected = ACTIVATIONS[head.activation](scores)
        fault = f"activation {head.activation!r} is not what the confidence head computes (call it otherwise)"
        trial.same(head.unclipped(scores, model.parameters), expected, fault)
    if model.fused is None:
        return
    lie = f"fused = {model.fused} is not what the model computes (fused = None?)"
    if model.encoder is not None or model.auxiliary_loss is not None or "attributes" in model.requires:
        trial.fail(f"{lie}: kernels know neither encoders nor auxiliary losses nor attributes")
    if model.similarity is None:
        trial.fail(f"{lie}: kernels know the similarities 'dot', 'l1' and 'l2' only")
    first, relation, last = trial.triples()
    for side in trial.sides:
        known, other = (first, last) if side == "tail" else (last, first)
        query = model.query(known, relation, side)
        if query.shape[-1] != other.shape[-1]:
            trial.fail(f"{lie}: queries have {query.shape[-1]} numbers, rows of entities {other.shape[-1]}")
        if model.fused.query is not None:
            trial.same(query, fused_query(model.fused, known, relation, side), f"{lie}: a query is")
        plain = scaled(model, Model.similarity_of(model, query, other, side))
        trial.same(score_triples(model, *trial.triples(), side), plain, f"{lie}: a score is")


def fused_query(form: FusedForm, known: Tensor, relation: Tensor, side: Side) -> Tensor:
    """The query that kernels compute for a form: [B, d], [B, d] -> [B, d]."""
    if form.query == "hadamard":
        return known * relation
    if form.query == "translation":
        return known + relation if side == "tail" else known - relation
    numbers, rotation = (torch.complex(*part.chunk(2, -1)) for part in (known, relation))
    product = numbers * (rotation if side == "tail" else rotation.conj())
    return torch.cat([product.real, product.imag], dim=-1)


def _initial_rows(trial: Trial) -> None:
    """Initial rows do not depend on each other, unless the model requires the whole table."""
    if "whole table" in trial.model.requires:
        return
    width = trial.model.widths(trial.dim)[0]
    values = torch.randn(POOL, width, generator=torch.Generator().manual_seed(0))
    whole, some = (trial.model.init_table("entity", part.clone()) for part in (values, values[:2]))
    advice = 'requires = frozenset({"whole table"})'
    trial.same(whole[:2], some, f"initial rows of entities depend on the other rows ({advice})")


def _repeats(trial: Trial) -> None:
    """The same step twice gives the same scores."""
    rows, model = trial.triples(), trial.model
    trained = model.bind(context=model.context.in_training(11))
    for one, when in ((model, "ranked twice"), (trained, "trained twice with one seed")):
        first, second = (score_triples(one.bind(), *rows) for _ in range(2))
        trial.same(first, second, f"{when}, a triple has two scores; draw by self.context.seed alone")


def _gradients(trial: Trial) -> None:
    """Gradients are those of finite differences."""
    model = trial.model
    head, relation, tail, others = (
        part.clone().requires_grad_()
        for part in (trial.entity[:2], trial.relation[:2], trial.entity[2:4], trial.entity[3:6].expand(2, 3, -1))
    )
    uses = {"score": (model.score, tail), "score_negatives": (model.score_negatives, others)}
    uses["score_pool"] = (model.score_pool, tail)
    for side in trial.sides:
        for name, (use, rows) in uses.items():
            _check_gradient(
                trial, f"`{name}` on side {side!r}",
                lambda k, r, p, s=side, u=use: u(model.query(k, r, s), r, p, s), head, relation, rows,
            )  # fmt: skip


def _check_gradient(trial: Trial, what: str, scores: Callable[..., Tensor], *rows: Tensor) -> None:
    if not gradcheck(scores, rows, raise_exception=False):
        trial.fail(f"the gradient of {what} is not that of finite differences; is part of it detached, or rounded?")


def _zeros(trial: Trial) -> None:
    """Gradients are finite where all rows are 0."""
    model, widths = trial.model, trial.model.widths(trial.dim)
    # The edges of an encoder lead to all entities, and rows encoded from zeros are not zeros.
    sizes = (RELATIONS if model.encoder is None else ENTITIES, RELATIONS)
    entity, relation = (
        torch.zeros(size, width, dtype=torch.float64, requires_grad=True)
        for size, width in zip(sizes, widths, strict=True)
    )
    rows, relations = encoded(model, entity, relation)
    rows = rows[:RELATIONS]
    query = model.query(rows, relations, "tail")
    total = model.score(query, relations, rows, "tail").sum() + model.score_pool(query, relations, rows, "tail").sum()
    total = total + model.score_negatives(query, relations, rows[:, None], "tail").sum()
    for found in torch.autograd.grad(total, (entity, relation), allow_unused=True):
        if found is not None and not found.isfinite().all():
            trial.fail("rows of zeros have a gradient that is not finite: a root or a norm of 0, or a division by it")


def _parameters(trial: Trial) -> None:
    """Every parameter influences what is learned, with the right gradient, and is initialized by its generator."""
    model = trial.model
    again = [model.init_parameters(trial.dim, torch.Generator().manual_seed(3)) for _ in range(2)]
    for name, value in model.parameters.items():
        trial.same(
            again[0][name], again[1][name], f"`init_parameters` gives {name!r} two initial values; draw by `random`"
        )
        if name in model.buffers:
            continue
        leaf = value.clone().requires_grad_()

        def learned(bound: Tensor, name: str = name) -> Tensor:
            """Everything that is learned from three rows, over one parameter."""
            made = model.bind({**model.parameters, name: bound})
            entity, relation = encoded(made, *trial.tables)
            rows = entity[:2], relation[:2], entity[2:4]
            score, head = score_triples(made, *rows), made.confidence_head
            found = [score]
            if made.auxiliary_loss is not None:
                found.append(made.auxiliary_loss.loss(made, *rows).reshape(-1))
            if head is not None:
                found.append(head.unclipped(score, made.parameters))
            if head is not None and head.has_plausibility:
                found.append(head.plausibility(score, made.parameters))
            return torch.cat(found)

        if not learned(leaf).requires_grad:
            trial.fail(f"the parameter {name!r} influences no score; use self.parameters[{name!r}], or leave it out")
        _check_gradient(trial, f"scores by the parameter {name!r}", learned, leaf)


def _confidence(trial: Trial) -> None:
    """A confidence lies in [0, 1] and increases with the score."""
    head = trial.model.confidence_head
    if head is None:
        return
    found = head.confidence(torch.linspace(-30, 30, 601), trial.model.parameters)
    if not bool(((found >= 0) & (found <= 1)).all()):
        trial.fail("`confidence` leaves [0, 1]")
    if not bool((found.diff() >= 0).all()):
        trial.fail("`confidence` does not increase with the score")
