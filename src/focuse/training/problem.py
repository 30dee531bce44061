"""The training problem: model, triples with their weights, negatives, objective, regularizer and validator.

Every training builds one `TrainingProblem`: in memory, with partitions on disk, with several processes, for new
entities only (`training.cold_start`), and for explanations, which need the gradient of the loss. The problem does not
determine how or where it is solved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from focuse.config import CONFIDENCE_LOSSES, CROSS_ENTROPY, Config
from focuse.data.graph import Graph, Weights, concatenate
from focuse.data.splits import Splits, split_validation
from focuse.data.triple_index import TripleIndex, build_triple_index, id_tensors, relevant_triple_index
from focuse.data.weights import Normalizer
from focuse.engines.base import Step
from focuse.engines.process_group import current_group
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.models.base import Model, join_inverse_relations, split_inverse_relations
from focuse.models.registry import model_class
from focuse.objective.focuse import FocusELayer, SoftLabels
from focuse.objective.losses import (
    FocusedLoss,
    Regularizer,
    SoftLabelLoss,
    SquaredError,
    WeightCrossEntropy,
    make_loss,
    make_regularizer,
)
from focuse.objective.negatives import Batch, Negatives, NegativeSampler, make_negative_distribution
from focuse.objective.randomness import draw_integers, generator
from focuse.random_streams import RandomStream
from focuse.storage.run_folder import RunFolder
from focuse.storage.tables import check_tables
from focuse.storage.tensors import Tables
from focuse.system import chunks
from focuse.training.preparation import make_context
from focuse.training.validation import Validator, confidence_validator, rank_validator

RANDOM_NUMBERS_PER_CHUNK = 1 << 24  # random numbers that are drawn at a time, 64 MB


def normal_pieces(shape: tuple[int, int], random: torch.Generator) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield torch.randn(shape) in pieces of rows, bitwise equal, each with the number of its first row."""
    count, width = shape
    # torch draws 16 numbers at a time and redraws the last incomplete ones, so chunks of 16 rows give the same numbers.
    size = max(16, RANDOM_NUMBERS_PER_CHUNK // max(width, 1) // 16 * 16)
    for begin, end in pairwise([*range(0, max(count - 15, 1), size), count]):
        yield begin, torch.randn((end - begin, width), generator=random)


def normal_rows(shape: tuple[int, int], random: torch.Generator, rows: slice = slice(None)) -> torch.Tensor:
    """Return the given rows of torch.randn(shape), bitwise equal, without storing the other rows.

    >>> made = normal_rows((100, 3), torch.Generator().manual_seed(1), slice(40, 60))
    >>> bool((made == torch.randn(100, 3, generator=torch.Generator().manual_seed(1))[40:60]).all())
    True
    """
    start, stop, _ = rows.indices(shape[0])
    pieces = normal_pieces(shape, random)
    return torch.cat([piece[max(start - begin, 0) : max(stop - begin, 0)].clone() for begin, piece in pieces])


KNOWN_NEGATIVE_WEIGHT = -1.0  # the weight that marks a known negative; positives have weights in [0, 1]
DECAY_STEPS = 4  # strengths of a regularizer that decays, from the given one to the given one times its decay
CHUNK = 1 << 20  # edges whose weights are normalized at a time

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TrainingTriples:
    """The edges of train, followed by the known negatives, whose weight is `known_negative_weight`."""

    facts: Graph
    false: Graph | None
    normalizer: Normalizer
    known_negative_weight: float
    seed: int

    @classmethod
    def from_splits(cls, settings: Config, splits: Splits, normalizer: Normalizer) -> TrainingTriples:
        """Return the training triples of the splits, by resolved settings."""
        mark = KNOWN_NEGATIVE_WEIGHT if model_class(settings.model).confidence_head is None else 0.0
        return cls(splits.train, splits.known_negatives, normalizer, mark, settings.seed)

    def __len__(self) -> int:
        return len(self.facts) + len(self.evidence)

    @property
    def evidence(self) -> Weights:
        """Strength of the evidence for each known negative, in (0, 1]."""
        return np.empty(0) if self.false is None else self.false.weight

    @property
    def graph(self) -> Graph:
        """All training triples as one graph."""
        return self.facts if self.false is None else concatenate([self.facts, self.false])

    @property
    def weight(self) -> Floats:
        """Weights float32 [n]: in [0, 1] for positives, and `known_negative_weight` for known negatives.

        That is KNOWN_NEGATIVE_WEIGHT, or 0 for a confidence model.
        """
        weight = np.full(len(self), self.known_negative_weight, np.float32)
        for piece in chunks(len(self.facts), CHUNK):
            weight[piece] = self.normalizer.transform(self.facts.weight[piece], self.facts.relation[piece])
        return weight

    def pack(self, rows: npt.NDArray[np.int32]) -> None:
        """Write all triples to `rows`, int32 [n, 4]: head, relation, tail and the bits of the weight."""
        graph = self.graph
        for place, column in enumerate((graph.head, graph.relation, graph.tail, self.weight.view(np.int32))):
            rows[:, place] = column

    def rows_in_epoch(self, epoch: int) -> npt.NDArray[np.int64] | None:
        """Return the rows, int64, that are trained in an epoch; None stands for all rows.

        These are all positives, and each known negative with the strength of its evidence as its probability. The
        result is a pure function of (seed, epoch), so that a resumed run trains the same rows.
        """
        if (self.evidence >= 1).all():
            return None
        facts = len(self.facts)
        chance = np.random.default_rng([self.seed, epoch, RandomStream.KNOWN_NEGATIVES]).random(len(self.evidence))
        return np.concatenate([np.arange(facts), facts + np.flatnonzero(chance < self.evidence)])


def make_labels(settings: Config, splits: Splits) -> SoftLabels | None:
    """Return the soft labels of the training triples, or None if training does not use soft labels.

    With known negatives, training without weights uses soft labels with exponent 0, which distinguish them from
    positives.
    """
    if splits.known_negatives is None or settings.loss in CONFIDENCE_LOSSES:
        return settings.make_soft_labels()
    return settings.make_soft_labels() or SoftLabels(0.0)


def make_objective(
    settings: Config, focuse_layer: FocusELayer | None, correction: float | None = None
) -> FocusedLoss | SoftLabelLoss | SquaredError | WeightCrossEntropy:
    """Return the objective: a loss with the FocusE layer, the loss of a confidence model, or soft labels.

    Soft labels are used if their sampling `correction` is given.
    """
    if correction is not None:
        return SoftLabelLoss(correction)
    head = settings.make_model().confidence_head
    if settings.loss == CROSS_ENTROPY:
        return WeightCrossEntropy()
    if head is None or settings.loss not in CONFIDENCE_LOSSES:
        return FocusedLoss(make_loss(settings.loss), focuse_layer)
    return SquaredError(head, settings.rule_loss_weight)


def log_sampling_correction(settings: Config, label: SoftLabels, sampler: NegativeSampler, positives: Batch) -> float:
    """Log of (number of possible negatives / number sampled per positive), which soft labels add to negative scores.

    There are E − 1 possible negatives per side, and per-triple negatives can replace both sides. With the distribution
    'type' only entities of that type are possible, and the mean of the log over `positives` is used for all. The
    other distributions change how often an entity is drawn, but not how many are possible. With a label exponent of 0
    there is no correction, as in a training without weights.
    """
    count, distribution = settings.num_negatives, sampler.distribution
    if settings.negative_sampling == "all" or count is None or sampler.entities < 2 or label.exponent == 0:
        return 0.0
    if distribution is not None and distribution.entity_distribution == "type" and distribution.by_relation is not None:
        possible = distribution.by_relation.num_candidates(positives).cpu().double()
        return float(possible.log().mean()) - math.log(count)
    sides = 2 if settings.negative_sampling == "per-triple" else 1
    return math.log(sides * (sampler.entities - 1) / count)


def build_model(settings: Config, splits: Splits) -> Model:
    """Return the model of the settings, bound to the graph that it is trained on."""
    model = settings.make_model()
    if settings.attribute_loss_weight is not None and model.auxiliary_loss is not None:
        model.auxiliary_loss = replace(model.auxiliary_loss, weight=settings.attribute_loss_weight)
    return model.bind(context=make_context(model, splits, settings.device))


def init_std(settings: Config, model: Model, shape: tuple[int, int]) -> float:
    """Return the standard deviation of an initial table: as set, the model's, or Xavier's √(2 / (rows + width))."""
    return float(settings.init_std or model.defaults.get("init_std") or (2.0 / sum(shape)) ** 0.5)


def init_tables(
    settings: Config,
    model: Model,
    entities: int,
    relations: int,
    rows: slice = slice(None),
    random: torch.Generator | None = None,
) -> dict[str, torch.Tensor]:
    """Return initial tables with normally distributed values, and initial parameters.

    Only the given `rows` of the entity table are returned, and the others are not stored unless the model requires the
    whole table. A relation and its inverse are drawn as one row of twice the width, and then become the rows r and
    r + R.
    """
    random = generator(settings.seed, 0, RandomStream.INITIAL_EMBEDDINGS) if random is None else random
    width, relation_width = model.widths(settings.dim)
    halves = 2 if settings.reciprocal else 1

    def normal(shape: tuple[int, int], rows: slice = slice(None)) -> torch.Tensor:
        return normal_rows(shape, random, rows) * init_std(settings, model, shape)

    if "whole table" in model.requires:
        entity = model.init_table("entity", normal((entities, width)))
        entity = entity if rows == slice(None) else entity[rows].clone()
    else:
        entity = model.init_table("entity", normal((entities, width), rows))
    values = normal((relations, halves * relation_width)).chunk(halves, dim=1)
    relation = torch.cat([model.init_table("relation", half) for half in values])
    return {"entity": entity, "relation": relation} | model.init_parameters(settings.dim, random)


def copy_embeddings(tables: Tables, folder: str, splits: Splits, note: Callable[[str], None]) -> Tables:
    """Return initial `tables` for a training on `splits`, with the rows of the run in `folder` for the same names.

    Names that the other run does not have keep their initial values, and so do shared parameters (filters, matrices).
    If the other model has an encoder, its encoded tables are used. So one model can pretrain another, such as TransE
    or KBGAT's attention for ConvKB.
    """
    store = RunFolder.open(Path(folder))
    settings, other, _ = store.metadata()
    found = store.model("cpu")[0]
    model = build_model(replace(settings, device="cpu"), other)  # the tables are on the CPU
    check_tables(found, settings, model, other.train, Path(folder))
    if model.encoder is not None:
        found = dict(TableScorer(model, found, settings.reciprocal).encoded_tables())
    made, copied = dict(tables), []
    for name, plural in (("entity", "entities"), ("relation", "relations")):
        wanted, known = getattr(splits.train, plural), getattr(other.train, plural)
        # A relation and its inverse are one row here, because the other run may have no inverse relations.
        inverse = len(tables[name]) > len(wanted)
        rows = join_inverse_relations(tables[name]) if inverse else tables[name].clone()
        source = found[name] if len(found[name]) == len(known) else join_inverse_relations(found[name])
        if name == "relation" and rows.shape[1] != source.shape[1] and settings.reciprocal != inverse:
            raise FocuseError(f"init_from {folder}: it was trained with reciprocal={settings.reciprocal}; use the same")
        if rows.shape[1] != source.shape[1]:
            raise FocuseError(
                f"init_from {folder}: a row of its {name} table ({settings.model}, dim {settings.dim}) has "
                f"{source.shape[1]} values, but this training needs {rows.shape[1]}; choose a model and a dim of the "
                "same width"
            )
        place = torch.from_numpy(known.ids(wanted.column)).long()
        rows[place >= 0] = source[place[place >= 0]].to(rows)
        made[name] = split_inverse_relations(rows) if inverse else rows
        copied.append(int((place >= 0).sum()))
    if not copied[0]:
        raise FocuseError(f"init_from {folder}: it has none of this graph's entities; give a run with the same names")
    note(
        f"init_from {folder}: {copied[0]:,} of {len(splits.train.entities):,} entities and {copied[1]:,} of "
        f"{len(splits.train.relations):,} relations start from its {settings.model} embeddings"
    )
    trained = build_triple_index([other.train.align(splits.train).graph])
    for part, name in ((splits.valid, "validation"), (splits.test, "test")):
        seen = int(trained.contains(*id_tensors(part)).sum()) if len(part) else 0
        if seen:
            note(
                f"init_from {folder}: leakage: it was trained on {seen:,} of the {len(part):,} {name} triples, so "
                "metrics will be too high; use the same split (the same seed, or valid and test)"
            )
    return made


def as_batch(graph: Graph, weight: npt.NDArray[Any], device: torch.device | str) -> Batch:
    """Return all edges of a graph as one batch on the device, with the given weights [n]."""
    columns = (*id_tensors(graph), torch.from_numpy(weight.astype(np.float32, copy=False)))
    return Batch(*(column.to(device) for column in columns))


class TripleStore(Protocol):
    """Training triples with weights: a `Batch`, or triples in shared memory."""

    def __len__(self) -> int: ...

    def take(self, rows: torch.Tensor) -> Batch:
        """Return the triples at `rows`, int64 [B]."""

    def first(self, count: int) -> Batch:
        """Return the first `count` triples."""


class TripleSource:
    """Loads the training triples to the place where they are kept during training: here, the training device."""

    def load(self, triples: TrainingTriples, labels: SoftLabels | None, device: str) -> TripleStore:
        """Return all training triples with their weights, or with soft labels if `labels` is given."""
        batch = as_batch(triples.graph, triples.weight, device)
        return batch if labels is None else replace(batch, weight=labels(batch.weight))

    def index(self, train: Graph, device: str) -> TripleIndex:
        """Return the index of known triples by which negatives are filtered."""
        return build_triple_index([train], device)


IN_MEMORY = TripleSource()


@dataclass(frozen=True, eq=False)
class TrainingProblem:
    """Everything that defines the optimization problem; a trainer and an engine solve it.

    `triples` are the training triples as a graph with scaled weights. `triple_store` holds the same triples as tensors
    from which batches are taken, with the weights of the first epoch, or with soft labels if `labels` is given.
    """

    config: Config
    splits: Splits
    model: Model
    triples: TrainingTriples
    triple_store: TripleStore
    labels: SoftLabels | None
    focuse_layer: FocusELayer | None
    negative_sampler: NegativeSampler
    objective: FocusedLoss | SoftLabelLoss | SquaredError | WeightCrossEntropy
    regularizer: Regularizer | None

    @classmethod
    def build(
        cls, config: Config, splits: Splits, normalizer: Normalizer, source: TripleSource = IN_MEMORY
    ) -> TrainingProblem:
        """Return the problem of a resolved config on these splits; `source` loads the triples, by default to memory."""
        train = splits.train
        triples, labels = TrainingTriples.from_splits(config, splits, normalizer), make_labels(config, splits)
        batch = source.load(triples, labels, config.device)
        known = source.index(train, config.device) if config.filter_negatives else None
        # A uniform distribution does not depend on the triples, so triples on disk need not be loaded.
        kinds, sizes = (config.negative_distribution, config.corrupt_side), (len(train.entities), len(train.relations))
        facts = batch.first(0 if kinds == ("uniform", "uniform") else len(train))
        distribution = make_negative_distribution(*kinds, facts, *sizes)
        sampler = NegativeSampler(config.negative_sampling, config.num_negatives or 1, sizes[0], known, distribution)
        focuse_layer = config.make_focuse_layer()
        correction = None if labels is None else log_sampling_correction(config, labels, sampler, facts)
        return cls(
            config,
            splits,
            build_model(config, splits),
            triples,
            batch,
            labels,
            focuse_layer,
            sampler,
            make_objective(config, focuse_layer, correction),
            make_regularizer(config.regularizer, config.regularizer_scope or "tables"),
        )

    @property
    def entities(self) -> int:
        return len(self.splits.train.entities)

    @cached_property
    def validator(self) -> Validator | None:
        """The validator that measures the model during training; None if there are no validation triples."""
        config, splits = self.config, self.splits
        valid = split_validation(splits.valid, config.stop_fraction, config.seed).stopping
        if config.stop_metric == "mse":
            known = relevant_triple_index([splits.train, splits.valid], valid, config.device)
            weight = self.triples.normalizer.transform(valid.weight, valid.relation)
            with_negatives = config.negative_sampling != "none"
            return confidence_validator(valid, weight, known, config.seed, with_negatives)
        # As in the paper, validation ranks are filtered by test triples too; nothing else is taken from them.
        filters = [splits.train, splits.valid, splits.test]
        return rank_validator(valid, splits.train, filters, config.valid_min_weight or 0.0, config.seed, config.device)

    def beta(self, epoch: int) -> float:
        """Return β in an epoch, counted from 0; without the FocusE layer it is 1, which has no effect."""
        return self.focuse_layer.beta(epoch) if self.focuse_layer else 1.0

    def regularizer_at(self, epoch: int) -> Regularizer | None:
        """Return the regularizer in an epoch, counted from 0; its strength falls in steps if there is a decay."""
        config, regularizer = self.config, self.regularizer
        if regularizer is None or config.regularizer_decay == 1:
            return regularizer
        step = min(epoch * DECAY_STEPS // config.epochs, DECAY_STEPS - 1)
        return replace(
            regularizer, strength=regularizer.strength * config.regularizer_decay ** (step / (DECAY_STEPS - 1))
        )

    def step(
        self,
        positives: Batch,
        negatives: list[Negatives],
        beta: float | torch.Tensor,
        seed: int | torch.Tensor,
        epoch: int,
    ) -> Step:
        """Return a training step on a batch in an epoch; the `seed` determines its auxiliary triples."""
        scale = 1.0 / len(positives) if self.config.reduction == "mean" else 1.0
        own = seed if isinstance(seed, int) else None
        regularizer = self.regularizer_at(epoch)
        return Step(positives, negatives, self.objective, beta, regularizer, scale, self._auxiliary(seed), own)

    @cached_property
    def _inferred(self) -> Batch | None:
        """The triples that rules infer, which are auxiliary training data; None if there are none."""
        inferred = self.splits.inferred
        if inferred is None or not len(inferred):
            return None
        return as_batch(inferred, inferred.weight, self.config.device)

    def _auxiliary(self, seed: int | torch.Tensor) -> Batch | None:
        """Return a sample of the inferred triples for one batch, or None if there are none."""
        inferred = self._inferred
        if inferred is None or not isinstance(self.objective, SquaredError):
            return None
        key, count = seed ^ RandomStream.INFERRED_TRIPLES, self.config.rule_batch_size
        rows = draw_integers(key, (count,), len(inferred), inferred.head.device)
        return inferred.take(rows)

    def init_tables(self, note: Callable[[str], None]) -> dict[str, torch.Tensor]:
        """Return initial tables, random or those of `config.init_from`; of entities only the rows of this process."""
        config, sizes = self.config, (self.entities, len(self.splits.train.relations))
        # A process of several may also train alone, with another engine.
        rows = current_group().shard(self.entities) if config.engine == "sharded" else slice(None)
        if config.init_from is None:
            return init_tables(config, self.model, *sizes, rows)
        tables = copy_embeddings(init_tables(config, self.model, *sizes), config.init_from, self.splits, note)
        return tables | {"entity": tables["entity"][rows]}
