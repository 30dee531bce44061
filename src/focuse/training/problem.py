"""What is trained: model, triples with their weights, negatives, objective, regularizer and validator.

A `TrainingProblem` is built once by every training: in memory, with partitions on disk, with several processes, of new
entities only (`training.extend`), and where an explanation needs the gradient of the loss. It says nothing about how or
where the problem is solved.

The weights of several columns with a decay λ of their own change with the epoch. With importances π, weights w and the
paper's βᶜ of each column,

    α⁻ = Σ πᶜ (βᶜ + wᶜ (1 − βᶜ)) = β + w (1 − β)    with  β = Σ πᶜ βᶜ,  w = Σ πᶜ (1 − βᶜ) wᶜ / (1 − β)

and the same for α⁺ with 1 − w. So one weight and one β per epoch serve the layer as it is. An edge that lacks some of
the columns gets the mean of those it has, each by its πᶜ (1 − βᶜ).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from focuse.config import SQUARED_ERROR, Config
from focuse.data.graph import Graph, Mask, Weights, combine_columns, concatenate
from focuse.data.splits import Splits, split_validation
from focuse.data.triple_index import TripleIndex, build_triple_index, id_tensors, relevant_triple_index
from focuse.data.weights import Normalizer
from focuse.engines.base import Step
from focuse.engines.process_group import current_group
from focuse.engines.sharded.engine import SHARDED
from focuse.errors import FocuseError
from focuse.models.base import Model
from focuse.models.registry import model_class
from focuse.objective.focuse import FocusELayer, SoftLabels
from focuse.objective.losses import (
    FocusedLoss,
    Regularizer,
    SoftLabelLoss,
    SquaredError,
    TwoHeadedSquaredError,
    make_loss,
    make_regularizer,
)
from focuse.objective.negatives import (
    ENTITY_DISTRIBUTIONS,
    SIDE_DISTRIBUTIONS,
    AuxiliaryTriples,
    Batch,
    Negatives,
    NegativeSampler,
    make_negative_distribution,
)
from focuse.objective.randomness import StreamKey, draw_integers, generator
from focuse.option_strings import parse_named_numbers
from focuse.random_streams import RandomStream
from focuse.system import chunks
from focuse.training.preparation import context_of
from focuse.training.validation import Validator, confidence_validator, rank_validator
from focuse.training.warm_start import started

AT_ONCE = 1 << 24  # random numbers, 64 MB


def own_rows(settings: Config, entities: int) -> slice:
    """The rows of entities that this process holds; all, unless the engine is a sharded one."""
    return current_group().shard(entities) if settings.engine in SHARDED else slice(None)


def home_of(settings: Config, table: str) -> str:
    """Where a table lies: with what computes, or rows of entities in main memory if that was asked for."""
    return "cpu" if settings.engine == "sharded:host" and table == "entity" else settings.device


def normal_rows(shape: tuple[int, int], random: torch.Generator, rows: slice = slice(None)) -> torch.Tensor:
    """The rows of torch.randn(shape), bit for bit, without holding the others.

    >>> made = normal_rows((100, 3), torch.Generator().manual_seed(1), slice(40, 60))
    >>> bool((made == torch.randn(100, 3, generator=torch.Generator().manual_seed(1))[40:60]).all())
    True
    """
    count, width = shape
    start, stop, _ = rows.indices(count)
    # torch draws 16 numbers at a time, and the last few anew: pieces of 16 rows go on where the last one ended.
    size = max(16, AT_ONCE // max(width, 1) // 16 * 16)
    cuts = [*range(0, max(count - 15, 1), size), count]
    kept = []
    for begin, end in pairwise(cuts):
        piece = torch.randn((end - begin, width), generator=random)
        kept.append(piece[max(start - begin, 0) : max(stop - begin, 0)].clone())
    return torch.cat(kept)


FALSE = -1.0  # the weight of a row known to be false; facts have one in [0, 1]
CHUNK = 1 << 20  # edges weighed at a time

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ColumnDecays:
    """Shares [n, C] of train's columns, where they are present, importances [C] and each column's β."""

    shares: Weights
    present: Mask
    importance: Weights
    focuses: tuple[FocusELayer, ...]

    def at(self, epoch: int) -> tuple[Weights, float]:
        """The merged weight [n] in an epoch counted from 0, and its β."""
        betas = np.array([focus.beta(epoch) for focus in self.focuses])
        beta = float(self.importance @ betas)
        counts = self.importance * (1 - betas)
        weight = combine_columns(self.shares, self.present, counts)
        # Of an edge whose columns have not begun to count the shares are as good as any: they count from now on.
        early = ~(self.present & (counts > 0)).any(axis=1)
        weight[early] = combine_columns(self.shares[early], self.present[early], self.importance)
        return weight, beta


@dataclass(frozen=True, eq=False)
class TrainingTriples:
    """What a trainer trains on: train's edges, then the false triples, whose weight is `mark`."""

    facts: Graph
    false: Graph | None
    normalizer: Normalizer
    mark: float
    seed: int
    decays: ColumnDecays | None = None

    @classmethod
    def of(cls, settings: Config, splits: Splits, normalizer: Normalizer) -> TrainingTriples:
        """The rows of a run's splits by its resolved settings."""
        mark = FALSE if model_class(settings.model).confidence_head is None else 0.0
        return cls(splits.train, splits.known_negatives, normalizer, mark, settings.seed, _decays(settings, splits))

    def __len__(self) -> int:
        return len(self.facts) + len(self.evidence)

    @property
    def evidence(self) -> Weights:
        """How strong the evidence against each false triple is, in (0, 1]."""
        return np.empty(0) if self.false is None else self.false.weight

    @property
    def graph(self) -> Graph:
        """All rows."""
        return self.facts if self.false is None else concatenate([self.facts, self.false])

    @property
    def weight(self) -> Floats:
        """Those of facts, in [0, 1], and FALSE for what is false (0 for a model of confidence); float32 [n]."""
        weight = np.full(len(self), self.mark, np.float32)
        for piece in chunks(len(self.facts), CHUNK):
            weight[piece] = self.normalizer.transform(self.facts.weight[piece], self.facts.relation[piece])
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
                    weight = self.normalizer.transform(graph.weight[piece], graph.relation[piece])
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
        chance = np.random.default_rng([self.seed, epoch, RandomStream.FALSE_TRIPLES]).random(len(self.evidence))
        return np.concatenate([np.arange(facts), facts + np.flatnonzero(chance < self.evidence)])


