"""Training with an entity table that is partitioned on disk.

An epoch consists of the stages of a schedule. In a stage, a part of the edges between the partitions in memory is
shuffled and trained by an engine whose entity table is these partitions; negatives are drawn among them. Everything is
a pure function of (seed, epoch, stage, batch), so the result of a resumed training is bitwise the same. Validation
ranks against a sample of entities, whose rows are fetched once per validation. Initial embeddings are written to their
partitions, and final embeddings to one table, sequentially and never as a whole in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.config import Config
from focuse.data.graph import find_sorted
from focuse.data.splits import Splits
from focuse.data.triple_index import TripleIndex
from focuse.data.weights import Normalizer
from focuse.engines.factory import make_engine
from focuse.engines.optimizers import make_optimizer
from focuse.engines.partitioned import (
    EdgeBuckets,
    PackedEdges,
    PartitionAssignment,
    PartitionBuffer,
    PartitionedNegativeSampler,
    Stage,
    epoch_stages,
    write_edge_buckets,
)
from focuse.engines.scorer import TableScorer
from focuse.errors import counted
from focuse.models.base import Model
from focuse.objective.focuse import SoftLabels
from focuse.objective.negatives import Batch, Negatives
from focuse.objective.randomness import StreamKey, epoch_order, generator, stream_seed
from focuse.option_strings import parse_partitions
from focuse.random_streams import RandomStream
from focuse.storage.run_folder import RunFolder
from focuse.storage.tables import (
    EDGES,
    Checkpoint,
    PartitionedTables,
    PartitionFiles,
    Progress,
    by_partition,
    shared_arrays,
)
from focuse.storage.tensors import ArraySpec, Tables, TensorFile, writing
from focuse.system import format_size
from focuse.training.problem import TrainingProblem, TrainingTriples, TripleSource, init_std, init_tables, normal_pieces
from focuse.training.trainer import Placement
from focuse.training.validation import ConfidenceValidator, RankValidator, Validator


def write_initial_partitions(
    files: PartitionFiles, assignment: PartitionAssignment, settings: Config, model: Model, relations: int
) -> dict[str, torch.Tensor]:
    """Write the first version of all partitions and return the other tables.

    The initial values are the same as those of a training in memory.
    """
    width, entities = model.widths(settings.dim)[0], len(assignment.part)
    tables = [
        TensorFile(files.path(part, 0), {"entity": ArraySpec(np.dtype("<f4"), (size, width))})
        for part, size in enumerate(assignment.sizes.tolist())
    ]
    for table in tables:
        with writing(table.path):
            table.create()
    random = generator(settings.seed, 0, RandomStream.INITIAL_EMBEDDINGS)
    spread = init_std(settings, model, (entities, width))
    for start, values in normal_pieces((entities, width), random):
        rows = model.init_table("entity", values * spread).numpy()
        for part, positions in by_partition(assignment.part[start : start + len(rows)]):
            with writing(tables[part].path), tables[part].open():
                tables[part].write("entity", rows[positions], int(assignment.row[start + positions[0]]))
    for table in tables:
        with writing(table.path):
            table.seal(drop_cache=True)
    # The generator has the state that it would have after a whole entity table, so no entity rows are drawn here.
    others = init_tables(settings, model, 0, relations, random=random)
    return {name: table for name, table in others.items() if name != "entity"}


SAMPLED_ENTITIES = 20_000  # with at most this many entities, validation ranks against all of them

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SampledValidator(RankValidator):
    """Measures the filtered MRR of validation triples against a sample of entities.

    The ids of `graph` and `known` are positions in `entities` [S], and the scorer holds the rows of `entities`.
    """

    entities: Rows


@dataclass(frozen=True)
class SampledConfidenceValidator(ConfidenceValidator):
    """Measures confidences of triples whose ids are positions in `entities` [S]; the scorer holds their rows."""

    entities: Rows


def sampled_validator(usual: Validator | None, seed: int) -> SampledValidator | SampledConfidenceValidator | None:
    """Return a validator of the same triples that needs a sample of the entities; None if there are no triples."""
    if isinstance(usual, ConfidenceValidator):
        triples = usual.triples
        chosen, place = torch.unique(torch.cat([triples.head, triples.tail]), return_inverse=True)
        head, tail = place.chunk(2)
        return SampledConfidenceValidator(replace(triples, head=head, tail=tail), chosen.numpy())
    if usual is None:
        return None
    graph, facts, drawn = usual.graph, usual.known, np.arange(usual.known.entities)
    if facts.entities > SAMPLED_ENTITIES:
        random = np.random.default_rng([seed, RandomStream.PARTITIONED_VALIDATION_CANDIDATES])
        drawn = random.integers(0, facts.entities, SAMPLED_ENTITIES)
    entities = np.unique(np.concatenate([drawn, graph.head, graph.tail])).astype(np.int64)
    heads, tails = (find_sorted(entities, ids)[0].astype(np.int32) for ids in (graph.head, graph.tail))
    # The known triples between these entities, with positions in `entities` as ids.
    query, tail = np.divmod(facts.keys["tail"].numpy(), facts.entities)
    head, relation = np.divmod(query, facts.relations)
    (head_at, has_head), (tail_at, has_tail) = (find_sorted(entities, ids) for ids in (head, tail))
    both = has_head & has_tail
    places = [torch.from_numpy(part[both]) for part in (head_at, relation, tail_at)]
    known = TripleIndex(places[0], places[1], places[2], len(entities), facts.relations)
    return SampledValidator(replace(graph, head=heads, tail=tails), known, entities)


MAX_EDGES_PER_ENTITY = 0.05  # edges per entity of a partition in a batch up to which repeated entities do no harm
MIN_BATCH_SIZE = 32  # minimum batch size


class TriplesOnDisk(TripleSource):
    """Loads no training triples, because they are read from disk bucket by bucket during training."""

    def load(self, triples: TrainingTriples, labels: SoftLabels | None, device: str) -> Batch:
        no_ids = torch.empty(0, dtype=torch.int64)
        return Batch(no_ids, no_ids, no_ids, torch.empty(0))


class PartitionedPlacement(Placement):
    """A placement that keeps the entity table in partitions on disk, with some of them in memory at a time."""

    in_memory = False
    validator: SampledValidator | SampledConfidenceValidator | None

    def __init__(self, config: Config, splits: Splits, normalizer: Normalizer, checkpoint: Checkpoint | None) -> None:
        problem = TrainingProblem.build(config, splits, normalizer, TriplesOnDisk())
        self.partitions, self.slots, self.rounds = parse_partitions(config.partitions or "1:1")
        self.batch_size, self.rows_per_slot = config.batch_size or 1024, -(-problem.entities // self.partitions)
        model, (width, relation_width) = problem.model, problem.model.widths(config.dim)
        relations = len(splits.train.relations) * (2 if config.reciprocal else 1)
        slots = self.slots + (self.partitions > self.slots)  # one more, into which the next partition is loaded
        tables = {
            "entity": torch.zeros(slots * self.rows_per_slot, width),
            "relation": torch.zeros(relations, relation_width),
            **model.init_parameters(config.dim, torch.Generator()),
        }
        optimizer = make_optimizer(config.optimizer, tables, config.lr)
        parts = model, tables, optimizer, problem.entities, config.reciprocal
        engine = make_engine("partitioned", *parts, problem.objective)
        super().__init__(problem, engine, checkpoint)

    def open(self, folder: RunFolder | None, note: Callable[[str], None]) -> None:
        """Write the edges and the initial partitions to disk, or load the tables of a checkpoint."""
        if folder is None or not isinstance(folder.storage, PartitionedTables):
            raise ValueError("a training with partitions needs a run folder")
        self.storage, self.note, entities = folder.storage, note, self.problem.entities
        files, tables = folder.storage.files, self.engine.tables
        path = files.folder / EDGES
        if self.checkpoint is None:
            files.create(self.partitions)
            assignment = PartitionAssignment.random(entities, self.partitions, self.config.seed)
            triples = self.problem.triples
            self.edges = write_edge_buckets(path, triples.facts, triples.normalizer, assignment)
            relations = len(triples.facts.relations)
            initial = write_initial_partitions(files, assignment, self.config, self.engine.scorer.model, relations)
        else:
            self.edges, initial = EdgeBuckets.open(path), self.checkpoint.tables
        for name, values in initial.items():
            tables[name].copy_(values)
        if self.checkpoint is not None:
            self.engine.optimizer.load(self.engine.optimizer.state() | self.checkpoint.optimizer)
        state = self.engine.optimizer.state().items()
        held = {"entity": tables["entity"]} | {name: value for name, value in state if name.startswith("entity.")}
        self.buffer = PartitionBuffer(files, held, self.edges.assignment.sizes)
        if self.checkpoint is None:
            folder.save(Checkpoint(Progress(), *self.checkpoint_tables()))
        self.validator = sampled_validator(self.problem.validator, self.config.seed)
        if isinstance(self.validator, SampledValidator) and len(self.validator.entities) < entities:
            note(f"validation ranks against {len(self.validator.entities):,} sampled entities, not all")
        note(f"{counted(self.partitions, 'partitions')}, {self.slots} of them in memory at a time")

    # ---- batches --------------------------------------------------------------------------------------------------

    def start_epoch(self, epoch: int) -> tuple[int, int]:
        return sum(count for _, count in self._stages(epoch)), len(self.edges)

    def batches(self, epoch: int, first: int, batches_per_call: int) -> Iterator[Sequence[Tensor]]:
        done, stages = 0, self._stages(epoch)
        following = [*(stage for stage, _ in stages[1:]), None]
        for number, ((stage, count), after) in enumerate(zip(stages, following, strict=True)):
            if first < done + count:
                order = self._load_stage(epoch, stage, after, number)
                one = self.partitions == 1
                parts = torch.split(order, self.batch_size) if one else torch.tensor_split(order, count)
                for start in range(max(first - done, 0), len(parts), batches_per_call):
                    self.buffer.mark_changed()
                    yield parts[start : start + batches_per_call]
            done += count

    def _stages(self, epoch: int) -> list[tuple[Stage, int]]:
        """Return the stages of an epoch that have edges, with their numbers of batches."""
        stages = epoch_stages(self.partitions, self.slots, self.config.seed, epoch, self.rounds)
        counts = ((stage, self._batch_count(stage)) for stage in stages)
        return [(stage, count) for stage, count in counts if count]

    def _batch_count(self, stage: Stage) -> int:
        """Return the number of batches of a stage; they have about equal size, so that no short batch counts too much.

        With few active partitions, an entity occurs more often in a batch than among all partitions, and several
        gradients in one step move it less than as many steps. So batches are smaller in proportion, unless entities
        rarely repeat in a batch.
        """
        edges, size = self.edges.count(stage), self.batch_size
        if self.partitions == 1 or not edges:
            return -(-edges // size)
        alike = size / (self.partitions * self.edges.same_partition_probability(stage))
        return max(1, round(edges / min(size, max(alike, MAX_EDGES_PER_ENTITY * self.rows_per_slot, MIN_BATCH_SIZE))))

    def _load_stage(self, epoch: int, stage: Stage, following: Stage | None, number: int) -> Tensor:
        """Load the partitions and edges of a stage, and return the order of its edges."""
        self.buffer.load_stage(stage, following)
        self.engine.scorer.invalidate()
        self.triples = PackedEdges(self.edges.read(stage, self.rows_per_slot), self.problem.labels)
        sizes = self.edges.assignment.sizes
        self.sampler = PartitionedNegativeSampler.for_stage(
            self.config.negative_sampling, self.config.num_negatives or 1, stage, sizes, self.rows_per_slot
        )
        seed = stream_seed(self.config.seed, epoch, RandomStream.SHUFFLE + number)
        return epoch_order(len(self.triples), len(self.triples), seed).batches[0]

    def take(self, rows: Tensor) -> Batch:
        return self.triples.take(rows)

    def sample(self, batch: Batch, seed: StreamKey) -> list[Negatives]:
        return self.sampler(batch, seed)

    # ---- rows and checkpoints -------------------------------------------------------------------------------------

    def scorer(self) -> TableScorer:
        """Return a scorer over the rows of the entities that validation ranks against."""
        live = self.engine.scorer
        if self.validator is None:
            return live
        tables = {**live.tables, "entity": self.fetch(self.validator.entities)}
        return TableScorer(live.model, tables, live.side_dependent)

    def fetch(self, entities: npt.NDArray[np.int64]) -> Tensor:
        """Return the current rows of some entities, [n] -> [n, width], from memory or from disk."""
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

    def checkpoint_tables(self) -> tuple[Tables, Tables]:
        """Write all changed partitions to disk, and return the tables and optimizer state that are not partitioned."""
        self.buffer.flush()
        tables = {name: table for name, table in self.engine.tables.items() if name != "entity"}
        state = self.engine.optimizer.state().items()
        return tables, {name: value for name, value in state if not name.startswith("entity.")}

    def keep_best(self) -> None:
        """Keep the current version of all partitions on disk."""
        self.storage.files.keep_best(shared_arrays(Checkpoint(Progress(), *self.checkpoint_tables())))

    def finish(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the last checkpoint, with its tables mapped from the run folder."""
        files = self.storage.files
        self.note(
            f"partitions were loaded {counted(files.loads, 'times')}: {format_size(files.read_bytes)} read, "
            f"{format_size(files.written_bytes)} written"
        )
        final = self.storage.map_model()
        return replace(checkpoint, tables=final, best=final if files.best[0] else None)

    def close(self) -> None:
        self.buffer.close()
