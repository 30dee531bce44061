"""Settings: checks, defaults and their resolution."""

from __future__ import annotations

import inspect
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import focuse
from focuse import Config, FocuseError, read
from focuse.config import GROUPS, SETTINGS, checkpoint_interval, default_batch_size
from focuse.engines.optimizers import OPTIMIZERS
from focuse.models.base import default_settings
from focuse.models.registry import MODELS
from focuse.objective.focuse import FocusELayer, SoftLabels
from focuse.objective.losses import LOSSES
from focuse.storage.metadata import to_toml
from focuse.training.callbacks import LineReporter

WRONG = [
    ({"model": "complx"}, "did you mean complex"),
    ({"negative_sampling": "share"}, "did you mean shared"),
    ({"weight_mode": "focus"}, "did you mean focuse"),
    ({"loss": "multiclass"}, "did you mean multiclass-nll"),
    ({"loss": "margin:x"}, "'x' is not a number"),
    ({"loss": "margin:1,2,3"}, "margin"),
    ({"loss": "nll:3"}, "nll"),
    ({"reduction": "summ"}, "did you mean sum"),
    ({"optimizer": "adma"}, "did you mean adam"),
    ({"weight_scaling": "relations"}, "did you mean relation"),
    (
        {"duplicates": "maximum"},
        "unknown duplicates 'maximum' (did you mean max?): choose one of keep",
    ),
    ({"weight_mode": "focuse", "nonlinearity": "softpluss"}, "did you mean softplus"),
    ({"weight_mode": "label"}, "did you mean soft-labels"),
    ({"optimizer": "row-adam"}, "did you mean sparse-adam"),
    ({"focus": "paper"}, "unknown setting 'focus' (did you mean weight_mode?)"),
    ({"regularizer": "l4:1e-3"}, "choose one of none, l1, l2, l3"),
    ({"regularizer": "l3"}, "l3:1e-3"),
    ({"regularizer": "l3:-1"}, "l3:1e-3"),
    ({"regularizer": "l3:nan"}, "not a number"),
    ({"regularizer_scope": "row"}, "did you mean rows"),
    ({"negative_weights": "know-negative"}, "did you mean known-negative"),
    ({"zero_weights": "lo"}, "did you mean low"),
    ({"column_importance": "confidence"}, "like 'confidence=2'"),
    ({"column_importance": {"confidence": -1}}, "at least 0"),
    ({"column_importance": {"a,b": 1}}, "give a name without a comma"),
    ({"lower_is_better": [3]}, "column 3: give a name"),
    ({"lower_is_better": 3}, "lower_is_better 3: give True, False or names of columns"),
    ({"column_importance": "a=1,a=2"}, "a is given twice"),
    ({"optimizer": "sparse-adam", "regularizer_scope": "tables"}, "cannot regularize whole tables"),
    ({"optimizer": "sparse-adagrad", "regularizer_scope": "tables"}, "use regularizer_scope 'touched' or 'rows'"),
    ({"dim": 0}, "dim 0: give a whole number of at least 1 and below 2**32"),
    ({"dim": 2.5}, "dim 2.5: give a whole number"),
    ({"dim": "100"}, "dim '100': give a whole number"),
    ({"dim": True}, "dim True"),
    ({"dim": None}, "dim None"),
    ({"epochs": 0}, "at least 1"),
    ({"num_negatives": 0}, "at least 1"),
    ({"eval_every": 0}, "at least 1"),
    ({"patience": 0}, "at least 1"),
    ({"batch_size": 0}, "batch_size 0"),
    ({"beta_decay_epochs": -1}, "beta_decay_epochs -1"),
    ({"eval_start": -1}, "eval_start -1"),
    ({"seed": -1}, "seed -1"),
    ({"lr": 0}, "lr 0: give a number above 0"),
    ({"lr": float("nan")}, "lr nan"),
    ({"lr": float("inf")}, "lr inf"),
    ({"lr": "fast"}, "lr 'fast': give a number"),
    ({"valid_min_weight": 1.5}, "valid_min_weight 1.5"),
    ({"valid_min_weight": float("nan")}, "valid_min_weight nan"),
    ({"beta": 1.1}, "beta 1.1: give a number of at least 0 and at most 1"),
    ({"beta": "1"}, "beta '1': give a number"),
    ({"beta_min": -0.1}, "beta_min -0.1: give a number of at least 0"),
    ({"model": 3}, "model 3: give the name of a model or a class"),
    ({"filter_negatives": 1}, "give True or False"),
    ({"checkpoint_every": "often"}, "checkpoint_every 'often'"),
    ({"checkpoint_every": -3}, "checkpoint_every '-3'"),
    ({"checkpoint_every": 2.5}, "checkpoint_every 2.5"),
    (
        {"model": "ukge-logi", "weight_mode": "focuse"},
        "'ukge-logi' learns the weights themselves and requires weight_mode 'none'",
    ),
    ({"model": "ukge-rect", "loss": "nll"}, "'ukge-rect' learns weights by the loss 'squared-error', not 'nll'"),
    (
        {"model": "ukge-logi", "loss": "nll"},
        "'ukge-logi' learns weights by the loss 'squared-error' or 'cross-entropy', not 'nll'",
    ),
    (
        {"model": "ukge-rect", "loss": "cross-entropy", "negative_sampling": "none"},
        "'ukge-rect' learns weights by the loss 'squared-error', not 'cross-entropy'",
    ),
    ({"negative_sampling": "none"}, "loss 'cross-entropy' and negative_sampling 'none' require each other"),
    (
        {"model": "complex-weights", "negative_sampling": "all"},
        "loss 'cross-entropy' and negative_sampling 'none' require each other",
    ),
    ({"model": "distmult", "loss": "squared-error"}, "loss 'squared-error' requires a confidence model"),
    (
        {"model": "complex", "stop_metric": "mse"},
        "stop_metric 'mse' requires a confidence model (ukge-rect, ukge-logi",
    ),
    ({"stop_metric": "mrs"}, "unknown stop_metric 'mrs' (did you mean mrr or mse?)"),
    ({"model": "ukge-logi", "rule_loss_weight": -0.1}, "rule_loss_weight -0.1: give a number of at least 0"),
    ({"model": "ukge-logi", "rule_loss_weight": float("inf")}, "rule_loss_weight inf"),
    ({"model": "ukge-logi", "rule_loss_weight": float("nan")}, "rule_loss_weight nan"),
    ({"model": "ukge-logi", "rule_batch_size": 0}, "rule_batch_size 0: give a whole number of at least 1"),
    ({"model": "ukge"}, "unknown model 'ukge' (did you mean suke or ukge-"),
    ({"epoch": 3}, "did you mean epochs"),
    ({"gamma": 3}, "unknown setting 'gamma'"),
]


