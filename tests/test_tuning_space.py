"""The search space: derived from the defaults of training, changed by the user, checked."""

from __future__ import annotations

import pytest

from focuse.config import Config
from focuse.errors import FocuseError
from focuse.tuning import make_space, parse_fix, parse_search


@pytest.mark.parametrize("fix", [{}, {"weight_mode": "focuse"}, {"weight_mode": "none"}, {"model": "ukge-rect"}])
def test_default_space_is_around_what_train_would_use(small, fix):
    space = make_space(small, fix=fix)
    trained = Config.from_kwargs(**fix).resolve(small, "cpu")
    assert space.fixed == fix
    assert set(space.searched) >= {"dim", "lr", "num_negatives", "regularizer"}
    assert ("beta_decay_epochs" in space.searched) == (fix.get("weight_mode") == "focuse")
    assert space.default_combination == {name: getattr(trained, name) for name in space.searched}
    for name, values in space.searched.items():
        assert len(set(values)) == len(values) >= 3, name
    assert space.metric == f"valid_{trained.stop_metric}"


def test_settings_of_the_default_combination_are_those_of_train(small):
    space = make_space(small, fix={"device": "cpu"})
    settings = space.train_settings(space.default_combination)
    assert "device" not in settings
    assert Config.from_kwargs(**settings).resolve(small, "cpu") == Config().resolve(small, "cpu")


def test_given_values_replace_defaults(small):
    space = make_space(small, {"lr": (1, 0.5, 1.0)}, {"dim": 9})
    assert space.searched["lr"] == [1.0, 0.5]
    assert "dim" not in space.searched
    assert space.default_combination == {}  # lr 0.1 is not searched
    assert space.size == 2 * 3 * 3
    assert "fixed: dim 9" in str(space)


def test_dependent_settings_are_not_searched_together(small):
    assert "lr" not in make_space(small, {"optimizer": ["sparse-adam", "sparse-adagrad"]}).searched
    assert "num_negatives" not in make_space(small, {"negative_sampling": ["shared", "per-triple"]}).searched
    assert "num_negatives" not in make_space(small, fix={"negative_sampling": "all"}).searched
    assert "regularizer" not in make_space(small, fix={"regularizer": "none"}).searched


@pytest.mark.parametrize(
    ("search", "fix", "says"),
    [
        ({"dimm": [1]}, {}, r"unknown setting 'dimm' \(did you mean dim\?\)"),
        ({}, {"lrr": 1}, r"unknown setting 'lrr' \(did you mean lr\?\)"),
        ({"dim": [8, 0]}, {}, "dim 0: give a whole number of at least 1"),
        ({"loss": ["nll", "nil"]}, {"weight_mode": "none"}, "unknown loss 'nil'"),
        ({"dim": []}, {}, "give a list of values"),
        ({"dim": 3}, {}, "give a list of values"),
        ({"model": "transe"}, {}, "give a list of values"),
        ({"dim": [8]}, {"dim": 8}, "dim: both searched and fixed"),
        ({"seed": [1, 2]}, {}, "seed cannot be searched"),
        ({"valid_min_weight": [0.1, 0.2]}, {}, "valid_min_weight cannot be searched"),
        ({"optimizer": ["adam", "sparse-adam"]}, {"regularizer_scope": "tables"}, "cannot regularize whole tables"),
    ],
)
def test_invalid_spaces_are_refused(small, search, fix, says):
    with pytest.raises(FocuseError, match=says):
        make_space(small, search, fix)


def test_text_is_converted_to_the_type_of_its_setting():
    found = parse_search(["lr=1e-4, 1", "batch-size=32,64", "filter_negatives=true,False", "loss=nll; margin:2"])
    assert found == {
        "lr": [1e-4, 1.0],
        "batch_size": [32, 64],
        "filter_negatives": [True, False],
        "loss": ["nll", "margin:2"],
    }
    assert parse_fix(["batch-size=64", "model=transe"]) == {"batch_size": 64, "model": "transe"}
    for parse, text, says in (
        (parse_search, "lr", "write it like --search lr=1e-4,1e-3"),
        (parse_search, "lr=", "write it like --search"),
        (parse_fix, "=3", "write it like --fix dim=200"),
    ):
        with pytest.raises(FocuseError, match=says):
            parse([text])
    with pytest.raises(FocuseError, match="lr is given twice"):
        parse_search(["lr=1", "lr=2"])
