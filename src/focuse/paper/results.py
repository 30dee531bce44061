"""What one trained cell leaves behind: how its test triples were ranked, and with which settings.

Metrics are computed from the ranks, never stored instead of them: every table, interval and picture of a report
can be made again without a training.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from focuse.api import Run
from focuse.data.statistics import leaked
from focuse.data.triple_index import build_triple_index
from focuse.data.weights import unit_strength
from focuse.errors import FocuseError
from focuse.evaluation.metrics import RankMetrics, decile_size, deciles, rank_metrics, weighted_median
from focuse.evaluation.ranking import CompetitorCounts, rank_graph
from focuse.paper.cells import Cell
from focuse.storage.atomic import replace_file
from focuse.storage.old_names import upgrade_settings

Floats = npt.NDArray[np.float64]
PARTS = ("all", "top", "bottom")
FACTS = {"settings", "departures", "epochs", "seconds", "device", "torch"}


@dataclass(frozen=True)
class Ranked:
    """Ranked test triples: filtered rivals [n, 2], scores [n], weights in [0, 1] [n], and which are `clean`:
    neither they nor their inverse stand in train [n]."""

    rivals: CompetitorCounts
    score: npt.NDArray[np.float32]
    weight: Floats
    clean: npt.NDArray[np.bool_]

    def of(self, clean: bool) -> Ranked:
        """All of them, or the clean ones only."""
        return self.select(self.clean) if clean else self

    def select(self, rows: npt.NDArray[Any]) -> Ranked:
        rivals = CompetitorCounts(self.rivals.higher[rows], self.rivals.equal[rows])
        return Ranked(rivals, self.score[rows], self.weight[rows], self.clean[rows])

    def __len__(self) -> int:
        return len(self.score)

    @cached_property
    def shares(self) -> dict[str, Floats]:
        """How much each triple counts in `all`, `top` and `bottom`: [n] each."""
        bottom, top = deciles(self.weight)
        return {"all": np.ones(len(self)), "top": top, "bottom": bottom}

    def metrics(self, part: str, protocol: str = "per-side") -> RankMetrics:
        """MR, MRR and hits of one part, ties ranked worst."""
        size = len(self) if part == "all" else decile_size(len(self))
        return rank_metrics(self.rivals.ranks(protocol=protocol), self.shares[part], size)

    def reciprocal(self, protocol: str = "per-side") -> Floats:
        """The mean reciprocal rank of each triple over its sides, [n]."""
        mean: Floats = (1.0 / self.rivals.ranks(protocol=protocol)).mean(1)
        return mean

    def delta_mrr(self, protocol: str = "per-side") -> float:
        return self.metrics("top", protocol).mrr - self.metrics("bottom", protocol).mrr

    @cached_property
    def delta_median(self) -> float:
        """ΔM: the distance of the median scores of top and bottom."""
        medians = [weighted_median(self.score.astype(np.float64), self.shares[part]) for part in ("top", "bottom")]
        return abs(medians[0] - medians[1])


def rank_test(run: Run) -> Ranked:
    """Rank the test triples of a run, each side by itself, filtered by train, valid and test."""
    train, valid, test = run.splits.train, run.splits.valid, run.splits.test
    ranking = rank_graph(run.scorer, test, build_triple_index([train, valid, test], run.scorer.device))
    return Ranked(ranking.filtered, ranking.score, unit_strength(test, train), ~leaked(train, test))


@dataclass(frozen=True)
class Result:
    """One finished cell.

    `cell` names it (data, model, kind, seed, changes), `facts` tell how it was trained: settings, epochs,
    best_epoch, valid_mrr, seconds, device, versions, departures. `weights` are the metrics of its predicted weights
    (`Run.weigh`), None where the data set has no files for them.
    """

    cell: dict[str, Any]
    facts: dict[str, Any]
    test: Ranked = field(repr=False)
    weights: dict[str, Any] | None = field(default=None, repr=False)

    def save(self, folder: Path, name: str) -> None:
        """Write NAME.safetensors, then NAME.json: the cell is finished once the second is there."""
        test = self.test
        arrays = {
            "higher": test.rivals.higher.astype(np.int32),
            "same": test.rivals.equal.astype(np.int32),
            "score": test.score,
            "weight": test.weight,
            "clean": test.clean.astype(np.uint8),
        }
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
        try:
            with replace_file(folder / f"{name}.safetensors") as temporary:
                save_file({key: np.ascontiguousarray(value) for key, value in arrays.items()}, temporary)
            with replace_file(folder / f"{name}.json") as temporary:
                temporary.write_text(text, encoding="utf-8")
        except (OSError, SafetensorError) as error:
            raise FocuseError(f"{folder / name}: cannot be written ({error}); free some space, then go on") from None

    def to_dict(self) -> dict[str, Any]:
        """Cell, facts and metrics (`full` and `clean`, each side by itself and jointly), without the ranks."""
        summary: dict[str, Any] = {}
        for form in ("full", "clean"):
            test = self.test.of(form == "clean")
            summary[form] = {"n": len(test), "delta_median": _number(test.delta_median)}
            for protocol in ("per-side", "combined"):
                summary[form][protocol] = {part: test.metrics(part, protocol).to_dict() for part in PARTS}
                summary[form][protocol]["delta_mrr"] = _number(test.delta_mrr(protocol))
        return {"cell": self.cell, "facts": self.facts, "figures": summary, "weights": self.weights}

    @classmethod
    def load(cls, path: Path) -> Result:
        """From its NAME.json; what is damaged is one line that names the file."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            data["cell"]["changes"] = upgrade_settings(data["cell"]["changes"])
            data["facts"] |= {
                key: upgrade_settings(value)
                for key, value in data["facts"].items()
                if key in ("settings", "given") and isinstance(value, dict)
            }
            arrays = load_file(path.with_suffix(".safetensors"))
            rivals = CompetitorCounts(arrays["higher"].astype(np.int64), arrays["same"].astype(np.int64))
            test = Ranked(rivals, arrays["score"], arrays["weight"], arrays["clean"].astype(bool))
            n = len(test)
            shapes = {key: (n, 2) if key in ("higher", "same") else (n,) for key in arrays}
            if any(arrays[key].shape != shape for key, shape in shapes.items()) or arrays["higher"].min(initial=0) < 0:
                raise ValueError("arrays that do not fit each other")
            missing = FACTS - set(data["facts"])
            if missing:
                raise ValueError(f"no {min(missing)}")
            Cell(**data["cell"]).settings(1000)  # names that exist
            return cls(dict(data["cell"]), dict(data["facts"]), test, data.get("weights"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError, FocuseError) as error:
            raise FocuseError(f"{path}: damaged result ({error}); remove it, and the cell is trained again") from None


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
