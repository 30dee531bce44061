"""Checks that a user's own model satisfies the contract of `Model`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, get_args

import torch
from torch import Tensor
from torch.autograd import gradcheck

from focuse.errors import FocuseError
from focuse.models.base import ACTIVATIONS, Context, Model, Requirement, Side, Table, scaled, score_triples

BATCH, NEGATIVES, POOL, ENTITIES, RELATIONS = 5, 4, 7, 6, 3  # sizes of the trial graph and its batches
DIMS = range(8, 65)  # dimensions that are tried if none is given
TABLES: tuple[Table, Table] = ("entity", "relation")


def check_model(model: type[Model], dim: int | None = None) -> None:
    """Raise a FocuseError that describes the fault of a model, if it has one.

    Scores of single triples, of per-triple negatives and of a shared pool are compared with each other on both sides,
    gradients are compared with finite differences, and declared fields (`fused`, `requires`, `parameters`) are compared
    with the model's results. All checks use random rows of dimension `dim`, by default the first of 8 to 64 that the
    model supports.

    >>> from focuse.models.bilinear import ComplEx
    >>> check_model(ComplEx)
    """
    from focuse.models.registry import model_class, model_name

    check_scores(model_class(model_name(model)), dim, (_repeats, _gradients, _parameters))


def check_scores(model: type[Model], dim: int | None = None, further: tuple[Callable[[Trial], None], ...] = ()) -> None:
    """Run the fast checks of `check_model`, which precede every training of a model that is not built in.

    The docstring of a check states the property that it checks, and is quoted in the error.
    """
    expected: str | None = "its tables cannot be initialized"
    try:
        trial = Trial.of(model, dim)
        for check in (_shapes, _sides, _negatives_and_pools, _fused, *further):
            expected = check.__doc__
            check(trial)
    except FocuseError:
        raise
    except Exception as error:
        raise FocuseError(
            f"{model.__name__}: {(expected or '').rstrip('.')}: {type(error).__name__}: {error}"
        ) from error


@dataclass(frozen=True)
class Trial:
    """A model with a small graph, with parameters that differ from their initial values, and float64 tables.

    `entity` [ENTITIES, d] and `relation` [RELATIONS, r] are the encoded `tables`. `sides` are the sides whose entities
    the model can score.
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
        """Return a trial of a model; `dim` is by default the smallest that the model allows."""
        name, model = model_class.__name__, model_class()
        unknown = model.requires - set(get_args(Requirement))
        if unknown:
            raise FocuseError(f"{name}: requires {set(unknown)}; choose from {', '.join(get_args(Requirement))}")
        model = model.bind(context=_context(model, attributes))
        dim = _first_dim(model) if dim is None else dim
        random = torch.Generator().manual_seed(3)
        initial = model.init_parameters(dim, random)
        for table in set(TABLES) & set(initial):
            raise FocuseError(f"{name}: a parameter is called {table!r} like a table; rename it")
        model = model.bind({name: 0.7 * value.double() + 0.3 for name, value in initial.items()})
        entity, relation = (
            torch.randn(rows, width, generator=random, dtype=torch.float64)
            for rows, width in zip((ENTITIES, RELATIONS), model.widths(dim), strict=True)
        )
        sides: tuple[Side, ...] = ("tail",) if "inverse relations" in model.requires else ("tail", "head")
        return cls(name, model, dim, (entity, relation), *encoded(model, entity, relation), sides)

    def entities(self, *shape: int, seed: int = 0) -> Tensor:
        """Return rows of random entities: [*shape, d]."""
        return self.entity[torch.randint(ENTITIES, shape, generator=torch.Generator().manual_seed(seed))]

    def relations(self, count: int) -> Tensor:
        """Return rows of relations: [count, r]."""
        return self.relation[torch.arange(count) % RELATIONS]

    def triples(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows of heads, relations and tails of BATCH triples."""
        return self.entities(BATCH), self.relations(BATCH), self.entities(BATCH, seed=1)

    def fail(self, fault: str) -> NoReturn:
        """Raise a FocuseError with the name of the model."""
        raise FocuseError(f"{self.name}: {fault}")

    def check_close(self, actual: Tensor, expected: Tensor, fault: str) -> None:
        """Raise FocuseError unless two tensors are nearly equal."""
        if actual.shape != expected.shape:
            self.fail(f"{fault}: shape {tuple(actual.shape)} instead of {tuple(expected.shape)}")
        different = ~torch.isclose(actual, expected, rtol=1e-6, atol=1e-8, equal_nan=True)
        if different.any():
            self.fail(f"{fault}: {actual[different][0].item():.6g} instead of {expected[different][0].item():.6g}")

    def check_gradient(self, name: str, scores: Callable[..., Tensor], *rows: Tensor) -> None:
        """Raise FocuseError unless the gradient of `scores` agrees with finite differences."""
        if not gradcheck(scores, rows, raise_exception=False):
            self.fail(f"the gradient of {name} differs from finite differences; is part of it detached, or rounded?")


def encoded(model: Model, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
    """Return tables as an engine passes them to a model: with attributes of entities appended, and encoded."""
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
    raise FocuseError(f"model {model.name!r}: it supports none of the dims {DIMS[0]} to {DIMS[-1]}: {last}")


def _context(model: Model, attributes: int) -> Context:
    random = torch.Generator().manual_seed(5)
    edges = torch.tensor([0, 1, 2, 3, 5, 0]), torch.tensor([0, 1, 1, 2, 0, 1]), torch.tensor([1, 2, 0, 4, 3, 5])
    context = Context(edges if "edges" in model.requires else None)
    if "attributes" not in model.requires:
        return context
    values = torch.randn(ENTITIES, attributes, generator=random, dtype=torch.float64)
    return Context(context.edges, values, torch.rand(ENTITIES, attributes, generator=random) > 0.3)


def _shapes(trial: Trial) -> None:
    """Tables, parameters and scores have the right shape and dtype."""
    model = trial.model
    for name, width in zip(TABLES, model.widths(trial.dim), strict=True):
        table = model.init_table(name, torch.randn(POOL, width, generator=torch.Generator().manual_seed(0)))
        if table.shape != (POOL, width):
            shapes = f"{tuple(table.shape)} instead of {(POOL, width)}"
            trial.fail(f"`init_table` returns the {name} table with the shape {shapes}")
    for parameter, value in model.init_parameters(trial.dim, torch.Generator().manual_seed(0)).items():
        if not value.dim() or not value.is_floating_point():
            found = f"{value.dtype} {tuple(value.shape)}"
            trial.fail(f"the parameter {parameter!r} is {found}; give it a float type and an axis")
    head, relation, tail = trial.triples()
    for side in trial.sides:
        score = score_triples(model, head, relation, tail, side)
        if score.shape != (BATCH,):
            trial.fail(f"`score` of {BATCH} triples has the shape {tuple(score.shape)}, not ({BATCH},)")
        if not score.isfinite().all():
            trial.fail("`score` of random rows is not finite")
        float_model = model.bind({name: value.float() for name, value in model.parameters.items()})
        single = score_triples(float_model, head.float(), relation.float(), tail.float(), side)
        if single.dtype != torch.float32:
            trial.fail(f"`score` of float32 rows is {single.dtype}; create no tensor of another dtype in it")


def _sides(trial: Trial) -> None:
    """A triple has the same score with its head and with its tail as the candidate."""
    if len(trial.sides) == 2:
        of_tail, of_head = (score_triples(trial.model, *trial.triples(), side) for side in trial.sides)
        advice = 'if this is intended: requires = frozenset({"inverse relations"})'
        trial.check_close(of_head, of_tail, f"a triple has another score with its head as the candidate ({advice})")


def _negatives_and_pools(trial: Trial) -> None:
    """Scores of negatives and of a pool equal those of single triples."""
    model = trial.model
    for side in trial.sides:
        known, relation = trial.entities(BATCH), trial.relations(BATCH)
        negatives = trial.entities(BATCH, NEGATIVES, seed=1)
        scores = model.score_negatives(model.query(known, relation, side), relation, negatives, side)
        expected = _score_one_by_one(model, known, relation, negatives, side)
        trial.check_close(scores, expected, f"`score_negatives` on side {side!r} differs from `score`")
        for batch in (1, BATCH, POOL):  # also the pool's length, because a length must not be mistaken for another
            known, relation, pool = trial.entities(batch), trial.relations(batch), trial.entities(POOL, seed=2)
            scores = model.score_pool(model.query(known, relation, side), relation, pool, side)
            expected = _score_one_by_one(model, known, relation, pool.expand(batch, *pool.shape), side)
            trial.check_close(scores, expected, f"`score_pool` on side {side!r} differs from `score`")


def _score_one_by_one(model: Model, known: Tensor, relation: Tensor, candidates: Tensor, side: Side) -> Tensor:
    """Return the scores of triples that are computed one at a time: [B, d], [B, r], [B, N, d] -> [B, N]."""

    def score(known: Tensor, relation: Tensor, candidate: Tensor) -> Tensor:
        head, tail = (known, candidate) if side == "tail" else (candidate, known)
        return score_triples(model, head[None], relation[None], tail[None], side)[0]

    triples = zip(known, relation, candidates, strict=True)
    return torch.stack([torch.stack([score(k, r, candidate) for candidate in own]) for k, r, own in triples])


def _fused(trial: Trial) -> None:
    """The declared fused form agrees with the model."""
    model, head = trial.model, trial.model.confidence_head
    if head is not None and head.activation in ACTIVATIONS:
        scores = torch.linspace(-3, 3, 13, dtype=torch.float64)
        expected = ACTIVATIONS[head.activation](scores)
        fault = f"the confidence head does not compute the activation {head.activation!r} (use another name)"
        trial.check_close(head.unclipped(scores, model.parameters), expected, fault)
    if model.fused is None:
        return
    fault = f"fused = {model.fused} does not agree with the model (fused = None?)"
    if model.encoder is not None or model.auxiliary_loss is not None or "attributes" in model.requires:
        trial.fail(f"{fault}: kernels support neither encoders nor auxiliary losses nor attributes")
    if model.similarity is None:
        trial.fail(f"{fault}: kernels support the similarities 'dot', 'l1' and 'l2' only")
    head_rows, relation, tail_rows = trial.triples()
    for side in trial.sides:
        known, candidate = (head_rows, tail_rows) if side == "tail" else (tail_rows, head_rows)
        query = model.query(known, relation, side)
        if query.shape[-1] != candidate.shape[-1]:
            trial.fail(f"{fault}: queries have {query.shape[-1]} numbers, rows of entities {candidate.shape[-1]}")
        if model.fused.query is not None:
            expected = _fused_query(model.fused.query, known, relation, side)
            trial.check_close(query, expected, f"{fault}: a query is")
        expected = scaled(model, Model.similarity_of(model, query, candidate, side))
        trial.check_close(score_triples(model, *trial.triples(), side), expected, f"{fault}: a score is")


def _fused_query(name: str, known: Tensor, relation: Tensor, side: Side) -> Tensor:
    """Return the queries [B, d] that the kernels compute for a fused form."""
    if name == "translation":
        return known + relation if side == "tail" else known - relation
    if name == "hadamard":
        return known * relation
    known, relation = (torch.complex(*rows.chunk(2, dim=1)) for rows in (known, relation))
    query = known * (relation if side == "tail" else relation.conj())
    return torch.cat([query.real, query.imag], dim=1)


def _repeats(trial: Trial) -> None:
    """A repeated step has the same scores."""
    model = trial.model
    in_training = model.bind(context=model.context.in_training(11))
    for bound, when in ((model, "evaluated twice"), (in_training, "trained twice with one seed")):
        first, second = (score_triples(bound.bind(), *trial.triples()) for _ in range(2))
        trial.check_close(first, second, f"{when}, a triple has two scores; draw only from self.context.seed")


def _gradients(trial: Trial) -> None:
    """Gradients agree with finite differences."""
    model = trial.model
    head, relation, tail, negatives = (
        part.clone().requires_grad_()
        for part in (trial.entity[:2], trial.relation[:2], trial.entity[2:4], trial.entity[3:6].expand(2, 3, -1))
    )
    for side in trial.sides:
        for method, rows in ((model.score, tail), (model.score_negatives, negatives), (model.score_pool, tail)):

            def scores(known: Tensor, relation: Tensor, rows: Tensor, method: Callable[..., Tensor] = method) -> Tensor:
                return method(model.query(known, relation, side), relation, rows, side)  # noqa: B023 (used at once)

            trial.check_gradient(f"`{method.__name__}` on side {side!r}", scores, head, relation, rows)


def _parameters(trial: Trial) -> None:
    """Every parameter has a correct gradient and is initialized from the generator."""
    model = trial.model
    first, second = (model.init_parameters(trial.dim, torch.Generator().manual_seed(3)) for _ in range(2))
    for name, value in model.parameters.items():
        fault = f"`init_parameters` returns two initial values of {name!r}; draw only from `random`"
        trial.check_close(first[name], second[name], fault)
        if name in model.buffers:
            continue
        leaf = value.clone().requires_grad_()

        def loss_values(bound: Tensor, name: str = name) -> Tensor:
            """Return all values that enter the loss of two triples, as a function of one parameter."""
            bound_model = model.bind({**model.parameters, name: bound})
            entity, relation = encoded(bound_model, *trial.tables)
            rows = entity[:2], relation[:2], entity[2:4]
            score, head = score_triples(bound_model, *rows), bound_model.confidence_head
            values = [score]
            if bound_model.auxiliary_loss is not None:
                values.append(bound_model.auxiliary_loss.loss(bound_model, *rows).reshape(-1))
            if head is not None:
                values.append(head.unclipped(score, bound_model.parameters))
            if head is not None and head.has_plausibility:
                values.append(head.plausibility(score, bound_model.parameters))
            return torch.cat(values)

        if not loss_values(leaf).requires_grad:
            trial.fail(f"the parameter {name!r} influences no score; use self.parameters[{name!r}], or leave it out")
        trial.check_gradient(f"scores by the parameter {name!r}", loss_values, leaf)
