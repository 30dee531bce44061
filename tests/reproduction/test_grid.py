"""The settings of the paper, and the cells made of them."""

import tomllib
from importlib.resources import files

import pytest

from focuse.config import Config
from focuse.errors import FocuseError
from reproduction import grid
from reproduction.grid import (
    DATA,
    KINDS,
    MODELS,
    Cell,
    configuration,
    read_configuration,
    reason_for_ours,
    select_cells,
)

# The appendix, row by row: k, learning rate, γ (plain), then k, learning rate, γ, λ (FocusE).
APPENDIX = """
onet20k transe   400 1e-3 1e-3  400 1e-3 1e-3 800
onet20k distmult 400 1e-3 1e-3  400 1e-3 1e-3 800
onet20k complex  400 5e-5 1e-3  400 1e-3 1e-3 500
cn15k   transe   400 1e-5 1e-3  250 1e-3 1e-2 800
cn15k   distmult 400 1e-4 1e-3  400 1e-4 1e-3 800
cn15k   complex  400 1e-4 1e-3  800 1e-3 1e-2 300
nl27k   transe   200 5e-5 1e-3  200 1e-3 1e-2 800
nl27k   distmult 400 1e-4 1e-3  500 1e-3 1e-3 200
nl27k   complex  400 1e-4 1e-3  400 1e-4 1e-3 800
ppi5k   transe   600 1e-4 1e-2  150 1e-3 1e-1 800
ppi5k   distmult 400 1e-4 1e-2  400 5e-4 1e-3 200
ppi5k   complex  400 1e-4 1e-2  400 1e-4 1e-3 500
"""


@pytest.mark.parametrize(
    "row", [line.split() for line in APPENDIX.strip().splitlines()], ids=lambda row: "-".join(row[:2])
)
def test_settings_agree_with_the_papers_appendix(row: list[str]) -> None:
    data, model, *numbers = row
    settings = configuration(data, ours=False)[model]
    for kind, (dim, lr, strength) in (("plain", numbers[:3]), ("focuse", numbers[3:6])):
        assert settings[kind]["dim"] == int(dim)
        assert settings[kind]["lr"] == float(lr)
        assert float(settings[kind]["regularizer"].removeprefix("l3:")) == float(strength)
        assert settings[kind]["num_negatives"] == 30
    assert settings["focuse"]["beta_decay_epochs"] == int(numbers[6])
    assert settings["plain"]["weight_mode"] == "none"


@pytest.mark.parametrize("data", DATA)
def test_every_cell_is_valid_and_lists_its_deviations(data: str) -> None:
    for model in MODELS:
        for kind in KINDS:
            Config.from_kwargs(**Cell(data, model, kind).settings(10_000))
            named = Cell(data, model, kind, form="appendix").departures
            assert set(named) <= set(grid.departure_notes())
            assert ("shifted-softplus" in named) == (kind == "focuse")


def test_changed_setting_is_no_longer_listed_as_a_deviation() -> None:
    whole = Cell("ppi5k", "complex", "focuse").departures
    assert {"one-softmax", "64-batches", "floor-of-beta"} <= set(whole)
    for name, change in (("one-softmax", {"loss": "nll"}), ("64-batches", {"batch_size": 9})):
        assert set(whole) - set(Cell("ppi5k", "complex", "focuse", overrides=change).departures) == {name}
    assert "shifted-softplus" not in Cell("nl27k", "transe", "focuse").departures  # ours has a margin of its own


def test_own_settings_state_their_reason() -> None:
    for data in DATA:
        for model in MODELS:
            for kind in KINDS:
                same = configuration(data)[model][kind] == configuration(data, ours=False)[model][kind]
                assert same == (reason_for_ours(Cell(data, model, kind)) == "")


def test_number_of_batches_becomes_a_batch_size() -> None:
    assert Cell("ppi5k", "complex", "plain").settings(230_929)["batch_size"] == 3609
    assert Cell("ppi5k", "complex", "plain", overrides={"batch_size": 7}).settings(230_929)["batch_size"] == 7


def test_each_form_has_its_settings() -> None:
    quick = Cell("ppi5k", "complex", "focuse", form="quick").settings(1000)
    assert (quick["dim"], quick["negative_sampling"]) == (100, "shared")
    figure = select_cells(models=["transe"], part="figure3")
    assert [cell.overrides["beta_decay_epochs"] for cell in figure] == list(range(0, 801, 100))
    settings = figure[0].settings(149_100)
    assert settings["nonlinearity"] == "shifted-softplus"  # the authors', whatever ours is in the tables
    assert (settings["dim"], settings["lr"], settings["regularizer"]) == (300, 1e-3, "l3:1e-2")


def test_names_of_cells_are_distinct() -> None:
    every = select_cells(seeds=3)
    every += [
        Cell("ppi5k", "complex", "focuse", overrides=change) for change in ({"lr": 0.1}, {"lr": 0.2}, {"loss": "a/b"})
    ]
    assert len({cell.name for cell in every}) == len(every)
    assert not any("/" in cell.name for cell in every)
    assert Cell("ppi5k", "complex", "focuse", overrides={"lr": 0.1}).title == "PPI5K FocusE ComplEx (lr=0.1)"


