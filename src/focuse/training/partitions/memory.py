"""How much memory there is, and whether a training fits into it or is to go by partitions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from focuse.errors import FocuseError
from focuse.graph.memory import free_memory, taken_memory
from focuse.graph.splits import Splits
from focuse.models import kind_of
from focuse.training.partitions.plan import check_partitions
from focuse.training.progress import Reporter
from focuse.training.semisupervised import make_schedule
from focuse.training.settings import Settings
from focuse.training.specs import parse_memory, parse_partitions

USUAL = 32  # partitions: an epoch moves no less with fewer, and mixes edges less well
MOST = 1024
SHARE = 0.6  # of the memory that is left is for partitions; the rest for a stage's edges and the system's own pages
EDGE_BYTES = 28  # ids and weights of an edge, as a training in memory holds them
MOMENTS = {"row-adagrad": 1, "row-adam": 2}
NAMES = "partitioned"


@dataclass(frozen=True)
class Need:
    """Bytes that a training would hold in memory: of embeddings with their optimiser's state, and of edges."""

    tables: int
    edges: int

    @classmethod
    def of(cls, settings: Settings, splits: Splits) -> Need:
        model, train = settings.make_model(), splits.train
        numbers = len(train.entities) * model.entity_width(settings.dim)
        moments = MOMENTS.get(settings.optimizer, 2)
        kept = 1 if len(splits.valid.graph) else 0  # the best so far is a copy
        return cls(4 * numbers * (1 + moments + kept), EDGE_BYTES * len(train))

    @property
    def all(self) -> int:
        return self.tables + self.edges


def choose_engine(settings: Settings, splits: Splits, reporter: Reporter, in_folder: bool) -> Settings:
    """Resolved settings with the partitioned engine where it is asked for, or where memory would not hold the training.

    `in_folder`: the run is written to a folder while it trains, which partitions need.
    """
    if settings.engine not in ("auto", NAMES):
        return settings
    memory = free_memory() if settings.memory is None else max(0, parse_memory(settings.memory) - taken_memory())
    need = Need.of(settings, splits)
    lacking = lacks(settings, splits, in_folder)
    told = f"embeddings, optimiser state and edges take {told_size(need.all)}, {told_size(memory or 0)} are free"
    if settings.engine == "auto":
        if memory is None or settings.device != "cpu" or need.all <= 0.8 * memory:
            if settings.partitions is not None:
                reporter.note("there is memory enough, and no partitions are made; --engine partitioned makes them")
            return settings
        if lacking:
            reporter.note(f"{told}, and they cannot be kept on disk: {lacking}")
            return settings
    elif lacking:
        raise FocuseError(f"engine 'partitioned': {lacking}; use the engine 'auto'")
    resolved = replace(settings, engine=NAMES, partitions=_partitions(settings, splits, memory))
    if settings.engine == "auto":
        reporter.note(f"{told}: they are kept on disk and trained by partitions (engine 'partitioned')")
    partitions, slots, _ = parse_partitions(str(resolved.partitions))
    if slots == 2 < partitions:
        reporter.note("two partitions in memory: negatives are of an edge's own ones alone, three or more learn better")
    if resolved.focus == "label" and resolved.sharpness is None:
        reporter.note("sharpness 2 is taken: short trainings to choose it by would take as long; see --sharpness")
        resolved = replace(resolved, sharpness=2.0)
    return resolved


def _partitions(settings: Settings, splits: Splits, memory: int | None) -> str:
    """How many partitions, how many of them in memory, and in how many rounds they meet, as 'P:c:k'."""
    entities = len(splits.train.entities)
    if settings.partitions is not None:
        partitions, slots, rounds = parse_partitions(settings.partitions)
    else:
        model = settings.make_model()
        rows = 4 * entities * model.entity_width(settings.dim) * (1 + MOMENTS[settings.optimizer])
        room = math.inf if memory is None else SHARE * memory
        partitions, slots, rounds = *partitions_for(rows, room), 1
    partitions = min(partitions, max(entities, 1))
    slots = min(slots, partitions)
    check_partitions(partitions, slots)
    return f"{partitions}:{slots}:{rounds}"


def partitions_for(rows: int, room: float) -> tuple[int, int]:
    """Partitions for so many bytes of rows, and how many of them fit into `room` bytes beside one that comes or goes.

    >>> partitions_for(10_000, 20_000), partitions_for(10_240, 3_300)
    ((1, 1), (32, 9))
    """
    if rows <= room:
        return 1, 1
    partitions = max(USUAL, math.ceil(4 * rows / room)) if room > 0 else MOST + 1
    if partitions > MOST:
        raise FocuseError(
            f"{told_size(max(room, 0))} beside what Python and torch take are too little for {told_size(rows)} of "
            "embeddings and state; give more (--memory), or lower --dim"
        )
    return partitions, max(2, min(partitions - 1, int(room * partitions / rows) - 1))


def lacks(settings: Settings, splits: Splits, in_folder: bool) -> str:
    """Why a training cannot go by partitions, '' if it can."""
    model, kind = settings.make_model(), kind_of(settings.model)
    reasons = {
        "its tables are for a CPU": settings.device != "cpu",
        "it keeps them in the run's folder; give one (out, --out)": not in_folder,
        "it needs an optimizer of rows, 'row-adagrad' or 'row-adam'": settings.optimizer not in MOMENTS,
        "negatives come from the partitions in memory, sampling 'all' needs every entity": settings.sampling == "all",
        "it cannot filter negatives by facts (filter_negatives)": settings.filter_negatives,
        "it draws negatives uniformly, not by 'corrupt' or 'coin'": (settings.corrupt, settings.coin)
        != ("uniform", "fair"),
        f"the model {settings.model!r} computes its entities from the whole graph": model.encodes or bool(model.wants),
        f"the model {settings.model!r} is one of confidences": kind.confident,
        "it has no pool of semi-supervised triples": make_schedule(settings.semi_supervised) is not None,
        "it knows one weight an edge, not several columns": splits.merger is not None,
        "it knows no triples that are false": splits.false is not None,
        "it knows no triples that rules infer": splits.inferred is not None,
        "it cannot start from another run": settings.start is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def told_size(size: float) -> str:
    """Bytes in words.

    >>> told_size(18.2e9), told_size(3.6e6)
    ('18.2 GB', '3.6 MB')
    """
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