def _decays(settings: Config, splits: Splits) -> ColumnDecays | None:
    """Columns whose β falls each by a time of its own; None where one serves all."""
    merger = splits.merger
    if merger is None or settings.decays is None or settings.focus != "paper" or settings.beta is not None:
        return None
    own = parse_named_numbers(settings.decays, "decays")
    focuses = tuple(
        FocusELayer(decay=int(own.get(name, settings.decay or 0)), floor=settings.beta_floor) for name in merger.names
    )
    return ColumnDecays(*merger.unit_weights(splits.train), merger.importance, focuses)


def make_soft_labels(settings: Config, splits: Splits) -> SoftLabels | None:
    """The labels of weights, None where weights are none; a plain model needs some, too, to tell what is false."""
    if splits.known_negatives is None or settings.loss == SQUARED_ERROR:
        return settings.make_label()
    return settings.make_label() or SoftLabels(0.0)


def make_objective(
    settings: Config, focus: FocusELayer | None, correction: float | None = None
) -> FocusedLoss | SoftLabelLoss | SquaredError | TwoHeadedSquaredError:
    """FocusE and a loss, the squared error of a confidence model, or soft labels with their sampling correction."""
    if correction is not None:
        return SoftLabelLoss(correction)
    if settings.loss != SQUARED_ERROR:
        return FocusedLoss(make_loss(settings.loss), focus)
    model = settings.make_model()
    head = model.confidence_head
    if head is None:
        raise FocuseError(f"loss {SQUARED_ERROR!r} needs a model with a confidence head, not {settings.model!r}")
    unclipped = partial(head.unclipped, parameters=model.parameters)
    if head.has_plausibility:
        plausibility = partial(head.plausibility, parameters=model.parameters)
        return TwoHeadedSquaredError(unclipped, plausibility, settings.soft_logic_weight)
    return SquaredError(unclipped, settings.soft_logic_weight, head.activation)


