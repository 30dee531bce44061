"""The entity map: embeddings in two dimensions, colored by cluster."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.option_strings import choose

PROJECTIONS = {"tsne": "t-SNE", "umap": "UMAP", "pca": "principal components", "none": ""}
MAX_ENTITIES = 2000  # t-SNE takes seconds for these, and more would cover each other
MIN_ENTITIES = 3
CLUSTERS = 8  # the number of colors
MAX_LABELS = 60
MAX_LETTERS = 28  # of a label
WIDTH, HEIGHT, MARGIN = 960, 660, 26
Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EntityMap:
    """A picture of WIDTH × HEIGHT: `dots` are (name, x, y, radius, cluster), `labels` (text, x, y).

    `clusters` are the names of clusters 1, 2, …; `total` is the number of entities of the graph.
    """

    projection: str
    dots: list[tuple[str, float, float, float, int]]
    labels: list[tuple[str, float, float]]
    clusters: list[str]
    total: int

    def to_dict(self) -> dict[str, Any]:
        """Return the map as data that JSON can represent."""
        entities = [[name, round(x, 1), round(y, 1), cluster] for name, x, y, _, cluster in self.dots]
        return {"projection": self.projection, "clusters": self.clusters, "entities": entities}


def check_projection(projection: str) -> None:
    """Raise FocuseError for a projection that is unknown or not installed."""
    choose("projection", projection, PROJECTIONS)
    if projection == "umap":
        _import_umap()


def _import_umap() -> Any:
    try:
        import umap
    except ImportError:
        raise FocuseError("umap-learn is not installed; install it: pip install umap-learn, or use tsne") from None
    return umap


def map_entities(graph: Graph, scorer: TableScorer, projection: str, seed: int) -> EntityMap | None:
    """Return a map of the entities with the most triples; None if there are too few or they are not finite."""
    degree = np.bincount(np.concatenate([graph.head, graph.tail]), minlength=len(graph.entities))
    shown = np.argsort(-degree, kind="stable")[:MAX_ENTITIES]
    vectors = scorer.tables["entity"].detach().float().cpu().numpy()[shown].astype(np.float64)
    if projection == "none" or len(shown) < MIN_ENTITIES or not np.isfinite(vectors).all():
        return None
    # The length of an embedding says how frequent an entity is, not what it is.
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(length > 0, length, 1.0)
    positions = _fit_into_picture(project(vectors, projection, seed))
    names = [graph.entities[int(entity)] for entity in shown]
    cluster, clusters = _cluster(names, vectors, seed)
    sizes = 2.2 + 4.5 * np.sqrt(degree[shown] / max(int(degree.max(initial=0)), 1))
    dots = list(zip(names, *positions.T.tolist(), sizes.tolist(), cluster.tolist(), strict=True))
    labels = place_labels(names[:MAX_LABELS], positions[:MAX_LABELS])
    return EntityMap(projection, dots, labels, clusters, len(graph.entities))


def project(vectors: Floats, projection: str, seed: int = 0) -> Floats:
    """Return two coordinates per row: [n, k] -> [n, 2], the same for the same seed; few rows are projected by PCA.

    >>> project(np.eye(4)[:, :3], "pca").shape
    (4, 2)
    """
    from sklearn.decomposition import PCA

    flat = PCA(min(50, *vectors.shape), random_state=seed).fit_transform(vectors)
    if flat.shape[1] < 2:
        flat = np.column_stack([flat, np.zeros(len(flat))])
    if projection == "pca" or len(vectors) < 8:
        return np.asarray(flat[:, :2], np.float64)
    if projection == "umap":
        made = _import_umap().UMAP(n_neighbors=min(15, len(vectors) - 1), random_state=seed, n_jobs=1)
        return np.asarray(made.fit_transform(flat), np.float64)
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    return np.asarray(TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(flat), np.float64)


def _fit_into_picture(positions: Floats) -> Floats:
    """Scale positions [n, 2] to the picture; a few outliers are moved to its margin."""
    low, high = np.quantile(positions, 0.002, axis=0), np.quantile(positions, 0.998, axis=0)
    scaled = np.clip((positions - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    return np.asarray(MARGIN + scaled * (np.array([WIDTH, HEIGHT]) - 2 * MARGIN), np.float64)


def _cluster(names: Sequence[str], vectors: Floats, seed: int) -> tuple[Ids, list[str]]:
    """Return the cluster of each entity, 1 for the largest, and a name per cluster; entities are sorted by degree."""
    from sklearn.cluster import KMeans

    count = max(1, min(CLUSTERS, len(names) // 3, len(np.unique(vectors, axis=0))))
    group = KMeans(count, n_init=3, random_state=seed).fit_predict(vectors)
    cluster, titles = np.zeros(len(names), np.int64), []
    for number, one in enumerate(np.argsort(-np.bincount(group), kind="stable"), 1):
        members = np.flatnonzero(group == one)
        cluster[members] = number
        titles.append(", ".join(_shorten(names[member]) for member in members[:2]))
    return cluster, titles


def _shorten(name: str) -> str:
    return name if len(name) <= MAX_LETTERS else name[: MAX_LETTERS - 1] + "…"


def place_labels(names: Sequence[str], positions: Floats) -> list[tuple[str, float, float]]:
    """Return (text, x, y) of the labels that fit, each at the first free place around its dot."""
    boxes = np.empty((0, 4))
    labels = []
    for name, (x, y) in zip(names, positions.tolist(), strict=True):
        text = _shorten(" ".join(name.split()))
        wide = sum(12.0 if unicodedata.east_asian_width(letter) in "WF" else 6.7 for letter in text)
        for left, base in ((x + 8, y + 4), (x - 8 - wide, y + 4), (x - wide / 2, y - 9), (x - wide / 2, y + 18)):
            box = np.array([left, base - 11, left + wide, base + 4])
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= WIDTH and box[3] <= HEIGHT
            apart = (boxes[:, 0] > box[2]) | (boxes[:, 2] < box[0]) | (boxes[:, 1] > box[3]) | (boxes[:, 3] < box[1])
            if inside and apart.all():
                boxes = np.vstack([boxes, box])
                labels.append((text, left, base))
                break
    return labels
