"""The section on the data, for graphs with known faults."""

from typing import Any

from focuse.report.data import data, findings
from focuse.report.gathered import Gathered, gather

import focuse
from focuse.data.statistics import describe


def test_faults_of_a_graph_are_described(read_page: Any) -> None:
    rows = [(f"e{i % 20}", "r", f"e{(i + 1) % 20}", i / 60) for i in range(60)]
    rows += [("e1", "r", "e0", 0.5), ("e3", "s", "e3", 0.1)]
    graph = focuse.read(rows)
    test = focuse.read([("e0", "r", "e1", 0.0), ("e2", "r", "e1", 0.3), ("e5", "s", "e9", 0.3)])
    found = " ".join(findings(describe(graph, {"test": test.align(graph).graph}), graph))
    assert "40 of 62 (64.5\u00a0%) rows of train repeat a triple, 20 triples with different weights" in found
    assert "4 of 62 (6.5\u00a0%) rows of train have an edge back from tail to head, 4 of them by the same" in found
    assert "1 edge leads from an entity to itself" in found
    assert "98.4\u00a0% of the facts" in found
    assert "In 1 of 2 (50.0\u00a0%) relations all weights are the same" in found
    assert "Of test, 1 triple stands in train, and 2 have an edge back there; 1 of 3 (33.3\u00a0%) are free" in found


def test_findings_describe_clean_and_unweighted_graphs(small: focuse.Graph) -> None:
    found = " ".join(findings(describe(small), small))
    assert "No triple of train is repeated." in found
    plain = focuse.read([("a", "r", "b"), ("b", "r", "c")])
    told = " ".join(findings(describe(plain), plain))
    assert "There are no weights" in told
    assert "No edge of train has one back." in told
    same = focuse.read([("a", "r", "b", 2.0), ("b", "r", "c", 2.0)])
    assert "All weights are 2" in " ".join(findings(describe(same), same))


def test_section_shows_splits_histogram_and_leakage(small: focuse.Graph, read_page: Any) -> None:
    run = focuse.train(small, dim=4, epochs=1, label_exponent=1.0, progress=False)
    read = read_page(data(run, gather(run)))
    assert "Weights of train" in read.texts
    assert f"{len(run.graph):,}" in read.texts
    assert "What of the held-out triples train gives away" in read.texts
    bare = Gathered(None, None, None, {}, [], notes=["<why>"])
    assert "Note: <why>" in read_page(data(run, bare)).texts
