"""Choice of cells by the words of the command line."""

import pytest

from focuse.errors import FocuseError
from focuse.paper.cells import DATA
from focuse.paper.choice import Choice


def names(choice: Choice, data=DATA) -> list[tuple[str, str, str, int, str]]:
    return [(cell.data, cell.model, cell.kind, cell.seed, cell.form) for cell in choice.cells(data)]


def test_all_is_tables_then_figure_3() -> None:
    cells = names(Choice.of())
    assert len(cells) == 5 * 3 * 2 + 3 * 2 + 9 * 3
    assert [form for *_, form in cells] == ["paper"] * 36 + ["figure3"] * 27
    assert [cell[:3] for cell in cells if cell[2] == "ukge"] == [
        (data, model, "ukge") for data in ("ppi5k", "nl27k", "cn15k") for model in ("ukge-rect", "ukge-logi")
    ]


def test_subsets_and_seeds_can_be_chosen() -> None:
    choice = Choice.of(["nl27k", "ppi5k"], ["complex"], ["focuse"], seeds=2, part="tables")
    expected = [("nl27k", 0), ("ppi5k", 0), ("nl27k", 1), ("ppi5k", 1)]
    assert names(choice) == [(data, "complex", "focuse", seed, "paper") for data, seed in expected]


def test_spelling_of_the_paper_is_understood() -> None:
    assert Choice.of(["PPI5K"], part="tables").data == ("ppi5k",)


def test_unavailable_data_sets_are_left_out() -> None:
    assert {data for data, *_ in names(Choice.of(), ["cn15k"])} == {"cn15k"}


def test_figure_3_can_be_limited_to_some_decays() -> None:
    cells = Choice.of(part="figure3", models=["transe"], decays="0,800").cells(DATA)
    assert [(cell.data, cell.changes) for cell in cells] == [
        ("nl27k", {"beta_decay_epochs": 0}),
        ("nl27k", {"beta_decay_epochs": 800}),
    ]


def test_changed_cells_are_trained_instead_of_the_originals() -> None:
    choice = Choice.of(["ppi5k"], ["complex"], ["focuse"], changes=["lr=1e-4 dim=20", "loss=pairwise-nll"])
    changes = [cell.changes for cell in choice.cells(DATA)]
    assert changes == [{"lr": 1e-4, "dim": 20}, {"loss": "pairwise-nll"}]


def test_quick_form_is_small() -> None:
    cells = Choice.of(quick=True).cells(DATA)
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
        ({"changes": ["lr"]}, "--change 'lr': write it like"),
        ({"changes": ["lr=0"]}, "lr 0: give a number above 0"),
        ({"changes": ["speed=3"]}, "unknown setting 'speed'"),
        ({"changes": [""]}, "--change '': write it like"),
        ({"changes": ["lr=1 model=transe"]}, "model cannot be changed here"),
        ({"changes": ["batches=4"]}, "batches cannot be changed here"),
        ({"quick": True, "appendix": True}, "--quick has settings of its own"),
        ({"quick": True, "part": "figure3"}, "figure 3 has settings of its own"),
        ({"kinds": ["plain"], "part": "figure3"}, "figure 3 is FocusE on NL27K"),
    ],
)
def test_unknown_choices_are_refused(words, complaint: str) -> None:
    with pytest.raises(FocuseError, match=complaint):
        Choice.of(**words)