@pytest.mark.parametrize(("wrong", "says"), WRONG, ids=[str(wrong) for wrong, _ in WRONG])
def test_wrong_setting_is_one_line_with_advice(wrong, says):
    with pytest.raises(FocuseError) as error:
        Config.from_kwargs(**wrong)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_defaults_are_valid_and_every_registered_loss_is_accepted():
    assert Config.from_kwargs() == Config()
    for loss in LOSSES:
        assert Config.from_kwargs(loss=loss, weight_mode="focuse").loss == loss


def test_numpy_numbers_become_python_numbers():
    settings = Config.from_kwargs(lr=np.float64(0.5), dim=np.int64(3), valid_min_weight=np.float32(0.5))
    assert {type(settings.lr), type(settings.dim), type(settings.valid_min_weight)} == {float, int}
    assert type(Config.from_kwargs(lr=1).lr) is float
    flags = Config.from_kwargs(reciprocal=np.bool_(True), lower_is_better=np.bool_(True), checkpoint_every=np.int64(3))
    assert (flags.reciprocal, flags.lower_is_better, flags.checkpoint_every) == (True, True, "3")


class TestResolve:
    def test_resolve_sets_every_open_setting(self, small):
        resolved = Config().resolve(small, "cpu")
        left = {name for name, value in resolved.to_dict().items() if value in (None, "auto")}
        # β follows its schedule, the first embeddings' deviation each table's size; which engine computes a step is
        # the matter of the machine that does, also on a resume. What columns count is learnt, if there are any, and
        # short trainings choose the label exponent. Few models have a loss of their own to share with, few trainings
        # begin where another run ended.
        left -= {"memory_limit", "partitions"}  # of a training whose tables are on disk
        assert left == {
            "beta",
            "engine",
            "init_std",
            "column_importance",
            "label_exponent",
            "attribute_loss_weight",
            "init_from",
        }
        assert (resolved.beta_decay_epochs, resolved.eval_start, resolved.batch_size) == (50, 25, 38)
        assert resolved.valid_min_weight == 0
        for mode, start in (("focuse", 25), ("none", 25), ("soft-labels", 0)):
            other = Config(weight_mode=mode).resolve(small, "cpu")
            assert (other.eval_start, other.valid_min_weight) == (start, 0.8)
        assert (resolved.negative_sampling, resolved.num_negatives, resolved.lr) == ("shared", 256, 0.1)
        assert (resolved.nonlinearity, resolved.weight_scaling, resolved.device) == ("softplus", "relation", "cpu")

    def test_resolve_keeps_given_settings(self, small):
        given = {"beta_decay_epochs": 7, "eval_start": 0, "batch_size": 9, "nonlinearity": "tanh"}
        chosen = Config.from_kwargs(weight_mode="focuse", weight_scaling="global", **given)
        resolved = chosen.resolve(small, "cpu")
        assert (resolved.beta_decay_epochs, resolved.eval_start, resolved.batch_size) == (7, 0, 9)
        assert (resolved.nonlinearity, resolved.weight_scaling) == ("tanh", "global")

    @pytest.mark.parametrize(
        ("model", "expected"),
        [("transe", "shifted-softplus"), ("transe-l2", "shifted-softplus"), ("distmult", "softplus")],
    )
    def test_distance_models_get_the_shifted_softplus(self, small, model, expected):
        assert Config(model=model).resolve(small, "cpu").nonlinearity == expected

    def test_row_optimizers_regularize_only_touched_rows(self, small):
        assert Config(optimizer="sparse-adam").resolve(small, "cpu").regularizer_scope == "touched"
        assert Config(optimizer="adam").resolve(small, "cpu").regularizer_scope == "tables"

    def test_default_learning_rate_follows_the_optimizer(self, small):
        for optimizer in OPTIMIZERS:
            rate = 0.1 if optimizer.endswith("adagrad") else 0.01 if optimizer == "sgd" else 0.001
            assert Config.from_kwargs(optimizer=optimizer).resolve(small, "cpu").lr == rate
            assert Config.from_kwargs(optimizer=optimizer, lr=0.7).resolve(small, "cpu").lr == 0.7

    def test_default_negatives_of_ukge_follow_the_sampling(self, small):
        for sampling, count in (("per-triple", 20), ("shared", 256)):
            given = {} if sampling == "per-triple" else {"negative_sampling": sampling}
            resolved = Config.from_kwargs(model="ukge-logi", **given).resolve(small, "cpu")
            assert (resolved.negative_sampling, resolved.num_negatives, resolved.lr) == (sampling, count, 0.001)

    @pytest.mark.parametrize("model", ["transe", "transe-l2"])
    def test_distance_models_default_to_30_independent_negatives(self, small, model):
        resolved = Config.from_kwargs(model=model).resolve(small, "cpu")
        assert (resolved.negative_sampling, resolved.num_negatives, resolved.optimizer) == (
            "per-triple",
            30,
            "sparse-adam",
        )

    def test_relation_weights_are_normalized_globally(self):
        rows = [("a", f"r{i % 3}", f"b{i}") for i in range(12)]
        graph = read(rows, relation_weights={"r0": 1, "r1": 5, "r2": 9})
        assert Config().resolve(graph, "cpu").weight_scaling == "global"

    def test_resolving_twice_changes_nothing(self, small):
        once = Config().resolve(small, "cpu")
        assert once.resolve(small, "cpu") == once


