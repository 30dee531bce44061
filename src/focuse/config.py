"""Every setting of a training, declared once: type, default, choices, limits, help, and when it applies.

The checks, the options of `focuse train` and `focuse tune`, the signature of `focuse.train`, shell completion and
docs/reference/settings.md are generated from the declarations. The command line reads them before it knows what to do,
so this module imports torch only inside functions.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from os import PathLike
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

from focuse.errors import FocuseError, did_you_mean, nearest
from focuse.option_strings import parse_named_numbers, parse_names, parse_partitions, to_option_string
from focuse.storage.old_names import OLD_SETTING_NAMES, OLD_SETTING_VALUES
from focuse.system import parse_memory

if TYPE_CHECKING:
    from focuse.data.graph import Graph
    from focuse.models.base import Model
    from focuse.objective.focuse import FocusELayer, SoftLabels

GROUPS = ("Model", "Edge weights", "Negatives", "Optimization", "Early stopping", "Resources", "Output", "Advanced")
MODEL_NAMES = (
    "transe", "transe-l2", "gtranse", "rotate", "pairre", "distmult", "complex", "quate", "hole", "simple", "cp",
    "rescal", "tucker", "conve", "convkb", "kbgat", "literale-distmult", "literale-complex", "transea", "kblrn",
    "ukge-rect", "ukge-logi", "complex-weights", "passleaf-complex", "passleaf-rotate", "suke", "beurre",
)  # fmt: skip
LOSS_NAMES = (
    "multiclass-nll", "pairwise-nll", "nll", "bce", "margin", "self-adversarial", "confidence-margin", "squared-error",
    "cross-entropy",
)  # fmt: skip
SQUARED_ERROR, CROSS_ENTROPY = "squared-error", "cross-entropy"
CONFIDENCE_LOSSES = (SQUARED_ERROR, CROSS_ENTROPY)  # the losses by which confidence models learn weights
# Larger batches would draw shared negatives less often, and an epoch would see less of the graph.
MAX_BATCH_SIZE_SHARED = 1024
MAX_SCORES_PER_BATCH = 1 << 24  # 64 MB of float32 scores, of which autograd keeps a few copies
MAX_INT = 2**32

# ---- declarations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """The declaration of a setting; `group` is the heading under which it is listed."""

    group: str
    help: str
    choices: tuple[str, ...] = ()  # all allowed values
    examples: tuple[str, ...] = ()  # for completion, if other values such as 'margin:2' are allowed too
    auto: str = ""  # how the value is chosen if the default is None or 'auto'
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None
    requires: Mapping[str, tuple[Any, ...]] = field(
        default_factory=dict
    )  # values of others with which it has an effect
    models: str = ""  # the kind of model that uses it, a key of MODEL_KINDS; '' for all
    name: str = ""
    annotation: str = ""  # such as 'int | None'
    default: Any = None

    @property
    def type(self) -> str:
        """The type, a key of SETTING_TYPES; 'names' is True, False or names of columns."""
        return "names" if "tuple" in self.annotation else self.annotation.partition(" | ")[0]

    @property
    def default_text(self) -> str:
        """The default for help and reference."""
        return self.auto or (str(self.default).lower() if isinstance(self.default, bool) else str(self.default))

    def coerce(self, value: Any) -> Any:
        """Return `value` as a built-in type; NumPy numbers, paths and mappings of columns are accepted."""
        accepted, convert, words = SETTING_TYPES[self.type]
        if self.name == "column_importance":
            value = to_option_string(value)
        if isinstance(value, PathLike) or (self.name == "checkpoint_every" and isinstance(value, Integral)):
            value = str(value)
        if str(getattr(value, "dtype", "")) == "bool" and not value.shape:  # NumPy is not imported here
            value = bool(value)
        if value is None and self.annotation.endswith("| None"):
            return None
        if not isinstance(value, accepted) or (isinstance(value, bool) and self.type in ("int", "float")):
            raise FocuseError(f"{self.name} {value!r}: give {words}")
        try:
            return convert(value)
        except OverflowError:
            raise FocuseError(f"{self.name}: too large; give {words} below 1e308") from None

    def check(self, value: Any) -> None:
        """Raise FocuseError for a value that is not among the choices or within the limits."""
        if value is None:
            return
        if self.choices and value not in self.choices:
            new = OLD_SETTING_VALUES.get((self.name, value))
            hint = did_you_mean([new]) if isinstance(new, str) else nearest(value, self.choices)
            raise FocuseError(f"unknown {self.name} {value!r}{hint}: choose one of {', '.join(self.choices)}")
        if self.type in ("int", "float"):
            below = MAX_INT if self.type == "int" else self.below
            bounds = {"minimum": self.minimum, "above": self.above, "maximum": self.maximum, "below": below}
            limits = [(limit, *LIMITS[name]) for name, limit in bounds.items() if limit is not None]
            if value in (math.inf, -math.inf) or not all(inside(value, limit) for limit, inside, _ in limits):
                words = " and".join(f" {words} {_short(limit)}" for limit, _, words in limits)
                raise FocuseError(f"{self.name} {_short(value)}: give {SETTING_TYPES[self.type][2]}{words}")


def _short(number: float) -> str:
    return "2**32" if number == MAX_INT else f"{number:g}" if isinstance(number, float) else str(number)


LIMITS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (operator.ge, "of at least"),
    "above": (operator.gt, "above"),
    "maximum": (operator.le, "at most"),
    "below": (operator.lt, "below"),
}


def _names(value: Any) -> bool | tuple[str, ...]:
    """Return True, False or the names of columns; text has them separated by commas."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        known = {"true": True, "all": True, "false": False, "": False}
        word = value.strip().lower()
        return known[word] if word in known else tuple(parse_names(value))
    return tuple(parse_names(to_option_string(value)))


