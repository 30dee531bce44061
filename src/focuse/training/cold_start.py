"""Embeddings for entities and relations that a run has not seen.

A new entity is initialized near the known entities with the same edges. For each of its edges (·, r, o), the mean row
of the known entities x with an edge (x, r, o) is computed. The mean over its edges is weighted by their weights, and
edges with fewer such x count more. A new relation is initialized with the known relation that best separates its edges
from their negatives.

Then the new rows are trained with the objective of the run while all others are frozen; the work is proportional to
the number of new edges. New entities are trained on their own edges and as negatives of a sample of all edges, as in
the training of a whole run. Without this, they score too high everywhere and lower the ranks of known entities
(benchmarks/extend.py measures both).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.config import Config
from focuse.data.graph import Graph, Weights, find_sorted
from focuse.data.weights import Normalizer
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Gradients
from focuse.engines.optimizers import RowAdam
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.models.base import Model, join_inverse_relations, split_inverse_relations
from focuse.objective.negatives import Batch, Negatives
from focuse.objective.randomness import StreamKey, generator, stream_seed
from focuse.random_streams import RandomStream
from focuse.storage.run_folder import RunFolder
from focuse.storage.tensors import Tables
from focuse.training.callbacks import Reporter
from focuse.training.problem import TrainingProblem, build_model, init_tables
from focuse.training.trainer import DivergedError, Placement, Trainer

if TYPE_CHECKING:
    from focuse.training.extend import GraphUpdate

Ids = npt.NDArray[np.int64]
MAX_EDGES_TRIED = 256  # maximum number of edges of a new relation on which known relations are compared
WEIGHT_OFFSET = 0.1  # added to every weight, so that edges of weight 0 count too
FALLBACK_WEIGHT = 1e-6  # factor for means over a relation and side, used if no entity has the same edge


@dataclass(frozen=True)
class EdgeEndpoints:
    """Endpoints of edges: an `entity`, the `other` end, and `relation_side` = 2 · relation + side (0: head)."""

    entity: Ids
    relation_side: Ids
    other: Ids
    weight: Weights

    @classmethod
    def of(cls, graph: Graph, normalizer: Normalizer) -> EdgeEndpoints:
        """Return both endpoints of every edge, the heads first."""
        weight = normalizer.transform(graph.weight, graph.relation) + WEIGHT_OFFSET
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
        # A trained table may have far smaller or larger values than initial ones.
        scale = root_mean_square(tables[name]) / (root_mean_square(chance[name]) or 1.0)
        made[name] = torch.cat([tables[name], chance[name].to(tables[name]) * scale])
    if more["entity"]:
        mean, found = sibling_means(grown, tables["entity"])
        made["entity"][grown.entities + found] = mean.to(made["entity"])
    if more["relation"]:
        made["relation"][grown.relations :] = made["relation"][_best_known_relations(settings, grown, made, model)]
    if settings.reciprocal:
        made["relation"] = split_inverse_relations(made["relation"])
    return made


def root_mean_square(table: Tensor) -> float:
    """Return the root mean square of the values of a table; of a large table, a sample of rows is used."""
    some = table[:: max(1, len(table) // 10_000)]
    return float(some.double().pow(2).mean().sqrt()) if some.numel() else 0.0


def sibling_means(grown: GraphUpdate, table: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean rows [m, d] of the siblings of new entities, and which new entities these are, int64 [m].

    Siblings are known entities with the same edge. If there are none, the mean of all entities on the same side of the
    relation is used.
    """
    train, size = grown.splits.train, len(grown.splits.train.entities)
    mine = EdgeEndpoints.of(train.select(grown.involves_new(train)), grown.normalizer)
    mine = mine.take((mine.entity >= grown.entities) & (mine.other < grown.entities))
    mine = mine.take(mine.relation_side < 2 * grown.relations)
    theirs = _sibling_endpoints(train, grown, mine)
    sums, total = torch.zeros(size - grown.entities, table.shape[1]), torch.zeros(size - grown.entities)
    for theirs_key, mine_key, factor in (
        (theirs.relation_side * size + theirs.other, mine.relation_side * size + mine.other, 1.0),
        (theirs.relation_side, mine.relation_side, FALLBACK_WEIGHT),
    ):
        # The mean row of each group of siblings, then the mean over the edges of each new entity.
        groups, group = np.unique(mine_key, return_inverse=True)
        place, found = find_sorted(groups, theirs_key)
        siblings = _sparse(place[found], theirs.entity[found], theirs.weight[found], (len(groups), len(table)))
        means = (siblings.to(table.device) @ table).cpu() / _row_sums(siblings).clamp(min=1e-12)[:, None]
        sizes = np.bincount(place[found], minlength=len(groups))
        worth = np.where(sizes > 0, factor / np.log(2.0 + sizes), 0.0)[group] * mine.weight
        edges = _sparse(mine.entity - grown.entities, group, worth, (len(sums), len(groups)))
        sums, total = sums + edges @ means, total + _row_sums(edges)
    known = torch.nonzero(total > 0).ravel()
    return sums[known] / total[known, None], known