def test_make_focuse_layer():
    assert Config(weight_mode="none").make_focuse_layer() is None
    assert Config().make_focuse_layer() is None
    layer = Config(
        weight_mode="focuse", nonlinearity="tanh", beta_decay_epochs=3, beta_min=0.25, beta=0.5
    ).make_focuse_layer()
    assert layer == FocusELayer("tanh", 3, 0.25, 0.5)


def test_make_label_builds_soft_labels_of_the_settings():
    assert Config(weight_mode="soft-labels", label_exponent=3.0).make_soft_labels() == SoftLabels(3.0)
    for mode in ("separate", "focuse", "none"):
        assert Config(weight_mode=mode).make_soft_labels() is None


NO_EFFECT = [
    ({"beta_decay_epochs": 5}, "beta_decay_epochs requires weight_mode 'focuse'"),
    ({"beta": 0.5}, "beta requires weight_mode 'focuse', not 'separate'"),
    ({"beta_min": 0.1, "weight_mode": "none"}, "beta_min requires weight_mode 'focuse'"),
    ({"nonlinearity": "tanh"}, "nonlinearity requires weight_mode 'focuse'"),
    ({"weight_mode": "focuse", "beta": 0.5, "beta_min": 0.1}, "beta_min has no effect with a fixed beta"),
    ({"weight_mode": "focuse", "beta": 0.5, "beta_decay_epochs": 3}, "beta_decay_epochs has no effect with a fixed"),
    ({"loss": "nll", "weight_mode": "soft-labels"}, "loss 'nll' requires weight_mode 'focuse' or 'none'"),
    ({"loss": "nll", "label_exponent": 2}, "loss 'nll' requires weight_mode 'focuse' or 'none'"),
    ({"loss": "confidence-margin"}, "requires weight_mode 'none', not 'separate'"),
    ({"weight_mode": "focuse", "label_exponent": 2}, "label_exponent requires weight_mode 'soft-labels'"),
    ({"weight_mode": "separate", "label_exponent": 2}, "label_exponent requires weight_mode 'soft-labels'"),
    ({"negative_sampling": "all", "num_negatives": 9}, "num_negatives requires negative_sampling 'shared' or"),
    ({"negative_sampling": "all", "negative_distribution": "degree"}, "negative_distribution requires negative_s"),
    ({"negative_distribution": "type"}, "'type' requires negative_sampling 'per-triple'"),
    ({"corrupt_side": "bernoulli"}, "corrupt_side requires negative_sampling 'per-triple'"),
    ({"partitions": "8:2"}, "partitions requires engine 'partitioned', not 'auto'"),
    ({"engine": "torch", "memory_limit": "6GB"}, "memory_limit requires engine 'auto' or 'partitioned'"),
    ({"attribute_loss_weight": 0.5}, "attribute_loss_weight requires model 'transea', not 'complex'"),
    ({"rule_loss_weight": 0.5}, "rule_loss_weight requires a confidence model (ukge-rect, ukge-logi, "),
    ({"rule_batch_size": 5}, "rule_batch_size requires a confidence model"),
    ({"semi_supervised": "pool"}, "semi_supervised requires a confidence model"),
    ({"model": "complex-weights", "semi_supervised": "pool"}, "semi_supervised requires loss 'squared-error'"),
    ({"model": "complex-weights", "rule_batch_size": 5}, "rule_batch_size requires loss 'squared-error', not 'cross"),
    ({"model": "complex-weights", "filter_negatives": True}, "filter_negatives requires negative_sampling 'shared' or"),
    ({"regularizer": "none", "regularizer_decay": 0.5}, "regularizer_decay requires a regularizer"),
]


