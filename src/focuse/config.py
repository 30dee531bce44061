"""Every setting of a training with its default value, checks and TOML form."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

from focuse.data.graph import DUPLICATE_POLICIES, Graph
from focuse.data.weights import NORMALIZERS, default_normalizer
from focuse.engines.factory import ENGINES
from focuse.engines.optimizers import LEARNING_RATES, OPTIMIZERS
from focuse.errors import FocuseError, nearest
from focuse.models import registry
from focuse.models.base import Model, default_settings
from focuse.models.registry import MODELS, make_model, model_class, model_name
from focuse.objective.focuse import NONLINEARITIES, FocusELayer, SoftLabels, default_nonlinearity, make_nonlinearity
from focuse.objective.losses import LOSSES_WITH_WEIGHTS, SCOPES, make_loss, make_regularizer
from focuse.objective.negatives import SAMPLINGS, check_negative_distribution
from focuse.objective.semi_supervised import make_pool_schedule
from focuse.option_strings import choose, parse_memory, parse_named_numbers, parse_partitions, to_option_string

WEIGHT_MODES = ("soft-labels", "focuse", "none")
STOP_METRICS = ("auto", "mrr", "mse")
SQUARED_ERROR = "squared-error"
# Settings of the FocusE layer and their defaults: any other value implies weight_mode 'focuse'.
FOCUSE_SETTINGS: dict[str, Any] = {
    "beta_decay_epochs": None,
    "column_beta_decay_epochs": None,
    "nonlinearity": "auto",
    "beta": None,
    "beta_min": 0.0,
    "loss": "multiclass-nll",
}
REDUCTIONS = ("sum", "mean")
NEGATIVE_WEIGHTS = ZERO_WEIGHTS = ("low", "known-negative")
DEFAULT_PER_TRIPLE_NEGATIVES, DEFAULT_SHARED_NEGATIVES = 30, 256
# Larger batches would draw shared negatives less often, and an epoch would see less of the graph.
MAX_BATCH_SIZE_SHARED = 1024
MAX_SCORES_PER_BATCH = 1 << 24  # 64 MB of float32 scores, of which autograd keeps a few copies


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a training; a run stores the resolved ones.

    `resolve` replaces None and 'auto' by values that depend on the graph or the machine. After it, preparation may
    still set weight_mode 'none' (equal weights) and engine 'partitioned' (little memory), and select label_exponent.
    """

    # model
    model: str = "complex"  # a name of models/registry.py, 'package.module:Class' or 'pykeen:NAME'
    reciprocal: bool = False  # add an inverse relation r + R for each relation r
    dim: int = 100
    init_std: float | None = None  # standard deviation of initial embeddings; None: the model's, else Xavier's
    init_from: str | None = None  # folder of a run whose embeddings are the initial ones, by name

    # weights
    weight_mode: str = "soft-labels"  # how weights enter the loss: 'soft-labels', 'focuse' (the paper) or 'none'
    label_exponent: float | None = None  # soft labels are weight ** label_exponent; None: selected on validation
    beta_decay_epochs: int | None = None  # 'focuse': epochs in which β falls from 1; None: all epochs
    column_beta_decay_epochs: str | None = None  # the same per weight column, 'column=epochs,…'
    beta: float | None = None  # 'focuse': a fixed β
    beta_min: float = 0.0  # 'focuse': where β ends
    nonlinearity: str = "auto"  # 'focuse': applied to scores before α; 'auto': what suits the model
    weight_scaling: str | None = None  # how weights become numbers in [0, 1]; None: depends on the graph
    lower_is_better: str = ""  # 'all', or names of weight columns whose low values are the strong ones
    column_importance: str | None = None  # of several weight columns, 'column=number,…'
    negative_weights: str = "low"  # what weights below 0 mean: 'low' or 'known-negative'
    zero_weights: str = "low"  # the same for weights of 0
    duplicates: str = "keep"  # which weight a repeated triple gets

    # negatives
    negative_sampling: str = "shared"  # 'shared' by a batch, 'per-triple', or 'all' entities (1-vs-all)
    num_negatives: int | None = None  # per batch if shared, else per triple; None: 256 or 30
    negative_distribution: str = "uniform"  # from which entities they are drawn
    corrupt_side: str = "uniform"  # how the side to replace is drawn
    filter_negatives: bool = False  # whether known triples are removed from them

    # optimization
    epochs: int = 50
    batch_size: int | None = None  # None: depends on the graph
    loss: str = "multiclass-nll"
    reduction: str = "sum"  # of the losses of a batch
    regularizer: str = "l3:1e-3"
    regularizer_scope: str | None = None  # 'tables', 'touched' or 'rows'; None: depends on the optimizer
    optimizer: str = "row-adagrad"
    lr: float | None = None  # None: depends on the optimizer
    attribute_loss_weight: float | None = None  # of the auxiliary loss of models of node attributes
    rule_loss_weight: float = 0.2  # of triples that rules infer, for confidence models
    rule_batch_size: int = 64  # inferred triples per batch
    semi_supervised: str = "none"  # 'pool' for PASSLEAF's sample pool

    # validation and early stopping
    stop_metric: str = "auto"  # 'mrr' or 'mse'; 'auto': mse for confidence models
    eval_every: int = 5  # epochs between two validations
    eval_start: int | None = None  # first epoch that is validated; None: see `_eval_start`
    patience: int = 8  # validations without improvement before training stops; with few epochs it never does
    valid_min_weight: float = 0.8  # triples of lower weight are not validated; weights outside [0, 1] are scaled
    stop_fraction: float = 0.5  # of the validation triples; the others calibrate predicted weights

    # resources
    seed: int = 0
    device: str = "auto"
    engine: str = "auto"
    memory_limit: str | None = None  # a size like '6GB' from which on tables are partitioned
    partitions: str | None = None  # 'count:loaded[:rounds]', for the engine 'partitioned'
    checkpoint_every: str = "60s"  # seconds ('60s') or epochs ('10'); '0' for never

    @classmethod
    def from_kwargs(cls, **given: Any) -> Config:
        """Return settings from keyword arguments; `model` may be a class.

        An unknown keyword raises FocuseError with the most similar setting.
        """
        kinds = {field.name: str(field.type) for field in fields(cls)}
        for name in given:
            if name not in kinds:
                raise FocuseError(f"unknown setting {name!r}{nearest(name, kinds)}: choose from {', '.join(kinds)}")
        if isinstance(given.get("checkpoint_every"), int):
            given["checkpoint_every"] = str(given["checkpoint_every"])
        if isinstance(given.get("init_from"), PathLike):
            given["init_from"] = str(given["init_from"])
        for name in ("lower_is_better", "column_importance", "column_beta_decay_epochs"):
            if name in given:
                given[name] = to_option_string(given[name])
        given |= {"model": model_name(given["model"])} if "model" in given else {}
        usual = default_settings(model_class(given.get("model", cls.model)))
        for name in set(usual) - set(kinds):
            raise FocuseError(
                f"model {given['model']!r}: unknown setting {name!r} in its defaults{nearest(name, kinds)}"
            )
        # A number of negatives suits one kind of sampling, and a learning rate one optimizer.
        for leader, follower in (("negative_sampling", "num_negatives"), ("optimizer", "lr")):
            if given.get(leader, usual.get(leader)) != usual.get(leader):
                usual.pop(follower, None)
        if takes_weights(given.get("loss")):
            usual.setdefault("weight_mode", "none")
        if given.get("weight_mode", "none") != "none" and "loss" not in given and takes_weights(usual.get("loss")):
            raise FocuseError(f"model {given['model']!r} uses the weights in its loss and requires weight_mode 'none'")
        if implies_focuse(given):
            usual.setdefault("weight_mode", "focuse")
        given = {**usual, **given}
        settings = cls(**{name: _coerce(name, value, kinds[name]) for name, value in given.items()})
        settings.check()
        return settings

    def check(self) -> None:
        """Raise FocuseError for the first invalid setting."""
        model_class(self.model)
        choose("negative_sampling", self.negative_sampling, SAMPLINGS)
        check_negative_distribution(self.negative_sampling, self.negative_distribution, self.corrupt_side)
        choose("weight_mode", self.weight_mode, WEIGHT_MODES)
        choose("reduction", self.reduction, REDUCTIONS)
        choose("optimizer", self.optimizer, OPTIMIZERS)
        choose("engine", self.engine, ENGINES)
        self._check_engine()
        choose("policy for repeated triples", self.duplicates, DUPLICATE_POLICIES)
        if ":" in self.nonlinearity:
            make_nonlinearity(self.nonlinearity)
        else:
            choose("non-linearity", self.nonlinearity, ["auto", *NONLINEARITIES])
        if self.weight_scaling is not None:
            choose("weight_scaling", self.weight_scaling, NORMALIZERS)
        choose("stop_metric", self.stop_metric, STOP_METRICS)
        self._check_columns()
        self._check_confidence()
        scope = self.scope
        choose("scope of the regularizer", scope, SCOPES)
        if make_regularizer(self.regularizer, scope) and scope == "touched" and not self.rows_only:
            raise FocuseError(
                f"optimizer {self.optimizer!r} updates every row in every batch; use regularizer_scope 'tables' or "
                "'rows', or the optimizer 'row-adam'"
            )
        if make_regularizer(self.regularizer, scope) and scope == "tables" and self.rows_only:
            raise FocuseError(
                f"optimizer {self.optimizer!r} updates only the rows of the batch and cannot regularize whole tables; "
                "use regularizer_scope 'touched' or 'rows', or the optimizer 'adam'"
            )
        for name in ("dim", "epochs", "eval_every", "patience", "rule_batch_size"):
            _at_least(name, getattr(self, name), 1)
        if "inverse relations" in model_class(self.model).requires and not self.reciprocal:
            raise FocuseError(f"model {self.model!r} can only predict tails; it needs reciprocal=True")
        self.make_model().widths(self.dim)
        for name in ("batch_size", "num_negatives", "beta_decay_epochs", "eval_start", "seed"):
            value = getattr(self, name)
            if value is not None:
                _at_least(name, value, 1 if name in ("batch_size", "num_negatives") else 0)
        if self.lr is not None and not (math.isfinite(self.lr) and self.lr > 0):
            raise FocuseError(f"lr {self.lr:g}: give a number above 0")
        if self.init_std is not None and not (math.isfinite(self.init_std) and self.init_std > 0):
            raise FocuseError(
                f"init_std {self.init_std:g}: give a number above 0, the standard deviation of initial embeddings"
            )
        if not (math.isfinite(self.rule_loss_weight) and self.rule_loss_weight >= 0):
            raise FocuseError(f"rule_loss_weight {self.rule_loss_weight:g}: give a number of at least 0")
        if not 0 <= self.valid_min_weight <= 1:
            raise FocuseError(f"valid_min_weight {self.valid_min_weight:g}: give a weight in [0, 1]")
        if not 0 < self.stop_fraction <= 1:
            raise FocuseError(f"stop_fraction {self.stop_fraction:g}: give a number above 0 and at most 1")
        self._check_auxiliary_loss()
        self._check_weight_mode()
        FocusELayer(beta_decay_epochs=self.beta_decay_epochs or 0, beta_min=self.beta_min, fixed_beta=self.beta)
        checkpoint_interval(self.checkpoint_every)
        self._check_memory()

    def _check_memory(self) -> None:
        """Check the memory limit and the partitions, which only the engine 'partitioned' supports."""
        if self.memory_limit is not None:
            parse_memory(self.memory_limit)
        if self.partitions is not None:
            parse_partitions(self.partitions)
            if self.engine not in ("auto", "partitioned"):
                raise FocuseError(f"partitions requires engine 'partitioned', not {self.engine!r}")

    def _check_engine(self) -> None:
        """Check that no step of the sharded engine touches every row."""
        if self.engine == "sharded" and not self.rows_only:
            raise FocuseError(f"engine {self.engine!r} updates the batch's rows only; use optimizer 'row-adagrad'")
        if self.engine == "sharded" and self.negative_sampling == "all":
            raise FocuseError(f"engine {self.engine!r} does not support negative_sampling 'all'; use 'shared'")

    def _check_weight_mode(self) -> None:
        """Check that the loss and the label exponent fit the weight mode."""
        if self.weight_mode == "soft-labels" and self.loss != "multiclass-nll":
            raise FocuseError(f"loss {self.loss!r} requires weight_mode 'focuse' or 'none', not 'soft-labels'")
        if self.label_exponent is not None:
            SoftLabels(self.label_exponent)
            if self.weight_mode != "soft-labels":
                raise FocuseError(f"label_exponent requires weight_mode 'soft-labels', not {self.weight_mode!r}")

    def _check_auxiliary_loss(self) -> None:
        """Check the weight of the auxiliary loss, which only some models have."""
        share = self.attribute_loss_weight
        if share is not None and not 0 <= share < 1:
            raise FocuseError(f"attribute_loss_weight {share:g}: give a number of at least 0 and below 1")
        if share is not None and model_class(self.model).auxiliary_loss is None:
            names = " or ".join(name for name, model in MODELS.items() if model.auxiliary_loss is not None)
            raise FocuseError(f"attribute_loss_weight requires model {names}, not {self.model!r}")

    def _check_columns(self) -> None:
        """Check the settings of weights and weight columns, before it is known which columns the graph has."""
        choose("negative_weights", self.negative_weights, NEGATIVE_WEIGHTS)
        choose("zero_weights", self.zero_weights, ZERO_WEIGHTS)
        parse_named_numbers(self.column_importance or "", "column_importance")
        epochs_by_column = parse_named_numbers(self.column_beta_decay_epochs or "", "column_beta_decay_epochs")
        for name, epochs in epochs_by_column.items():
            if epochs != int(epochs):
                raise FocuseError(f"column_beta_decay_epochs {name}={epochs:g}: give a whole number of epochs")
        if epochs_by_column and (self.weight_mode != "focuse" or self.beta is not None):
            raise FocuseError("column_beta_decay_epochs requires weight_mode 'focuse' and no fixed beta")

    def _check_confidence(self) -> None:
        """Check that loss, weight mode and stop_metric fit the model, which predicts confidences or ranks."""
        confident = model_class(self.model).confidence_head is not None
        if not confident and self.loss != SQUARED_ERROR:
            make_loss(self.loss)
        if confident and self.loss != SQUARED_ERROR:
            raise FocuseError(f"model {self.model!r} learns weights by the loss {SQUARED_ERROR!r}, not {self.loss!r}")
        if confident and self.weight_mode != "none":
            raise FocuseError(f"model {self.model!r} learns the weights themselves and requires weight_mode 'none'")
        if takes_weights(self.loss) and self.weight_mode != "none":
            raise FocuseError(f"loss {self.loss!r} uses the weights itself and requires weight_mode 'none'")
        names = " or ".join(name for name, model in MODELS.items() if model.confidence_head is not None)
        if self.semi_supervised != "none" and make_pool_schedule(self.semi_supervised) and not confident:
            raise FocuseError(f"semi_supervised needs a confidence model: {names}, not {self.model!r}")
        if not confident and (self.loss == SQUARED_ERROR or self.stop_metric == "mse"):
            asked = f"loss {self.loss!r}" if self.loss == SQUARED_ERROR else f"stop_metric {self.stop_metric!r}"
            raise FocuseError(f"{asked} needs a confidence model: {names}, not {self.model!r}")

    def make_model(self) -> Model:
        """Return the model of these settings."""
        return make_model(self.model)

    @property
    def rows_only(self) -> bool:
        return self.optimizer.startswith("row-")

    @property
    def learning_rate(self) -> float:
        """The given learning rate, or the default of the optimizer."""
        return LEARNING_RATES[self.optimizer] if self.lr is None else self.lr

    @property
    def scope(self) -> str:
        """The given scope of the regularizer, or the default of the optimizer."""
        return self.regularizer_scope or ("touched" if self.rows_only else "tables")

    def resolve(self, train: Graph, device: str) -> Config:
        """Return the settings with all values that depend on the graph or on the machine."""
        decay_epochs = self.epochs if self.beta_decay_epochs is None else self.beta_decay_epochs
        return replace(
            self,
            batch_size=self.batch_size or self._batch_size(len(train), len(train.entities)),
            num_negatives=self.num_negatives or default_num_negatives(self.negative_sampling),
            beta_decay_epochs=decay_epochs,
            nonlinearity=default_nonlinearity(model_class(self.model))
            if self.nonlinearity == "auto"
            else self.nonlinearity,
            regularizer_scope=self.scope,
            lr=self.learning_rate,
            weight_scaling=self.weight_scaling or default_normalizer(train),
            eval_start=self._eval_start(decay_epochs) if self.eval_start is None else self.eval_start,
            stop_metric=self.stop_metric
            if self.stop_metric != "auto"
            else "mrr"
            if model_class(self.model).confidence_head is None
            else "mse",
            device=device,
        )

    def _eval_start(self, decay_epochs: int) -> int:
        """Return the first epoch to validate: half of the β decay, or 0 for soft labels, which do not change.

        A training without weights starts as one with FocusE would, so that both stop by the same rule.
        """
        return 0 if self.weight_mode == "soft-labels" else decay_epochs // 2

    def _batch_size(self, rows: int, entities: int) -> int:
        most = int(model_class(self.model).defaults.get("max_batch_size", 8192))
        return min(default_batch_size(rows, entities, self.negative_sampling), most)

    def make_focuse_layer(self) -> FocusELayer | None:
        """Return the FocusE layer of resolved settings, or None in another weight mode."""
        if self.weight_mode != "focuse":
            return None
        return FocusELayer(self.nonlinearity, self.beta_decay_epochs or 0, self.beta_min, self.beta)

    def make_soft_labels(self) -> SoftLabels | None:
        """Return the soft labels of resolved settings, or None in another weight mode."""
        if self.weight_mode != "soft-labels":
            return None
        return SoftLabels(1.0 if self.label_exponent is None else self.label_exponent)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def takes_weights(loss: object) -> bool:
    """Return whether a loss, given as text, uses the weights itself.

    >>> takes_weights("confidence-margin:margin=2"), takes_weights("margin:2")
    (True, False)
    """
    return isinstance(loss, str) and loss.partition(":")[0].strip() in LOSSES_WITH_WEIGHTS


