"""Decide whether a training fits into memory, and otherwise whether it can use partitions, and how many."""

from __future__ import annotations

import math
from dataclasses import replace

from focuse.config import Config
from focuse.data.splits import Splits
from focuse.engines.fused_cpu import GROUPS
from focuse.engines.partitioned import check_partitions
from focuse.errors import FocuseError
from focuse.models.registry import model_class
from focuse.option_strings import parse_partitions
from focuse.system import format_size, free_memory, used_memory
from focuse.training.callbacks import Reporter
from focuse.training.label_exponent import DEFAULT_EXPONENT
from focuse.training.weight_model import LARGEST_DIM

PARTITIONED = "partitioned"
EDGE_BYTES = 42  # bytes per edge in memory: three ids, a weight, the order of an epoch, and keys for validation
STEP_BYTES = 100_000_000  # of kernels and validation
MOMENTS_PER_PARAMETER = {"sparse-adagrad": 1, "sparse-adam": 2}  # values that an optimizer stores per parameter
DENSE_COPIES = 5  # moments and gradients of optimizers that update whole tables
SHARED_POOL_ROWS = 1000  # of embeddings that each group of the native engine's threads takes for a shared pool
AUTOGRAD_COPIES = 12  # of the embeddings of negatives, for gradients
DEFAULT_PARTITIONS = 32  # with fewer partitions an epoch does not read less, and shuffles edges less well
MOST_PARTITIONS = 1024
BUFFER_SHARE = 0.6  # fraction of the free memory; the rest is for the edges of a stage and for the page cache


def partition_if_needed(config: Config, splits: Splits, reporter: Reporter, has_run_folder: bool) -> Config:
    """Return the config, with the engine 'partitioned' if it is requested or if 'auto' does not fit into memory.

    `has_run_folder` is True if the run is written to a folder during training, which partitions need. A training that
    exceeds a given `memory_limit` with every engine raises FocuseError.
    """
    if config.engine not in ("auto", PARTITIONED) or (config.engine == "auto" and fits_in_memory(config, splits)):
        return config
    memory, need = free_memory(), needed_memory(config, splits)
    reason = unsupported_reason(config, splits, has_run_folder)
    sizes = f"training in memory takes about {format_size(need)}, and {format_size(memory)} are free"
    if config.engine == "auto":
        if reason and config.memory_limit is not None:
            raise FocuseError(
                f"{sizes} of memory_limit {config.memory_limit}; partitions on disk do not help: {reason}"
            )
        if reason:
            reporter.note(f"{sizes}; partitions on disk cannot be used: {reason}")
            return config
    elif reason:
        raise FocuseError(f"engine 'partitioned': {reason}; use the engine 'auto'")
    chosen = _choose_partitions(config, splits, memory)
    derived = {name: "derived" for name in ("engine", "partitions") if getattr(config, name) in (None, "auto")}
    resolved = replace(config, engine=PARTITIONED, partitions=chosen, provenance={**config.provenance, **derived})
    if config.engine == "auto":
        reporter.note(f"{sizes}: tables are kept on disk and trained by partitions (engine 'partitioned')")
    partitions, slots, _ = parse_partitions(str(resolved.partitions))
    if slots == 2 < partitions:
        reporter.note(
            "with two partitions in memory, negatives come only from the partitions of each edge; load at least three"
        )
    if resolved.weight_mode == "soft-labels" and resolved.label_exponent is None:
        reporter.note(
            f"label exponent {DEFAULT_EXPONENT:g} is used: selecting it takes too long; label_exponent sets another"
        )
        resolved = resolved.derive(label_exponent=DEFAULT_EXPONENT)
    return resolved


def _choose_partitions(settings: Config, splits: Splits, memory: int) -> str:
    """Return the number of partitions, how many are in memory at once, and the rounds per epoch, as 'P:c:k'."""
    entities = len(splits.train.entities)
    if settings.partitions is not None:
        partitions, slots, rounds = parse_partitions(settings.partitions)
    else:
        model = settings.make_model()
        rows = 4 * entities * model.widths(settings.dim)[0] * (1 + MOMENTS_PER_PARAMETER[settings.optimizer])
        partitions, slots, rounds = *partitions_for(rows, BUFFER_SHARE * (memory - step_memory(settings, entities))), 1
    partitions = min(partitions, max(entities, 1))
    slots = min(slots, partitions)
    check_partitions(partitions, slots)
    return f"{partitions}:{slots}:{rounds}"


