"""Embeddings for entities and relations that a run has not seen.

A new entity is initialized near the known entities with the same edges. For each of its edges (·, r, o), the mean row
of the known entities x with an edge (x, r, o) is computed. The mean over its edges is weighted by their weights, and
edges with fewer such x count more. A new relation is initialized with the known relation that best separates its edges
from their negatives.

Then the new rows are trained with the objective of the run while all others are frozen; the work is proportional to
the number of new edges. New entities are trained on their own edges and as negatives of a sample of known edges, as in
the training of a whole run. Without this, they score too high everywhere and lower the ranks of known entities
(benchmarks/extend.py measures both).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.config import Config
from focuse.data.graph import Graph, Weights, concatenate, find_sorted
from focuse.data.triple_index import TripleIndex, build_triple_index
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Gradients
from focuse.engines.optimizers import RowAdam
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.models.base import Model, join_inverse_relations, split_inverse_relations
from focuse.objective.focuse import SoftLabels
from focuse.objective.negatives import Batch, Negatives
from focuse.objective.randomness import StreamKey, generator, stream_seed
from focuse.random_streams import RandomStream
from focuse.storage.tensors import Tables
from focuse.training.callbacks import Reporter
from focuse.training.graph_update import GraphUpdate
from focuse.training.problem import TrainingProblem, TrainingTriples, as_batch, build_model, init_tables
from focuse.training.trainer import DivergedError, InMemoryPlacement, Trainer
from focuse.training.validation import BestTables

Ids = npt.NDArray[np.int64]
MAX_SIBLINGS = 64  # maximum number of entities with the same edge that are averaged
MAX_EDGES_TRIED = 256  # maximum number of edges of a new relation on which known relations are compared
WEIGHT_OFFSET = 0.1  # added to every weight, so that edges of weight 0 count too
ROWS_PER_CHUNK = 1 << 16  # rows gathered at a time
FALLBACK_WEIGHT = 1e-6  # factor for means over a relation and side, used if no entity has the same edge


@dataclass(frozen=True)
class EdgeEndpoints:
    """Endpoints of edges: an `entity`, the `other` end, and `relation_side` = 2 · relation + side (0: head)."""

    entity: Ids
    relation_side: Ids
    other: Ids
    weight: Weights

    @classmethod
    def of(cls, graph: Graph, weight: Weights, rows: npt.NDArray[np.bool_] | None = None) -> EdgeEndpoints:
        """Return both endpoints of every edge, the heads first."""
        graph, weight = (graph, weight) if rows is None else (graph.select(rows), weight[rows])
        head, kind, tail = (column.astype(np.int64) for column in (graph.head, graph.relation, graph.tail))
        kinds = np.concatenate([2 * kind, 2 * kind + 1])
        return cls(np.concatenate([head, tail]), kinds, np.concatenate([tail, head]), np.tile(weight, 2))

    def take(self, rows: npt.NDArray[Any]) -> EdgeEndpoints:
        return EdgeEndpoints(self.entity[rows], self.relation_side[rows], self.other[rows], self.weight[rows])


def append_initial_rows(settings: Config, grown: GraphUpdate, tables: Tables, model: Model) -> Tables:
    """Return copies of the tables with initial rows appended for new names and for inverses of new relations."""
    train, seed = grown.splits.train, settings.seed + len(grown.splits.train.entities)
    known = {"entity": grown.entities, "relation": grown.relations}
    more = {"entity": len(train.entities) - grown.entities, "relation": len(train.relations) - grown.relations}
    chance = init_tables(replace(settings, seed=seed), model, more["entity"], more["relation"])
    made = {name: table.clone() for name, table in tables.items() if name not in known}
    if settings.reciprocal:  # until all rows are appended, a row holds a relation and its inverse
        tables = {**tables, "relation": join_inverse_relations(tables["relation"])}
        chance["relation"] = join_inverse_relations(chance["relation"])
    for name in known:
        made[name] = torch.cat([tables[name], _rescale(chance[name].to(tables[name]), tables[name])])
    if more["entity"]:
        mean, found = sibling_means(grown, tables["entity"], settings.seed)
        made["entity"][grown.entities + found] = mean.to(made["entity"])
    if more["relation"]:
        made["relation"][grown.relations :] = made["relation"][_best_known_relations(settings, grown, made, model)]
    if settings.reciprocal:
        made["relation"] = split_inverse_relations(made["relation"])
    return made


def _rescale(rows: Tensor, table: Tensor) -> Tensor:
    """Scale random rows to the root mean square of a trained table, which may be far smaller or larger."""
    size = root_mean_square(rows)
    return rows * (root_mean_square(table) / size) if size > 0 else rows


def root_mean_square(table: Tensor) -> float:
    """Return the root mean square of the values of a table; of a large table, a sample of rows is used."""
    some = table[:: max(1, len(table) // 10_000)]
    return float(some.double().pow(2).mean().sqrt()) if some.numel() else 0.0


def sibling_means(grown: GraphUpdate, table: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return the mean rows [m, d] of the siblings of new entities, and which new entities these are, int64 [m].

    Siblings are known entities with the same edge. If there are none, the mean of all entities on the same side of the
    relation is used.
    """
    train = grown.splits.train
    touching = grown.involves_new(train)
    weight = grown.normalizer.transform(train.weight[touching], train.relation[touching])
    mine = EdgeEndpoints.of(train.select(touching), weight + WEIGHT_OFFSET)
    mine = mine.take((mine.entity >= grown.entities) & (mine.other < grown.entities))
    mine = mine.take(mine.relation_side < 2 * grown.relations)
    size, random = len(train.entities), np.random.default_rng([seed, RandomStream.NEW_ENTITY_SIBLINGS])
    theirs = _sibling_endpoints(train, grown, mine)
    sums, total = torch.zeros(size - grown.entities, table.shape[1]), torch.zeros(size - grown.entities)
    for theirs_key, mine_key, counts in (
        (theirs.relation_side * size + theirs.other, mine.relation_side * size + mine.other, 1.0),
        (theirs.relation_side, mine.relation_side, FALLBACK_WEIGHT),
    ):
        groups, place = np.unique(mine_key, return_inverse=True)
        means, sizes = _group_means(table, theirs, theirs_key, groups, random)
        worth = np.where(sizes > 0, counts / np.log(2.0 + sizes), 0.0)[place] * mine.weight
        at, amount = torch.from_numpy(mine.entity - grown.entities), torch.from_numpy(worth).float()
        sums.index_add_(0, at, means[torch.from_numpy(place)] * amount[:, None])
        total.index_add_(0, at, amount)
    found = torch.nonzero(total > 0).ravel()
    return sums[found] / total[found, None], found


