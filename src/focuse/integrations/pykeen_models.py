"""PyKEEN's interactions (Ali et al., 2021) as models: `pykeen:NAME`, or `pykeen:NAME:option=value,…`.

A row holds an interaction's tensors one after the other, in the order of its `entity_shape` or `relation_shape`; for an
interaction over complex numbers all real parts come first and then all imaginary ones, as in `complex`. (PyKEEN itself
keeps the two parts of a number side by side.) An interaction's own parameters are the model's `parameters`, and the
running statistics of its batch norms are `buffers`. Constraints that PyKEEN's models put on rows are applied here if
scores would mean nothing without them, see `CONSTRAINTS`; initial embeddings are focuse's own.
"""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import math
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from focuse.errors import FocuseError, install_command
from focuse.models.base import CURRENT_CHUNK, Context, Requirement, Side, Table, TripleModel, in_chunks
from focuse.option_strings import choose

PREFIX = "pykeen:"
# Arguments that a constructor needs, as PyKEEN's model of the same name gives them.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "LineaRE": {"p": 1},
    "MuRE": {"p": 2, "power_norm": True},
    "PairRE": {"p": 1},
    "SE": {"p": 1},
    "TransE": {"p": 1},
    "TransH": {"p": 2},
    "TransR": {"p": 1, "power_norm": False},
    "UM": {"p": 1, "power_norm": False},
}
# Letters of a shape that are not the dimension: k parts of a quaternion, slices of NTN; one size per box.
LETTERS: dict[str, dict[str, int]] = {"QuatE": {"k": 4}, "NTN": {"k": 4}, "CP": {"k": 1}, "BoxE": {"s": 1}}
# Arguments of constructors that are sizes of rows, and the letter whose size they are.
SIZES = {"embedding_dim": "d", "head_dim": "d", "input_dim": "d", "relation_dim": "e", "tail_dim": "f"}
DIVERGENCES = {"KG2E"}  # never above 0, like distances
MAX_SMALL_DIM = 512  # an example of an interaction is tried in dimensions up to this one

Reshape = Callable[[Tensor], Tensor]


def _unit(rows: Tensor) -> Tensor:
    return F.normalize(rows, dim=-1)


def _unit_moduli(rows: Tensor) -> Tensor:
    return torch.view_as_complex(_unit(torch.view_as_real(rows)))


def _variance(rows: Tensor) -> Tensor:
    """Return any number as a variance in the bounds to which PyKEEN cuts them."""
    return 0.05 + (5.0 - 0.05) * torch.sigmoid(rows)


# Constraints on single tensors of a row before it is scored: (table, place among its tensors) -> function.
CONSTRAINTS: dict[str, dict[tuple[str, int], Reshape]] = {
    "RotatE": {("relation", 0): _unit_moduli},
    "QuatE": {("relation", 0): _unit},
    "TransH": {("relation", 0): _unit},
    "PairRE": {("entity", 0): _unit},
    "KG2E": {("entity", 1): _variance, ("relation", 1): _variance},
}


class UnfitDimension(FocuseError):  # noqa: N818 - what is wrong, as in errors.py
    """An interaction cannot have this dimension."""


