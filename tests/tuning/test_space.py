"""The search space: defaults, given values, files and assignments."""

from __future__ import annotations

import itertools

import pytest

from focuse.config import Config
from focuse.errors import FocuseError
from focuse.tuning.space import DEFAULTS, make_space, read_space

PAPER = {
    "dim": range(200, 601, 100),
    "num_negatives": [5, 10, 20, 30],
    "lr": [1e-3, 5e-3, 1e-4],
    "regularizer": ["l3:1e-1", "l3:1e-2", "l3:1e-3"],
    "beta_decay_epochs": range(100, 801, 100),
    "loss": ["nll", "multiclass-nll", "self-adversarial"],
}


def test_default_space_includes_that_of_the_paper():
    focused, plain = make_space({}, {}), make_space({}, {"weight_mode": "none"})
    for name, values in PAPER.items():
        space = plain if name == "loss" else focused
        assert set(values) <= set(space.searched[name]), name
    assert set(focused.searched) == {"dim", "lr", "num_negatives", "regularizer", "beta_decay_epochs"}
    assert set(plain.searched) == {"dim", "lr", "num_negatives", "regularizer", "loss"}
    assert (focused.size, plain.size) == (8 * 6 * 4 * 3 * 8, 8 * 6 * 4 * 3 * 3)
    held = {"negative_sampling": "per-triple", "optimizer": "sparse-adam", "epochs": 800}
    assert focused.fixed == {**held, "weight_mode": "focuse"}
    assert plain.fixed == {**held, "eval_start": 50, "weight_mode": "none"}


@pytest.mark.parametrize(
    ("search", "fixed", "decays"),
    [
        ({}, {"epochs": 300}, [100, 200, 300]),
        ({"epochs": [100, 200]}, {}, [100, 200]),
        ({}, {"epochs": 40}, None),
        ({}, {"weight_mode": "focuse", "beta": 0.5}, None),
        ({}, {"weight_mode": "focuse", "beta_decay_epochs": 7}, None),
        ({"beta_decay_epochs": [3, 4]}, {"epochs": 40}, [3, 4]),
    ],
)
def test_searched_decays_are_at_most_the_epochs(search, fixed, decays):
    assert make_space(search, fixed).searched.get("beta_decay_epochs") == decays


@pytest.mark.parametrize("sampling", ["shared", "all"])
def test_shared_pool_has_its_own_range_of_negatives(sampling):
    assert "num_negatives" not in make_space({}, {"negative_sampling": sampling}).searched


def test_numbers_of_shared_negatives_can_be_searched():
    assert make_space({"num_negatives": [64]}, {"negative_sampling": "shared"}).searched["num_negatives"] == [64]


def test_learning_rates_follow_the_optimizer():
    assert make_space({}, {"optimizer": "sparse-adagrad"}).searched["lr"] == [0.02, 0.05, 0.1, 0.2, 0.5]
    assert "lr" not in make_space({"optimizer": ["sparse-adam", "sparse-adagrad"]}, {}).searched
    assert "num_negatives" not in make_space({}, {"model": "ukge-logi", "negative_sampling": "shared"}).searched


def test_given_values_replace_defaults():
    space = make_space({"lr": [0.1]}, {"dim": 9})
    assert space.searched["lr"] == [0.1]
    assert "dim" not in space.searched
    assert space.searched["num_negatives"] == DEFAULTS["num_negatives"]
    assert make_space({"lr": (1, 0.5, 1.0)}, {"dim": 9}, defaults=False).searched == {"lr": [1.0, 0.5]}


def test_cells_list_every_combination_once():
    space = make_space({"dim": [4, 8, 9], "lr": [0.1, 0.2], "model": ["transe", "complex"]}, {}, defaults=False)
    cells = [tuple(space.cell(place).values()) for place in range(space.size)]
    assert sorted(cells) == sorted(itertools.product(*space.searched.values()))


def test_stored_parameters_give_the_same_settings():
    space = make_space({"dim": [4, 8]}, {"device": "cpu", "eval_start": 0}, defaults=False)
    kept = space.remembered({"dim": 8})
    assert next(iter(kept)) == "dim"
    assert {"device", "checkpoint_every", "beta"} & set(kept) == set()
    assert Config.from_kwargs(**kept) == Config(dim=8, eval_start=0)