def partitions_for(rows: int, available: float) -> tuple[int, int]:
    """Return the number of partitions for `rows` bytes of rows, and how many are active at once.

    The active partitions and one that is being loaded fit into the available memory.

    >>> partitions_for(10_000, 20_000), partitions_for(10_240, 3_300)
    ((1, 1), (32, 9))
    """
    if rows <= available:
        return 1, 1
    partitions = MOST_PARTITIONS + 1
    if available > 0:
        partitions = max(DEFAULT_PARTITIONS, math.ceil(4 * rows / available))
    if partitions > MOST_PARTITIONS:
        raise FocuseError(
            f"{format_size(rows)} of embeddings and optimizer state needed, {format_size(max(available, 0))} free "
            f"for them, next to a batch ({format_size(used_memory())} in use); lower dim or raise memory_limit"
        )
    return partitions, max(2, min(partitions - 1, int(available * partitions / rows) - 1))


def unsupported_reason(settings: Config, splits: Splits, has_run_folder: bool) -> str:
    """Return why the engine 'partitioned' does not support the training, or '' if it does."""
    model = model_class(settings.model)
    reasons = {
        "it supports only a CPU": settings.device != "cpu",
        "it needs a run folder for the partitions (out)": not has_run_folder,
        "it needs the optimizer 'sparse-adagrad' or 'sparse-adam'": settings.optimizer not in MOMENTS_PER_PARAMETER,
        "negative_sampling 'all' needs every entity in memory": settings.negative_sampling == "all",
        "it cannot filter negatives (filter_negatives)": settings.filter_negatives,
        "it draws negatives uniformly, not by 'negative_distribution' or 'corrupt_side'": (
            settings.negative_distribution,
            settings.corrupt_side,
        )
        != ("uniform", "uniform"),
        f"the model {settings.model!r} computes its entities from the whole graph": model.encoder is not None
        or bool(model.requires & {"edges", "attributes"}),
        f"the model {settings.model!r} initializes its rows as a whole table": "whole table" in model.requires,
        f"the model {settings.model!r} predicts confidences": model.confidence_head is not None,
        "it does not support semi-supervised training": settings.semi_supervised != "none",
        "it supports one weight per edge, not several columns": splits.merger is not None,
        "it does not support known negatives": splits.known_negatives is not None,
        "it does not support triples that rules infer": splits.inferred is not None,
        "it cannot start from another run": settings.init_from is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def fits_in_memory(config: Config, splits: Splits) -> bool:
    """Return whether a training fits into main memory; GPU memory is not checked."""
    return config.device != "cpu" or needed_memory(config, splits) <= free_memory()


def needed_memory(config: Config, splits: Splits) -> int:
    """Return the bytes that a training in memory needs, as measured with models of several kinds."""
    train, widths = splits.train, config.make_model().widths(config.dim)
    state = MOMENTS_PER_PARAMETER.get(config.optimizer, DENSE_COPIES)
    copies = 2 if len(splits.valid) else 1  # of the best and of the final tables
    numbers = (len(train.entities) * widths[0] + len(train.relations) * widths[1]) * (1 + state + copies)
    if config.weight_mode == "separate":  # the tables of both models are in memory while the weight model is trained
        width = 2 * min(config.dim, LARGEST_DIM)
        numbers += (len(train.entities) + len(train.relations)) * width * (2 + copies)
    tables = 4 * numbers
    return tables + EDGE_BYTES * len(train) + step_memory(config, len(train.entities))


def step_memory(config: Config, entities: int) -> int:
    """Return the bytes that a batch takes besides tables and edges: scores of negatives, and rows of embeddings."""
    model, batch = config.make_model(), config.batch_size or 1
    candidates = entities if config.negative_sampling == "all" else config.num_negatives or 1
    scores = 4 * batch * candidates
    if model.fused is not None:
        pool = (3 + GROUPS) * candidates + GROUPS * SHARED_POOL_ROWS if config.negative_sampling == "shared" else 0
        return STEP_BYTES + 2 * scores + 4 * (3 * batch + pool) * model.widths(config.dim)[0]
    by_product = model.similarity == "dot" and config.negative_sampling != "per-triple"
    return STEP_BYTES + AUTOGRAD_COPIES * scores * (1 if by_product else model.widths(config.dim)[0])