def implies_focuse(given: Mapping[str, Any]) -> bool:
    """Whether these settings, without a weight_mode, imply weight_mode 'focuse'.

    >>> implies_focuse({"beta_decay_epochs": 20}), implies_focuse({"dim": 20})
    (True, False)
    """
    if given.get("label_exponent") is not None:  # a setting of soft labels
        return False
    return any(given.get(name, usual) != usual for name, usual in FOCUSE_SETTINGS.items())


def default_num_negatives(sampling: str) -> int:
    """Negatives per triple, or of a batch that shares them."""
    return DEFAULT_SHARED_NEGATIVES if sampling == "shared" else DEFAULT_PER_TRIPLE_NEGATIVES


def default_batch_size(rows: int, entities: int, sampling: str) -> int:
    """Return a batch size with 64 batches per epoch, as in the paper's experiments, within limits.

    A small graph has 16 batches per epoch, so that an epoch has enough steps. With shared negatives, batches are
    smaller. With every entity as a negative, the limit is set by the number of scores, batch size × entities.
    """
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


SETTING_TYPES: dict[str, tuple[type, Callable[[Any], Any], str]] = {
    "str": (str, str, "a word"),
    "bool": (bool, bool, "True or False"),
    "int": (Integral, int, "a whole number"),
    "float": (Real, float, "a number"),
}