def _sibling_endpoints(train: Graph, grown: GraphUpdate, mine: EdgeEndpoints) -> EdgeEndpoints:
    """Return endpoints of known edges that may belong to siblings.

    The edges have a relation of the new entities' edges and the same other endpoint, or belong to a sample.
    """
    wanted = np.zeros(len(train.entities), bool)
    wanted[mine.other] = True
    kinds = np.zeros(2 * len(train.relations), bool)
    kinds[mine.relation_side] = True
    step = max(1, len(train) // 200_000)  # a sample of edges is enough for the mean over a side of a relation
    sample = np.zeros(len(train), bool)
    sample[::step] = True
    rows = (kinds[2 * train.relation] & (wanted[train.tail] | sample)) | (
        kinds[2 * train.relation + 1] & (wanted[train.head] | sample)
    )
    rows &= ~grown.involves_new(train)
    near = train.select(rows)
    return EdgeEndpoints.of(near, grown.normalizer.transform(near.weight, near.relation) + WEIGHT_OFFSET)


def _group_means(
    table: Tensor, theirs: EdgeEndpoints, keys: Ids, groups: Ids, random: np.random.Generator
) -> tuple[Tensor, npt.NDArray[np.int64]]:
    """Return, per sorted group, the weighted mean row of the endpoints with that key, and their number."""
    place, found_group = find_sorted(groups, keys)
    rows = np.flatnonzero(found_group)
    sizes = np.bincount(place[rows], minlength=len(groups))
    rows = random.permutation(rows)
    rows = rows[np.argsort(place[rows], kind="stable")]
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = rows[rank < MAX_SIBLINGS]
    sums, total = torch.zeros(len(groups), table.shape[1]), torch.zeros(len(groups))
    for piece in np.array_split(rows, max(1, -(-len(rows) // ROWS_PER_CHUNK))):
        at, amount = torch.from_numpy(place[piece]), torch.from_numpy(theirs.weight[piece]).float()
        found = table[torch.from_numpy(theirs.entity[piece]).to(table.device)].cpu().float()
        sums.index_add_(0, at, found * amount[:, None])
        total.index_add_(0, at, amount)
    return sums / total.clamp(min=1e-12)[:, None], sizes


@torch.no_grad()
def _best_known_relations(settings: Config, grown: GraphUpdate, tables: Tables, model: Model) -> list[int]:
    """Return, per new relation, the known relation that best separates its edges from negatives."""
    train, random = grown.splits.train, np.random.default_rng([settings.seed, RandomStream.NEW_RELATION_EDGES])
    if settings.reciprocal:
        tables = {**tables, "relation": split_inverse_relations(tables["relation"])}
    scorer = TableScorer(model, tables, settings.reciprocal)
    best = []
    for relation in range(grown.relations, len(train.relations)):
        edges = random.permutation(np.flatnonzero(train.relation == relation))[:MAX_EDGES_TRIED]
        head, tail = (torch.from_numpy(column[edges].astype(np.int64)) for column in (train.head, train.tail))
        other = torch.from_numpy(random.integers(len(train.entities), size=len(edges)))
        margins = []
        for kind in range(grown.relations):
            kinds = torch.full_like(head, kind)
            ids = [part.to(scorer.device) for part in (head, kinds, tail, other)]
            margins.append(float((scorer.score(*ids[:3]) - scorer.score(ids[0], ids[1], ids[3])).mean()))
        best.append(int(np.argmax(margins)))
    return best


DEFAULT_EPOCHS = 50
MAX_ANCHORS = 512  # known edges per epoch for which new entities are negatives
MAX_ANCHORS_EXPENSIVE = 64  # the same for a model that takes long
MAX_NEW_ENTITIES_IN_POOL = 512  # maximum number of new entities in a pool
MAX_CANDIDATES = 20_000  # number of entities up to which 1-vs-all uses all of them as negatives
POOL_SIZE = 1024  # size of the shared pool of negatives with more entities
RELATIVE_LEARNING_RATE = 0.05  # learning rate of Adam, relative to the root mean square of the table


class NewRowsOptimizer:
    """Adam on the new rows only, with a learning rate that decays to 0; known rows are not changed."""

    rows_only = True
    allow_duplicate_ids = False

    def __init__(self, tables: Tables, known: Mapping[str, int], steps: int, inverse_relations: bool = False) -> None:
        self.steps, self.done = max(steps, 1), 0
        self.blocks: list[tuple[str, int, Tensor, RowAdam, float]] = []  # table, first id, rows, optimizer, RMS
        for name, count in known.items():
            blocks = tables[name].chunk(2 if inverse_relations and name == "relation" else 1)
            size = root_mean_square(torch.cat([block[:count] for block in blocks])) or 1.0
            for number, block in enumerate(blocks):
                rows = block[count:]  # a view, so that the optimizer updates the table
                first = number * len(block) + count
                self.blocks.append((name, first, rows, RowAdam({name: rows}, RELATIVE_LEARNING_RATE * size), size))

    def update(self, gradients: Gradients) -> None:
        """Take one step; the ids of `gradients` refer to whole tables."""
        shrunk = 1.0 - self.done / self.steps
        for name, first, rows, adam, size in self.blocks:
            ids, gradient = gradients[name]
            if ids is None:
                ids, gradient = torch.arange(len(rows), device=rows.device), gradient[first : first + len(rows)]
            else:
                mine = (ids >= first) & (ids < first + len(rows))
                ids, gradient = ids[mine] - first, gradient[mine]
            if not len(ids):
                continue
            adam.lr = RELATIVE_LEARNING_RATE * size * shrunk
            adam.update({name: (ids, gradient)})
        self.done += 1

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        raise NotImplementedError("the training of new rows cannot be resumed")


def train_new_rows(
    config: Config, update: GraphUpdate, tables: Tables, epochs: int | None, reached: int, reporter: Reporter
) -> Tables:
    """Return the tables with rows for the new names, trained for `epochs`; the known rows are unchanged.

    `reached` is the epoch of the given tables, which determines β.
    """
    model = build_model(config, update.splits)
    tables = append_initial_rows(config, update, tables, model)
    train = update.splits.train
    if len(train.entities) == update.entities and len(train.relations) == update.relations:
        return tables
    epochs = DEFAULT_EPOCHS if epochs is None else epochs
    if epochs:
        try:
            _new_rows_trainer(
                _with_sampled_negatives(config, len(train.entities)), update, tables, epochs, reached, reporter
            ).run()
        except DivergedError as error:
            raise FocuseError(f"the new rows diverged ({error}); check the unit of the new weights") from None
    if not all(bool(torch.isfinite(table).all()) for table in tables.values()):
        raise FocuseError("the new rows diverged; check the unit of the new weights")
    return tables


def _with_sampled_negatives(config: Config, entities: int) -> Config:
    """Return a config that replaces 1-vs-all by a shared pool of negatives if there are many entities."""
    if config.negative_sampling != "all" or entities <= MAX_CANDIDATES:
        return config
    return replace(config, negative_sampling="shared", num_negatives=POOL_SIZE)


def _new_rows_trainer(
    config: Config, update: GraphUpdate, tables: Tables, epochs: int, reached: int, reporter: Reporter
) -> Trainer:
    """Return a trainer of the run's problem on the edges of new names; its optimizer updates only the new rows."""
    config = replace(config, epochs=epochs, device=str(tables["entity"].device), semi_supervised="none")
    splits = update.splits
    problem = TrainingProblem.build(config, replace(splits, inferred=None), update.normalizer, DeferredTriples())
    placement = ColdStartPlacement(problem, update, epochs, reached)
    known = {"entity": update.entities, "relation": update.relations}
    parameters = {name: table.clone() for name, table in tables.items() if name not in known}
    optimizer = NewRowsOptimizer(tables, known, epochs * placement.batch_count, config.reciprocal)
    model = problem.model.bind(context=replace(problem.model.context, evaluation=True))  # shared parameters are frozen
    engine = AutogradEngine(model, tables | parameters, optimizer, config.reciprocal)
    placement.engine = engine
    return Trainer(placement.problem, engine, placement, reporter)


class DeferredTriples:
    """A `TripleSource` that loads the training triples only if a negative distribution is fitted to them."""

    def load(self, triples: TrainingTriples, labels: SoftLabels | None, device: str) -> DeferredTriples:
        self.triples, self.device = triples, device
        return self

    def index(self, train: Graph, device: str) -> TripleIndex:
        return build_triple_index([train], device)

    def __len__(self) -> int:
        return len(self.triples)

    def first(self, count: int) -> Batch:
        graph = self.triples.facts.select(np.arange(count))
        return as_batch(graph, np.zeros(count), self.device)

    def take(self, rows: Tensor) -> Batch:
        return self.first(len(self)).take(rows)

    def set_weights(self, weight: Tensor) -> None:
        raise NotImplementedError("the weights of deferred triples are fixed")


class ColdStartPlacement(InMemoryPlacement):
    """A placement with the edges of new names, and with known edges ("anchors") that have new entities as negatives.

    Without anchors, new entities would never be trained as negatives.
    """

    engine: AutogradEngine

    def __init__(self, problem: TrainingProblem, update: GraphUpdate, epochs: int, reached: int) -> None:
        self.update, self.epochs, config, splits = update, epochs, problem.config, problem.splits
        self.new_entities = problem.entities - update.entities
        new = splits.train.select(update.involves_new(splits.train))
        self.batch_size = min(config.batch_size or 512, max(len(new), 1))
        most = MAX_ANCHORS_EXPENSIVE if problem.model.defaults.get("expensive_to_rank") else MAX_ANCHORS
        self.anchors = min(self._anchor_count(problem), most)
        anchors = splits.train.select(_sample_anchors(splits.train, new, self.anchors * epochs, config.seed))
        false = splits.known_negatives
        false = None if false is None else false.select(update.involves_new(false))
        trained = replace(splits, train=concatenate([new, anchors]), known_negatives=false)
        self.rows = TrainingTriples.from_splits(config, trained, update.normalizer)
        self.is_new = np.ones(len(self.rows.graph), bool)
        self.is_new[len(new) : len(new) + len(anchors)] = False
        self.first_anchor = len(new)
        epoch = max(reached - 1, 0)
        weight, merged = self.rows.weights_at(epoch)
        self.beta = problem.beta(epoch) if merged is None else merged
        batch = as_batch(self.rows.graph, weight.copy(), config.device)
        batch = batch if problem.labels is None else replace(batch, weight=problem.labels(batch.weight))
        mean = config.reduction == "mean"
        self.problem = replace(
            problem, triple_store=batch, scale=1.0 / (config.batch_size or self.batch_size) if mean else 1.0
        )
        self.triples, self.best = batch, BestTables()
        self.batch_count = -(-int(self.is_new.sum()) // self.batch_size)

    validator = None

    def _anchor_count(self, problem: TrainingProblem) -> int:
        """Return the number of anchors per epoch with which new entities are drawn about as often as in a whole run."""
        config, edges = problem.config, len(problem.splits.train)
        if not self.new_entities:
            return 0
        if config.negative_sampling == "all":
            return edges
        drawn = edges * (config.num_negatives or 1) / problem.entities
        per_triple = config.negative_sampling == "per-triple"
        forced = 1 if per_triple else min(self.new_entities, MAX_NEW_ENTITIES_IN_POOL)
        return math.ceil(drawn * (self.new_entities / forced))

    def start_epoch(self, epoch: int) -> float:
        taken = self.rows.rows_in_epoch(epoch)
        new = np.flatnonzero(self.is_new) if taken is None else taken[self.is_new[taken]]
        self.random = generator(self.problem.config.seed, epoch, RandomStream.COLD_START)
        order = torch.from_numpy(new)[torch.randperm(len(new), generator=self.random)]
        start = self.first_anchor + epoch * self.anchors
        anchors = torch.arange(start, start + self.anchors)
        parts = torch.split(order, self.batch_size)
        self.parts = list(zip(parts, torch.tensor_split(anchors, len(parts)), strict=True))
        self.row_count = max(len(new) + self.anchors, 1)
        return self.beta

    def epoch_size(self, epoch: int) -> tuple[int, int]:
        return len(self.parts), self.row_count

    def batches(self, epoch: int, first: int, batches_per_call: int) -> Iterator[Sequence[Tensor]]:
        for new, anchors in self.parts[first:]:
            self.new_in_batch = len(new)
            yield [torch.cat([new, anchors]).to(self.problem.config.device)]

    def sample(self, batch: Batch, seed: StreamKey) -> list[Negatives]:
        return [self._with_new_entities(group, batch) for group in self.problem.negative_sampler(batch, seed)]

    def seed(self, epoch: int, batch: int) -> int:
        return stream_seed(self.problem.config.seed, epoch, RandomStream.COLD_START + 1 + batch)

    def _with_new_entities(self, group: Negatives, batch: Batch) -> Negatives:
        """Return the negatives with new entities added for the anchors, which follow the new edges in a batch."""
        new, device, known = self.new_in_batch, batch.head.device, self.problem.negative_sampler.known
        if group.entities is None or new == len(batch):
            return group
        if group.entities.dim() == 2:  # per-triple negatives: the first negative of an anchor is a new entity
            chosen = torch.randint(self.new_entities, (len(batch) - new,), generator=self.random).to(device)
            entities = group.entities.clone()
            entities[new:, 0] = self.update.entities + chosen
            return replace(group, entities=entities)
        count = min(self.new_entities, MAX_NEW_ENTITIES_IN_POOL)
        more = self.update.entities + torch.randperm(self.new_entities, generator=self.random)[:count].to(device)
        before = torch.ones(len(batch), len(group.entities), dtype=torch.bool, device=device)
        added = torch.zeros(len(batch), count, dtype=torch.bool, device=device)
        added[new:] = True
        if known is not None:
            given = (batch.head if group.side == "tail" else batch.tail)[:, None].expand(added.shape)
            ends = (given, more.expand(added.shape)) if group.side == "tail" else (more.expand(added.shape), given)
            added &= ~known.contains(ends[0], batch.relation[:, None].expand(added.shape), ends[1])
        mask = torch.cat([before if group.mask is None else group.mask, added], dim=1)
        return replace(group, entities=torch.cat([group.entities, more]), mask=mask)


def _sample_anchors(train: Graph, new: Graph, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Return a random sample of known edges whose relations occur in the new edges."""
    relations = np.zeros(len(train.relations), bool)
    relations[new.relation] = True
    able = np.flatnonzero(relations[train.relation])
    return able[np.random.default_rng([seed, RandomStream.COLD_START]).integers(len(able), size=count)]
