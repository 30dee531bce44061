"""The order in which workers take cells."""

from focuse.paper.choice import Choice
from focuse.paper.workers import estimated_seconds, in_order


def test_seed_after_seed_then_figure_3_and_the_longest_first() -> None:
    cells = Choice.of(["ppi5k", "nl27k"], seeds=2).cells(["ppi5k", "nl27k"])
    ordered = in_order(cells)
    assert sorted(cell.name for cell in ordered) == sorted(cell.name for cell in cells)
    parts = [(cell.form, cell.seed) for cell in ordered]
    assert list(dict.fromkeys(parts)) == [("paper", 0), ("paper", 1), ("figure3", 0), ("figure3", 1)]
    for part in set(parts):
        seconds = [estimated_seconds(cell) for cell, its in zip(ordered, parts, strict=True) if its == part]
        assert seconds == sorted(seconds, reverse=True)
    assert (ordered[0].model, ordered[0].kind) in {("complex", "plain"), ("transe", "plain")}
    assert in_order(list(reversed(cells))) == ordered


def test_measured_time_of_another_seed_replaces_the_estimate(make_result) -> None:
    cells = Choice.of(["ppi5k"], ["complex"], seeds=2).cells(["ppi5k"])
    long = make_result("ppi5k", "complex", "focuse", times={"whole": 1e6})
    old = make_result("ppi5k", "complex", "plain", seconds=1e9)  # without times: of another machine, perhaps
    assert [(cell.seed, cell.kind) for cell in in_order(cells, [long, old])] == [
        (0, "focuse"),
        (0, "plain"),
        (1, "focuse"),
        (1, "plain"),
    ]
    assert [cell.kind for cell in in_order(cells[:2])] == ["plain", "focuse"]


def test_estimates_grow_with_the_work() -> None:
    plain, focused = Choice.of(["ppi5k"], ["complex"]).cells(["ppi5k"])
    assert estimated_seconds(plain) > estimated_seconds(focused) > 0
    (few,) = Choice.of(["ppi5k"], ["complex"], ["plain"], changes=["epochs=10"]).cells(["ppi5k"])
    assert estimated_seconds(few) < estimated_seconds(plain) / 3
