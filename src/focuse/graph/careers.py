"""A generated graph of careers whose edges carry weights: jobs, skills, tasks and tools.

Which pairs are recorded says only that they are plausible; how well a pair fits stands in its weight.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from focuse.graph.careers_words import WORDS

__all__ = ["CareerEdges", "generate"]

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CareerEdges:
    """Edges as four columns of one length; a weight is the importance of a link, from 0 to 1."""

    head: list[str]
    relation: list[str]
    tail: list[str]
    weight: _Floats


class _Relation(NamedTuple):
    """How one relation is recorded and how its weights are spread."""

    name: str
    head: str  # kind of entity
    tail: str
    edges: int
    shape: tuple[float, float]  # of the Kumaraswamy law the weights follow on [0, 1]
    directed: bool  # whether fit(a, b) may differ from fit(b, a)


_RELATIONS: Final = (
    _Relation("requires skill", "job", "skill", 3000, (1.5, 3.2), False),
    _Relation("performs task", "job", "task", 2300, (1.2, 3.6), False),
    _Relation("uses tool", "job", "tool", 1400, (1.1, 2.2), False),
    _Relation("needs skill", "task", "skill", 1300, (1.5, 3.0), False),
    _Relation("supports task", "tool", "task", 900, (1.4, 3.0), False),
    _Relation("leads to", "job", "job", 750, (1.2, 4.0), True),
    _Relation("builds on", "skill", "skill", 350, (1.4, 3.2), True),
)

# One row per field; columns: care, numbers, machines, code, materials, words, living things, order, guests, evidence.
_PROFILES: Final[dict[str, tuple[int, ...]]] = {
    "health": (3, 0, 0, 0, 0, 0, 3, 1, 0, 2),
    "software": (0, 2, 1, 4, 0, 1, 0, 0, 0, 1),
    "building": (0, 1, 2, 0, 4, 0, 0, 1, 0, 0),
    "finance": (0, 3, 0, 2, 0, 0, 0, 3, 1, 0),
    "science": (0, 2, 1, 2, 0, 0, 3, 0, 0, 4),
    "education": (3, 0, 0, 0, 0, 4, 0, 1, 0, 1),
    "food": (1, 0, 0, 0, 2, 0, 3, 1, 4, 0),
    "media": (1, 0, 0, 2, 0, 4, 0, 0, 3, 0),
    "logistics": (0, 1, 2, 0, 1, 0, 0, 4, 2, 0),
    "engineering": (0, 1, 4, 2, 2, 0, 0, 0, 0, 1),
}
_NEAR: Final = 0.3  # cosine of two entities' field centres from which on they are plausible partners
_SECOND: Final = 0.4  # share of a second field in an entity's centre
_SPREAD: Final = 0.3  # individual noise per dimension, so that its length is about that of a field's centre
_TILT: Final = 0.5  # spread of the log importance of a dimension to a relation
_TURN: Final = 0.7  # strength of the antisymmetric part of a directed relation
_NOISE: Final = 0.5  # noise on a weight, in standard deviations of the fit
_STRAY: Final = 0.04  # share of edges between pairs that are not related
_FLOOR: Final = 2  # edges every entity has at least in each relation between two kinds


class _World(NamedTuple):
    """The planted truth: by kind, names, latent vectors and field membership; by relation, its interaction."""

    names: dict[str, list[str]]
    vectors: dict[str, _Floats]
    member: dict[str, _Floats]
    interaction: dict[str, _Floats]


def _centres() -> _Floats:
    """Unit vectors of the fields, around their common mean so that unlike fields repel."""
    table = np.array([_PROFILES[field] for field in WORDS], dtype=np.float64)
    table -= table.mean(axis=0)
    return np.asarray(table / np.linalg.norm(table, axis=1, keepdims=True), dtype=np.float64)


def _roster(kind: str) -> tuple[list[str], _Floats]:
    """Names of a kind and the share of every field in each of them."""
    fields = list(WORDS)
    names: list[str] = []
    shares: list[_Floats] = []
    for place, field in enumerate(fields):
        for entry in WORDS[field][kind].split(";"):
            name, _, second = (part.strip() for part in entry.partition("@"))
            share = np.zeros(len(fields))
            share[place] = 1.0
            if second:
                share[place] -= _SECOND
                share[fields.index(second)] = _SECOND
            names.append(name)
            shares.append(share)
    return names, np.stack(shares)


def _latent(rng: np.random.Generator) -> _World:
    """Draw the entities' vectors and the relations' interactions (the first draws a seed makes)."""
    centres = _centres()
    rank = centres.shape[1]
    names, vectors, member = {}, {}, {}
    for kind in ("job", "skill", "task", "tool"):
        names[kind], member[kind] = _roster(kind)
        own = rng.normal(0.0, _SPREAD, (len(names[kind]), rank))
        vectors[kind] = member[kind] @ centres + own
    # Turning dimensions by pairs is what multiplying by a complex number does: small bilinear models can hold it.
    turn = np.kron(np.eye(rank // 2), np.array([[0.0, 1.0], [-1.0, 0.0]]))
    interaction = {}
    for relation in _RELATIONS:
        interaction[relation.name] = np.diag(np.exp(rng.normal(0.0, _TILT, rank)))
        if relation.directed:
            interaction[relation.name] += _TURN * turn
    return _World(names, vectors, member, interaction)


def _fit(world: _World, relation: _Relation) -> _Floats:
    """Noise-free fit of every head with every tail of a relation."""
    left = world.vectors[relation.head] @ world.interaction[relation.name]
    return np.asarray(left @ world.vectors[relation.tail].T, dtype=np.float64)


def _related(heads: _Floats, tails: _Floats) -> npt.NDArray[np.bool_]:
    """Whether two entities share a field or have their fields' centres near; knows nothing of individuals."""
    centres = _centres()
    left, right = heads @ centres, tails @ centres
    cosine = left @ right.T / np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1))
    return np.asarray((heads @ tails.T > 0.0) | (cosine >= _NEAR), dtype=np.bool_)