SETTING_TYPES: dict[str, tuple[Any, Callable[[Any], Any], str]] = {
    "str": (str, str, "text"),
    "bool": (bool, bool, "True or False"),
    "int": (Integral, int, "a whole number"),
    "float": (Real, float, "a number"),
    "names": ((bool, str, list, tuple, set, frozenset), _names, "True, False or names of columns"),
}
MODEL_KINDS: dict[str, Callable[[type[Model]], bool]] = {
    "confidence": lambda model: model.confidence_head is not None,
    "attribute loss": lambda model: model.auxiliary_loss is not None,
}


def setting(default: Any, group: str, help: str, **declared: Any) -> Any:
    """Declare a setting: a field of `Config`; see `Setting`."""
    return field(default=default, metadata={"setting": Setting(group, help, **declared)})


FOCUSE = {"weight_mode": ("focuse",)}
DECAYING_BETA = {**FOCUSE, "beta": (None,)}
SAMPLED = {"negative_sampling": ("shared", "per-triple")}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a training; a run stores the resolved ones.

    `resolve` replaces None and 'auto' by values that depend on the graph or the machine. After it, preparation may
    still set weight_mode 'none' (equal weights) and engine 'partitioned' (little memory), and select label_exponent.
    `provenance` has the settings that are not general defaults: 'given', 'model' (a default of the model), 'derived'.
    """

    # fmt: off
    model: str = setting("complex", "Model", examples=MODEL_NAMES,
        help="Scoring function: a name ('focuse train --model list' shows all), pykeen:NAME, or package.module:Class. "
        "Some models have other defaults than those listed here.")
    reciprocal: bool = setting(False, "Model", help="Give each relation a second embedding that predicts heads.")
    dim: int = setting(100, "Model", minimum=1, help="Size of the embeddings.")
    init_std: float | None = setting(None, "Model", above=0, auto="that of the model, or Xavier's",
        help="Standard deviation of the initial embeddings.")
    init_from: str | None = setting(None, "Model", auto="random",
        help="Folder of a run whose embeddings are the initial ones, matched by name.")

    weight_mode: str = setting("separate", "Edge weights", choices=("separate", "soft-labels", "focuse", "none"),
        help="How weights are learned: by a separate weight model, so that each question can ask for likely or for "
        "strong links; in the loss, as soft labels or by the FocusE layer; or not at all.")
    label_exponent: float | None = setting(None, "Edge weights", minimum=0, maximum=100, auto="selected on validation",
        requires={"weight_mode": ("soft-labels",)},
        help="Exponent γ of soft labels w^γ: 0 ignores weights, 1 uses them unchanged, more favors high weights.")
    beta_decay_epochs: int | None = setting(None, "Edge weights", minimum=0, requires=DECAYING_BETA, auto="all epochs",
        help="Epochs over which β of FocusE falls from 1.")
    beta: float | None = setting(None, "Edge weights", minimum=0, maximum=1, requires=FOCUSE, auto="decays",
        help="A fixed β of FocusE instead of a decaying one.")
    beta_min: float = setting(0.0, "Edge weights", minimum=0, maximum=1, requires=DECAYING_BETA,
        help="Lowest value of β.")
    nonlinearity: str = setting("auto", "Edge weights", requires=FOCUSE,
        auto="softplus; shifted-softplus for distances",
        examples=("auto", "softplus", "shifted-softplus", "linear", "sigmoid", "tanh"),
        help="Function that FocusE applies to scores; 'shifted-softplus:24' sets its shift.")
    weight_scaling: str | None = setting(None, "Edge weights",
        choices=("relation", "global", "quantile", "log", "none"),
        auto="quantile for heavy tails, else relation; global if each relation has one weight",
        help="How weights are scaled to [0, 1]: by their range within each relation, or that of all (global), by ranks "
        "(quantile) or logarithms (log) within each relation, or not at all.")
    lower_is_better: bool | tuple[str, ...] = setting(False, "Edge weights", examples=("true",),
        help="Whether low weights are the strong ones, such as p-values and distances: true, or the names of weight "
        "columns, separated by commas.")
    negative_weights: str = setting("low", "Edge weights", choices=("low", "known-negative"),
        help="What weights below 0 mean: low weights, or triples known to be false.")
    zero_weights: str = setting("low", "Edge weights", choices=("low", "known-negative"),
        help="What weights of 0 mean: low weights, or triples known to be false.")
    duplicates: str = setting("keep", "Edge weights", choices=("keep", "max", "mean", "sum", "last", "noisy-or"),
        help="How repeated triples are merged; noisy-or takes weights as probabilities.")

    negative_sampling: str = setting("shared", "Negatives", choices=("shared", "per-triple", "all", "none"),
        help="Whether a batch shares its negatives, each triple has its own, all entities are negatives (1-vs-all), or "
        "there are none, for the loss cross-entropy.")
    num_negatives: int | None = setting(None, "Negatives", minimum=1, requires=SAMPLED, auto="256 if shared, else 30",
        help="Negatives per batch if they are shared, else per triple.")
    negative_distribution: str = setting("uniform", "Negatives", choices=("uniform", "type", "degree"),
        requires=SAMPLED, help="How entities of negatives are drawn: uniformly, among those seen on that side of the "
        "relation (only per-triple), or by degree^¾.")
    corrupt_side: str = setting("uniform", "Negatives", choices=("uniform", "bernoulli"),
        requires={"negative_sampling": ("per-triple",)},
        help="Which side is replaced: either one, or by the rule of Wang et al. (2014).")
    filter_negatives: bool = setting(False, "Negatives",
        requires={"negative_sampling": ("shared", "per-triple", "all")},
        help="Leave known training triples out of the negatives.")

    epochs: int = setting(50, "Optimization", minimum=1, help="Largest number of epochs.")
    batch_size: int | None = setting(None, "Optimization", minimum=1, auto="by the size of the graph",
        help="Triples per batch.")
    loss: str = setting("multiclass-nll", "Optimization", examples=LOSS_NAMES,
        help="Loss; numbers follow a colon, as in margin:2 or self-adversarial:6,1. Soft labels require "
        "multiclass-nll, confidence models squared-error or cross-entropy.")
    reduction: str = setting("sum", "Optimization", choices=("sum", "mean"),
        help="How the losses of a batch are combined.")
    regularizer: str = setting("l3:1e-3", "Optimization", examples=("none", "l1:", "l2:", "l3:", "n3:"),
        help="Regularizer and its strength: none, l1:λ, l2:λ, l3:λ, or n3:λ of complex moduli.")
    regularizer_scope: str | None = setting(None, "Optimization", choices=("tables", "touched", "rows"),
        auto="touched for sparse optimizers, else tables",
        help="What is regularized: whole tables, the rows that a batch uses (touched), or the rows of its triples.")
    regularizer_decay: float = setting(1.0, "Optimization", above=0, maximum=1,
        help="Factor by which the strength of the regularizer falls during the training, in four steps.")
    optimizer: str = setting("sparse-adagrad", "Optimization",
        choices=("adam", "adagrad", "sgd", "sparse-adam", "sparse-adagrad"),
        help="Optimizer; sparse ones update only the rows that a batch uses.")
    lr: float | None = setting(None, "Optimization", above=0, auto="0.1 for Adagrad, 0.01 for SGD, 0.001 for Adam",
        help="Learning rate.")

    stop_metric: str = setting("auto", "Early stopping", choices=("auto", "mrr", "mse"),
        auto="mrr; mse for confidence models", help="Validation metric that decides when to stop.")
    eval_every: int = setting(5, "Early stopping", minimum=1, help="Epochs between two validations.")
    eval_start: int | None = setting(None, "Early stopping", minimum=0,
        auto="0 with soft labels or without negatives, else half of beta_decay_epochs",
        help="No validation before this epoch.")
    patience: int = setting(8, "Early stopping", minimum=1,
        help="Validations without improvement after which training stops.")
    valid_min_weight: float | None = setting(None, "Early stopping", minimum=0, maximum=1,
        auto="0 with a separate weight model, else 0.8",
        help="Validate only on triples of at least this strength, 0 to 1.")
    stop_fraction: float = setting(0.5, "Early stopping", above=0, maximum=1,
        help="Fraction of the validation triples that decides when to stop; the others calibrate predicted weights.")

    seed: int = setting(0, "Resources", minimum=0, help="Random seed; on a CPU, equal seeds give equal results.")
    device: str = setting("auto", "Resources", examples=("auto", "cpu", "cuda"), help="Device to train on.")
    engine: str = setting("auto", "Resources", choices=("auto", "torch", "native", "partitioned", "sharded"),
        help="How steps are computed: by PyTorch's autograd, by native kernels, with tables on disk (partitioned), or "
        "by several processes (sharded).")
    memory_limit: str | None = setting(None, "Resources", requires={"engine": ("auto", "partitioned")},
        auto="the free memory", help="Memory limit of a training, like 6GB; memory-mapped files do not count. Larger "
        "tables are kept on disk, and a training that needs more is refused.")
    partitions: str | None = setting(None, "Resources", requires={"engine": ("partitioned",)},
        auto="by the memory limit", help="Number of partitions of the tables, and how many are in memory, like 32:8.")
    checkpoint_every: str = setting("60s", "Output",
        help="Time between checkpoints in epochs (10) or seconds (60s); 0 for never.")

    column_importance: str | None = setting(None, "Advanced", auto="learned from the graph",
        help="Importance of several weight columns, like confidence=2,recency=1.")
    attribute_loss_weight: float | None = setting(None, "Advanced", minimum=0, below=1, models="attribute loss",
        auto="that of the model", help="Weight of the loss of node attributes.")
    rule_loss_weight: float = setting(0.2, "Advanced", minimum=0, models="confidence",
        help="Weight of the loss of inferred triples.")
    rule_batch_size: int = setting(64, "Advanced", minimum=1, models="confidence", help="Inferred triples per batch.")
    semi_supervised: str = setting("none", "Advanced", examples=("none", "pool"), models="confidence",
        help="'pool' learns from negatives with their estimated confidences; pool:start=,wait=,growth=,share=,size= "
        "sets its schedule.")
    # fmt: on

    provenance: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    # ---- construction

    @classmethod
    def from_kwargs(cls, **given: Any) -> Config:
        """Return settings from keyword arguments; `model` may be a class.

        An unknown setting, a wrong value, or a setting that has no effect with the others raises FocuseError.
        """
        settings = cls._build(given)
        settings.check()
        usual = {**DEFAULTS, **model_defaults(settings.model)}
        for name in given:
            if getattr(settings, name) not in (None, usual[name]) and (why := settings.unmet(name)):
                raise FocuseError(why)
        return settings

    @classmethod
    def from_stored(cls, values: Mapping[str, Any], provenance: Mapping[str, Sequence[str]] | None = None) -> Config:
        """Return the resolved settings of a run, which may include values that have no effect.

        `provenance` has the names of the settings of each kind; without it, all stored settings count as given.
        """
        settings = cls._build(values)
        if provenance is not None:
            kinds = {name: kind for kind in PROVENANCE for name in provenance.get(kind, ())}
            settings = replace(settings, provenance={name: kind for name, kind in kinds.items() if name in SETTINGS})
        settings.check()
        return settings

    @classmethod
    def _build(cls, given: Mapping[str, Any]) -> Config:
        """Return settings with the defaults of the model; only types are checked."""
        from focuse.models.registry import model_name

        for name in given:
            if name not in SETTINGS:
                new = OLD_SETTING_NAMES.get(name)
                hint = did_you_mean([new]) if new else nearest(name, SETTINGS)
                raise FocuseError(f"unknown setting {name!r}{hint}: choose from {', '.join(SETTINGS)}")
        values = {name: SETTINGS[name].coerce(value) for name, value in given.items() if name != "model"}
        values["model"] = model_name(given.get("model", DEFAULTS["model"]))
        usual = model_defaults(values["model"])
        # A number of negatives suits one kind of sampling, and a learning rate one optimizer.
        for leader, follower in (("negative_sampling", "num_negatives"), ("optimizer", "lr")):
            if values.get(leader, usual.get(leader)) != usual.get(leader):
                usual.pop(follower, None)
        implied: dict[str, Any] = {}
        if values.get("label_exponent") is not None and "weight_mode" not in usual:
            implied = {"weight_mode": "soft-labels"}  # the only mode that uses it
        chosen = {name for name in given if values[name] not in (None, "auto")}
        sources = {
            **dict.fromkeys(usual, "model"),
            **dict.fromkeys(implied, "derived"),
            **dict.fromkeys(chosen, "given"),
        }
        return cls(**{**usual, **implied, **values}, provenance=sources)

    def derive(self, **values: Any) -> Config:
        """Return the settings with values that follow from others, the graph or the machine."""
        return replace(self, **values, provenance={**self.provenance, **dict.fromkeys(values, "derived")})

    def to_dict(self) -> dict[str, Any]:
        """Return all settings by name."""
        return {name: getattr(self, name) for name in SETTINGS}

    def to_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments of `focuse.train` that give the same settings: all that have an effect."""
        return {name: value for name, value in self.to_dict().items() if value is not None and not self.unmet(name)}

    def names_by_provenance(self) -> dict[str, list[str]]:
        """Return the names of the settings that were given, that are defaults of the model, and that were derived."""
        return {kind: [name for name in SETTINGS if self.provenance.get(name) == kind] for kind in PROVENANCE}

    # ---- checks

    def unmet(self, name: str) -> str:
        """Return why a setting has no effect with the other settings, '' if it has one."""
        declared = SETTINGS[name]
        for other, allowed in declared.requires.items():
            value = getattr(self, other)
            if value not in allowed and allowed == (None,):
                return f"{name} has no effect with a fixed {other}; remove one of them"
            if value not in allowed:
                words = " or ".join(map(repr, allowed))
                return f"{name} requires {other} {words}, not {value!r}"
        if name in ("regularizer_scope", "regularizer_decay") and self.regularizer == "none":
            return f"{name} requires a regularizer"
        if declared.models and not MODEL_KINDS[declared.models](_model_class(self.model)):
            return f"{name} requires {_models_of(declared.models)}, not {self.model!r}"
        if declared.models == "confidence" and self.loss == CROSS_ENTROPY:
            return f"{name} requires loss {SQUARED_ERROR!r}, not {self.loss!r}"
        return ""

    def check(self) -> None:
        """Raise FocuseError for the first invalid setting."""
        from focuse.objective.focuse import make_nonlinearity

        model = _model_class(self.model)
        for name, declared in SETTINGS.items():
            declared.check(getattr(self, name))
        if self.nonlinearity != "auto":
            make_nonlinearity(self.nonlinearity)
        if self.negative_distribution == "type" and self.negative_sampling != "per-triple":
            raise FocuseError("negative_distribution 'type' requires negative_sampling 'per-triple'")
        if "inverse relations" in model.requires and not self.reciprocal:
            raise FocuseError(f"model {self.model!r} can only predict tails; it needs reciprocal=True")
        model().widths(self.dim)
        self._check_loss(model)
        self._check_regularizer()
        parse_named_numbers(self.column_importance or "", "column_importance")
        checkpoint_interval(self.checkpoint_every)
        if self.memory_limit is not None:
            parse_memory(self.memory_limit)
        if self.partitions is not None:
            parse_partitions(self.partitions)
        if self.engine == "sharded" and not self.rows_only:
            raise FocuseError(f"engine {self.engine!r} updates the batch's rows only; use optimizer 'sparse-adagrad'")
        if self.engine == "sharded" and self.negative_sampling == "all":
            raise FocuseError(f"engine {self.engine!r} does not support negative_sampling 'all'; use 'shared'")

    def _check_loss(self, model: type[Model]) -> None:
        """Check that loss, weight mode and stop_metric fit each other and the model."""
        from focuse.objective.losses import make_loss, takes_weights
        from focuse.objective.semi_supervised import make_pool_schedule

        confident = model.confidence_head is not None
        if self.semi_supervised != "none":
            make_pool_schedule(self.semi_supervised)
        if self.loss not in CONFIDENCE_LOSSES:
            make_loss(self.loss)
        if model.confidence_head is not None and self.loss not in model.confidence_head.losses:
            losses = " or ".join(map(repr, model.confidence_head.losses))
            raise FocuseError(f"model {self.model!r} learns weights by the loss {losses}, not {self.loss!r}")
        if (self.loss == CROSS_ENTROPY) != (self.negative_sampling == "none"):
            raise FocuseError(f"loss {CROSS_ENTROPY!r} and negative_sampling 'none' require each other")
        if confident and self.weight_mode != "none":
            raise FocuseError(f"model {self.model!r} learns the weights themselves and requires weight_mode 'none'")
        if not confident and (self.loss in CONFIDENCE_LOSSES or self.stop_metric == "mse"):
            asked = f"loss {self.loss!r}" if self.loss in CONFIDENCE_LOSSES else f"stop_metric {self.stop_metric!r}"
            raise FocuseError(f"{asked} requires {_models_of('confidence')}, not {self.model!r}")
        if takes_weights(self.loss) and self.weight_mode != "none":
            raise FocuseError(
                f"loss {self.loss!r} uses the weights itself and requires weight_mode 'none', not {self.weight_mode!r}"
            )
        if self.weight_mode == "soft-labels" and self.loss != "multiclass-nll":
            raise FocuseError(f"loss {self.loss!r} requires weight_mode 'focuse' or 'none', not 'soft-labels'")

    def _check_regularizer(self) -> None:
        """Check that the optimizer updates the rows that the regularizer changes."""
        from focuse.objective.losses import make_regularizer

        if make_regularizer(self.regularizer, self.scope) is None:
            return
        if self.scope == "touched" and not self.rows_only:
            raise FocuseError(
                f"optimizer {self.optimizer!r} updates every row in every batch; use regularizer_scope 'tables' or "
                "'rows', or the optimizer 'sparse-adam'"
            )
        if self.scope == "tables" and self.rows_only:
            raise FocuseError(
                f"optimizer {self.optimizer!r} updates only the rows of the batch and cannot regularize whole tables; "
                "use regularizer_scope 'touched' or 'rows', or the optimizer 'adam'"
            )

    # ---- derived values

    @property
    def rows_only(self) -> bool:
        """Whether the optimizer updates only the rows of the batch."""
        return self.optimizer.startswith("sparse-")

    @property
    def scope(self) -> str:
        """The given scope of the regularizer, or the default of the optimizer."""
        return self.regularizer_scope or ("touched" if self.rows_only else "tables")

    def resolve(self, train: Graph, device: str) -> Config:
        """Return the settings with all values that depend on the graph or on the machine."""
        from focuse.data.weights import default_normalizer
        from focuse.engines.optimizers import LEARNING_RATES
        from focuse.objective.focuse import default_nonlinearity

        model = _model_class(self.model)
        decay_epochs = self.epochs if self.beta_decay_epochs is None else self.beta_decay_epochs
        largest_batch = int(model.defaults.get("max_batch_size", 8192))
        batch_size = min(default_batch_size(len(train), len(train.entities), self.negative_sampling), largest_batch)
        derived = {
            "batch_size": batch_size,
            "num_negatives": 256 if self.negative_sampling == "shared" else 30,
            "beta_decay_epochs": decay_epochs,
            "nonlinearity": default_nonlinearity(model),
            "regularizer_scope": self.scope,
            "lr": LEARNING_RATES[self.optimizer],
            "weight_scaling": default_normalizer(train),
            # A training without weights starts as one with FocusE would, so that both stop by the same rule.
            "eval_start": 0 if self.weight_mode == "soft-labels" or self.loss == CROSS_ENTROPY else decay_epochs // 2,
            "valid_min_weight": 0.0 if self.weight_mode == "separate" else 0.8,
            "stop_metric": "mrr" if model.confidence_head is None else "mse",
        }
        missing = {name: value for name, value in derived.items() if getattr(self, name) in (None, "auto")}
        return self.derive(**missing, **({"device": device} if device != self.device else {}))

    def make_model(self) -> Model:
        """Return the model of these settings."""
        return _model_class(self.model)()

    def make_focuse_layer(self) -> FocusELayer | None:
        """Return the FocusE layer of resolved settings, or None in another weight mode."""
        from focuse.objective.focuse import FocusELayer

        if self.weight_mode != "focuse":
            return None
        return FocusELayer(self.nonlinearity, self.beta_decay_epochs or 0, self.beta_min, self.beta)

    def make_soft_labels(self) -> SoftLabels | None:
        """Return the soft labels of resolved settings, or None in another weight mode."""
        from focuse.objective.focuse import SoftLabels

        if self.weight_mode != "soft-labels":
            return None
        return SoftLabels(1.0 if self.label_exponent is None else self.label_exponent)


