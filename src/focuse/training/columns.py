"""The numbers that training sees of each row: merged columns that may change with the epoch, and rows known as false.

Several columns with a decay λ of their own: with importances π, shares w and the paper's βᶜ of each column,

    α⁻ = Σ πᶜ (βᶜ + wᶜ (1 − βᶜ)) = β + w (1 − β)    with  β = Σ πᶜ βᶜ,  w = Σ πᶜ (1 − βᶜ) wᶜ / (1 − β)

and the same for α⁺ with 1 − w. So one weight and one β an epoch serve the layer as it is. An edge that lacks some of
the columns gets the mean of those it has, each by its πᶜ (1 − βᶜ).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from focuse.evaluation.weighing import join
from focuse.focus import Focus
from focuse.graph.arrays import chunks
from focuse.graph.columns import Mask, combine
from focuse.graph.graph import Graph, Weights
from focuse.graph.splits import Splits
from focuse.graph.weights import Normaliser
from focuse.models import kind_of
from focuse.training.settings import Settings
from focuse.training.specs import parse_named

FALSE = -1.0  # the weight of a row known to be false; facts have one in [0, 1]
CHUNK = 1 << 20  # edges weighed at a time
DRAW = 0xFA15E  # place of the random stream that says which false rows take part in an epoch

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ColumnDecays:
    """Shares [n, C] of train's columns, where they are present, importances [C] and each column's β."""

    shares: Weights
    present: Mask
    importance: Weights
    focuses: tuple[Focus, ...]

    def at(self, epoch: int) -> tuple[Weights, float]:
        """The merged weight [n] in an epoch counted from 0, and its β."""
        betas = np.array([focus.beta(epoch) for focus in self.focuses])
        beta = float(self.importance @ betas)
        counts = self.importance * (1 - betas)
        weight = combine(self.shares, self.present, counts)
        # Of an edge whose columns have not begun to count the shares are as good as any: they count from now on.
        early = ~(self.present & (counts > 0)).any(axis=1)
        weight[early] = combine(self.shares[early], self.present[early], self.importance)
        return weight, beta


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """What a trainer trains on: train's edges, then the false triples, whose weight is `mark`."""

    facts: Graph
    false: Graph | None
    normaliser: Normaliser
    mark: float
    seed: int
    decays: ColumnDecays | None = None

    @classmethod
    def of(cls, settings: Settings, splits: Splits, normaliser: Normaliser) -> TrainingRows:
        """The rows of a run's splits by its resolved settings."""
        mark = 0.0 if kind_of(settings.model).confident else FALSE
        return cls(splits.train, splits.false, normaliser, mark, settings.seed, _decays(settings, splits))

    def __len__(self) -> int:
        return len(self.facts) + len(self.evidence)

    @property
    def evidence(self) -> Weights:
        """How strong the evidence against each false triple is, in (0, 1]."""
        return np.empty(0) if self.false is None else self.false.weight

    @property
    def graph(self) -> Graph:
        """All rows."""
        return self.facts if self.false is None else join([self.facts, self.false])

    @property
    def weight(self) -> Floats:
        """Those of facts, in [0, 1], and FALSE for what is false (0 for a model of confidence); float32 [n]."""
        weight = np.full(len(self), self.mark, np.float32)
        for piece in chunks(len(self.facts), CHUNK):
            weight[piece] = self.normaliser.transform(self.facts.weight[piece], self.facts.relation[piece])
        return weight

    def pack(self, rows: npt.NDArray[np.int32]) -> None:
        """Write all rows to int32 [n, 4]: head, relation, tail and the bits of the weight; a piece at a time."""
        graphs = [(0, self.facts)] + ([] if self.false is None else [(len(self.facts), self.false)])
        for first, graph in graphs:
            for piece in chunks(len(graph), CHUNK):
                some = rows[first + piece.start : first + piece.stop]
                for place, column in enumerate((graph.head, graph.relation, graph.tail)):
                    some[:, place] = column[piece]
                weight = np.full(len(some), self.mark)
                if graph is self.facts:
                    weight = self.normaliser.transform(graph.weight[piece], graph.relation[piece])
                some[:, 3] = weight.astype(np.float32).view(np.int32)

    @property
    def moving(self) -> bool:
        """Whether weights change from epoch to epoch."""
        return self.decays is not None

    def weights_at(self, epoch: int) -> tuple[Floats, float | None]:
        """The weights [n] in an epoch counted from 0, and β; None where it is for the focus to say."""
        if self.decays is None:
            return self.weight, None
        facts, beta = self.decays.at(epoch)
        weight = np.full(len(self), self.mark, np.float32)
        weight[: len(facts)] = facts
        return weight, beta

    def rows_at(self, epoch: int) -> npt.NDArray[np.int64] | None:
        """The rows int64 that take part in an epoch: all facts, and false ones as often as evidence is strong.

        None for all rows. A pure function of (seed, epoch), so that a resumed run meets the same ones.
        """
        if (self.evidence >= 1).all():
            return None
        facts = len(self.facts)
        chance = np.random.default_rng([self.seed, epoch, DRAW]).random(len(self.evidence))
        return np.concatenate([np.arange(facts), facts + np.flatnonzero(chance < self.evidence)])


def _decays(settings: Settings, splits: Splits) -> ColumnDecays | None:
    """Columns whose β falls each by a time of its own; None where one serves all."""
    merger = splits.merger
    if merger is None or settings.decays is None or settings.focus != "paper" or settings.beta is not None:
        return None
    own = parse_named(settings.decays, "decays")
    focuses = tuple(
        Focus(decay=int(own.get(name, settings.decay or 0)), floor=settings.beta_floor) for name in merger.names
    )
    return ColumnDecays(*merger.shares(splits.train), merger.importance, focuses)