def _sparse(rows: Ids, columns: Ids, values: Weights, shape: tuple[int, int]) -> Tensor:
    places, amounts = torch.from_numpy(np.stack([rows, columns])), torch.from_numpy(values).float()
    return torch.sparse_coo_tensor(places, amounts, shape, check_invariants=True)


def _row_sums(matrix: Tensor) -> Tensor:
    return torch.sparse.sum(matrix, 1).to_dense()


def _sibling_endpoints(train: Graph, grown: GraphUpdate, mine: EdgeEndpoints) -> EdgeEndpoints:
    """Return endpoints of known edges that may belong to siblings.

    The edges have a relation of the new entities' edges and the same other endpoint, or belong to a sample.
    """
    wanted = np.zeros(len(train.entities), bool)
    wanted[mine.other] = True
    kinds = np.zeros(2 * len(train.relations), bool)
    kinds[mine.relation_side] = True
    sample = np.zeros(len(train), bool)
    sample[:: max(1, len(train) // 20_000)] = True  # enough for the mean over a side of a relation
    rows = (kinds[2 * train.relation] & (wanted[train.tail] | sample)) | (
        kinds[2 * train.relation + 1] & (wanted[train.head] | sample)
    )
    return EdgeEndpoints.of(train.select(rows & ~grown.involves_new(train)), grown.normalizer)


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
MAX_ANCHORS = 512  # edges per epoch for which new entities are negatives
MAX_ANCHORS_EXPENSIVE = 64  # the same for a model that takes long
MAX_NEW_ENTITIES_IN_POOL = 512  # maximum number of new entities in a pool
MAX_CANDIDATES = 20_000  # number of entities up to which 1-vs-all uses all of them as negatives
POOL_SIZE = 1024  # size of the shared pool of negatives with more entities
RELATIVE_LEARNING_RATE = 0.05  # learning rate of Adam, relative to the root mean square of the table


class NewRowsOptimizer(RowAdam):
    """Adam on the new rows only, with a learning rate that decays to 0; known rows are not changed.

    The learning rate is relative to the root mean square of the known rows of a table.
    """

    def __init__(self, tables: Tables, known: Mapping[str, int], steps: int, inverse_relations: bool = False) -> None:
        self.total_steps, self.steps_left = steps, steps
        self.blocks: dict[str, tuple[str, int, float]] = {}  # of new rows: their table, first id, and learning rate
        views = {}
        for name, count in known.items():
            blocks = tables[name].chunk(2 if inverse_relations and name == "relation" else 1)
            size = root_mean_square(torch.cat([block[:count] for block in blocks])) or 1.0
            for number, block in enumerate(blocks):
                key, first = f"{name} {number}", number * len(block) + count
                self.blocks[key] = name, first, RELATIVE_LEARNING_RATE * size
                views[key] = block[count:]  # a view, so that the optimizer updates the table
        super().__init__(views, lr=0.0)

    def update(self, gradients: Gradients) -> None:
        """Take one step; the ids of `gradients` refer to whole tables."""
        new: dict[str, tuple[Tensor | None, Tensor]] = {}
        for key, (name, first, _) in self.blocks.items():
            (ids, gradient), rows = gradients[name], self.tables[key]
            if ids is None:
                new[key] = None, gradient[first : first + len(rows)]
            else:
                mine = (ids >= first) & (ids < first + len(rows))
                new[key] = ids[mine] - first, gradient[mine]
        super().update(new)
        self.steps_left -= 1

    def row_update(self, name: str, rows: Tensor | slice, gradient: Tensor) -> Tensor:
        self.lr = self.blocks[name][2] * (self.steps_left / self.total_steps)
        return super().row_update(name, rows, gradient)


def train_new_rows(
    config: Config, update: GraphUpdate, tables: Tables, epochs: int | None, reached: int, reporter: Reporter
) -> Tables:
    """Return the tables with rows for the new names, trained for `epochs`; the known rows are unchanged.

    `reached` is the epoch of the given tables, which determines β.
    """
    splits, epochs = update.splits, DEFAULT_EPOCHS if epochs is None else epochs
    tables = append_initial_rows(config, update, tables, build_model(config, splits))
    entities, relations = len(splits.train.entities), len(splits.train.relations)
    if not epochs or (entities, relations) == (update.entities, update.relations):
        return tables
    config = replace(config, epochs=epochs, device=str(tables["entity"].device), semi_supervised="none")
    if config.negative_sampling == "all" and entities > MAX_CANDIDATES:
        config = replace(config, negative_sampling="shared", num_negatives=POOL_SIZE)
    problem = TrainingProblem.build(config, replace(splits, inferred=None), update.normalizer)
    try:
        Trainer(ColdStartPlacement(problem, update, tables, reached), reporter).run()
    except DivergedError as error:
        raise FocuseError(f"the new rows diverged ({error}); check the unit of the new weights") from None
    return tables


class ColdStartPlacement(Placement):
    """A placement with the edges of new names, and with "anchors": a sample of edges with new entities as negatives.

    Without anchors, new entities would never be trained as negatives. Only the new rows of the tables are updated.
    """

    def __init__(self, problem: TrainingProblem, update: GraphUpdate, tables: Tables, reached: int) -> None:
        config, train = problem.config, problem.splits.train
        self.update, self.reached, self.new_entities = update, reached, problem.entities - update.entities
        self.is_new = update.involves_new(problem.triples.graph)
        self.batch_size = min(config.batch_size or 512, int(self.is_new.sum()))
        most = MAX_ANCHORS_EXPENSIVE if problem.model.defaults.get("expensive_to_rank") else MAX_ANCHORS
        self.num_anchors = min(self._anchor_count(problem), most)
        # The anchors of every epoch are a random sample of the edges, known and new, with a relation of the new edges.
        self.able = np.flatnonzero(np.isin(train.relation, np.unique(train.relation[self.is_new[: len(train)]])))
        self.anchor_random = np.random.default_rng([config.seed, RandomStream.COLD_START])
        known = {"entity": update.entities, "relation": update.relations}
        parameters = {name: table.clone() for name, table in tables.items() if name not in known}
        steps = config.epochs * -(-int(self.is_new.sum()) // self.batch_size)
        optimizer = NewRowsOptimizer(tables, known, steps, config.reciprocal)
        # In evaluation mode, nothing is dropped out; shared parameters are copied, so that they do not change.
        model = problem.model.bind(context=replace(problem.model.context, evaluation=True))
        super().__init__(problem, AutogradEngine(model, tables | parameters, optimizer, config.reciprocal))

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

    def open(self, folder: RunFolder | None, note: Callable[[str], None]) -> None:
        """Do nothing, because new rows are not validated."""

    def start_epoch(self, epoch: int) -> tuple[int, int]:
        taken = self.problem.triples.rows_in_epoch(epoch)
        new = np.flatnonzero(self.is_new) if taken is None else taken[self.is_new[taken]]
        self.random = generator(self.config.seed, epoch, RandomStream.COLD_START)
        order = torch.from_numpy(new)[torch.randperm(len(new), generator=self.random)]
        anchors = torch.from_numpy(self.able[self.anchor_random.integers(len(self.able), size=self.num_anchors)])
        parts = torch.split(order, self.batch_size)
        self.parts = list(zip(parts, torch.tensor_split(anchors, len(parts)), strict=True))
        return len(parts), max(len(new) + len(anchors), 1)

    def beta(self, epoch: int) -> float:
        return self.problem.beta(max(self.reached - 1, 0))

    def batches(self, epoch: int, first: int, batches_per_call: int) -> Iterator[Sequence[Tensor]]:
        for new, anchors in self.parts[first:]:
            self.new_in_batch = len(new)
            yield [torch.cat([new, anchors]).to(self.config.device)]

    def sample(self, batch: Batch, seed: StreamKey) -> list[Negatives]:
        return [self._with_new_entities(group, batch) for group in super().sample(batch, seed)]

    def seed(self, epoch: int, batch: int) -> int:
        return stream_seed(self.config.seed, epoch, RandomStream.COLD_START + 1 + batch)

    def _with_new_entities(self, group: Negatives, batch: Batch) -> Negatives:
        """Return the negatives with new entities added for the anchors, which follow the new edges in a batch."""
        new, device, known = self.new_in_batch, batch.head.device, self.problem.negative_sampler.known
        if group.entities is None or not group.entities.shape[-1] or new == len(batch):
            return group
        if group.entities.dim() == 2:  # per-triple negatives: the first negative of an anchor is a new entity
            chosen = torch.randint(self.new_entities, (len(batch) - new,), generator=self.random).to(device)
            entities, replaces_tail = group.entities.clone(), group.per_triple()[1]
            entities[new:, 0] = self.update.entities + chosen
            mask = self.problem.negative_sampler.per_triple_mask(batch, entities, replaces_tail)
            return replace(group, entities=entities, mask=mask)
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