def _record(world: _World, relation: _Relation, rng: np.random.Generator) -> tuple[_Ints, _Ints]:
    """Choose the pairs a survey wrote down, blind to their fit: strong and weak links alike."""
    related = _related(world.member[relation.head], world.member[relation.tail])
    allowed = np.ones_like(related)
    if relation.head == relation.tail:
        np.fill_diagonal(allowed, False)
    strays = round(_STRAY * relation.edges)
    key = np.where(related & allowed, rng.random(related.shape), np.inf)
    if relation.head != relation.tail:
        # Each entity's first pairs go ahead of the rest, so that none is left without edges by bad luck.
        by_row = np.partition(key, _FLOOR - 1, axis=1)[:, _FLOOR - 1 : _FLOOR]
        by_column = np.partition(key, _FLOOR - 1, axis=0)[_FLOOR - 1 : _FLOOR]
        key -= (key <= by_row) | (key <= by_column)
    plausible = np.argsort(key, axis=None)[: relation.edges - strays]
    odd = rng.choice(np.flatnonzero(~related & allowed), strays, replace=False)
    # Shuffled, for the order of the edges must not tell the strays.
    head, tail = np.divmod(rng.permutation(np.concatenate([plausible, odd])), related.shape[1])
    return head.astype(np.int64), tail.astype(np.int64)


def _weigh(fit: _Floats, relation: _Relation, rng: np.random.Generator) -> _Floats:
    """Weights: noisy fits, by rank, laid on a skewed law of the relation's own."""
    noisy = fit + rng.normal(0.0, _NOISE * fit.std(), len(fit))
    quantile = (np.argsort(np.argsort(noisy)) + 0.5) / len(fit)
    first, second = relation.shape
    unit = (1.0 - (1.0 - quantile) ** (1.0 / second)) ** (1.0 / first)
    return np.asarray(np.round(unit, 3), dtype=np.float64)


def generate(seed: int = 2021) -> CareerEdges:
    """Generate the careers graph; the same seed gives the same edges."""
    rng = np.random.default_rng(seed)
    world = _latent(rng)
    heads: list[str] = []
    relations: list[str] = []
    tails: list[str] = []
    weights: list[_Floats] = []
    for relation in _RELATIONS:
        head, tail = _record(world, relation, rng)
        weights.append(_weigh(_fit(world, relation)[head, tail], relation, rng))
        heads += np.array(world.names[relation.head], dtype=object)[head].tolist()
        tails += np.array(world.names[relation.tail], dtype=object)[tail].tolist()
        relations += [relation.name] * len(head)
    return CareerEdges(heads, relations, tails, np.concatenate(weights))
