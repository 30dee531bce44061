"""Training of new rows while all others rest: by the run's own objective, with work in proportion to the new edges.

New entities meet their own edges, and a sample of known edges in which they stand as corruptions: in the run's own
training they would have been drawn for those, too. Without it they score too high everywhere and push known entities
down (benchmarks/extend.py measures both).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.engines import Batch, Corruptions, ReferenceEngine
from focuse.engines.base import Gradients, ObjectiveFunction
from focuse.errors import FocuseError
from focuse.evaluation.evaluate import ids_of, known_facts
from focuse.evaluation.weighing import join
from focuse.graph.graph import Graph
from focuse.models import Model
from focuse.training.chances import make_chances
from focuse.training.checkpoints import Tables
from focuse.training.columns import TrainingRows
from focuse.training.growing import Grown
from focuse.training.loop import label_of, make_objective, missing_rivals, model_in
from focuse.training.negatives import Sampler, generator, key_of
from focuse.training.newcomers import usual_size, with_first_rows
from focuse.training.optimisers import RowAdam
from focuse.training.progress import Reporter
from focuse.training.regularisers import make_regulariser
from focuse.training.settings import Settings

EPOCHS = 50
ANCHORS = 512  # known edges an epoch, at most, for which new entities are corruptions
DEAR = 64  # and of a model that takes long
FORCED = 512  # new entities in a pool, at most
MOST_RIVALS = 20_000  # entities up to which sampling 'all' means all of them
POOL = 1024  # and beyond which it means so many
STEP = 0.05  # of Adam, in units of a table's usual number
LATE = 1 << 42  # place of the random streams here: none of a training's own


class NewRows:
    """Adam on the rows behind the known ones, with steps that shrink to nothing; the others are not touched."""

    rows_only = True
    repeated = False

    def __init__(self, tables: Tables, known: Mapping[str, int], steps: int) -> None:
        self.known, self.steps, self.done = dict(known), max(steps, 1), 0
        self.sizes = {name: usual_size(tables[name][: known[name]]) or 1.0 for name in known}
        self.rows = {name: tables[name][known[name] :] for name in known}  # views: what moves is the table
        self.adams = {name: RowAdam({name: rows}, STEP * self.sizes[name]) for name, rows in self.rows.items()}

    def update(self, gradients: Gradients) -> None:
        """One step; `ids` are those of whole tables."""
        shrunk = 1.0 - self.done / self.steps
        for name, adam in self.adams.items():
            ids, gradient = gradients[name]
            rows = self.rows[name]
            if ids is None:
                ids, gradient = torch.arange(len(rows), device=rows.device), gradient[self.known[name] :]
            else:
                mine = ids >= self.known[name]
                ids, gradient = ids[mine] - self.known[name], gradient[mine]
            if not len(ids):
                continue
            adam.lr = STEP * self.sizes[name] * shrunk
            adam.update({name: (ids, gradient)})
        self.done += 1

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        raise NotImplementedError("new rows are trained in one go")


def still(model: Model) -> Model:
    """The model as it ranks, in training too: what all triples share rests, and nothing is dropped out."""
    bound = copy.copy(model)
    kind = type(model)
    bound.__class__ = type(kind.__name__, (kind,), {"in_training": lambda self, key: self})
    return bound


def settled(
    settings: Settings, grown: Grown, tables: Tables, epochs: int | None, at: int, reporter: Reporter
) -> Tables:
    """The tables with rows for the new names, trained for so many epochs; the old rows keep their bits.

    `at` is how many epochs the run was trained for, which says what β has come to.
    """
    model = model_in(settings, grown.splits)
    made = with_first_rows(settings, grown, tables, model)
    train = grown.splits.train
    if len(train.entities) == grown.entities and len(train.relations) == grown.relations:
        return made
    epochs = EPOCHS if epochs is None else epochs
    if epochs:
        _Settling(_sampled(settings, len(train.entities)), grown, made, model, epochs, at, reporter).run()
    if not all(bool(torch.isfinite(table).all()) for table in made.values()):
        raise FocuseError("the new rows diverged; their edges' weights may be of another unit")
    return made


def _sampled(settings: Settings, entities: int) -> Settings:
    """Settings under which a step does not look at every entity of a large graph."""
    if settings.sampling != "all" or entities <= MOST_RIVALS:
        return settings
    return replace(settings, sampling="shared", negatives=POOL)


def _alike(train: Graph, mine: Graph, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Known edges by chance, of the relations that new edges have: there new entities could be taken for answers."""
    kinds = np.zeros(len(train.relations), bool)
    kinds[mine.relation] = True
    able = np.flatnonzero(kinds[train.relation])
    return able[np.random.default_rng([seed, LATE]).integers(len(able), size=count)]