class PykeenModel(TripleModel):
    """One interaction. `interaction_model` makes the subclasses; `probe` is a small example of their interaction."""

    title: ClassVar[str]
    options: ClassVar[Mapping[str, Any]]
    letters: ClassVar[Mapping[str, int]]
    probe: ClassVar[Any]
    # An interaction may normalize by the batch, and may initialize rows by all of them.
    requires: ClassVar[frozenset[Requirement]] = frozenset({"whole batch", "whole table"})
    defaults: ClassVar[Mapping[str, Any]] = {"negative_sampling": "per-triple", "optimizer": "sparse-adam"}
    calls: Iterator[int] | None = None  # numbers the calls within a training step, each of which has its own seed
    call = 0

    def widths(self, dim: int) -> tuple[int, int]:
        _check_dim(type(self), dim)
        return self._width("entity", dim), self._width("relation", dim)

    def _width(self, table: str, dim: int) -> int:
        numbers = sum(map(math.prod, self._sizes(table, dim)))
        return (2 if self.probe.is_complex else 1) * numbers or 1  # UM has no relations, and nothing reads its 1

    def _sizes(self, table: str, dim: int) -> list[tuple[int, ...]]:
        """Return the shapes of a row's tensors, which PyKEEN writes as letters: ('d', 'kd') -> [(dim,), (4, dim)]."""
        shapes = self.probe.entity_shape if table == "entity" else self.probe.relation_shape
        return [tuple(self.letters.get(letter, dim) for letter in shape) for shape in shapes]

    @classmethod
    def _unfit(cls, dim: int, error: Exception) -> FocuseError:
        return UnfitDimension(f"model {cls.name!r} cannot have dim {dim} (PyKEEN says: {error}); try another")

    @classmethod
    def build(cls, dim: int, seed: int = 0) -> Any:
        """Return PyKEEN's own interaction of this size, with parameters initialized by `seed`."""
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about sizes that PyKEEN chooses
            torch.manual_seed(seed)
            try:
                made = interactions()[cls.title](**_arguments(cls, dim))
                made.reset_parameters()
            except (TypeError, LookupError) as error:  # no other dimension would help
                raise FocuseError(f"model {cls.name!r}: PyKEEN says: {error}") from None
            except (ValueError, RuntimeError, AssertionError) as error:
                raise cls._unfit(dim, error) from None
        for module in made.modules():
            if hasattr(module, "num_batches_tracked"):
                module.num_batches_tracked = None  # it would be counted, and nothing uses it
        return made

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        seed = int(torch.randint(1 << 62, (), generator=random))
        held = _held(self.build(dim, seed))
        return {name: value.detach().clone().reshape(value.shape or (1,)) for name, value in held.items()}

    def init_table(self, table: Table, values: Tensor) -> Tensor:
        """Return normal numbers; vectors of length 1 in every score begin with that length, so that steps fit it."""
        units = {
            place
            for (where, place), how in CONSTRAINTS.get(self.title, {}).items()
            if where == table and how != _variance
        }
        if not units:
            return values
        parts = self._tensors(table, values, _dim(type(self), values.shape[-1], table), units)
        flat = torch.cat([part.flatten(1) for part in parts], dim=1)
        return torch.cat([flat.real, flat.imag], dim=1) if self.probe.is_complex else flat

    def bind(self, parameters: Mapping[str, Tensor] | None = None, context: Context | None = None) -> Self:
        bound = super().bind(parameters, context)
        bound.calls = None if bound.context.step_seed is None else itertools.count()
        return bound

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        dim, seed = _dim(type(self), head.shape[-1]), self.context.seed
        one = max(part.shape[:-1].numel() for part in (head, relation)) == 1  # a batch norm needs more
        module = _module(type(self), dim, head.dtype, head.device, seed is not None and not one)
        h, t = (self._tensors("entity", rows, dim) for rows in (head, tail))
        ends = [h[i] for i in module.head_indices], [t[i] for i in module.tail_indices]
        parts = [list(part) for part in (ends[0], self._tensors("relation", relation, dim), ends[1])]
        # As PyKEEN hands them in: a single tensor by itself.
        given = dict(zip("hrt", (part[0] if len(part) == 1 else tuple(part) for part in parts), strict=True))
        held = {name.replace("-", "."): value for name, value in self.parameters.items()}
        held = {name: held[name].view(value.shape) for name, value in _named(module).items() if name in held}
        chunk = CURRENT_CHUNK.get()
        if chunk.recomputed:  # running statistics were updated the first time
            held = {
                name: value.clone() if name.replace(".", "-") in self.buffers else value for name, value in held.items()
            }
        with torch.random.fork_rng(enabled=seed is not None):
            if seed is not None:
                torch.manual_seed((seed + (self.call << 20) + chunk.number) % (1 << 63))
            found: Tensor = functional_call(module, held, kwargs=given)
        return found

    def score(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return super(PykeenModel, self._numbered()).score(query, relation, rows, side)

    def score_negatives(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return super(PykeenModel, self._numbered()).score_negatives(query, relation, rows, side)

    def score_pool(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        if self.context.step_seed is not None or torch.is_grad_enabled():
            return super(PykeenModel, self._numbered()).score_pool(query, relation, rows, side)
        # An interaction may hold a whole matrix or image per pair; chunks on a CPU are 16 times smaller than on a GPU.
        widest = max((value.shape[-1] for value in self.parameters.values()), default=1)
        width = max(rows.shape[-1], widest if rows.is_cuda else widest // 16)
        return in_chunks(lambda q, _, some: self.similarity_of(q[:, None], some, side), query, relation, rows, width)

    def _numbered(self) -> Self:
        """Return the model in one call of a step: a chunk that is computed again draws the same numbers again."""
        if self.calls is None:
            return self
        bound = copy.copy(self)
        bound.call, bound.calls = next(self.calls), None
        return bound

    def _tensors(self, table: str, rows: Tensor, dim: int, at: Collection[int] = range(99)) -> list[Tensor]:
        """Return rows [..., width] as tensors of the interaction's shapes; those `at` these places are constrained."""
        sizes = self._sizes(table, dim)
        if not sizes:
            return []
        numbers = torch.complex(*rows.chunk(2, -1)) if self.probe.is_complex else rows
        found = [
            part.reshape(*rows.shape[:-1], *size)
            for part, size in zip(torch.split(numbers, [math.prod(size) for size in sizes], -1), sizes, strict=True)
        ]
        for (where, place), constraint in CONSTRAINTS.get(self.title, {}).items():
            if where == table and place in at:
                found[place] = constraint(found[place])
        return found


@cache
def interaction_model(name: str) -> type[PykeenModel]:
    """Return the model called 'pykeen:NAME' or 'pykeen:NAME:option=value,…', NAME in upper or lower case."""
    word, _, text = name.removeprefix(PREFIX).partition(":")
    known = interactions(name)
    title = {title.lower(): title for title in known}.get(word.lower(), word)
    choose("interaction of PyKEEN", title, known)
    options = _options(name, text)
    takes = _parameters(known[title])
    # A letter is a size in the interaction's shapes, unless its constructor takes one of that name (the norm p).
    own = [letter for letter in options if len(letter) == 1 and letter not in takes]
    letters = LETTERS.get(title, {}) | {letter: options.pop(letter) for letter in own}
    for letter in own:
        if type(letters[letter]) is not int or letters[letter] < 1 or letter == "d":
            raise FocuseError(
                f"model {name!r}: {letter}={letters[letter]}: give a whole number of at least 1 (dim is d)"
            )
    for option in options:
        if option not in takes:
            names = ", ".join(each for each in takes if each not in (*SIZES, "args")) or "none"
            raise FocuseError(f"model {name!r}: {title} has no option {option!r}; it takes {names}")
    made = {"name": name, "title": title, "letters": letters, "options": _default_arguments(title) | options}
    model: type[PykeenModel] = type(title, (PykeenModel,), made)
    model.probe = probe = _probe(model)
    sizes = {letter for shape in (*probe.entity_shape, *probe.relation_shape) for letter in shape}
    if not sizes.issuperset(own):
        raise FocuseError(f"model {name!r}: {title} has the sizes {', '.join(sorted(sizes)) or 'dim'}, not {own}")
    model.buffers = frozenset(name for name in _held(probe) if name.endswith(("running_mean", "running_var")))
    model.components = 2 if probe.is_complex else 1
    if hasattr(probe, "power_norm") or title in DIVERGENCES:  # a norm or a divergence: scores are never above 0
        model.defaults = {**model.defaults, "nonlinearity": "shifted-softplus"}
    return model


def interactions(name: str = PREFIX) -> dict[str, type[Any]]:
    """Return PyKEEN's interactions by name, in its own spelling."""
    try:
        from pykeen.nn.modules import interaction_resolver
    except ImportError as error:
        raise FocuseError(f"model {name!r} needs PyKEEN ({error}); {install_command('pykeen')}") from None
    known = interaction_resolver.lookup_dict.values()
    return {one.__name__.removesuffix("Interaction"): one for one in sorted(known, key=lambda one: one.__name__)}


def _default_arguments(title: str) -> dict[str, Any]:
    """Return arguments of the constructor unless an option replaces them."""
    if title == "AutoSF":
        from pykeen.models.unimodal.auto_sf import YAGO310_COEFFICIENTS

        return {"coefficients": tuple(YAGO310_COEFFICIENTS)}
    return dict(ARGUMENTS.get(title, {}))


def _options(name: str, text: str) -> dict[str, Any]:
    """Return 'p=2,activation=tanh' as a dictionary; values are Python literals, and a bare word is a string."""
    try:
        call = ast.parse(f"_({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
            raise ValueError
        found = {str(part.arg): _value(part.value) for part in call.keywords}
        if len(found) < len(call.keywords):
            raise ValueError
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise FocuseError(f"model {name!r}: write options like pykeen:TransE:p=2,power_norm=true") from None
    return found


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return {"true": True, "false": False}.get(node.id, node.id)
    return ast.literal_eval(node)


def _parameters(interaction: type[Any]) -> list[str]:
    """Return the names of the constructor's parameters."""
    found = inspect.signature(interaction.__init__).parameters.values()
    return [part.name for part in found if part.name != "self" and part.kind is not part.VAR_KEYWORD]


def _arguments(model_class: type[PykeenModel], dim: int) -> dict[str, Any]:
    """Return all arguments of the constructor of an interaction of this size."""
    takes = _parameters(interactions()[model_class.title])
    sizes = {name: model_class.letters.get(letter, dim) for name, letter in SIZES.items() if name in takes}
    heads = {"num_heads": math.gcd(dim, 8)} if "num_heads" in takes else {}
    return {**sizes, **heads, **model_class.options}


def _probe(model_class: type[PykeenModel]) -> Any:
    """Return an example: the interaction in the smallest dimension that it can have."""
    for dim in range(1, MAX_SMALL_DIM):
        with suppress(UnfitDimension):
            return model_class.build(dim)
    return model_class.build(MAX_SMALL_DIM)


def _named(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and the running statistics of batch norms; other buffers are constants."""
    running = {name: value for name, value in module.named_buffers() if name.rpartition(".")[2].startswith("running_")}
    return {**dict(module.named_parameters()), **running}


def _held(module: nn.Module) -> dict[str, Tensor]:
    """Return the same by names with - instead of dots, as in stored runs."""
    return {name.replace(".", "-"): value for name, value in _named(module).items()}


@cache
def _dim(model_class: type[PykeenModel], width: int, table: str = "entity") -> int:
    """Return the dimension in which a row of the table has this width."""
    return next(dim for dim in range(1, width + 1) if model_class()._width(table, dim) == width)


@cache
def _check_dim(model_class: type[PykeenModel], dim: int) -> None:
    """Raise unless PyKEEN can make and call the interaction in this dimension."""
    try:
        model = model_class()
        model = model.bind(model.init_parameters(dim, torch.Generator().manual_seed(0)))
        entity, relation = torch.zeros(2, model._width("entity", dim)), torch.zeros(2, model._width("relation", dim))
        model.triple(entity, relation, entity)
    except FocuseError:
        raise
    except Exception as error:  # PyKEEN raises many kinds for odd options
        raise model_class._unfit(dim, error) from None


_THREAD = threading.local()


def _module(model_class: type[PykeenModel], dim: int, dtype: torch.dtype, device: torch.device, training: bool) -> Any:
    """Return an interaction to put tensors into; each thread has its own, because `functional_call` changes it."""
    modules: dict[Any, Any] = _THREAD.__dict__.setdefault("modules", {})
    place = (model_class, dim, dtype, device, training)
    if place not in modules:
        modules[place] = model_class.build(dim).to(device, dtype).train(training)
    return modules[place]
