"""Section with a map: entities that the model takes for similar lie close together."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph
from focuse.errors import FocuseError
from focuse.option_strings import choose
from focuse.report.charts import legend
from focuse.report.gathered import Gathered, Reported
from focuse.report.page import figure, heading, isolated, paragraph, percent

METHODS = ("tsne", "umap", "pca", "none")
NAMES = {"tsne": "t-SNE", "umap": "UMAP", "pca": "principal components"}
MOST = 2000  # entities; t-SNE takes seconds for them, and more than these nobody can tell apart
FEWEST = 3
COLOURS = 8
LABELS = 60  # that are tried; those that would cover another are left out
LONGEST = 28  # letters of a label
NEIGHBOURS = 10
CLEARER = 0.15  # than chance, from which neighbours agree on their role
WIDTH, HEIGHT, EDGE = 960, 660, 26
Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


def check_method(method: str) -> None:
    """An unknown way, or one that is not installed, is an error before anything is computed."""
    choose("map", method, METHODS)
    if method == "umap":
        _umap()


def _umap() -> Any:
    try:
        import umap
    except ImportError:
        raise FocuseError("a map by UMAP needs focuse[map]: pip install 'focuse[map]' (or use --map tsne)") from None
    return umap


def atlas(run: Reported, figures: Gathered) -> str:
    """The most connected entities on a map, coloured by role or cluster, the first of them labelled."""
    graph, method = run.graph, figures.drawn_by
    degree = np.bincount(np.concatenate([graph.head, graph.tail]), minlength=len(graph.entities))
    shown = np.argsort(-degree, kind="stable")[:MOST]
    vectors = run.scorer.tables["entity"].detach().float().cpu().numpy()[shown].astype(np.float64)
    if method == "none" or len(shown) < FEWEST or not np.isfinite(vectors).all():
        return ""
    figures.say(f"drawing a map of {len(shown):,} entities by {NAMES[method]}")
    vectors = _directions(vectors)
    places = _fitted(coordinates(vectors, method, run.settings.seed))
    coloured = colour(graph, shown, vectors, run.settings.seed)
    names = [graph.entities[int(entity)] for entity in shown]
    figures.data["map"] = {
        "method": method,
        "colours": coloured.names,
        "entities": [
            [name, round(float(x), 1), round(float(y), 1), int(kind)]
            for name, (x, y), kind in zip(names, places, coloured.kind, strict=True)
        ],
    }
    drawn = _draw(names, places, coloured, degree[shown])
    which = "all" if len(shown) == len(degree) else f"the {len(shown):,} most connected of {len(degree):,}"
    text = f"The directions of {which} entities' embeddings by {NAMES[method]}: what lies close is alike to the model. "
    told = "Each dot is an entity, the larger the more facts it has; its name shows where the mouse rests on it."
    if method != "pca":
        told += " Distances between groups, and their sizes, mean little."
    key = legend({str(number): isolated(name) for number, name in coloured.names.items()})
    return (
        heading("Map of entities")
        + paragraph(text + coloured.text)
        + key
        + figure([f'<div class="map" tabindex="0">{drawn}</div>'], told)
    )


def _directions(vectors: Floats) -> Floats:
    """Rows of length 1: the length of an embedding tells how frequent an entity is, not what it is."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length > 0, length, 1.0)


def coordinates(vectors: Floats, method: str, seed: int = 0) -> Floats:
    """Two numbers a row: [n, k] -> [n, 2], the same for the same seed. So few rows as to have no neighbours: PCA.

    >>> coordinates(np.eye(4)[:, :3], "pca").shape
    (4, 2)
    """
    from sklearn.decomposition import PCA

    size = min(50, *vectors.shape)
    flat = PCA(size, random_state=seed).fit_transform(vectors)
    if flat.shape[1] < 2:
        flat = np.column_stack([flat, np.zeros(len(flat))])
    if method == "pca" or len(vectors) < 8:
        return np.asarray(flat[:, :2], np.float64)
    if method == "umap":
        made = _umap().UMAP(n_neighbors=min(15, len(vectors) - 1), random_state=seed, n_jobs=1)
        return np.asarray(made.fit_transform(flat), np.float64)
    from sklearn.manifold import TSNE

    crowd = min(30.0, (len(vectors) - 1) / 3)
    return np.asarray(TSNE(2, perplexity=crowd, init="pca", random_state=seed).fit_transform(flat), np.float64)


