"""Every setting of a training, with its default, checks and TOML form."""

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
from focuse.engines.sharded.engine import SHARDED
from focuse.errors import FocuseError, nearest
from focuse.models import registry
from focuse.models.base import Model, default_settings
from focuse.models.registry import MODELS, make_model, model_class, model_name
from focuse.objective.focuse import NONLINEARITIES, FocusELayer, SoftLabels, default_nonlinearity, make_nonlinearity
from focuse.objective.losses import LOSSES_WITH_WEIGHTS, SCOPES, make_loss, make_regularizer
from focuse.objective.negatives import SAMPLINGS, check_negative_distribution
from focuse.objective.semi_supervised import make_pool_schedule
from focuse.option_strings import choose, parse_memory, parse_named_numbers, parse_partitions, to_option_string

FOCUSES = ("label", "paper", "off")
STOP_METRICS = ("auto", "mrr", "mse")
SQUARED_ERROR = "squared-error"
# Settings of the paper's layer and their defaults: who gives another value means that layer.
PAPERS_OWN: dict[str, Any] = {
    "decay": None, "decays": None, "nonlinearity": "auto", "beta": None, "beta_floor": 0.0, "loss": "multiclass-nll",
}  # fmt: skip
REDUCTIONS = ("sum", "mean")
NEGATIVE_WEIGHTS, ZERO_WEIGHTS = ("light", "against"), ("light", "negatives")
OWN_NEGATIVES, SHARED_POOL = 30, 256
# Of positives that share a pool: the rarer a pool changes, the less of the graph an epoch sees.
SHARING = 1024
SCORES_A_BATCH = 1 << 24  # 64 MB of float32, of which autograd keeps a few copies