def log_sampling_correction(settings: Config, label: SoftLabels, sampler: NegativeSampler, facts: Batch) -> float:
    """Log of (number of possible negatives / number sampled per positive), which soft labels add to negative scores.

    There are E − 1 possible negatives per side; independent negatives are of both sides. With the distribution 'type'
    only entities of that type are possible, and the mean of the log over `facts` is used for all positives. The other
    distributions change how often an entity is drawn, not how many are possible. With a label exponent of 0 the
    sampled negatives are taken for all, as a model without weights does.
    """
    if settings.sampling == "all" or settings.negatives is None or sampler.entities < 2 or label.exponent == 0:
        return 0.0
    distribution = sampler.distribution
    if distribution is not None and distribution.entity_distribution == "type" and distribution.by_relation is not None:
        return float(distribution.by_relation.num_candidates(facts).cpu().double().log().mean()) - math.log(
            settings.negatives
        )
    sides = 2 if settings.sampling == "independent" else 1
    return math.log(sides * (sampler.entities - 1) / settings.negatives)


def build_model(settings: Config, splits: Splits) -> Model:
    """The model of the settings, bound to the graph that it is trained on."""
    model = settings.make_model()
    if settings.attribute_share is not None and model.auxiliary_loss is not None:
        model.auxiliary_loss = replace(model.auxiliary_loss, weight=settings.attribute_share)
    return model.bind(context=context_of(model, splits, settings.device))


def init_tables(
    settings: Config,
    model: Model,
    entities: int,
    relations: int,
    rows: slice = slice(None),
    random: torch.Generator | None = None,
) -> dict[str, torch.Tensor]:
    """Normal, of the settings' or the model's deviation, else Xavier's √(2 / (rows + width)) as in the paper's code.

    Of the entities only `rows` are kept, and no more held unless the model requires the whole table. Inverse relations
    are drawn with their relations, in rows of twice the width, and then become rows r + R.
    """
    random = generator(settings.seed, 0, RandomStream.INITIAL_EMBEDDINGS) if random is None else random
    width, relation_width = model.widths(settings.dim)
    halves = 2 if settings.reciprocal else 1
    given = settings.init_std or model.defaults.get("init_std")

    def normal(shape: tuple[int, int], rows: slice = slice(None)) -> torch.Tensor:
        return normal_rows(shape, random, rows) * (given or (2.0 / sum(shape)) ** 0.5)

    if "whole table" in model.requires:
        entity = model.init_table("entity", normal((entities, width)))
        entity = entity if rows == slice(None) else entity[rows].clone()
    else:
        entity = model.init_table("entity", normal((entities, width), rows))
    values = normal((relations, halves * relation_width)).chunk(halves, dim=1)
    relation = torch.cat([model.init_table("relation", half) for half in values])
    return {"entity": entity, "relation": relation} | model.init_parameters(settings.dim, random)


def as_batch(graph: Graph, weight: npt.NDArray[Any], device: torch.device | str) -> Batch:
    """All edges of a graph as one batch on the device, with these weights [n]."""
    columns = (*id_tensors(graph), torch.from_numpy(weight.astype(np.float32, copy=False)))
    return Batch(*(column.to(device) for column in columns))


class WeightedTriples(Protocol):
    """Rows of training triples with weights; a `Batch`, or rows in shared memory."""

    def __len__(self) -> int: ...

    def take(self, rows: torch.Tensor) -> Batch:
        """The triples of these rows int64 [B]."""

    def first(self, count: int) -> Batch:
        """The first triples."""

    def set_weights(self, weight: torch.Tensor) -> None:
        """Replace all weights [n] in place."""


class TripleSource(Protocol):
    """Where the training triples are while they are trained on."""

    def load(self, triples: TrainingTriples, labels: SoftLabels | None, device: str) -> WeightedTriples:
        """All rows with their weights, as soft labels where there are any."""

    def index(self, train: Graph, device: str) -> TripleIndex:
        """The known triples that negatives are filtered by."""


class TriplesInMemory:
    """Training triples as tensors on the device of the training."""

    def load(self, triples: TrainingTriples, labels: SoftLabels | None, device: str) -> Batch:
        batch = as_batch(triples.graph, triples.weight, device)
        return batch if labels is None else replace(batch, weight=labels(batch.weight))

    def index(self, train: Graph, device: str) -> TripleIndex:
        return build_triple_index([train], device)


