"""Options for the layout of a graph file."""

from __future__ import annotations

from focuse.cli.files import Layout


def test_layout_options_reach_the_reader(tmp_path):
    path = tmp_path / "g.txt"
    path.write_text("a|0.5|r|b\nc|0.7|r|d\n")
    graph = Layout("1,3,4,2", "|", False).read(path)
    assert graph.to_arrow().to_pylist()[1] == {"head": "c", "relation": "r", "tail": "d", "weight": 0.7}
    path.write_text("to,from,why\nb,a,r\n")
    graph = Layout("from,why,to", None, True).read(path)
    assert graph.to_arrow().to_pylist() == [{"head": "a", "relation": "r", "tail": "b", "weight": 1.0}]


def test_relation_weights_are_read_from_a_file(tmp_path):
    (tmp_path / "g.tsv").write_text("a\tr\tb\nb\ts\tc\n")
    (tmp_path / "w.tsv").write_text("r\t3\ns\t5\n")
    graph = Layout(None, None, None).read(tmp_path / "g.tsv", tmp_path / "w.tsv")
    assert graph.weight.tolist() == [3.0, 5.0]
