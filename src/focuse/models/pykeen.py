"""PyKEEN's interactions (Ali et al., 2021) as models: `pykeen:NAME`, or `pykeen:NAME:option=value,…`.

A row holds an interaction's tensors one after the other, in the order of its `entity_shape` or `relation_shape`; for an
interaction over complex numbers all real parts come first and then all imaginary ones, as in `complex`. (PyKEEN itself
keeps the two parts of a number side by side.) An interaction's own parameters are `dense`, and the running statistics
of its batch norms are `kept`. What PyKEEN's models do to rows before they are scored is done here where the score would
mean nothing without it, see `TAMED`; first embeddings are focuse's own.
"""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import math
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from focuse.errors import FocuseError, choose
from focuse.models.base import Side, TripleModel
from focuse.models.pieces import PIECE

PREFIX = "pykeen:"
# What PyKEEN also has and cannot be a model here, and why. Every interaction that its resolver lists can.
_WRAPS, _ENCODES = (
    "wraps another interaction; give that one",
    "computes entities from the graph, it is no interaction; train it inside PyKEEN with focuse.pykeen",
)
NOT_SERVED: dict[str, str] = {
    "Clamped": _WRAPS,
    "DirectionAverage": _WRAPS,
    "MonotonicAffineTransformation": _WRAPS,
    "CompGCN": _ENCODES,
    "NodePiece": _ENCODES,
    "RGCN": _ENCODES,
}
# What a constructor must be told, as PyKEEN's model of the same name tells it.
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
# Letters of a shape that are not the dimension: k parts of a quaternion, slices of NTN; one size a box.
LETTERS: dict[str, dict[str, int]] = {"QuatE": {"k": 4}, "NTN": {"k": 4}, "CP": {"k": 1}, "BoxE": {"s": 1}}
# Arguments of constructors that are sizes of rows, and the letter whose size they are.
SIZES = {"embedding_dim": "d", "head_dim": "d", "input_dim": "d", "relation_dim": "e", "tail_dim": "f"}
AT_ONCE = 1 << 24  # numbers that ranking holds at a time
DIVERGENCES = {"KG2E"}  # never above 0, as distances are
SMALL = range(1, 513)  # dimensions in which an interaction is tried first

Reshape = Callable[[Tensor], Tensor]


def _as_it_is(rows: Tensor) -> Tensor:
    return rows


def _unit(rows: Tensor) -> Tensor:
    return F.normalize(rows, dim=-1)


def _unit_moduli(rows: Tensor) -> Tensor:
    return torch.view_as_complex(_unit(torch.view_as_real(rows)))


def _variance(rows: Tensor) -> Tensor:
    """Any number as a variance in the bounds to which PyKEEN cuts them."""
    return 0.05 + (5.0 - 0.05) * torch.sigmoid(rows)


# What becomes of single tensors of a row before they are scored: (table, place among its tensors) -> how.
TAMED: dict[str, dict[tuple[str, int], Reshape]] = {
    "RotatE": {("relation", 0): _unit_moduli},
    "QuatE": {("relation", 0): _unit},
    "TransH": {("relation", 0): _unit},
    "PairRE": {("entity", 0): _unit},
    "KG2E": {("entity", 1): _variance, ("relation", 1): _variance},
}


class UnfitDimension(FocuseError):  # noqa: N818 - what is wrong, as in errors.py
    """An interaction cannot have this dimension."""