@pytest.mark.parametrize(("wrong", "says"), NO_EFFECT, ids=[str(wrong) for wrong, _ in NO_EFFECT])
def test_a_setting_without_effect_is_an_error(wrong, says):
    with pytest.raises(FocuseError) as error:
        Config.from_kwargs(**wrong)
    assert says in str(error.value)


def test_values_that_equal_the_defaults_may_be_given_in_any_mode():
    Config.from_kwargs(beta=None, beta_min=0.0, loss="multiclass-nll", nonlinearity="auto", rule_batch_size=64)
    Config.from_kwargs(model="rotate", nonlinearity="shifted-softplus")  # the default of the model


def test_only_a_label_exponent_changes_the_weight_mode_and_models_have_their_own():
    assert Config.from_kwargs(dim=5).weight_mode == "separate"
    assert Config.from_kwargs(dim=5, label_exponent=None).weight_mode == "separate"
    assert Config.from_kwargs(label_exponent=2).weight_mode == "soft-labels"
    assert Config.from_kwargs(weight_mode="focuse", beta=0.5).weight_mode == "focuse"
    assert Config.from_kwargs(model="gtranse").weight_mode == "none"


class TestDeclarations:
    def test_every_setting_has_a_group_and_a_sentence(self):
        assert {each.group for each in SETTINGS.values()} == set(GROUPS)
        for each in SETTINGS.values():
            assert each.help[0].isupper() or each.help.startswith(("'", "beta_decay"))
            assert each.help.endswith(".")
            assert (each.default in (None, "auto")) <= bool(each.auto) or each.name in ("device", "engine")

    def test_choices_are_those_of_the_code(self):

        from focuse.config import CROSS_ENTROPY, LOSS_NAMES, MODEL_NAMES, SQUARED_ERROR
        from focuse.data.graph import DUPLICATE_POLICIES
        from focuse.data.weights import NORMALIZERS
        from focuse.engines.fused_cpu import SCOPE_CODES
        from focuse.objective import losses, negatives
        from focuse.objective.focuse import NONLINEARITIES

        known = {
            "negative_distribution": negatives.ENTITY_DISTRIBUTIONS,
            "corrupt_side": negatives.SIDE_DISTRIBUTIONS,
            "regularizer_scope": SCOPE_CODES,
            "optimizer": OPTIMIZERS,
            "weight_scaling": NORMALIZERS,
            "duplicates": DUPLICATE_POLICIES,
        }
        for name, choices in known.items():
            assert set(SETTINGS[name].choices) == set(choices), name
        assert tuple(MODELS) == MODEL_NAMES
        assert set(LOSS_NAMES) == {*losses.LOSSES, *losses.LOSSES_WITH_WEIGHTS, SQUARED_ERROR, CROSS_ENTROPY}
        assert set(SETTINGS["nonlinearity"].examples) == {"auto", *NONLINEARITIES}
        assert {each.rstrip(":") for each in SETTINGS["regularizer"].examples} == {"none", *losses.POWERS}

    def test_train_shows_all_settings_with_their_defaults(self):
        parameters = inspect.signature(focuse.train).parameters
        assert list(parameters)[-len(SETTINGS) :] == list(SETTINGS)
        for name, declared in SETTINGS.items():
            assert parameters[name].default == declared.default
            assert f"    {name} : {declared.type}, default: {declared.default_text}\n" in focuse.train.__doc__
        assert parameters["dim"].annotation == "int"
        assert parameters["lr"].annotation == "float | None"