def test_the_published_figures_are_consistent() -> None:
    """ΔMRR is top minus bottom, and the relative gain follows, to the rounding of two digits."""
    for data, models in read_configuration("published").items():
        for model in MODELS:
            for kind in KINDS:
                row = models[model][kind]
                assert row["delta"] == pytest.approx(row["top"][1] - row["bottom"], abs=0.011), (data, model, kind)
            plain, focused = models[model]["plain"], models[model]["focuse"]
            gain = 100 * (focused["delta"] / plain["delta"] - 1)
            assert focused["gain"] == pytest.approx(gain, abs=1), (data, model)


def test_substitute_data_set_has_its_own_name_and_no_published_figures() -> None:
    assert "onet-importance" not in read_configuration("published")
    assert "20K" not in grid.title("onet-importance")


def test_every_configuration_file_can_be_read() -> None:
    folder = files("reproduction") / "configurations"
    names = {path.name for path in folder.iterdir()}
    assert names == {*(f"{name}.toml" for name in DATA), "departures.toml", "published.toml", "confidence.toml"}
    for name in names:
        tomllib.loads((folder / name).read_text(encoding="utf-8"))


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(FocuseError, match=r"unknown data set 'ppi' .*: choose one of ppi5k, nl27k"):
        configuration("ppi")


# ---- selection ------------------------------------------------------------------------------------------------------


def names(cells: list[Cell]) -> list[tuple[str, str, str, int, str]]:
    return [(cell.data, cell.model, cell.kind, cell.seed, cell.form) for cell in cells]


def test_all_is_tables_then_figure_3() -> None:
    cells = names(select_cells())
    assert len(cells) == 5 * 3 * 2 + 3 * 2 + 9 * 3
    assert [form for *_, form in cells] == ["tables"] * 36 + ["figure3"] * 27
    assert [cell[:3] for cell in cells if cell[2] == "ukge"] == [
        (data, model, "ukge") for data in ("ppi5k", "nl27k", "cn15k") for model in ("ukge-rect", "ukge-logi")
    ]


def test_subsets_and_seeds_can_be_chosen() -> None:
    cells = select_cells(["nl27k", "ppi5k"], ["complex"], ["focuse"], seeds=2, part="tables")
    expected = [("nl27k", 0), ("ppi5k", 0), ("nl27k", 1), ("ppi5k", 1)]
    assert names(cells) == [(data, "complex", "focuse", seed, "tables") for data, seed in expected]


def test_spelling_of_the_paper_is_understood() -> None:
    assert {cell.data for cell in select_cells(["PPI5K"], part="tables")} == {"ppi5k"}


def test_figure_3_can_be_limited_to_some_decays() -> None:
    cells = select_cells(part="figure3", models=["transe"], decays="0,800")
    assert [(cell.data, cell.overrides) for cell in cells] == [
        ("nl27k", {"beta_decay_epochs": 0}),
        ("nl27k", {"beta_decay_epochs": 800}),
    ]


def test_changed_cells_are_trained_instead_of_the_originals() -> None:
    cells = select_cells(["ppi5k"], ["complex"], ["focuse"], overrides=["lr=1e-4 dim=20", "loss=pairwise-nll"])
    changes = [cell.overrides for cell in cells]
    assert changes == [{"lr": 1e-4, "dim": 20}, {"loss": "pairwise-nll"}]


def test_quick_form_is_small() -> None:
    cells = select_cells(quick=True)
    assert {cell.form for cell in cells} == {"quick"}
    assert len(cells) == 4


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"data": ["onet"]}, "unknown data set 'onet'.*choose one of ppi5k"),
        ({"models": ["rotate"]}, "unknown model 'rotate'.*transe, distmult, complex"),
        ({"kinds": ["both"]}, "unknown kind 'both'.*plain, focuse"),
        ({"part": "table2"}, "unknown part"),
        ({"decays": "1,x"}, "--decays '1,x': give epochs"),
        ({"decays": "-1"}, "give epochs"),
        ({"decays": "0", "part": "tables"}, "--decays requires figure 3"),
        ({"decays": "0", "data": ["ppi5k"]}, "--decays requires figure 3"),
        ({"seeds": 0}, "--seeds 0: give a whole number of at least 1"),
        ({"overrides": ["lr"]}, "--override 'lr': write it like"),
        ({"overrides": ["lr=0"]}, "lr 0: give a number above 0"),
        ({"overrides": ["speed=3"]}, "unknown setting 'speed'"),
        ({"overrides": [""]}, "--override '': write it like"),
        ({"overrides": ["lr=1 model=transe"]}, "model cannot be overridden"),
        ({"overrides": ["batches=4"]}, "batches cannot be overridden"),
        ({"quick": True, "paper_settings_only": True}, "--quick has its own settings"),
        ({"quick": True, "part": "figure3"}, "figure 3 has its own settings"),
        ({"kinds": ["plain"], "part": "figure3"}, "no cell is selected"),
    ],
)
def test_unknown_choices_are_refused(words, complaint: str) -> None:
    with pytest.raises(FocuseError, match=complaint):
        select_cells(**words)