@dataclass(frozen=True, eq=False)
class TrainingProblem:
    """Everything that defines the optimization problem, and nothing about how or where it is solved.

    `batch` holds all training triples with the weights of the first epoch, as soft labels where `labels` are used.
    """

    config: Config
    splits: Splits
    model: Model
    triples: TrainingTriples
    batch: WeightedTriples
    labels: SoftLabels | None
    focus: FocusELayer | None
    negatives: NegativeSampler
    objective: FocusedLoss | SoftLabelLoss | SquaredError | TwoHeadedSquaredError
    regularizer: Regularizer | None
    scale: float | None = None  # factor of the loss of a batch; None: by the reduction of the config

    @classmethod
    def build(
        cls, config: Config, splits: Splits, normalizer: Normalizer, source: TripleSource | None = None
    ) -> TrainingProblem:
        """The problem of a resolved config on these splits; `source` is where its triples are, by default in memory."""
        source = TriplesInMemory() if source is None else source
        train = splits.train
        triples, labels = TrainingTriples.of(config, splits, normalizer), make_soft_labels(config, splits)
        batch = source.load(triples, labels, config.device)
        known = source.index(train, config.device) if config.filter_negatives else None
        # A uniform distribution does not depend on the triples, so those on disk need not come into memory.
        uniform = (config.negative_distribution, config.corrupt_side) == (
            ENTITY_DISTRIBUTIONS[0],
            SIDE_DISTRIBUTIONS[0],
        )
        facts = batch.first(0 if uniform else len(train))
        sizes = len(train.entities), len(train.relations)
        distribution = make_negative_distribution(config.negative_distribution, config.corrupt_side, facts, *sizes)
        sampler = NegativeSampler(config.sampling, config.negatives or 1, sizes[0], known, distribution)
        focus = config.make_focus()
        correction = None if labels is None else log_sampling_correction(config, labels, sampler, facts)
        return cls(
            config,
            splits,
            build_model(config, splits),
            triples,
            batch,
            labels,
            focus,
            sampler,
            make_objective(config, focus, correction),
            make_regularizer(config.regularizer, config.regularizer_scope or "tables"),
        )

    @property
    def entities(self) -> int:
        return len(self.splits.train.entities)

    @cached_property
    def validator(self) -> Validator | None:
        """What measures the model on validation triples during training; None if there are none."""
        config, splits = self.config, self.splits
        valid = split_validation(splits.valid.graph, config.stopping_share, config.seed).stopping
        learned = [splits.train, splits.valid.graph]
        if config.stop_metric == "mse":
            known = relevant_triple_index(learned, valid, config.device)
            weight = self.triples.normalizer.transform(valid.weight, valid.relation)
            return confidence_validator(valid, weight, known, config.seed)
        # As in the paper, validation ranks are filtered by test triples too; nothing else is taken from them.
        known = relevant_triple_index([*learned, splits.test.graph], valid, config.device)
        return rank_validator(valid, splits.train, known, config.threshold, config.seed)

    def beta(self, epoch: int) -> float:
        """β in an epoch counted from 0; 1, which has no effect, without the FocusE layer."""
        return self.focus.beta(epoch) if self.focus else 1.0

    def step(self, positives: Batch, negatives: list[Negatives], beta: float | torch.Tensor, seed: StreamKey) -> Step:
        """A training step on a batch; auxiliary triples are drawn by `seed`."""
        by_reduction = 1.0 / len(positives) if self.config.reduction == "mean" else 1.0
        scale = by_reduction if self.scale is None else self.scale
        own = seed if isinstance(seed, int) else None
        return Step(positives, negatives, self.objective, beta, self.regularizer, scale, self._auxiliary(seed), own)

    @cached_property
    def _inferred(self) -> Batch | None:
        """Triples that rules infer, as auxiliary training data."""
        inferred = self.splits.inferred
        if inferred is None or not len(inferred):
            return None
        return as_batch(inferred, inferred.weight, self.config.device)

    def _auxiliary(self, seed: StreamKey) -> AuxiliaryTriples | None:
        """Some of the inferred triples, drawn for one batch."""
        inferred, objective = self._inferred, self.objective
        if inferred is None or isinstance(seed, tuple):
            return None
        if not isinstance(objective, SquaredError | TwoHeadedSquaredError):
            return None
        key, count = seed ^ RandomStream.INFERRED_TRIPLES, self.config.soft_logic_size
        rows = draw_integers(key, (count,), len(inferred), inferred.head.device)
        return AuxiliaryTriples(inferred.take(rows), objective.rule_loss)

    def init_tables(self, note: Callable[[str], None]) -> dict[str, torch.Tensor]:
        """Initial tables: random, or from the run that the config starts from; this process's rows of entities."""
        config, sizes = self.config, (self.entities, len(self.splits.train.relations))
        if config.start is None:
            return init_tables(config, self.model, *sizes, own_rows(config, sizes[0]))
        tables = started(init_tables(config, self.model, *sizes), config.start, self.splits, build_model, note)
        return tables | {"entity": tables["entity"][own_rows(config, sizes[0])]}
