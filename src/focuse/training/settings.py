"""Every setting of a training, with its default; checked before anything is read or written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral, Real
from os import PathLike
from typing import Any

from focuse.engines import ENGINES
from focuse.engines.sharded import SHARDED
from focuse.errors import FocuseError, choose, nearest
from focuse.focus import NONLINEARITIES, Focus, Label, default_nonlinearity, make_nonlinearity
from focuse.graph.graph import DUPLICATE_POLICIES, Graph
from focuse.graph.weights import NORMALISERS, default_normaliser
from focuse.models import MODELS, Model, kind_of, make_model, name_of
from focuse.training.chances import check_chances
from focuse.training.losses import WEIGHTED, make_loss
from focuse.training.negatives import SAMPLINGS
from focuse.training.optimisers import LEARNING_RATES, OPTIMISERS
from focuse.training.regularisers import SCOPES, make_regulariser
from focuse.training.semisupervised import make_schedule
from focuse.training.specs import parse_memory, parse_named, parse_partitions, worded

FOCUSES = ("label", "paper", "off")
JUDGES = ("auto", "mrr", "mse")
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
class Settings:
    """What a training does. None and 'auto' are filled in by `resolve`; a run stores the resolved form."""

    model: str = "complex"
    reciprocal: bool = False
    dim: int = 100
    epochs: int = 50
    batch_size: int | None = None
    negatives: int | None = None
    sampling: str = "shared"
    corrupt: str = "uniform"
    coin: str = "fair"
    filter_negatives: bool = False
    focus: str = "label"
    sharpness: float | None = None
    decay: int | None = None
    nonlinearity: str = "auto"
    beta: float | None = None
    beta_floor: float = 0.0
    loss: str = "multiclass-nll"
    reduction: str = "sum"
    regularizer: str = "l3:1e-3"
    regularize: str | None = None
    optimizer: str = "row-adagrad"
    lr: float | None = None
    spread: float | None = None
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
    judge: str = "auto"
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
    def of(cls, **given: Any) -> Settings:
        """Settings from keywords; an unknown one is an error that offers the nearest. `model` may be a class."""
        kinds = {field.name: str(field.type) for field in fields(cls)}
        for name in given:
            if name not in kinds:
                raise FocuseError(f"unknown setting {name!r}{nearest(name, kinds)}: choose from {', '.join(kinds)}")
        if isinstance(given.get("checkpoint_every"), int):
            given["checkpoint_every"] = str(given["checkpoint_every"])
        if isinstance(given.get("start"), PathLike):
            given["start"] = str(given["start"])
        given |= {name: worded(given[name]) for name in ("lower_is_better", "importance", "decays") if name in given}
        given |= {"model": name_of(given["model"])} if "model" in given else {}
        usual = dict(kind_of(given.get("model", cls.model)).defaults)
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
        kind_of(self.model)
        choose("sampling", self.sampling, SAMPLINGS)
        check_chances(self.sampling, self.corrupt, self.coin)
        choose("focus", self.focus, FOCUSES)
        choose("reduction", self.reduction, REDUCTIONS)
        choose("optimizer", self.optimizer, OPTIMISERS)
        choose("engine", self.engine, ENGINES)
        self._check_engine()
        choose("policy for repeated triples", self.duplicates, DUPLICATE_POLICIES)
        if ":" in self.nonlinearity:
            make_nonlinearity(self.nonlinearity)
        else:
            choose("non-linearity", self.nonlinearity, ["auto", *NONLINEARITIES])
        if self.normalize is not None:
            choose("normaliser", self.normalize, NORMALISERS)
        choose("judge", self.judge, JUDGES)
        self._check_columns()
        self._check_confidence()
        scope = self.scope
        choose("scope of the regularizer", scope, SCOPES)
        if make_regulariser(self.regularizer, scope) and scope == "touched" and not self.rows_only:
            raise FocuseError(
                f"optimizer {self.optimizer!r} moves every row in every batch; use regularize 'tables' or 'rows', "
                "or the optimizer 'row-adam'"
            )
        if make_regulariser(self.regularizer, scope) and scope == "tables" and self.rows_only:
            raise FocuseError(
                f"optimizer {self.optimizer!r} touches the batch's rows only and cannot regularize whole tables; "
                "use regularize 'touched' or 'rows', or the optimizer 'adam'"
            )
        for name in ("dim", "epochs", "check_every", "patience", "soft_logic_size"):
            _at_least(name, getattr(self, name), 1)
        if kind_of(self.model).one_way and not self.reciprocal:
            raise FocuseError(f"model {self.model!r} asks for tails only and needs reciprocal relations; keep them on")
        self.make_model().check(self.dim)
        for name in ("batch_size", "negatives", "decay", "burn_in", "seed"):
            value = getattr(self, name)
            if value is not None:
                _at_least(name, value, 1 if name in ("batch_size", "negatives") else 0)
        if self.lr is not None and not (math.isfinite(self.lr) and self.lr > 0):
            raise FocuseError(f"lr {self.lr:g}: give a number above 0")
        if self.spread is not None and not (math.isfinite(self.spread) and self.spread > 0):
            raise FocuseError(f"spread {self.spread:g}: give a number above 0, the deviation of the first embeddings")
        if not (math.isfinite(self.soft_logic_weight) and self.soft_logic_weight >= 0):
            raise FocuseError(f"soft_logic_weight {self.soft_logic_weight:g}: give a number of at least 0")
        if not 0 <= self.threshold <= 1:
            raise FocuseError(f"threshold {self.threshold:g}: give a weight in [0, 1]")
        if not 0 < self.stopping_share <= 1:
            raise FocuseError(f"stopping_share {self.stopping_share:g}: give a share above 0 and at most 1")
        self._check_share()
        self._check_focus()
        Focus(decay=self.decay or 0, floor=self.beta_floor, fixed=self.beta)
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
        """A label has its own loss and its own dial."""
        if self.focus == "label" and self.loss != "multiclass-nll":
            raise FocuseError(f"focus 'label' has a loss of its own; for {self.loss!r} use focus 'paper' or 'off'")
        if self.sharpness is not None:
            Label(self.sharpness)
            if self.focus != "label":
                raise FocuseError(f"sharpness is the dial of focus 'label', not of {self.focus!r}; leave it out")

    def _check_share(self) -> None:
        """Some models have a loss of their own beside the objective."""
        share = self.attribute_share
        if share is not None and not 0 <= share < 1:
            raise FocuseError(f"attribute_share {share:g}: give a share of at least 0 and below 1")
        if share is not None and kind_of(self.model).extra is Model.extra:
            names = " or ".join(name for name, kind in MODELS.items() if kind.extra is not Model.extra)
            raise FocuseError(f"attribute_share is for the model {names}, not {self.model!r}; leave it out")

    def _check_columns(self) -> None:
        """What is said of weight columns; whether there are such is known once a graph is read."""
        choose("meaning of negative weights", self.negative_weights, NEGATIVE_WEIGHTS)
        choose("meaning of weights of 0", self.zero_weights, ZERO_WEIGHTS)
        parse_named(self.importance or "", "importance")
        for name, epochs in parse_named(self.decays or "", "decays").items():
            if epochs != int(epochs):
                raise FocuseError(f"decays {name}={epochs:g}: give a whole number of epochs")
        if self.decays and (self.focus != "paper" or self.beta is not None):
            raise FocuseError("decays are of the focus 'paper' with a falling β; leave them out")

    def _check_confidence(self) -> None:
        """Models of a confidence learn the weight itself; all others rank, and focus says by weight on what."""
        confident = kind_of(self.model).confident
        if not confident and self.loss != SQUARED_ERROR:
            make_loss(self.loss)
        if confident and self.loss != SQUARED_ERROR:
            raise FocuseError(f"model {self.model!r} learns weights by the loss {SQUARED_ERROR!r}, not {self.loss!r}")
        if confident and self.focus != "off":
            raise FocuseError(f"model {self.model!r} learns the weights themselves; its focus is 'off'")
        if takes_weights(self.loss) and self.focus != "off":
            raise FocuseError(f"loss {self.loss!r} takes the weights itself; its focus is 'off'")
        if make_schedule(self.semi_supervised) is not None and not confident:
            raise FocuseError(f"a pool holds confidences, and the model {self.model!r} has none; leave it out")
        if not confident and (self.loss == SQUARED_ERROR or self.judge == "mse"):
            asked = f"loss {self.loss!r}" if self.loss == SQUARED_ERROR else f"judge {self.judge!r}"
            names = " or ".join(name for name, kind in MODELS.items() if kind.confident)
            raise FocuseError(f"{asked} needs a model whose score is a confidence: {names}, not {self.model!r}")

    def make_model(self) -> Model:
        """The model, on wish with reciprocal relations."""
        return make_model(self.model, self.reciprocal)

    @property
    def rows_only(self) -> bool:
        return self.optimizer.startswith("row-")

    @property
    def learning_rate(self) -> float:
        """The given one, or what suits the optimiser."""
        return LEARNING_RATES[self.optimizer] if self.lr is None else self.lr

    @property
    def scope(self) -> str:
        """What the regulariser is taken over."""
        return self.regularize or ("touched" if self.rows_only else "tables")

    def resolve(self, train: Graph, device: str) -> Settings:
        """All that depends on the graph or the machine filled in."""
        decay = self.epochs if self.decay is None else self.decay
        return replace(
            self,
            batch_size=self.batch_size or self._batch_size(len(train), len(train.entities)),
            negatives=self.negatives or (SHARED_POOL if self.sampling == "shared" else OWN_NEGATIVES),
            decay=decay,
            nonlinearity=default_nonlinearity(kind_of(self.model))
            if self.nonlinearity == "auto"
            else self.nonlinearity,
            regularize=self.scope,
            lr=self.learning_rate,
            normalize=self.normalize or default_normaliser(train),
            burn_in=self._burn_in(decay) if self.burn_in is None else self.burn_in,
            judge=self.judge if self.judge != "auto" else "mse" if kind_of(self.model).confident else "mrr",
            device=device,
        )

    def _burn_in(self, decay: int) -> int:
        """β is to have fallen half-way before validation is asked; labels are the same from the start."""
        return 0 if self.focus == "label" else decay // 2

    def _batch_size(self, rows: int, entities: int) -> int:
        return min(default_batch_size(rows, entities, self.sampling), kind_of(self.model).largest_batch)

    def make_focus(self) -> Focus | None:
        """The layer of resolved settings, None if it is off."""
        if self.focus != "paper":
            return None
        return Focus(self.nonlinearity, self.decay or 0, self.beta_floor, self.beta)

    def make_label(self) -> Label | None:
        """The labels of resolved settings, None if the weights are none."""
        return Label(1.0 if self.sharpness is None else self.sharpness) if self.focus == "label" else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def takes_weights(loss: object) -> bool:
    """Whether a loss, as it is written, looks at weights by itself.

    >>> takes_weights("confidence-margin:margin=2"), takes_weights("margin:2")
    (True, False)
    """
    return isinstance(loss, str) and loss.partition(":")[0].strip() in WEIGHTED


def means_the_papers_layer(given: Mapping[str, Any]) -> bool:
    """Whether someone who gives these settings, and no focus, has the paper's in mind.

    >>> means_the_papers_layer({"decay": 20}), means_the_papers_layer({"dim": 20})
    (True, False)
    """
    if given.get("sharpness") is not None:  # the dial of labels
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