SETTINGS: dict[str, Setting] = {
    each.name: replace(each.metadata["setting"], name=each.name, annotation=str(each.type), default=each.default)
    for each in fields(Config)
    if "setting" in each.metadata
}
DEFAULTS: dict[str, Any] = {name: declared.default for name, declared in SETTINGS.items()}
PROVENANCE = ("given", "model", "derived")


Function = TypeVar("Function", bound=Callable[..., Any])


def show_settings(function: Function) -> Function:
    """Show all settings in the signature and the docstring of a function that takes them as `**settings`."""
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    shown = [
        inspect.Parameter(each.name, keyword, default=each.default, annotation=each.annotation)
        for each in SETTINGS.values()
    ]
    function.__signature__ = signature.replace(parameters=[*own, *shown])  # type: ignore[attr-defined]
    lines = ["    Other Parameters", "    ----------------"]
    for each in SETTINGS.values():
        choices = f" One of {', '.join(each.choices)}." if each.choices else ""
        lines += [f"    {each.name} : {each.type}, default: {each.default_text}"]
        lines += wrap(each.help + choices, 112, initial_indent=" " * 8, subsequent_indent=" " * 8)
    before, _, after = (function.__doc__ or "").partition("    Examples\n")
    function.__doc__ = f"{before}{chr(10).join(lines)}\n\n    Examples\n{after}"
    return function