class TestProvenance:
    def test_resolved_values_carry_where_they_came_from(self, small):
        resolved = Config.from_kwargs(model="transe", dim=8, lr=None).resolve(small, "cpu")
        assert {name: resolved.provenance.get(name) for name in ("dim", "optimizer", "lr", "epochs")} == {
            "dim": "given",
            "optimizer": "model",
            "lr": "derived",
            "epochs": None,
        }
        names = resolved.names_by_provenance()
        assert names["given"] == ["model", "dim"]
        assert names["model"] == ["negative_sampling", "optimizer"]
        assert {"batch_size", "num_negatives", "lr", "device"} <= set(names["derived"])

    def test_settings_of_a_run_are_reported_in_three_lines(self, small):
        notes = []
        reporter = LineReporter(notes.append)
        focuse.train(small, dim=4, epochs=1, label_exponent=1, model="transe", progress=reporter)
        assert notes[0] == "model: transe, dim 4, 1 epoch, batch size 32, sparse-adam, lr 0.001"
        assert notes[1] == ("weights: soft-labels, label exponent 1; loss: multiclass-nll; negatives: 30 per triple")
        assert notes[2].startswith(
            "given: model, dim, label_exponent, epochs; defaults of transe: negative_sampling, optimizer; "
            "derived: weight_mode soft-labels, weight_scaling relation, num_negatives 30, batch_size 32, "
        )
        assert "beta_decay_epochs" not in notes[2]

    def test_rule_settings_require_rules(self, small):
        with pytest.raises(FocuseError, match=r"rule_batch_size requires rules or inferred_triples"):
            focuse.train(small, model="ukge-logi", rule_batch_size=5, progress=False)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (True, True),
        (False, False),
        ("true", True),
        ("True", True),
        ("", False),
        ("p, q", ("p", "q")),
        (["p"], ("p",)),
        ({"p"}, ("p",)),
    ],
)
def test_lower_is_better_is_a_bool_or_names_of_columns(given, kept):
    assert Config.from_kwargs(lower_is_better=given).lower_is_better == kept