def _coerce(name: str, value: Any, kind: str) -> Any:
    """Return `value` as a built-in type; NumPy numbers are accepted. `kind` is a type such as 'int | None'."""
    kind, _, optional = kind.partition(" | ")
    accepted, convert, words = SETTING_TYPES[kind]
    if value is None and optional:
        return None
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind != "bool"):
        raise FocuseError(f"{name} {value!r}: give {words}")
    try:
        return convert(value)
    except OverflowError:
        raise FocuseError(f"{name}: too large; give {words} below 1e308") from None


def _at_least(name: str, value: int, least: int) -> None:
    if not least <= value < 2**32:
        raise FocuseError(f"{name} {value!r}: give a whole number of at least {least} and below 2**32")


# Settings for which models have their own defaults, or which only some models support.
MODEL_DEPENDENT_SETTINGS = (
    "reciprocal", "negative_sampling", "optimizer", "regularizer", "loss", "weight_scaling", "stop_metric",
    "batch_size", "semi_supervised", "attribute_loss_weight",
)  # fmt: skip


def read_config(path: str | Path, model: object = None) -> dict[str, Any]:
    """Return the settings in a TOML file, as keyword arguments of `focuse.train`.

    The settings are at the top level or in the table [settings]. If there is such a table, the rest of the file is
    ignored, so that a run can be trained again from its run.toml. If `model` is given and the model of the file is an
    untrusted class, the latter is left out, so that its module is not imported needlessly.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
    ...     print("dim = 200\\nlr = 1e-4", file=file, flush=True)
    ...     read_config(file.name)
    {'dim': 200, 'lr': 0.0001}
    """
    content = read_toml(Path(path))
    found = content.get("settings", content)
    if not isinstance(found, dict):
        raise FocuseError(f"{path}: settings is not a table; write [settings] above its lines")
    if found is not content:
        # A setting above the table would be ignored silently.
        lost = [name for name in (*(field.name for field in fields(Config)), *OLD_SETTING_NAMES) if name in content]
        if lost:
            raise FocuseError(f"{path}: {', '.join(lost)} is outside of [settings]; move it below that line")
    if "format" in content:
        found = upgrade_settings(found)
    if model is not None:
        model_class(model_name(model))  # the user has asked for its module, which may be that of the file
    if model is not None and _untrusted_module(found):
        found = {name: value for name, value in found.items() if name != "model"}
    check_trust(found, Path(path), "import it first")
    try:
        Config.from_kwargs(**found)
    except FocuseError as error:
        raise FocuseError(f"{path}: {error}") from None
    return dict(found)