class PykeenModel(TripleModel):
    """One interaction. `kind_of` makes the subclasses; `probe` is an example of their interaction, of a small size."""

    title: ClassVar[str]
    options: ClassVar[Mapping[str, Any]]
    letters: ClassVar[Mapping[str, int]]
    probe: ClassVar[Any]
    defaults: ClassVar[Mapping[str, Any]] = {"sampling": "independent", "optimizer": "row-adam"}
    calls: Iterator[int] | None = None  # numbers the uses within a training step, which draw each for themselves
    use = 0

    def check(self, dim: int) -> None:
        try:
            model = self.with_dense(self.dense_start(dim, torch.Generator().manual_seed(0)))
            entity, relation = torch.zeros(2, self.entity_width(dim)), torch.zeros(2, self.relation_width(dim))
            model.score(entity, relation, entity)
        except FocuseError:
            raise
        except Exception as error:  # whatever PyKEEN makes of odd options
            raise self._unfit(dim, error) from None

    @classmethod
    def _unfit(cls, dim: int, error: Exception) -> FocuseError:
        return UnfitDimension(f"model {cls.name!r} cannot have dim {dim} (PyKEEN says: {error}); try another")

    def sizes(self, shapes: Sequence[str], dim: int) -> list[tuple[int, ...]]:
        """Shapes of the tensors in a row, each of a letter a size: ('d', 'kd') -> [(dim,), (4, dim)]."""
        return [tuple(self.letters.get(letter, dim) for letter in shape) for shape in shapes]

    def entity_width(self, dim: int) -> int:
        return self.parts * sum(math.prod(size) for size in self.sizes(self.probe.entity_shape, dim))

    def relation_width(self, dim: int) -> int:
        sizes = self.sizes(self.probe.relation_shape, dim)
        return self.parts * sum(math.prod(size) for size in sizes) or 1  # UM knows no relations; nothing reads its 1

    @classmethod
    def build(cls, dim: int, seed: int = 0) -> Any:
        """PyKEEN's own interaction of this size, its parameters at the first values of `seed`."""
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
                module.num_batches_tracked = None  # it would count along, and nothing asks for it
        return made

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        seed = int(torch.randint(1 << 62, (), generator=random))
        held = _held(self.build(dim, seed))
        return {name: value.detach().clone().reshape(value.shape or (1,)) for name, value in held.items()}

    def table_start(self, table: str, values: Tensor) -> Tensor:
        """Normal numbers, but what has length 1 in every score begins with it: steps are to be as small beside it."""
        units = {
            place for (where, place), how in TAMED.get(self.title, {}).items() if where == table and how != _variance
        }
        if not units:
            return values
        parts = self._tensors(table, values, _dim(type(self), values.shape[-1], table), units)
        flat = torch.cat([part.flatten(1) for part in parts], dim=1)
        return torch.cat([flat.real, flat.imag], dim=1) if self.parts == 2 else flat

    def in_training(self, key: int | None) -> Self:
        bound = super().in_training(key)
        bound.calls = itertools.count()
        return bound

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        dim = _dim(type(self), head.shape[-1])
        one = max(part.shape[:-1].numel() for part in (head, relation)) == 1  # a batch norm needs more
        module = _module(type(self), dim, head.dtype, head.device, self.key is not None and not one)
        h, t = (self._tensors("entity", rows, dim) for rows in (head, tail))
        ends = [h[i] for i in module.head_indices], [t[i] for i in module.tail_indices]
        parts = [list(part) for part in (ends[0], self._tensors("relation", relation, dim), ends[1])]
        # As PyKEEN hands them in: a single tensor by itself.
        given = dict(zip("hrt", (part[0] if len(part) == 1 else tuple(part) for part in parts), strict=True))
        held = {name.replace("-", "."): value for name, value in self.dense.items()}
        held = {name: held[name].view(value.shape) for name, value in _named(module).items() if name in held}
        piece = PIECE.get()
        if piece.again:  # what is learnt of a batch was learnt the first time
            held = {
                name: value.clone() if name.replace(".", "-") in self.kept else value for name, value in held.items()
            }
        with torch.random.fork_rng(enabled=self.key is not None):
            if self.key is not None:
                torch.manual_seed((self.key + (self.use << 20) + piece.number) % (1 << 63))
            found: Tensor = functional_call(module, held, kwargs=given)
        return found

    def score(self, head: Tensor, relation: Tensor, tail: Tensor, side: Side = "tail") -> Tensor:
        return super(PykeenModel, self._in_use()).score(head, relation, tail, side)

    def own(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return super(PykeenModel, self._in_use()).own(query, relation, rows, side)

    def pooled(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return super(PykeenModel, self._in_use()).pooled(query, relation, rows, side)

    def _in_use(self) -> Self:
        """The same for one use: a part of it that is computed again draws the same again."""
        if self.calls is None:
            return self
        bound = copy.copy(self)
        bound.use, bound.calls = next(self.calls), None
        return bound

    def _tensors(self, table: str, rows: Tensor, dim: int, at: Collection[int] = range(99)) -> list[Tensor]:
        """A row taken apart: [..., width] -> tensors of the interaction's shapes, those `at` these places tamed."""
        sizes = self.sizes(self.probe.entity_shape if table == "entity" else self.probe.relation_shape, dim)
        if not sizes:
            return []
        numbers = torch.complex(*rows.chunk(2, -1)) if self.parts == 2 else rows
        found = [
            part.reshape(*rows.shape[:-1], *size)
            for part, size in zip(torch.split(numbers, [math.prod(size) for size in sizes], -1), sizes, strict=True)
        ]
        tamed = TAMED.get(self.title, {})
        return [tamed.get((table, place), _as_it_is)(part) if place in at else part for place, part in enumerate(found)]

    def product(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        """In ranking a few pairs at a time: an interaction may hold a whole matrix or image for each."""
        if query.dim() > 2 or self.key is not None or torch.is_grad_enabled():
            return self.compare(query.unsqueeze(-2), candidates.unsqueeze(-3), side)
        widest = max((value.shape[-1] for value in self.dense.values()), default=1)
        pairs = max(1, AT_ONCE // max(query.shape[-1], widest))
        blocks = torch.split(candidates, pairs)
        rows = [
            torch.cat([self.compare(some[:, None], block[None], side) for block in blocks], dim=1)
            for some in torch.split(query, max(1, pairs // len(candidates)))
        ]
        return torch.cat(rows)


@cache
def kind_of(name: str) -> type[PykeenModel]:
    """The model called 'pykeen:NAME' or 'pykeen:NAME:option=value,…', NAME in upper or lower case."""
    word, _, text = name.removeprefix(PREFIX).partition(":")
    known = interactions(name)
    title = {title.lower(): title for title in [*known, *NOT_SERVED]}.get(word.lower(), word)
    if title in NOT_SERVED:
        raise FocuseError(f"model {name!r}: {title} {NOT_SERVED[title]}")
    choose("interaction of PyKEEN", title, known)
    options = _options(name, text)
    # A letter is a size in the interaction's shapes, unless its constructor takes one of that name (the norm p).
    own = [letter for letter in options if len(letter) == 1 and letter not in _parameters(known[title])]
    letters = LETTERS.get(title, {}) | {letter: options.pop(letter) for letter in own}
    for letter in own:
        if type(letters[letter]) is not int or letters[letter] < 1 or letter == "d":
            raise FocuseError(
                f"model {name!r}: {letter}={letters[letter]}: give a whole number of at least 1 (dim is d)"
            )
    made = {"name": name, "title": title, "letters": letters, "options": _told(title) | options}
    kind: type[PykeenModel] = type(title, (PykeenModel,), made)
    kind.probe = probe = _probe(kind)
    sizes = {letter for shape in (*probe.entity_shape, *probe.relation_shape) for letter in shape}
    if not sizes.issuperset(own):
        raise FocuseError(f"model {name!r}: {title} has the sizes {', '.join(sorted(sizes)) or 'dim'}, not {own}")
    kind.kept = frozenset(name for name in _held(probe) if name.endswith(("running_mean", "running_var")))
    kind.parts = 2 if probe.is_complex else 1
    kind.distance = hasattr(probe, "power_norm") or title in DIVERGENCES  # they measure a norm, or how two differ
    return kind


def interactions(name: str = PREFIX) -> dict[str, type[Any]]:
    """PyKEEN's interactions by name, in its own spelling."""
    try:
        from pykeen.nn.modules import interaction_resolver
    except ImportError as error:
        raise FocuseError(f"model {name!r} needs PyKEEN ({error}); pip install 'focuse[pykeen]'") from None
    kinds = interaction_resolver.lookup_dict.values()
    return {kind.__name__.removesuffix("Interaction"): kind for kind in sorted(kinds, key=lambda kind: kind.__name__)}


def _told(title: str) -> dict[str, Any]:
    """What the constructor is told unless an option says otherwise."""
    if title == "AutoSF":
        from pykeen.models.unimodal.auto_sf import YAGO310_COEFFICIENTS

        return {"coefficients": tuple(YAGO310_COEFFICIENTS)}
    return dict(ARGUMENTS.get(title, {}))


def _options(name: str, text: str) -> dict[str, Any]:
    """'p=2,activation=tanh' as a dictionary; values are Python's own, a bare word is a text."""
    try:
        call = ast.parse(f"_({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
            raise ValueError
        found = {str(part.arg): _value(part.value) for part in call.keywords}
        if len(found) < len(call.keywords):
            raise ValueError
        return found
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise FocuseError(f"model {name!r}: write options like pykeen:TransE:p=2,power_norm=true") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return {"true": True, "false": False}.get(node.id, node.id)
    return ast.literal_eval(node)


def _parameters(interaction: type[Any]) -> list[str]:
    """Names of what its constructor takes."""
    found = inspect.signature(interaction.__init__).parameters.values()
    return [part.name for part in found if part.name != "self" and part.kind is not part.VAR_KEYWORD]


def _arguments(kind: type[PykeenModel], dim: int) -> dict[str, Any]:
    """All that the constructor is told about an interaction of this size."""
    takes = _parameters(interactions()[kind.title])
    sizes = {name: kind.letters.get(letter, dim) for name, letter in SIZES.items() if name in takes}
    heads = {"num_heads": math.gcd(dim, 8)} if "num_heads" in takes else {}
    return {**sizes, **heads, **kind.options}


def _probe(kind: type[PykeenModel]) -> Any:
    """The interaction in the smallest dimension that it can have, to look at."""
    unknown = [*set(kind.options) - set(_parameters(interactions()[kind.title]))]
    if unknown:
        takes = [name for name in _parameters(interactions()[kind.title]) if name not in (*SIZES, "args")]
        raise FocuseError(
            f"model {kind.name!r}: {kind.title} has no option {unknown[0]!r}; it takes {', '.join(takes) or 'none'}"
        )
    fault: FocuseError | None = None
    for dim in SMALL:
        try:
            return kind.build(dim)
        except UnfitDimension as error:
            fault = error
    raise fault or FocuseError(f"model {kind.name!r} cannot be made")


def _named(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and the running statistics of batch norms; other buffers are constants."""
    running = {name: value for name, value in module.named_buffers() if name.rpartition(".")[2].startswith("running_")}
    return {**dict(module.named_parameters()), **running}


def _held(module: nn.Module) -> dict[str, Tensor]:
    """The same by names without dots, which optimisers put between a tensor's name and a moment's."""
    return {name.replace(".", "-"): value for name, value in _named(module).items()}


@cache
def _dim(kind: type[PykeenModel], width: int, table: str = "entity") -> int:
    """The dimension in which a row of the table has this width."""
    model = kind()
    of = model.entity_width if table == "entity" else model.relation_width
    return next(dim for dim in range(1, width + 1) if of(dim) == width)


_THREAD = threading.local()


def _module(kind: type[PykeenModel], dim: int, dtype: torch.dtype, device: torch.device, training: bool) -> Any:
    """An interaction to put tensors into; each thread has its own, for `functional_call` changes it while it runs."""
    modules: dict[Any, Any] = _THREAD.__dict__.setdefault("modules", {})
    place = (kind, dim, dtype, device, training)
    if place not in modules:
        modules[place] = kind.build(dim).to(device, dtype).train(training)
    return modules[place]