@pytest.mark.parametrize(
    ("search", "fixed", "says"),
    [
        ({"dimm": [1]}, {}, r"unknown setting 'dimm' \(did you mean dim\?\): choose from model, reciprocal, dim"),
        ({}, {"lrr": 1}, r"unknown setting 'lrr' \(did you mean lr\?\)"),
        ({"dim": [8, 0]}, {}, "dim 0: give a whole number of at least 1"),
        ({"loss": ["nll", "nil"]}, {}, "unknown loss 'nil'"),
        ({"dim": []}, {}, "give a list of values"),
        ({"dim": 3}, {}, "give a list of values"),
        ({"model": "transe"}, {}, "give a list of values"),
        ({"dim": [8]}, {"dim": 8}, "dim: both searched and fixed"),
        ({"seed": [1, 2]}, {}, "seed cannot be searched"),
        ({"valid_min_weight": [0.1, 0.2]}, {}, "valid_min_weight cannot be searched"),
        ({"optimizer": ["adam", "sparse-adam"]}, {"regularizer_scope": "tables"}, "cannot regularize whole tables"),
    ],
)
def test_invalid_spaces_are_refused(search, fixed, says):
    with pytest.raises(FocuseError, match=says):
        make_space(search, fixed)


class TestFromTheShell:
    def test_text_is_converted_to_the_type_of_its_setting(self):
        space = read_space(
            None,
            ["lr=1e-4, 1", "batch-size=32,64", "filter_negatives=true,False", "model=transe,complex"],
            ["dim=20", "weight_mode=focuse", "beta=1"],
            {"seed": 3},
        )
        assert space.searched["lr"] == [1e-4, 1.0]
        assert space.searched["batch_size"] == [32, 64]
        assert space.searched["filter_negatives"] == [True, False]
        assert space.searched["model"] == ["transe", "complex"]
        assert (space.fixed["dim"], space.fixed["beta"], space.fixed["seed"]) == (20, 1.0, 3)

    def test_a_value_with_a_comma_is_written_in_a_list(self):
        space = read_space(None, ['loss=["nll", "self-adversarial:6,0.5"]'], [], {"weight_mode": "none"})
        assert space.searched["loss"] == ["nll", "self-adversarial:6,0.5"]

    def test_file_defines_the_space_and_the_command_line_overrides(self, tmp_path):
        file = tmp_path / "space.toml"
        file.write_text('dim = [4, 8]\nlr = [0.1, 0.2]\nepochs = 3\nmodel = "transe"\nseed = 1\n')
        assert read_space(file, [], [], {}).searched == {"dim": [4, 8], "lr": [0.1, 0.2]}
        space = read_space(file, ["epochs=1,2"], ["lr=0.5"], {"model": "complex"})
        assert space.searched == {"dim": [4, 8], "epochs": [1, 2]}
        assert space.fixed == {"model": "complex", "seed": 1, "lr": 0.5}

    @pytest.mark.parametrize(
        ("searches", "sets", "options", "says"),
        [
            (["lr"], [], {}, "write it like --search lr=1e-4,1e-3"),
            (["lr="], [], {}, "write it like --search"),
            (["lr=,"], [], {}, "give a list of values"),
            ([], ["=3"], {}, "write it like --fix dim=200"),
            (["lr=1", "lr=2"], [], {}, "lr is given twice"),
            (["lr=1"], ["lr=2"], {}, "lr: given twice"),
            (["model=transe"], [], {"model": "complex"}, "model: given twice"),
            ([], ["seed=1"], {"seed": 1}, "seed: given twice"),
            (["lr=fast"], [], {}, "lr 'fast': give a number"),
            (["dim=1e3"], [], {}, "dim '1e3': give a whole number"),
            ([], ["filter-negatives=maybe"], {}, "filter_negatives 'maybe': give True or False"),
            (["loss=[nll]"], [], {}, "not a TOML list"),
            (["loss=[1,2"], [], {}, "not a TOML list"),
        ],
    )
    def test_invalid_assignments_are_refused(self, searches, sets, options, says):
        with pytest.raises(FocuseError, match=says):
            read_space(None, searches, sets, options)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("dim = [4,\nlr = 3", ", line 2: "),
            ("dimm = [4]", r": unknown setting 'dimm' \(did you mean dim\?\)"),
            ("dim = [0]", ": dim 0: "),
            ("[dim]\nfrom = 3", ": dim {'from': 3}: give a whole number"),
        ],
    )
    def test_faulty_file_is_named(self, tmp_path, text, says):
        (tmp_path / "space.toml").write_text(text)
        with pytest.raises(FocuseError, match=rf"space\.toml{says}"):
            read_space(tmp_path / "space.toml", [], [], {})