def merged(found: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file, overridden by the `given` settings.

    The file of a run holds every setting. A value that was derived from a setting that is now overridden, such as the
    learning rate from the optimizer, is derived again; a value that was chosen explicitly is kept.

    >>> merged({"optimizer": "row-adagrad", "lr": 0.1, "dim": 8}, {"optimizer": "adam"})
    {'optimizer': 'adam', 'dim': 8}
    >>> merged({"optimizer": "row-adagrad", "lr": 0.3, "dim": 8}, {"optimizer": "adam"})
    {'optimizer': 'adam', 'lr': 0.3, 'dim': 8}
    """
    if implies_focuse(given) and found.get("weight_mode") == "soft-labels":
        given = {"weight_mode": "focuse", **given}
    if "model" in given and "weight_mode" in found:
        old, new = (
            model_class(model_name(each.get("model", Config.model))).defaults.get("weight_mode", Config.weight_mode)
            for each in (found, given)
        )
        given = {"weight_mode": new, **given} if found["weight_mode"] == old != new else given
    changed = {name for name, value in given.items() if name in found and found[name] != value}
    kept = dict(found)
    for name, (leader, value) in _derived_settings(Config.from_kwargs(**found)).items():
        if changed & set(leader.split()) and name not in given and name in kept and kept[name] == value:
            del kept[name]
            changed.add(name)
    return kept | dict(given)


def _derived_settings(settings: Config) -> dict[str, tuple[str, Any]]:
    """Return the derived settings: per name, the settings it is derived from and the derived value, in that order."""
    model = model_class(settings.model)
    usual = {**asdict(Config()), **default_settings(model)}
    usual |= {
        "stop_metric": "mrr" if model.confidence_head is None else "mse",
        "attribute_loss_weight": settings.attribute_loss_weight,
    }
    usual["weight_scaling"] = usual["weight_scaling"] or "relation"
    size = default_num_negatives(settings.negative_sampling)
    size = usual["num_negatives"] or size if settings.negative_sampling == usual["negative_sampling"] else size
    rate = usual["lr"] if settings.optimizer == usual["optimizer"] else None
    return {
        **{name: ("model", usual[name]) for name in MODEL_DEPENDENT_SETTINGS},
        "nonlinearity": ("model", default_nonlinearity(model)),
        "lr": ("optimizer", rate or LEARNING_RATES[settings.optimizer]),
        "regularizer_scope": ("model", usual["regularizer_scope"])
        if usual["regularizer_scope"]
        else ("optimizer", replace(settings, regularizer_scope=None).scope),
        "num_negatives": ("negative_sampling", size),
        "beta_decay_epochs": ("epochs", settings.epochs),
        "eval_start": ("weight_mode", 0)
        if settings.weight_mode == "soft-labels"
        else ("weight_mode beta_decay_epochs", settings.epochs // 2),
        "label_exponent": ("weight_mode", settings.label_exponent),
    }


# ---- stored runs --------------------------------------------------------------------------------------------------
# Names and values that settings had when runs were written; a name or value of today is in none of these tables.

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
    "decays": "column_beta_decay_epochs",
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
    ("engine", "sharded:torchrec"): "sharded",
    ("engine", "sharded:plain"): "sharded",
    ("engine", "sharded:host"): "sharded",
}


def upgrade_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a stored run, of any format, by their current names and values.

    >>> upgrade_settings({"focus": "paper", "dim": 8, "eval_start": 2})
    {'weight_mode': 'focuse', 'dim': 8, 'eval_start': 2}
    """
    found: dict[str, Any] = {}
    for old, value in settings.items():
        name = OLD_SETTING_NAMES.get(str(old), str(old))
        if name in found:
            raise FocuseError(f"{name} is given twice, also by its old name; remove one of them")
        found[name] = OLD_SETTING_VALUES.get((name, str(value)), value)
    return found


def resolve_stored_model(config: Mapping[str, Any], model: object, folder: Path) -> dict[str, Any]:
    """Return the contents of a run.toml with the name of the given model class, or with the stored name."""
    stored = config.get("settings")
    name = stored.get("model") if isinstance(stored, dict) else None
    if not isinstance(stored, dict) or not isinstance(name, str):
        return dict(config)  # the file is damaged, which is reported when it is read further
    if model is not None:
        if name in MODELS and model_name(model) != name:
            raise FocuseError(f"{folder}: its model {name!r} is built in; remove model=")
        stored_name, name = name, model_name(model)
        registry.register_alias(stored_name, model_class(name))
    hand_over = f"pass its class: focuse.load({str(folder)!r}, model=MyModel)"
    if model is None:
        check_trust(stored, folder / "run.toml", hand_over)
    try:
        registry.check_module_location(name, folder)
        model_class(name)
    except FocuseError as error:
        advice = f"or {hand_over}"
        raise FocuseError(f"{folder / 'run.toml'}: {error}; {advice}") from None
    return {**config, "settings": {**stored, "model": name}}


def check_trust(settings: Mapping[str, Any], path: Path, otherwise: str) -> None:
    """Raise FocuseError if a file names a model in an untrusted module, because importing a module executes it."""
    module = _untrusted_module(settings)
    if module:
        raise FocuseError(
            f"{path}: its model {settings['model']!r} is not part of focuse; if you trust its code, write "
            f"focuse --trust {module} COMMAND (or set {registry.TRUST_VARIABLE}={module}), or in Python {otherwise}"
        )


def _untrusted_module(settings: Mapping[str, Any]) -> str:
    """Return the module of the model that a file names if it is not trusted, otherwise ''."""
    name = settings.get("model")
    if not isinstance(name, str) or name in MODELS or registry.model_family(name):
        return ""
    return registry.untrusted_module(name)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; an error in the file raises a FocuseError with its line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FocuseError(f"{path}: {error.strerror or error}; give the path of a TOML file") from None
    except UnicodeDecodeError:
        raise FocuseError(f"{path}: not UTF-8 text; give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        fault, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        where = f"line {line[1]}" if line else "at its end"
        raise FocuseError(f"{path}, {where}: {fault}; write settings like: lr = 0.001") from None
    except (ValueError, RecursionError) as error:  # for example a number with thousands of digits, or deep nesting
        raise FocuseError(f"{path}: cannot be parsed as TOML ({error}); write settings like: lr = 0.001") from None


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
    """Convert text to the type of its setting; other text is returned as it is, and `from_kwargs` rejects it."""
    kinds = {field.name: str(field.type).partition(" | ")[0] for field in fields(Config)}
    kind = kinds.get(name)
    if kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return int(text) if kind == "int" else float(text) if kind == "float" else text
    except ValueError:
        return text