class _Settling:
    """One training of new rows, in place."""

    def __init__(
        self, settings: Settings, grown: Grown, tables: Tables, model: Model, epochs: int, at: int, reporter: Reporter
    ) -> None:
        self.settings, self.grown, self.epochs, self.reporter = settings, grown, epochs, reporter
        splits, device = grown.splits, tables["entity"].device
        self.entities = len(splits.train.entities)
        self.newcomers = self.entities - grown.entities
        mine = splits.train.select(grown.touching(splits.train))
        self.size = min(settings.batch_size or 512, max(len(mine), 1))
        self.anchors = min(self._anchors(), DEAR if model.dear else ANCHORS)
        some = _alike(splits.train, mine, self.anchors * epochs, settings.seed)
        false = None if splits.false is None else splits.false.select(grown.touching(splits.false))
        rows = TrainingRows.of(
            settings, replace(splits, train=join([mine, splits.train.select(some)]), false=false), grown.normaliser
        )
        self.rows, self.own = rows, np.ones(len(rows.graph), bool)
        self.own[len(mine) : len(mine) + len(some)] = False
        self.first_anchor = len(mine)
        focus, label = settings.make_focus(), label_of(settings, splits)
        weight, beta = rows.weights_at(max(at - 1, 0))
        self.beta = beta if beta is not None else focus.beta(max(at - 1, 0)) if focus else 1.0
        self.data = Batch(*(part.to(device) for part in (*ids_of(rows.graph), torch.from_numpy(weight.copy()))))
        self.sampler = self._make_sampler(splits.train)
        if label is not None:
            self.data = replace(self.data, weight=label(self.data.weight))
        missing = None if label is None else missing_rivals(settings, label, self.sampler, self.data.first(len(mine)))
        self.objective: ObjectiveFunction = make_objective(settings, focus, missing)
        self.penalty = make_regulariser(settings.regularizer, settings.regularize or "touched")
        known = {"entity": grown.entities, "relation": grown.relations}
        steps = epochs * -(-int(self.own.sum()) // self.size)
        dense = {name: table.clone() for name, table in tables.items() if name not in known}
        rows_only = NewRows(tables, known, steps)
        self.engine = ReferenceEngine(still(model), tables["entity"], tables["relation"], rows_only, dense)

    def _anchors(self) -> int:
        """Known edges an epoch for which new entities stand in, about as often as the run's own sampling would."""
        settings, edges = self.settings, len(self.grown.splits.train)
        if not self.newcomers:
            return 0
        if settings.sampling == "all":
            return edges
        drawn = edges * (settings.negatives or 1) / self.entities
        alone = settings.sampling == "independent"
        return math.ceil(drawn * (self.newcomers if alone else self.newcomers / min(self.newcomers, FORCED)))

    def _make_sampler(self, train: Graph) -> Sampler:
        settings = self.settings
        known = known_facts([train], self.data.head.device) if settings.filter_negatives else None
        chances = None
        if (settings.corrupt, settings.coin) != ("uniform", "fair"):
            facts = Batch(*(part.to(self.data.head.device) for part in (*ids_of(train), torch.empty(len(train)))))
            chances = make_chances(settings.corrupt, settings.coin, facts, self.entities, len(train.relations))
        return Sampler(settings.sampling, settings.negatives or 1, self.entities, known, chances)

    def run(self) -> None:
        scale = 1.0 / (self.settings.batch_size or self.size) if self.settings.reduction == "mean" else 1.0
        self.reporter.start(replace(self.settings, epochs=self.epochs), 0)
        try:
            for epoch in range(self.epochs):
                loss = self._epoch(epoch, scale)
                self.reporter.epoch({"epoch": epoch + 1, "loss": loss, "beta": None})
        except FloatingPointError as error:
            raise FocuseError(f"the new rows diverged: {error}; their weights may be of another unit") from None
        finally:
            self.reporter.stop()

    def _epoch(self, epoch: int, scale: float) -> float:
        """One look at all edges of new rows; its loss an edge."""
        taken = self.rows.rows_at(epoch)
        own = np.flatnonzero(self.own) if taken is None else taken[self.own[taken]]
        random = generator(self.settings.seed, epoch, LATE)
        order = torch.from_numpy(own)[torch.randperm(len(own), generator=random)]
        start = self.first_anchor + epoch * self.anchors
        anchors = torch.arange(start, start + self.anchors)
        parts, total = torch.split(order, self.size), 0.0
        for number, (mine, known) in enumerate(zip(parts, torch.tensor_split(anchors, len(parts)), strict=True)):
            batch = self.data.take(torch.cat([mine, known]).to(self.data.head.device))
            key = key_of(self.settings.seed, epoch, LATE + 1 + number)
            groups = [self._with_newcomers(group, batch, len(mine), random) for group in self.sampler(batch, key)]
            loss = self.engine.step(batch, groups, self.objective, self.beta, self.penalty, scale, None, key)
            total += float(loss)
        return total / max(len(own) + self.anchors, 1)

    def _with_newcomers(self, group: Corruptions, batch: Batch, own: int, random: torch.Generator) -> Corruptions:
        """Corruptions in which new entities stand against the anchors, the batch's rows from `own` on."""
        if group.entities is None or own == len(batch):
            return group
        count, device = min(self.newcomers, FORCED), batch.head.device
        if group.entities.dim() == 2:  # each row's own: the first of an anchor's is a newcomer
            chosen = torch.randint(self.newcomers, (len(batch) - own,), generator=random).to(device)
            entities = group.entities.clone()
            entities[own:, 0] = self.grown.entities + chosen
            return replace(group, entities=entities)
        more = self.grown.entities + torch.randperm(self.newcomers, generator=random)[:count].to(device)
        before = torch.ones(len(batch), len(group.entities), dtype=torch.bool, device=device)
        added = torch.zeros(len(batch), count, dtype=torch.bool, device=device)
        added[own:] = True
        if self.sampler.known is not None:
            given = (batch.head if group.side == "tail" else batch.tail)[:, None].expand(added.shape)
            ends = (given, more.expand(added.shape)) if group.side == "tail" else (more.expand(added.shape), given)
            added &= ~self.sampler.known.contains(ends[0], batch.relation[:, None].expand(added.shape), ends[1])
        mask = torch.cat([before if group.mask is None else group.mask, added], dim=1)
        return replace(group, entities=torch.cat([group.entities, more]), mask=mask)