def _fitted(places: Floats) -> Floats:
    """Within the picture [n, 2]; a few outliers do not press the rest together."""
    low, high = np.quantile(places, 0.002, axis=0), np.quantile(places, 0.998, axis=0)
    share = np.clip((places - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    return np.asarray(EDGE + share * (np.array([WIDTH, HEIGHT]) - 2 * EDGE), np.float64)


@dataclass(frozen=True)
class Coloured:
    """The colour of each entity [n] (0: the rest), what colours mean, and a sentence on them."""

    kind: Ids
    names: dict[int, str]
    text: str


def colour(graph: Graph, shown: Ids, vectors: Floats, seed: int) -> Coloured:
    """By the role that entities mostly stand in, if neighbours agree on it; else by clusters."""
    role, names = roles(graph)
    own = role[shown]
    common = np.argsort(-np.bincount(own, minlength=len(names)), kind="stable")
    near = neighbours(vectors)
    agree = float((own[near] == own[:, None]).mean())
    share = np.bincount(own) / len(own)
    chance = float((share**2).sum())
    if agree < chance + CLEARER:
        return _clusters(graph, shown, vectors, seed)
    kind = np.zeros(len(shown), np.int64)
    told: dict[int, str] = {}
    for number, place in enumerate(common[:COLOURS], 1):
        members = own == place
        if members.any():
            kind[members], told[number] = number, names[int(place)]
    if (kind == 0).any():
        told[0] = "other roles"
    text = (
        f"Colours are the places in relations where entities mostly stand; of the {near.shape[1]} nearest neighbours "
        f"of an entity {percent(agree)} stand where it does, {percent(chance)} would by chance."
    )
    return Coloured(kind, told, text)


def roles(graph: Graph) -> tuple[Ids, list[str]]:
    """The place where each entity has most of its facts [E], and the names of all places."""
    kinds = len(graph.relations)
    entity = np.concatenate([graph.head, graph.tail]).astype(np.int64)
    place = np.concatenate([graph.relation.astype(np.int64), graph.relation.astype(np.int64) + kinds])
    keys, count = np.unique(entity * 2 * kinds + place, return_counts=True)
    order = np.lexsort((-count, keys // (2 * kinds)))
    owner = keys[order] // (2 * kinds)
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    role = np.zeros(len(graph.entities), np.int64)
    role[owner[first]] = keys[order][first] % (2 * kinds)
    names = list(graph.relations)
    return role, [f"head of {_short(name)}" for name in names] + [f"tail of {_short(name)}" for name in names]


def neighbours(vectors: Floats) -> Ids:
    """The nearest other rows of each row, [n, k]."""
    from sklearn.neighbors import NearestNeighbors

    count = min(NEIGHBOURS, len(vectors) - 1)
    found = NearestNeighbors(n_neighbors=count).fit(vectors).kneighbors(return_distance=False)
    return np.asarray(found, np.int64)


def _clusters(graph: Graph, shown: Ids, vectors: Floats, seed: int) -> Coloured:
    from sklearn.cluster import KMeans

    count = max(1, min(COLOURS, len(shown) // 3, len(np.unique(vectors, axis=0))))
    group = KMeans(count, n_init=3, random_state=seed).fit_predict(vectors)
    kind, told = np.zeros(len(shown), np.int64), {}
    for number, cluster in enumerate(np.argsort(-np.bincount(group), kind="stable"), 1):
        members = np.flatnonzero(group == cluster)  # the most connected come first
        kind[members] = number
        told[number] = "around " + ", ".join(_short(graph.entities[int(shown[one])]) for one in members[:2])
    text = "Colours are clusters of embeddings (k-means), each called after its most connected entities."
    return Coloured(kind, told, text)


def _short(name: str, longest: int = LONGEST) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


def _draw(names: Sequence[str], places: Floats, coloured: Coloured, degree: Ids) -> str:
    size = 2.2 + 4.5 * np.sqrt(degree / max(int(degree.max(initial=0)), 1))
    groups = []
    for number in coloured.names:
        dots = "".join(
            f'<circle cx="{places[one, 0]:.1f}" cy="{places[one, 1]:.1f}" r="{size[one]:.1f}"><title>'
            f"{escape(_short(names[one], 100))}</title></circle>"
            for one in np.flatnonzero(coloured.kind == number).tolist()
        )
        groups.append(f'<g class="dot f{number}">{dots}</g>')
    first = _candidates(coloured.kind)
    labels = "".join(
        f'<text class="halo" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
        for text, x, y in labelled([names[one] for one in first], places[first])
    )
    told = f"Map of {len(names):,} entities, coloured by: {'; '.join(coloured.names.values())}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(told)}">'
        f"<title>{escape(told)}</title>{''.join(groups)}{labels}</svg>"
    )


def _candidates(kind: Ids) -> Ids:
    """Entities that may be labelled: of the most connected of each colour [n] in turn."""
    order = np.argsort(kind, kind="stable")
    count = np.bincount(kind)
    turn = np.empty(len(kind), np.int64)
    turn[order] = np.arange(len(kind)) - np.repeat(np.cumsum(count) - count, count)
    return np.argsort(turn, kind="stable")[:LABELS]


def labelled(names: Sequence[str], places: Floats) -> list[tuple[str, float, float]]:
    """(text, x, y) of those labels that fit beside the ones before them, at the first free place around their dot."""
    boxes = np.empty((0, 4))
    found = []
    for name, (x, y) in zip(names, places.tolist(), strict=True):
        text = _short(" ".join(name.split()))
        wide = sum(12.0 if unicodedata.east_asian_width(letter) in "WF" else 6.7 for letter in text)
        for left, base in ((x + 8, y + 4), (x - 8 - wide, y + 4), (x - wide / 2, y - 9), (x - wide / 2, y + 18)):
            box = np.array([left, base - 11, left + wide, base + 4])
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= WIDTH and box[3] <= HEIGHT
            apart = (boxes[:, 0] > box[2]) | (boxes[:, 2] < box[0]) | (boxes[:, 1] > box[3]) | (boxes[:, 3] < box[1])
            if inside and apart.all():
                boxes = np.vstack([boxes, box])
                found.append((text, left, base))
                break
    return found
