"""The check of weights: hand-computed cases, shapes of real tables, and silence where nothing is unusual."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from focuse.data.datasets import careers
from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.data.weight_check import check_weights, heading_finding


def graph_of(weights: object, heading: str = "", relation: str = "r") -> Graph:
    numbers = np.asarray(weights, float)
    graph = read([(f"a{index}", relation, f"b{index}", float(weight)) for index, weight in enumerate(numbers)])
    return replace(graph, weight_name=heading)


def kinds(graph: Graph, scaling: str | None = None) -> list[str]:
    return [finding.kind for finding in check_weights(graph, scaling)]


RANDOM = np.random.default_rng(0)
SILENT = {
    "stars": RANDOM.integers(1, 11, 500) / 2,
    "probabilities": RANDOM.beta(0.3, 1.5, 500),
    "scores from 150 to 999": RANDOM.integers(150, 1000, 500),
    "normal": RANDOM.normal(100, 15, 500),
    "exponential": RANDOM.exponential(size=500),
    "timestamps": RANDOM.integers(828_124_615, 1_537_799_250, 500),
    "mostly one of a few": np.repeat([0.7, 0.9, 0.5, 1.0], [350, 100, 40, 10]),
    "most counts are one": np.repeat([1, 2, 3, 4, 5, 6, 8], [470, 10, 8, 5, 4, 2, 1]),
}


@pytest.mark.parametrize("name", SILENT)
def test_usual_weights_give_no_finding(name: str) -> None:
    assert check_weights(graph_of(SILENT[name])) == []


def test_embedded_graph_and_graphs_without_weights_give_no_finding() -> None:
    assert check_weights(careers()) == []
    assert check_weights(read([("a", "r", "b"), ("a", "r", "c")])) == []
    assert check_weights(graph_of([3.0] * 100)) == []  # training and `focuse describe` say so themselves


@pytest.mark.parametrize(
    "heading",
    ["p_value", "pval", "P.Value", "adj.P.Val", "padj", "FDR", "q-value", "distance", "Dist", "geneDistance", "IC50",
     "affinity_nM", "Ki (nM)", "RMSD", "rank", "travel cost", "path_length"],
)  # fmt: skip
def test_headings_of_which_small_is_strong_are_found(heading: str) -> None:
    whole = np.array([0.0, 1.0, 1.0])
    found = heading_finding(heading, whole)
    assert found is not None
    assert repr(heading) in str(found)
    assert str(found).endswith("if small is strong, train with --lower-is-better true")


@pytest.mark.parametrize(
    "heading",
    ["", "weight", "score", "rating", "-log10(p)", "neg_log_pvalue", "pKi", "distance_score", "similarity", "pagerank",
     "page_rank", "inverse distance", "frequency", "P", "count", "#P", "confidence", "importance", "probability",
     "n_pairs", "strength", "timestamp", "combined_score"],
)  # fmt: skip
def test_other_headings_are_not(heading: str) -> None:
    assert heading_finding(heading, np.array([2.0, 40.5])) is None


def test_heading_must_fit_the_numbers() -> None:
    assert heading_finding("p_value", np.array([0.5, 7.0])) is None  # minus a logarithm, perhaps
    assert heading_finding("P", np.array([0.25, 0.75])) is None  # a probability
    assert heading_finding("rank", np.array([0.25, 0.75])) is None  # a score
    assert heading_finding("distance", np.array([-1.0, 3.0])) is None
    assert heading_finding("evalue", np.array([1e-30, 7.0])) is not None


def test_stated_direction_ends_the_suspicion() -> None:
    graph = graph_of(RANDOM.random(100), "distance")
    assert kinds(graph) == ["lower-is-better"]
    assert kinds(graph.with_lower_is_better(True)) == []


def test_each_of_several_columns_is_checked() -> None:
    columns = {"head": range(50), "relation": "r", "tail": range(50, 100), "p_value": np.arange(50) / 50}
    table = pd.DataFrame({**columns, "stars": np.arange(50) % 7})
    graph = read(table, weight_columns=["p_value", "stars"])
    assert [str(found) for found in check_weights(graph)] == [
        "p_value: the weights are called 'p_value', of which small ones often mean strong edges, but large ones count "
        "as strong; if small is strong, train with --lower-is-better p_value"
    ]
    assert check_weights(graph.with_lower_is_better(["p_value"])) == []
    wide = {"plays": 99_000 // np.arange(1, 51) ** 2, "trust": np.arange(50) % 7 - 3, "flag": np.arange(50) % 2}
    many = read(pd.DataFrame({**columns, **wide}), weight_columns=list(wide))
    assert [(each.kind, str(each).partition(":")[0]) for each in check_weights(many)] == [
        ("heavy-tailed", "plays"), ("signed", "trust"), ("two-valued", "flag"),
    ]  # fmt: skip


@pytest.mark.parametrize("heading", ["LN_IC50", "logIC50", "log10 Kd", "GI50", "affinity_uM", "K_i"])
def test_logarithms_of_affinities_are_found_also_below_zero(heading: str) -> None:
    found = heading_finding(heading, np.array([-2.0, 3.5]))
    assert found is not None
    assert found.kind == "lower-is-better"


def test_headings_of_strength_are_not_taken_for_p_values() -> None:
    tiny = 10.0 ** -RANDOM.uniform(1, 9, 500)
    assert "lower-is-better" in kinds(graph_of(np.append(tiny, [0.6, 0.8, 0.9, 0.7] * 20)))
    assert "lower-is-better" not in kinds(graph_of(np.append(tiny, [0.6, 0.8, 0.9, 0.7] * 20), "pagerank score"))


def test_a_value_that_most_weights_have_is_named_wherever_it_lies() -> None:
    others = RANDOM.random(100)
    inside = check_weights(graph_of(np.append(np.full(300, 0.7), others)))
    assert [str(each).partition(":")[0] for each in inside] == ["75% of the weights are 0.7"]
    zeros = check_weights(graph_of(np.append(np.zeros(300), np.arange(1, 101))))
    assert "75% of the weights are 0, the lowest one" in str(zeros[0])
    assert kinds(graph_of(np.append(np.ones(300), np.arange(2, 50)))) == []


def test_weights_capped_at_a_limit_have_a_heavy_tail_all_the_same() -> None:
    affinities = np.minimum(np.exp(RANDOM.normal(5, 4, 400)), 10_000)
    capped = np.append(affinities, np.full(300, 10_000.0))
    assert "heavy-tailed" in kinds(graph_of(capped))
    assert "heavy-tailed" not in kinds(graph_of(np.append(RANDOM.uniform(50, 100, 100), np.full(300, 100.0))))


def test_some_relations_with_heavy_tails_are_named() -> None:
    plays = [(f"a{n}", "plays", f"b{n}", float(99_000 // (n + 1) ** 2)) for n in range(100)]
    stars = [(f"a{n}", "stars", f"c{n}", float(n % 5)) for n in range(200)]
    [found] = check_weights(read(plays + stars))
    assert str(found).startswith("the weights of 'plays' (33% of the edges) have a heavy tail")
    assert check_weights(read(plays + stars), "quantile") == []


def test_mostly_negative_weights_are_rather_energies() -> None:
    energies = np.append(RANDOM.normal(-6, 1, 300).clip(max=-0.1), [0.2, 0.5])
    [found] = check_weights(graph_of(energies, "deltaG"))
    assert (found.kind, "--lower-is-better true" in str(found)) == ("negative", True)


def test_a_large_table_of_alternating_labels_is_sampled_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focuse.data.weight_check.MAX_EXAMINED", 200)
    [found] = check_weights(graph_of(np.arange(1000) % 2))
    assert found.kind == "two-valued"


def test_p_values_without_a_heading_are_found_by_their_shape() -> None:
    significant = 0.05 * RANDOM.random(400) ** 6
    assert kinds(graph_of([*significant, 0.0499])) == ["lower-is-better"]
    every = np.concatenate([RANDOM.random(600), RANDOM.random(400) ** 12])
    assert kinds(graph_of(every)) == ["lower-is-better"]
    # Small shares of a whole, which have neither a limit of significance nor a flat upper half.
    assert "lower-is-better" not in kinds(graph_of(RANDOM.dirichlet(np.full(400, 0.3))))


def test_signed_weights_point_to_known_negatives() -> None:
    (found,) = check_weights(graph_of([*range(-10, 0), *range(1, 11)]))
    assert str(found) == (
        "10 weights are below 0, counting as the weakest positives; if they mark known negatives, "
        "train with --negative-weights known-negative"
    )
    (found,) = check_weights(graph_of(-RANDOM.random(50)))
    assert found.kind == "negative"
    assert check_weights(graph_of(-RANDOM.random(50)).with_lower_is_better(True)) == []


def test_two_values_are_a_label() -> None:
    (found,) = check_weights(graph_of([4] * 30 + [5] * 10))
    assert str(found).startswith("the weights have only two values, 4 (75%) and 5: a label rather than a number")
    (found,) = check_weights(graph_of([0] * 30 + [1] * 10))
    assert str(found).endswith("if 0 marks known negatives, train with --zero-weights known-negative")
    assert kinds(graph_of([-1] * 30 + [1] * 10)) == ["signed", "two-valued"]


def test_weights_at_a_limit_of_measurement_are_censored() -> None:
    inside = np.linspace(1.5, 9.5, 30)
    (found,) = check_weights(graph_of([*inside, *[10.0] * 70]))
    assert str(found).startswith("70% of the weights are 10, the highest one")
    assert "'at least'" in str(found)
    (found,) = check_weights(graph_of([*inside, *[0.5] * 70]))
    assert "the lowest one" in str(found)
    assert "'at most'" in str(found)
    (found,) = check_weights(graph_of([*inside, *[0.0] * 70]))
    assert str(found).startswith("70% of the weights are 0, the lowest one")
    assert str(found).endswith("if 0 marks known negatives, train with --zero-weights known-negative")
    assert check_weights(graph_of([*inside, *[10.0] * 69])) == []  # 69.7 %


def test_relations_are_named_where_they_differ() -> None:
    constant = [(f"a{n}", "owns", f"b{n}", 1.0) for n in range(40)]
    rated = [(f"a{n}", "rates", f"b{n}", n % 7) for n in range(60)]
    (found,) = check_weights(read(constant + rated))
    assert str(found) == "relation 'owns' has a single weight (40% of the edges): there, weights cannot matter"
    assert check_weights(read(constant[:5] + rated)) == []


def test_heavy_tails_say_how_they_are_scaled() -> None:
    counts = np.round(np.exp(np.linspace(0, 12.5, 200)))
    (found,) = check_weights(graph_of(counts))
    assert str(found) == (
        "the weights have a heavy tail (1 to 268337, median 502): training uses their ranks, predictions their "
        "logarithms (--weight-scaling relation uses them as they are)"
    )
    assert "training and predictions use their logarithms" in str(check_weights(graph_of(counts), "log")[0])
    assert kinds(graph_of(counts), "relation") == ["heavy-tailed"]
    assert "'quantile' sets them apart" in str(check_weights(graph_of(counts), "relation")[0])


def test_the_most_serious_finding_is_first() -> None:
    assert kinds(graph_of(np.exp(np.linspace(-9, 14, 300)), "affinity_nM")) == ["lower-is-better", "heavy-tailed"]