def _model_class(name: str) -> type[Model]:
    from focuse.models.registry import model_class

    return model_class(name)


def _models_of(kind: str) -> str:
    """Return the built-in models of a kind, for an error."""
    from focuse.models.registry import MODELS

    names = [name for name, model in MODELS.items() if MODEL_KINDS[kind](model)]
    return f"a {kind} model ({', '.join(names)})" if len(names) > 1 else f"model {names[0]!r}"


def model_defaults(name: str) -> dict[str, Any]:
    """Return the settings for which a model has its own defaults."""
    from focuse.models.base import default_settings

    usual = default_settings(_model_class(name))
    for each in set(usual) - set(SETTINGS):
        raise FocuseError(f"model {name!r}: unknown setting {each!r} in its defaults{nearest(each, SETTINGS)}")
    return usual


def default_batch_size(rows: int, entities: int, sampling: str) -> int:
    """Return a batch size with 64 batches per epoch, as in the paper's experiments, within limits.

    A small graph has 16 batches per epoch, so that an epoch has enough steps. With shared negatives, batches are
    smaller. With every entity as a negative, the limit is set by the number of scores, batch size × entities.
    """
    if sampling == "none":  # a step does so little that fewer, larger ones are faster
        return min(max(math.ceil(rows / 16), 32), 8192)
    largest = MAX_BATCH_SIZE_SHARED if sampling == "shared" else 8192
    size = min(max(math.ceil(rows / 64), 512), max(math.ceil(rows / 16), 32), largest)
    return max(1, min(size, MAX_SCORES_PER_BATCH // entities)) if sampling == "all" else size


def checkpoint_interval(text: str) -> tuple[int, float]:
    """Return (epochs, 0) for a text such as '10', (0, seconds) for one such as '60s', and (0, 0) for '0', never."""
    number, seconds = (text[:-1], True) if text.endswith("s") else (text, False)
    try:
        value = float(number) if seconds else int(number)
    except ValueError:
        value = -1
    if not 0 <= value < 2**63:
        raise FocuseError(f"checkpoint_every {text!r}: give epochs ('10'), seconds ('60s') or '0' for never")
    return (0, float(value)) if seconds else (int(value), 0.0)


def merge_settings(found: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file, overridden by the `given` ones.

    A setting of the file that has no effect any more is left out; a given one is an error when it is used.

    >>> merge_settings({"weight_mode": "focuse", "beta": 0.5, "dim": 8}, {"weight_mode": "none"})
    {'weight_mode': 'none', 'dim': 8}
    """
    both = {**found, **given}
    settings = Config._build(both)
    return {name: value for name, value in both.items() if name in given or not settings.unmet(name)}


def parse_assignments(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse assignments: ['batch-size=64'] -> {'batch_size': '64'}."""
    found: dict[str, str] = {}
    example = "--search lr=1e-4,1e-3" if option == "--search" else f"{option} dim=200"
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        name = name.replace("-", "_")
        if not name or not value:
            raise FocuseError(f"{option} {text!r}: write it like {example}")
        if name in found:
            raise FocuseError(f"{option} {text!r}: {name} is given twice")
        found[name] = value
    return found


def parse_setting_value(name: str, text: str) -> Any:
    """Convert text to the type of its setting; `from_kwargs` rejects unknown names and wrong values."""
    kind = SETTINGS[name].type if name in SETTINGS else "str"
    if kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return int(text) if kind == "int" else float(text) if kind == "float" else text
    except ValueError:
        return text