@dataclass(frozen=True, kw_only=True)
class Config:
    """What a training does. None and 'auto' are filled in by `resolve`; a run stores the resolved form."""

    model: str = "complex"
    reciprocal: bool = False
    dim: int = 100
    epochs: int = 50
    batch_size: int | None = None
    negatives: int | None = None
    sampling: str = "shared"
    negative_distribution: str = "uniform"
    corrupt_side: str = "uniform"
    filter_negatives: bool = False
    focus: str = "label"
    label_exponent: float | None = None
    decay: int | None = None
    nonlinearity: str = "auto"
    beta: float | None = None
    beta_floor: float = 0.0
    loss: str = "multiclass-nll"
    reduction: str = "sum"
    regularizer: str = "l3:1e-3"
    regularizer_scope: str | None = None
    optimizer: str = "row-adagrad"
    lr: float | None = None
    init_std: float | None = None
    normalize: str | None = None
    duplicates: str = "keep"
    lower_is_better: str = ""
    importance: str | None = None
    decays: str | None = None
    negative_weights: str = "light"
    zero_weights: str = "light"
    soft_logic_weight: float = 0.2
    soft_logic_size: int = 64
    attribute_share: float | None = None
    semi_supervised: str = "none"
    stop_metric: str = "auto"
    check_every: int = 5
    patience: int = 8
    burn_in: int | None = None
    threshold: float = 0.8
    stopping_share: float = 0.5
    seed: int = 0
    device: str = "auto"
    engine: str = "auto"
    memory: str | None = None
    partitions: str | None = None
    checkpoint_every: str = "60s"
    start: str | None = None

    @classmethod
    def of(cls, **given: Any) -> Config:
        """Settings from keywords; an unknown one is an error that offers the nearest. `model` may be a class."""
        kinds = {field.name: str(field.type) for field in fields(cls)}
        for name in given:
            if name not in kinds:
                raise FocuseError(f"unknown setting {name!r}{nearest(name, kinds)}: choose from {', '.join(kinds)}")
        if isinstance(given.get("checkpoint_every"), int):
            given["checkpoint_every"] = str(given["checkpoint_every"])
        if isinstance(given.get("start"), PathLike):
            given["start"] = str(given["start"])
        given |= {
            name: to_option_string(given[name]) for name in ("lower_is_better", "importance", "decays") if name in given
        }
        given |= {"model": model_name(given["model"])} if "model" in given else {}
        usual = default_settings(model_class(given.get("model", cls.model)))
        for name in set(usual) - set(kinds):
            raise FocuseError(f"model {given['model']!r}: its defaults name no setting: {name!r}{nearest(name, kinds)}")
        if given.get("sampling", usual.get("sampling")) != usual.get("sampling"):  # negatives are for their own kind
            usual.pop("negatives", None)
        if given.get("optimizer", usual.get("optimizer")) != usual.get("optimizer"):  # and so is a learning rate
            usual.pop("lr", None)
        if takes_weights(given.get("loss")):
            usual.setdefault("focus", "off")
        if given.get("focus", "off") != "off" and "loss" not in given and takes_weights(usual.get("loss")):
            raise FocuseError(f"model {given['model']!r} has the weights in its loss; its focus is 'off'")
        if means_the_papers_layer(given):
            usual.setdefault("focus", "paper")
        given = {**usual, **given}
        settings = cls(**{name: _plain(name, value, kinds[name]) for name, value in given.items()})
        settings.check()
        return settings

    def check(self) -> None:
        """Raise on the first setting that makes no sense."""
        model_class(self.model)
        choose("sampling", self.sampling, SAMPLINGS)
        check_negative_distribution(self.sampling, self.negative_distribution, self.corrupt_side)
        choose("focus", self.focus, FOCUSES)
        choose("reduction", self.reduction, REDUCTIONS)
        choose("optimizer", self.optimizer, OPTIMIZERS)
        choose("engine", self.engine, ENGINES)
        self._check_engine()
        choose("policy for repeated triples", self.duplicates, DUPLICATE_POLICIES)
        if ":" in self.nonlinearity:
            make_nonlinearity(self.nonlinearity)
        else:
            choose("non-linearity", self.nonlinearity, ["auto", *NONLINEARITIES])
        if self.normalize is not None:
            choose("normalizer", self.normalize, NORMALIZERS)
        choose("stop_metric", self.stop_metric, STOP_METRICS)
        self._check_columns()
        self._check_confidence()
        scope = self.scope
        choose("scope of the regularizer", scope, SCOPES)
        if make_regularizer(self.regularizer, scope) and scope == "touched" and not self.rows_only:
            raise FocuseError(
                f"optimizer {self.optimizer!r} moves every row in every batch; use regularizer_scope 'tables' or "
                "'rows', or the optimizer 'row-adam'"
            )
        if make_regularizer(self.regularizer, scope) and scope == "tables" and self.rows_only:
            raise FocuseError(
                f"optimizer {self.optimizer!r} touches the batch's rows only and cannot regularize whole tables; "
                "use regularizer_scope 'touched' or 'rows', or the optimizer 'adam'"
            )
        for name in ("dim", "epochs", "check_every", "patience", "soft_logic_size"):
            _at_least(name, getattr(self, name), 1)
        if "inverse relations" in model_class(self.model).requires and not self.reciprocal:
            raise FocuseError(f"model {self.model!r} can only be asked for tails; it needs reciprocal=True")
        self.make_model().widths(self.dim)
        for name in ("batch_size", "negatives", "decay", "burn_in", "seed"):
            value = getattr(self, name)
            if value is not None:
                _at_least(name, value, 1 if name in ("batch_size", "negatives") else 0)
        if self.lr is not None and not (math.isfinite(self.lr) and self.lr > 0):
            raise FocuseError(f"lr {self.lr:g}: give a number above 0")
        if self.init_std is not None and not (math.isfinite(self.init_std) and self.init_std > 0):
            raise FocuseError(
                f"init_std {self.init_std:g}: give a number above 0, the standard deviation of initial embeddings"
            )
        if not (math.isfinite(self.soft_logic_weight) and self.soft_logic_weight >= 0):
            raise FocuseError(f"soft_logic_weight {self.soft_logic_weight:g}: give a number of at least 0")
        if not 0 <= self.threshold <= 1:
            raise FocuseError(f"threshold {self.threshold:g}: give a weight in [0, 1]")
        if not 0 < self.stopping_share <= 1:
            raise FocuseError(f"stopping_share {self.stopping_share:g}: give a share above 0 and at most 1")
        self._check_share()
        self._check_focus()
        FocusELayer(decay=self.decay or 0, floor=self.beta_floor, fixed=self.beta)
        checkpoint_interval(self.checkpoint_every)
        self._check_memory()

    def _check_memory(self) -> None:
        """Partitions are of the engine that has some."""
        if self.memory is not None:
            parse_memory(self.memory)
        if self.partitions is not None:
            parse_partitions(self.partitions)
            if self.engine not in ("auto", "partitioned"):
                raise FocuseError(f"partitions are of the engine 'partitioned', not {self.engine!r}; leave them out")

    def _check_engine(self) -> None:
        """Tables in pieces know no step that touches every row."""
        if self.engine in SHARDED and not self.rows_only:
            raise FocuseError(f"engine {self.engine!r} moves the batch's rows only; use the optimizer 'row-adagrad'")
        if self.engine in SHARDED and self.sampling == "all":
            raise FocuseError(f"engine {self.engine!r} cannot compare with every entity; use the sampling 'shared'")

    def _check_focus(self) -> None:
        """Soft labels have their own loss and an exponent."""
        if self.focus == "label" and self.loss != "multiclass-nll":
            raise FocuseError(f"focus 'label' has a loss of its own; for {self.loss!r} use focus 'paper' or 'off'")
        if self.label_exponent is not None:
            SoftLabels(self.label_exponent)
            if self.focus != "label":
                raise FocuseError(f"label_exponent belongs to focus 'label', not to {self.focus!r}; leave it out")

    def _check_share(self) -> None:
        """Some models have a loss of their own beside the objective."""
        share = self.attribute_share
        if share is not None and not 0 <= share < 1:
            raise FocuseError(f"attribute_share {share:g}: give a share of at least 0 and below 1")
        if share is not None and model_class(self.model).auxiliary_loss is None:
            names = " or ".join(name for name, model in MODELS.items() if model.auxiliary_loss is not None)
            raise FocuseError(f"attribute_share is for the model {names}, not {self.model!r}; leave it out")

    def _check_columns(self) -> None:
        """What is said of weight columns; whether there are such is known once a graph is read."""
        choose("meaning of negative weights", self.negative_weights, NEGATIVE_WEIGHTS)
        choose("meaning of weights of 0", self.zero_weights, ZERO_WEIGHTS)
        parse_named_numbers(self.importance or "", "importance")
        for name, epochs in parse_named_numbers(self.decays or "", "decays").items():
            if epochs != int(epochs):
                raise FocuseError(f"decays {name}={epochs:g}: give a whole number of epochs")
        if self.decays and (self.focus != "paper" or self.beta is not None):
            raise FocuseError("decays are of the focus 'paper' with a falling β; leave them out")

    def _check_confidence(self) -> None:
        """Models of a confidence learn the weight itself; all others rank, and focus says by weight on what."""
        confident = model_class(self.model).confidence_head is not None
        if not confident and self.loss != SQUARED_ERROR:
            make_loss(self.loss)
        if confident and self.loss != SQUARED_ERROR:
            raise FocuseError(f"model {self.model!r} learns weights by the loss {SQUARED_ERROR!r}, not {self.loss!r}")
        if confident and self.focus != "off":
            raise FocuseError(f"model {self.model!r} learns the weights themselves; its focus is 'off'")
        if takes_weights(self.loss) and self.focus != "off":
            raise FocuseError(f"loss {self.loss!r} takes the weights itself; its focus is 'off'")
        if self.semi_supervised != "none" and make_pool_schedule(self.semi_supervised) and not confident:
            raise FocuseError(f"a pool holds confidences, and the model {self.model!r} has none; leave it out")
        if not confident and (self.loss == SQUARED_ERROR or self.stop_metric == "mse"):
            asked = f"loss {self.loss!r}" if self.loss == SQUARED_ERROR else f"stop_metric {self.stop_metric!r}"
            names = " or ".join(name for name, model in MODELS.items() if model.confidence_head is not None)
            raise FocuseError(f"{asked} needs a model whose score is a confidence: {names}, not {self.model!r}")

    def make_model(self) -> Model:
        """The model."""
        return make_model(self.model)

    @property
    def rows_only(self) -> bool:
        return self.optimizer.startswith("row-")

    @property
    def learning_rate(self) -> float:
        """The given one, or what suits the optimizer."""
        return LEARNING_RATES[self.optimizer] if self.lr is None else self.lr

    @property
    def scope(self) -> str:
        """What the regularizer is taken over."""
        return self.regularizer_scope or ("touched" if self.rows_only else "tables")

    def resolve(self, train: Graph, device: str) -> Config:
        """All that depends on the graph or the machine filled in."""
        decay = self.epochs if self.decay is None else self.decay
        return replace(
            self,
            batch_size=self.batch_size or self._batch_size(len(train), len(train.entities)),
            negatives=self.negatives or (SHARED_POOL if self.sampling == "shared" else OWN_NEGATIVES),
            decay=decay,
            nonlinearity=default_nonlinearity(model_class(self.model))
            if self.nonlinearity == "auto"
            else self.nonlinearity,
            regularizer_scope=self.scope,
            lr=self.learning_rate,
            normalize=self.normalize or default_normalizer(train),
            burn_in=self._burn_in(decay) if self.burn_in is None else self.burn_in,
            stop_metric=self.stop_metric
            if self.stop_metric != "auto"
            else "mrr"
            if model_class(self.model).confidence_head is None
            else "mse",
            device=device,
        )

    def _burn_in(self, decay: int) -> int:
        """β is to have fallen half-way before validation is asked; labels are the same from the start."""
        return 0 if self.focus == "label" else decay // 2

    def _batch_size(self, rows: int, entities: int) -> int:
        most = int(model_class(self.model).defaults.get("max_batch_size", 8192))
        return min(default_batch_size(rows, entities, self.sampling), most)

    def make_focus(self) -> FocusELayer | None:
        """The layer of resolved settings, None if it is off."""
        if self.focus != "paper":
            return None
        return FocusELayer(self.nonlinearity, self.decay or 0, self.beta_floor, self.beta)

    def make_label(self) -> SoftLabels | None:
        """The labels of resolved settings, None if the weights are none."""
        return (
            SoftLabels(1.0 if self.label_exponent is None else self.label_exponent) if self.focus == "label" else None
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def takes_weights(loss: object) -> bool:
    """Whether a loss, as it is written, looks at weights by itself.

    >>> takes_weights("confidence-margin:margin=2"), takes_weights("margin:2")
    (True, False)
    """
    return isinstance(loss, str) and loss.partition(":")[0].strip() in LOSSES_WITH_WEIGHTS


def means_the_papers_layer(given: Mapping[str, Any]) -> bool:
    """Whether someone who gives these settings, and no focus, has the paper's in mind.

    >>> means_the_papers_layer({"decay": 20}), means_the_papers_layer({"dim": 20})
    (True, False)
    """
    if given.get("label_exponent") is not None:  # of soft labels
        return False
    return any(given.get(name, usual) != usual for name, usual in PAPERS_OWN.items())


def default_batch_size(rows: int, entities: int, sampling: str) -> int:
    """64 batches an epoch as in the paper's experiments, within sizes that a machine handles well.

    A small graph gets 16 of them, so that an epoch has steps enough to learn from; a shared pool serves fewer
    positives. With every entity as a negative a batch holds rows × entities scores, which sets the limit.
    """
    largest = SHARING if sampling == "shared" else 8192
    size = min(max(math.ceil(rows / 64), 512), max(math.ceil(rows / 16), 32), largest)
    return max(1, min(size, SCORES_A_BATCH // entities)) if sampling == "all" else size


def checkpoint_interval(text: str) -> tuple[int, float]:
    """'10' is every 10 epochs, '60s' every 60 seconds, '0' never: (epochs, seconds), the other one 0."""
    number, seconds = (text[:-1], True) if text.endswith("s") else (text, False)
    try:
        value = float(number) if seconds else int(number)
    except ValueError:
        value = -1
    if value < 0 or not math.isfinite(value):
        raise FocuseError(f"checkpoint_every {text!r}: give epochs ('10'), seconds ('60s') or '0' for never")
    return (0, float(value)) if seconds else (int(value), 0.0)


KINDS: dict[str, tuple[type, Callable[[Any], Any], str]] = {
    "str": (str, str, "a word"),
    "bool": (bool, bool, "True or False"),
    "int": (Integral, int, "a whole number"),
    "float": (Real, float, "a number"),
}


def _plain(name: str, value: Any, kind: str) -> Any:
    """`value` as Python's own type (NumPy's numbers are taken too), or an error; `kind` is like 'int | None'."""
    kind, _, optional = kind.partition(" | ")
    accepted, convert, words = KINDS[kind]
    if value is None and optional:
        return None
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind != "bool"):
        raise FocuseError(f"{name} {value!r}: give {words}")
    return convert(value)


def _at_least(name: str, value: int, least: int) -> None:
    if not least <= value < 2**32:
        raise FocuseError(f"{name} {value!r}: give a whole number of at least {least} and below 2**32")


# What a model has its own defaults of, or what none but some models have.
OF_THE_MODEL = (
    "reciprocal", "sampling", "optimizer", "regularizer", "loss", "normalize", "stop_metric", "batch_size",
    "semi_supervised", "attribute_share",
)  # fmt: skip


def read_config(path: str | Path, model: object = None) -> dict[str, Any]:
    """The settings in a TOML file, as keywords of `focuse.train`.

    They stand at the top level or under [settings]. Of a file with that table nothing else is taken, so that a
    run can be trained again from its run.toml. The file's model is left out where another `model` takes its place and
    it is a class that nobody has said to trust: its module is not run only to be put aside.

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
        # A setting above the table would be lost in silence.
        lost = [field.name for field in fields(Config) if field.name in content]
        if lost:
            raise FocuseError(f"{path}: {', '.join(lost)} stands outside of [settings]; move it below that line")
    if model is not None:
        model_class(model_name(model))  # whoever names it has asked for its module, which may be the file's, too
    if model is not None and _stranger(found):
        found = {name: value for name, value in found.items() if name != "model"}
    check_trust(found, Path(path), "import it first")
    try:
        Config.of(**found)
    except FocuseError as error:
        raise FocuseError(f"{path}: {error}") from None
    return dict(found)


def merged(found: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a file with `given` ones in their place.

    A run's file holds every setting. What had followed from one that is given anew, as the learning rate from the
    optimizer, is left to follow again; what had been chosen stays.

    >>> merged({"optimizer": "row-adagrad", "lr": 0.1, "dim": 8}, {"optimizer": "adam"})
    {'optimizer': 'adam', 'dim': 8}
    >>> merged({"optimizer": "row-adagrad", "lr": 0.3, "dim": 8}, {"optimizer": "adam"})
    {'optimizer': 'adam', 'lr': 0.3, 'dim': 8}
    """
    if means_the_papers_layer(given) and found.get("focus") == "label":
        given = {"focus": "paper", **given}
    if "model" in given and "focus" in found:
        old, new = (
            model_class(model_name(each.get("model", Config.model))).defaults.get("focus", Config.focus)
            for each in (found, given)
        )
        given = {"focus": new, **given} if found["focus"] == old != new else given
    changed = {name for name, value in given.items() if name in found and found[name] != value}
    kept = dict(found)
    for name, (leader, value) in _followed(Config.of(**found)).items():
        if changed & set(leader.split()) and name not in given and name in kept and kept[name] == value:
            del kept[name]
            changed.add(name)
    return kept | dict(given)


def _followed(settings: Config) -> dict[str, tuple[str, Any]]:
    """What follows from which settings, and the value that it has then; leaders before those who follow them."""
    model = model_class(settings.model)
    usual = {**asdict(Config()), **default_settings(model)}
    usual |= {
        "stop_metric": "mrr" if model.confidence_head is None else "mse",
        "attribute_share": settings.attribute_share,
    }
    usual["normalize"] = usual["normalize"] or "relation"
    size = SHARED_POOL if settings.sampling == "shared" else OWN_NEGATIVES
    size = usual["negatives"] or size if settings.sampling == usual["sampling"] else size
    rate = usual["lr"] if settings.optimizer == usual["optimizer"] else None
    return {
        **{name: ("model", usual[name]) for name in OF_THE_MODEL},
        "nonlinearity": ("model", default_nonlinearity(model)),
        "lr": ("optimizer", rate or LEARNING_RATES[settings.optimizer]),
        "regularizer_scope": ("model", usual["regularizer_scope"])
        if usual["regularizer_scope"]
        else ("optimizer", replace(settings, regularizer_scope=None).scope),
        "negatives": ("sampling", size),
        "decay": ("epochs", settings.epochs),
        "burn_in": ("focus", 0) if settings.focus == "label" else ("focus decay", settings.epochs // 2),
        "label_exponent": ("focus", settings.label_exponent),
    }


def with_model(config: Mapping[str, Any], model: object, folder: Path) -> dict[str, Any]:
    """A run's file with its model as it is called here: like the class that is given, else as it was called there."""
    stored = config.get("settings")
    name = stored.get("model") if isinstance(stored, dict) else None
    if not isinstance(stored, dict) or not isinstance(name, str):
        return dict(config)  # damaged: whoever reads it on says so
    if model is not None:
        if name in MODELS and model_name(model) != name:
            raise FocuseError(f"{folder}: its model {name!r} is built in; leave model= out")
        stored_name, name = name, model_name(model)
        registry.register_alias(stored_name, model_class(name))
    hand_over = f"hand its class over: focuse.load({str(folder)!r}, model=MyModel)"
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
    """A file is data: the module that it names as its model's is imported, and so run, only if the user says so."""
    module = _stranger(settings)
    if module:
        raise FocuseError(
            f"{path}: its model {settings['model']!r} is code that is not focuse's; if you trust it, write "
            f"focuse --trust {module} COMMAND (or set {registry.TRUST_VARIABLE}={module}), or in Python {otherwise}"
        )


def _stranger(settings: Mapping[str, Any]) -> str:
    """The module of the model that a file names, if nobody has said to trust it; else ''."""
    name = settings.get("model")
    if not isinstance(name, str) or name in MODELS or registry.model_family(name):
        return ""
    return registry.untrusted_module(name)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file; what is wrong with it is one line that says where."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FocuseError(f"{path}: {error.strerror or error}; give the path of a TOML file") from None
    except UnicodeDecodeError:
        raise FocuseError(f"{path}: not a text in UTF-8; give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        fault, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        where = f"line {line[1]}" if line else "at its end"
        raise FocuseError(f"{path}, {where}: {fault}; write settings like: lr = 0.001") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets in brackets in …
        raise FocuseError(f"{path}: not TOML that can be read ({error}); write settings like: lr = 0.001") from None


def assignments(option: str, texts: Sequence[str]) -> dict[str, str]:
    """'batch-size=64' as {'batch_size': '64'}."""
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


def value_of(name: str, text: str) -> Any:
    """The text as the kind of its setting, or as it is: then Settings says what is wrong with it."""
    kinds = {field.name: str(field.type).partition(" | ")[0] for field in fields(Config)}
    kind = kinds.get(name)
    if kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return int(text) if kind == "int" else float(text) if kind == "float" else text
    except ValueError:
        return text