@pytest.mark.parametrize("given", [{"label_exponent": -1}, {"label_exponent": 101}, {"stop_fraction": 0}])
def test_numbers_outside_of_the_limits_are_refused(given):
    with pytest.raises(FocuseError, match="give a number"):
        Config.from_kwargs(**given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", (0, 0.0)), ("10", (10, 0.0)), ("60s", (0, 60.0)), ("0.5s", (0, 0.5)), ("0s", (0, 0.0))],
)
def test_checkpoint_interval_is_parsed_as_epochs_or_seconds(text, expected):
    assert checkpoint_interval(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1", "-1s", "nans", "infs", "1.5", "10m", "ten"])
def test_wrong_checkpoint_intervals_are_refused(text):
    with pytest.raises(FocuseError, match="give epochs"):
        checkpoint_interval(text)


def test_checkpoint_every_accepts_an_int():
    assert Config.from_kwargs(checkpoint_every=10).checkpoint_every == "10"


@given(st.integers(1, 10**9))
def test_default_batch_size_is_64_batches_within_bounds(rows):
    size = default_batch_size(rows, 10, "per-triple")
    assert 32 <= size <= 8192
    batches = rows / size
    assert size in (32, 8192) or 14 <= batches <= 64
    assert default_batch_size(rows, 10, "shared") == min(size, 1024)


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_default_batch_size_bounds_scores_of_all_entities(rows, entities):
    size = default_batch_size(rows, entities, "all")
    assert 1 <= size <= default_batch_size(rows, entities, "per-triple")
    assert size == 1 or size * entities <= 2**24


@pytest.mark.parametrize(("sampling", "count"), [("per-triple", 30), ("shared", 256)])
def test_default_negatives_are_more_for_a_shared_pool(small, sampling, count):
    assert Config.from_kwargs(negative_sampling=sampling).resolve(small, "cpu").num_negatives == count
    assert Config.from_kwargs(negative_sampling=sampling, num_negatives=7).resolve(small, "cpu").num_negatives == 7


class TestModelDefaults:
    @pytest.mark.parametrize("name", MODELS)
    def test_defaults_of_a_model_replace_general_defaults(self, name):
        settings = Config.from_kwargs(model=name)
        expected = {**Config().to_dict(), "model": name, **default_settings(MODELS[name])}
        assert settings.to_dict() == expected

    def test_defaults_of_ukge_are_those_of_its_paper(self, small):
        for name, regularizer in (("ukge-logi", "none"), ("ukge-rect", "l2:2.5e-4")):
            found = Config.from_kwargs(model=name).resolve(small, "cpu")
            assert (found.dim, found.batch_size, found.num_negatives, found.lr) == (128, 38, 20, 1e-3)
            large = replace(
                small, **{part: np.tile(getattr(small, part), 100) for part in ("head", "relation", "tail", "weight")}
            )
            assert Config.from_kwargs(model=name).resolve(large, "cpu").batch_size == 512
            assert Config().resolve(large, "cpu").batch_size == 938
            assert (found.loss, found.weight_mode, found.weight_scaling) == ("squared-error", "none", "none")
            assert (found.regularizer, found.stop_metric, found.rule_loss_weight) == (regularizer, "mse", 0.2)
        assert Config.from_kwargs(model="ukge-rect").regularizer_scope == "rows"

    def test_given_settings_replace_defaults_of_a_model(self):
        given = {"dim": 7, "batch_size": 9, "num_negatives": 3, "regularizer": "l3:0.1", "weight_scaling": "global"}
        found = Config.from_kwargs(model="ukge-rect", stop_metric="mrr", regularizer_scope="tables", **given)
        assert {name: getattr(found, name) for name in given} == given
        assert (found.stop_metric, found.regularizer_scope, found.loss) == ("mrr", "tables", "squared-error")

    @pytest.mark.parametrize(("model", "judge"), [("complex", "mrr"), ("ukge-logi", "mse"), ("ukge-rect", "mse")])
    def test_default_stop_metric_follows_the_model(self, small, model, judge):
        assert Config.from_kwargs(model=model).resolve(small, "cpu").stop_metric == judge
        assert Config.from_kwargs(model=model, stop_metric="mrr").resolve(small, "cpu").stop_metric == "mrr"

    @pytest.mark.parametrize("name", MODELS)
    def test_resolved_settings_are_unchanged_through_toml(self, small, name):
        resolved = Config.from_kwargs(model=name, dim=8).resolve(small, "cpu")
        text = to_toml({"settings": {key: value for key, value in resolved.to_dict().items() if value is not None}})
        assert Config.from_stored(tomllib.loads(text)["settings"]) == resolved
        assert Config.from_kwargs(**resolved.to_kwargs()).resolve(small, "cpu") == resolved
