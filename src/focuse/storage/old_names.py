"""Names that settings, files and tensors had in the run folders of earlier formats.

Format 3 gave files, tensors and some settings other names, format 4 more settings. No current name or value is in these
tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from focuse.errors import FocuseError

OLD_FILE_NAMES = {  # new -> old
    "weight_scaling.safetensors": "normaliser.safetensors",
    "weight_columns.safetensors": "columns.safetensors",
    "node_attributes.safetensors": "numbers.safetensors",
    "label_exponent.json": "sharpness.json",
}
# The other tables map old names to new ones.
OLD_TENSOR_PREFIXES = {"optimiser": "optimizer"}
OLD_PARAMETER_NAMES = {"kblrn": {"centres": "centers"}}  # by model
OLD_KEYS = {"columns": "weight_columns", "numbers": "node_attributes"}
OLD_SETTING_NAMES = {  # old -> new
    "sharpness": "label_exponent",
    "corrupt": "negative_distribution",
    "coin": "corrupt_side",
    "spread": "init_std",
    "judge": "stop_metric",
    "regularize": "regularizer_scope",
    "focus": "weight_mode",
    "sampling": "negative_sampling",
    "negatives": "num_negatives",
    "decay": "beta_decay_epochs",
    "beta_floor": "beta_min",
    "normalize": "weight_scaling",
    "importance": "column_importance",
    "check_every": "eval_every",
    "burn_in": "eval_start",
    "threshold": "valid_min_weight",
    "stopping_share": "stop_fraction",
    "attribute_share": "attribute_loss_weight",
    "soft_logic_weight": "rule_loss_weight",
    "soft_logic_size": "rule_batch_size",
    "start": "init_from",
    "memory": "memory_limit",
}
REMOVED_SETTINGS = {  # what to use instead; unless a run used the setting, it is ignored
    "decays": "one beta_decay_epochs for all weight columns",
    "column_beta_decay_epochs": "one beta_decay_epochs for all weight columns",
}
OLD_SETTING_VALUES: dict[tuple[str, Any], Any] = {  # (new name, old value) -> new value
    ("corrupt_side", "fair"): "uniform",
    ("weight_mode", "label"): "soft-labels",
    ("weight_mode", "paper"): "focuse",
    ("weight_mode", "off"): "none",
    ("negative_sampling", "independent"): "per-triple",
    ("negative_weights", "light"): "low",
    ("negative_weights", "against"): "known-negative",
    ("zero_weights", "light"): "low",
    ("zero_weights", "negatives"): "known-negative",
    ("optimizer", "row-adam"): "sparse-adam",
    ("optimizer", "row-adagrad"): "sparse-adagrad",
    ("engine", "reference"): "torch",
    ("engine", "fused"): "native",
    ("engine", "sharded:torchrec"): "sharded",
    ("engine", "sharded:plain"): "sharded",
    ("engine", "sharded:host"): "sharded",
}


def check_removed_settings(settings: Mapping[str, Any], source: object) -> None:
    """Raise FocuseError if a stored run was trained with a setting that no longer exists."""
    for name, instead in REMOVED_SETTINGS.items():
        if settings.get(name) not in (None, ""):
            raise FocuseError(f"{source}: {name} = {settings[name]!r} was removed from focuse; train with {instead}")


def upgrade_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a stored run, of any format, by their current names and values.

    >>> upgrade_settings({"focus": "paper", "dim": 8, "eval_start": 2})
    {'weight_mode': 'focuse', 'dim': 8, 'eval_start': 2}
    """
    found: dict[str, Any] = {}
    for old, value in settings.items():
        if old in REMOVED_SETTINGS:
            continue
        name = OLD_SETTING_NAMES.get(str(old), str(old))
        if name in found:
            raise FocuseError(f"{name} is given twice, also by its old name; remove one of them")
        found[name] = OLD_SETTING_VALUES.get((name, str(value)), value)
    return found
