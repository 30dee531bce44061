"""Embeddings of entities as vectors to compare, and the nearest of each: exact in blocks, or by an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.option_strings import choose

MEASURES = ("cosine", "euclidean")
AT_ONCE = 1 << 24  # similarities held at once: 64 MB
INDEX = "neighbours.usearch"
SEARCHED = 128  # candidates that a search in an index keeps; more find more and take longer


def entity_rows(scorer: TableScorer) -> Tensor:
    """Embeddings [E, d] as the model takes them; numbers that some models append to them are no embeddings."""
    rows = scorer.encoded_tables()["entity"] if scorer.model.encoder is not None else scorer.tables["entity"]
    if not torch.isfinite(rows).all():
        raise FocuseError("the embeddings are not finite: training diverged; lower the learning rate")
    return rows


def unit_rows(scorer: TableScorer) -> Tensor:
    """The same with length 1 each [E, d]: their products are cosines."""
    return F.normalize(entity_rows(scorer), dim=1)


def check_measure(measure: str) -> str:
    return choose("measure", measure, MEASURES)


@torch.no_grad()
def nearest_rows(queries: Tensor, rows: Tensor, top: int, measure: str = "cosine") -> tuple[Tensor, Tensor]:
    """The `top` rows most like each query: [B, d], [N, d] -> similarities [B, n] and places [B, n], best first.

    Cosine of rows of length 1, or the negative distance ('euclidean'). Equal ones by place.
    """
    top = min(top, len(rows))
    values, places = [], []
    size = max(1, AT_ONCE // max(len(rows), 1))
    for start in range(0, len(queries), size):
        some = queries[start : start + size]
        alike = some @ rows.T if measure == "cosine" else -torch.cdist(some, rows)
        value, place = torch.topk(alike, top, dim=1)
        by_place = torch.argsort(place, dim=1)
        by_value = torch.argsort(torch.gather(value, 1, by_place), dim=1, descending=True, stable=True)
        order = torch.gather(by_place, 1, by_value)
        values.append(torch.gather(value, 1, order))
        places.append(torch.gather(place, 1, order))
    if not values:
        return rows.new_empty(0, top), torch.empty(0, top, dtype=torch.int64)
    return torch.cat(values), torch.cat(places)


def open_index(rows: Tensor, measure: str, path: Path | None = None) -> Any:
    """An index of rows [N, d] for approximate search (HNSW, by usearch): that of `path`, else made and kept there.

    Needs focuse[ann].
    """
    try:
        from usearch.index import Index
    except ImportError:
        raise FocuseError("approximate neighbours need focuse[ann]: pip install 'focuse[ann]'") from None
    if path is not None and path.exists():
        try:
            kept = Index.restore(str(path), view=False)
            if kept is not None and (len(kept), kept.ndim) == tuple(rows.shape):
                return kept
        except (RuntimeError, ValueError, OSError):
            pass  # cut short or of another version: made anew
    made = Index(
        ndim=rows.shape[1], metric="cos" if measure == "cosine" else "l2sq", dtype="f32", expansion_search=SEARCHED
    )
    made.add(np.arange(len(rows)), rows.cpu().numpy())
    if path is not None:
        from focuse.storage.atomic import replace_file

        try:
            with replace_file(path) as temporary:
                made.save(str(temporary))
        except (FocuseError, OSError, RuntimeError):
            pass  # a folder that cannot be written: it is made each time
    return made


def search(index: Any, queries: Tensor, top: int, measure: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Similarities [B, n] and places [B, n] of what an index finds, best first; place −1 where it finds fewer."""
    top = min(top, len(index))
    found = index.search(queries.cpu().numpy(), top)
    distance, place = np.atleast_2d(found.distances), np.atleast_2d(found.keys).astype(np.int64)
    alike = 1 - distance if measure == "cosine" else -np.sqrt(np.maximum(distance, 0))
    counts = np.atleast_1d(getattr(found, "counts", np.full(len(place), top)))
    place[np.arange(top)[None] >= counts[:, None]] = -1
    return alike, place
