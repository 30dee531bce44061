"""Decide whether a training that does not fit into memory can use partitions, and how many."""

from __future__ import annotations

import math

from focuse.config import Config
from focuse.data.splits import Splits
from focuse.engines.partitioned import check_partitions
from focuse.errors import FocuseError
from focuse.models.registry import model_class
from focuse.option_strings import parse_partitions
from focuse.system import format_size, free_memory, used_memory
from focuse.training.callbacks import Reporter
from focuse.training.label_exponent import DEFAULT_EXPONENT
from focuse.training.preparation import MOMENTS_PER_PARAMETER, PARTITIONED, needed_memory, step_memory

DEFAULT_PARTITIONS = 32  # with fewer partitions an epoch does not read less, and shuffles edges less well
MOST_PARTITIONS = 1024
BUFFER_SHARE = 0.6  # fraction of the free memory; the rest is for the edges of a stage and for the page cache


def plan_partitions(config: Config, splits: Splits, reporter: Reporter, has_run_folder: bool) -> Config:
    """Return the config for the engine 'partitioned' if it is requested, or if the training does not fit into memory.

    `has_run_folder` is True if the run is written to a folder during training, which partitions need.
    """
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
    resolved = config.derive(engine=PARTITIONED, partitions=_choose_partitions(config, splits, memory))
    if config.engine == "auto":
        reporter.note(f"{sizes}: tables are kept on disk and trained by partitions (engine 'partitioned')")
    partitions, slots, _ = parse_partitions(str(resolved.partitions))
    if slots == 2 < partitions:
        reporter.note("with two partitions in memory, negatives come only from those of the edge; three are better")
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
            f"{format_size(max(available, 0))} are left for {format_size(rows)} of embeddings and optimizer state, too "
            f"little, because the process uses {format_size(used_memory())} already; raise memory_limit, or lower "
            "dim or batch_size"
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
        f"the model {settings.model!r} predicts confidences": model.confidence_head is not None,
        "it does not support semi-supervised training": settings.semi_supervised != "none",
        "it supports one weight per edge, not several columns": splits.merger is not None,
        "it does not support known negatives": splits.known_negatives is not None,
        "it does not support triples that rules infer": splits.inferred is not None,
        "it cannot start from another run": settings.init_from is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
