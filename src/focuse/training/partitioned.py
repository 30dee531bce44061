"""Training with an entity table that is partitioned on disk.

An epoch goes through the stages of a schedule. In a stage a part of the edges between the partitions in memory is
shuffled together and trained by an engine to which those partitions are the whole table; negatives are drawn among
them. Everything is a pure function of (seed, epoch, stage, batch), so a resumed training ends in the same bits.
Validation ranks among a sample of entities, whose rows are fetched once. Initial embeddings are written to their
partitions, and final ones to one table, front to back and never whole in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.config import Config
from focuse.data.graph import Graph, find_sorted
from focuse.data.splits import Splits, split_validation
from focuse.data.triple_index import TripleIndex, relevant_triple_index
from focuse.data.weights import Normalizer
from focuse.engines.base import Engine, ModelScorer
from focuse.engines.factory import make_engine
from focuse.engines.optimizers import make_optimizer
from focuse.engines.partitioned.buffer import PartitionBuffer
from focuse.engines.partitioned.edge_buckets import EdgeBuckets, PartitionAssignment, StageEdges, write_edge_buckets
from focuse.engines.partitioned.stages import PartitionedNegativeSampler, Stage, epoch_stages
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError, counted
from focuse.evaluation.metrics import rank_metrics
from focuse.evaluation.ranking import rank_graph
from focuse.models.base import Model
from focuse.objective.focuse import SoftLabels
from focuse.objective.negatives import Batch, Negatives
from focuse.objective.randomness import StreamKey, epoch_order, generator, stream_seed
from focuse.option_strings import parse_partitions
from focuse.random_streams import RandomStream
from focuse.storage.partition_files import EDGES, PartitionFiles, by_partition
from focuse.storage.run_folder import RunFolder
from focuse.storage.tables import Checkpoint, PartitionedTables, Progress, shared_arrays
from focuse.storage.tensors import ArraySpec, TensorFile, writing
from focuse.system import chunks
from focuse.training.memory_planner import format_size
from focuse.training.problem import TrainingProblem, TrainingTriples, init_tables
from focuse.training.validation import BestTables, rank_validator

FLOAT = np.dtype("<f4")
CHUNK = 1 << 16  # rows at a time; torch draws the same numbers in pieces as at once where a piece has 16 n of them


def write_first(
    files: PartitionFiles, assignment: PartitionAssignment, settings: Config, model: Model, relations: int
) -> dict[str, torch.Tensor]:
    """First versions of all partitions, the numbers that a training in memory begins with; and the other tables."""
    width, entities = model.widths(settings.dim)[0], len(assignment.part)
    tables = [
        TensorFile(files.path(part, 0), {"entity": ArraySpec(FLOAT, (size, width))})
        for part, size in enumerate(assignment.sizes.tolist())
    ]
    for table in tables:
        with writing(table.path):
            table.create()
    random = generator(settings.seed, 0, RandomStream.INITIAL_EMBEDDINGS)
    spread = settings.init_std or model.defaults.get("init_std") or (2.0 / (entities + width)) ** 0.5
    for piece in _row_pieces(entities):
        values = torch.randn((piece.stop - piece.start, width), generator=random) * spread
        rows = model.init_table("entity", values).numpy()
        for part, positions in by_partition(assignment.part[piece]):
            with writing(tables[part].path), tables[part].open():
                tables[part].write("entity", rows[positions], int(assignment.row[piece.start + positions[0]]))
    for table in tables:
        with writing(table.path):
            table.seal(drop_cache=True)
    # The generator stands where it would after a whole table of entities: none are left to draw here.
    others = init_tables(settings, model, 0, relations, random=random)
    return {name: table for name, table in others.items() if name != "entity"}


def _row_pieces(rows: int) -> Iterator[slice]:
    """Pieces of `CHUNK` rows; a short rest goes with the last one, for torch draws fewer than 16 numbers otherwise."""
    for piece in chunks(rows, CHUNK):
        if rows - piece.stop < 16 and piece.stop < rows:
            yield slice(piece.start, rows)
            return
        yield piece


SAMPLED_ENTITIES = 20_000  # a graph of no more entities is ranked in full

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SampledValidator:
    """Filtered MRR of validation triples among a sample of entities; ids of `graph` are positions in `entities` [S]."""

    metric: ClassVar[str] = "valid_mrr"
    sign: ClassVar[int] = 1
    graph: Graph
    known: TripleIndex
    entities: Rows
    description: str

    def __call__(self, scorer: ModelScorer) -> float:
        """Filtered MRR, ties worst; `scorer` holds the rows of `entities`."""
        return rank_metrics(rank_graph(scorer, self.graph, self.known).filtered.ranks()).mrr


def sampled_validator(config: Config, splits: Splits) -> SampledValidator | None:
    """A validator of the triples that a training in memory would validate on; None if there are none."""
    valid = split_validation(splits.valid.graph, config.stopping_share, config.seed).stopping
    no_ids = torch.empty(0, dtype=torch.int64)
    nothing = TripleIndex(no_ids, no_ids, no_ids, len(valid.entities), len(valid.relations))
    usual = rank_validator(valid, splits.train, nothing, config.threshold, config.seed)
    if usual is None:
        return None
    graph, total = usual.graph, len(valid.entities)
    drawn = np.arange(total)
    if total > SAMPLED_ENTITIES:
        drawn = np.random.default_rng([config.seed, RandomStream.PARTITIONED_CANDIDATES]).integers(
            0, total, SAMPLED_ENTITIES
        )
    entities = np.unique(np.concatenate([drawn, graph.head, graph.tail])).astype(np.int64)
    facts = relevant_triple_index([splits.train, splits.valid.graph, splits.test.graph], graph)
    known = _within(facts, entities)
    positions = [find_sorted(entities, ids)[0].astype(np.int32) for ids in (graph.head, graph.tail)]
    graph = replace(graph, head=positions[0], tail=positions[1])
    return SampledValidator(graph, known, entities, usual.description)


def _within(facts: TripleIndex, entities: Rows) -> TripleIndex:
    """Facts whose two ends are among some entities, in the places that they have there."""
    keys = facts.keys["tail"].numpy()
    query, tail = np.divmod(keys, facts.entities)
    head, relation = np.divmod(query, facts.relations)
    (head_index, has_head), (tail_index, has_tail) = (find_sorted(entities, ids) for ids in (head, tail))
    both = has_head & has_tail
    heads, kinds, tails = (torch.from_numpy(part[both]) for part in (head_index, relation, tail_index))
    return TripleIndex(heads, kinds, tails, len(entities), facts.relations)


REPEATED = 0.05  # edges per batch and entity of a partition that do no harm
SMALLEST = 32  # batch that is worth a step


class TriplesOnDisk:
    """Training triples that are read from disk bucket by bucket, so that none are loaded at first."""

    def load(self, triples: TrainingTriples, labels: SoftLabels | None, device: str) -> Batch:
        no_ids = torch.empty(0, dtype=torch.int64)
        return Batch(no_ids, no_ids, no_ids, torch.empty(0))

    def index(self, train: Graph, device: str) -> TripleIndex:
        raise FocuseError("engine 'partitioned' cannot filter negatives; leave --filter-negatives out")


class Partitioned:
    """An entity table in partitions on disk, some of them in memory at a time (a `Placement` of the trainer)."""

    in_memory = False

    def __init__(
        self, problem: TrainingProblem, engine: Engine, rows_per_slot: int, checkpoint: Checkpoint | None
    ) -> None:
        config, at = problem.config, checkpoint.progress if checkpoint else Progress()
        self.problem, self.engine, self.config, self.resumed = problem, engine, config, checkpoint
        self.partitions, self.slots, self.rounds = parse_partitions(config.partitions or "1:1")
        self.rows_per_slot, self.entities = rows_per_slot, problem.entities
        self.validator = sampled_validator(config, problem.splits)
        self.best = BestOnDisk(at.best_value, at.best_epoch, at.checks_since_best, placement=self)

    @classmethod
    def build(
        cls, config: Config, splits: Splits, normalizer: Normalizer, checkpoint: Checkpoint | None
    ) -> tuple[TrainingProblem, Engine, Partitioned]:
        """The problem of a config, an engine over the partitions in memory, and what brings these there."""
        problem = TrainingProblem.build(config, splits, normalizer, TriplesOnDisk())
        partitions, slots, _ = parse_partitions(config.partitions or "1:1")
        slots += partitions > slots  # one more, into which the next partition is loaded
        rows_per_slot, model = -(-problem.entities // partitions), problem.model
        width, relation_width = model.widths(config.dim)
        relations = len(splits.train.relations) * (2 if config.reciprocal else 1)
        tables = {
            "entity": torch.zeros(slots * rows_per_slot, width),
            "relation": torch.zeros(relations, relation_width),
            **model.init_parameters(config.dim, torch.Generator()),
        }
        optimizer = make_optimizer(config.optimizer, tables, config.lr or 0)
        engine = make_engine("partitioned", model, tables, optimizer, inverse_relations=config.reciprocal)
        return problem, engine, cls(problem, engine, rows_per_slot, checkpoint)

    def open(self, folder: RunFolder | None, note: Callable[[str], None]) -> None:
        """Edges and initial rows on disk, or the tables of a checkpoint in memory."""
        if folder is None or not isinstance(folder.storage, PartitionedTables):
            raise ValueError("a training with partitions needs a run folder")
        self.storage, self.note = folder.storage, note
        files, tables = folder.storage.files, self.engine.tables
        path = files.folder / EDGES
        if self.resumed is None:
            files.create(self.partitions)
            assignment = PartitionAssignment.random(self.entities, self.partitions, self.config.seed)
            triples = self.problem.triples
            self.edges = write_edge_buckets(path, triples.facts, triples.normalizer, assignment, lambda: None)
            relations = len(triples.facts.relations)
            initial = write_first(files, assignment, self.config, self.engine.scorer.model, relations)
        else:
            self.edges, initial = EdgeBuckets.open(path), self.resumed.tables
        for name, values in initial.items():
            tables[name].copy_(values)
        if self.resumed is not None:
            self.engine.optimizer.load(self.engine.optimizer.state() | self.resumed.optimizer)
        state = self.engine.optimizer.state().items()
        held = {"entity": tables["entity"]} | {name: value for name, value in state if name.startswith("entity.")}
        self.buffer = PartitionBuffer(files, held, self.edges.assignment.sizes)
        if self.resumed is None:
            folder.save(Checkpoint(Progress(), *self.tables(), None, []))
        if self.validator is not None and len(self.validator.entities) < self.entities:
            note(f"validation ranks against {len(self.validator.entities):,} sampled entities, not all")
        note(f"{counted(self.partitions, 'partitions')}, {self.slots} of them in memory at a time")

    # ---- batches --------------------------------------------------------------------------------------------------

    def start_epoch(self, epoch: int) -> float:
        return self.problem.beta(epoch)

    def size(self, epoch: int) -> tuple[int, int]:
        return sum(self._counts(epoch)), len(self.edges)

    def batches(self, epoch: int, first: int, at_once: int) -> Iterator[Sequence[Tensor]]:
        done, size = 0, self.config.batch_size or 1024
        for number, (stage, count, following) in enumerate(self._stages(epoch)):
            if first < done + count:
                order = self._enter(epoch, stage, following, number)
                parts = torch.split(order, size) if self.partitions == 1 else torch.tensor_split(order, count)
                for start in range(max(first - done, 0), len(parts), at_once):
                    self.buffer.mark_changed()
                    yield parts[start : start + at_once]
            done += count

    def _counts(self, epoch: int) -> list[int]:
        """Number of batches in each stage of an epoch."""
        size = self.config.batch_size or 1024
        return [self._batch_count(stage, size) for stage in self._schedule(epoch)]

    def _batch_count(self, stage: Stage, size: int) -> int:
        """Batches of a stage, about equal: a short last one in each would count for as much as a full one.

        Between few partitions an entity comes more often in a batch than it would among all, and many gradients in one
        step move it less than as many steps. So batches are smaller by as much, unless few entities repeat anyway.
        """
        edges = self.edges.count(stage)
        if self.partitions == 1 or not edges:
            return -(-edges // size)
        alike = size / (self.partitions * self.edges.crowding(stage))
        return max(1, round(edges / min(size, max(alike, REPEATED * self.rows_per_slot, SMALLEST))))

    def _stages(self, epoch: int) -> Iterator[tuple[Stage, int, Stage | None]]:
        """The stages of an epoch that have edges, their numbers of batches, and the stage that follows each."""
        stages = zip(self._schedule(epoch), self._counts(epoch), strict=True)
        used = [(stage, count) for stage, count in stages if count]
        following = [stage for stage, _ in used[1:]]
        for (stage, count), after in zip_longest(used, following):
            yield stage, count, after

    def _schedule(self, epoch: int) -> Iterator[Stage]:
        return epoch_stages(self.partitions, self.slots, self.config.seed, epoch, self.rounds)

    def _enter(self, epoch: int, stage: Stage, following: Stage | None, number: int) -> Tensor:
        """Load the partitions and edges of a stage; the order of its edges."""
        self.buffer.enter(stage, following)
        self.engine.scorer.invalidate()
        self.triples = StageEdges(self.edges.read(stage, self.rows_per_slot), self.problem.labels)
        sizes = self.edges.assignment.sizes
        self.sampler = PartitionedNegativeSampler.for_stage(
            self.config.sampling, self.config.negatives or 1, stage, sizes, self.rows_per_slot
        )
        seed = stream_seed(self.config.seed, epoch, RandomStream.SHUFFLE + number)
        return epoch_order(len(self.triples), len(self.triples), seed).batches[0]

    def take(self, rows: Tensor) -> Batch:
        return self.triples.take(rows)

    def sample(self, batch: Batch, seed: StreamKey) -> list[Negatives]:
        return self.sampler(batch, seed)

    def seed(self, epoch: int, batch: int) -> int:
        return stream_seed(self.config.seed, epoch, batch)

    # ---- rows and checkpoints -------------------------------------------------------------------------------------

    def scorer(self) -> TableScorer:
        """A scorer over the rows of the entities that validation ranks among."""
        live = self.engine.scorer
        if self.validator is None:
            return live
        tables = {**live.tables, "entity": self.fetch(self.validator.entities)}
        return TableScorer(live.model, tables, live.side_dependent)

    def fetch(self, entities: npt.NDArray[np.int64]) -> Tensor:
        """Rows of some entities, [n] -> [n, width], from memory or disk as they are now."""
        self.buffer.wait()
        assignment, files = self.edges.assignment, self.storage.files
        part, row = assignment.part[entities], assignment.row[entities]
        table = self.engine.tables["entity"].numpy()
        found = np.empty((len(entities), table.shape[1]), np.float32)
        held = {number: slot for slot, number in enumerate(self.buffer.held)}
        for number in np.unique(part).tolist():
            positions = np.flatnonzero(part == number)
            if number in held:
                found[positions] = table[held[number] * self.rows_per_slot + row[positions]]
            else:
                found[positions] = files.map_table(number, "entity")[row[positions]]
        return torch.from_numpy(found)

    def shared_tables(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Tables and optimizer state that are not in partitions."""
        tables = {name: table for name, table in self.engine.tables.items() if name != "entity"}
        state = self.engine.optimizer.state().items()
        return tables, {name: value for name, value in state if not name.startswith("entity.")}

    def tables(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """All partitions on disk; what they share."""
        self.buffer.flush()
        return self.shared_tables()

    def finish(self, checkpoint: Checkpoint) -> Checkpoint:
        """The last checkpoint, its tables mapped from the run folder."""
        files = self.storage.files
        self.note(
            f"partitions were loaded {counted(files.loads, 'times')}: {format_size(files.read_bytes)} read, "
            f"{format_size(files.written_bytes)} written"
        )
        final = self.storage.map_model()
        return replace(checkpoint, tables=final, best=final if files.best[0] else None)

    def close(self) -> None:
        self.buffer.close()


@dataclass
class BestOnDisk(BestTables):
    """The best tables as versions of partitions, which stay on disk."""

    placement: Partitioned | None = None

    def update(self, value: float, epoch: int, tables: dict[str, Tensor]) -> None:
        self.checks_since += 1
        if value > self.value and self.placement is not None:
            self.value, self.epoch, self.checks_since = value, epoch, 0
            self.placement.buffer.flush()
            shared = Checkpoint(Progress(), *self.placement.shared_tables(), None, [])
            self.placement.storage.files.keep_best(shared_arrays(shared))
