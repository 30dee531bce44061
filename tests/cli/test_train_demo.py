"""The command around the demo; what the demo shows is in tests/test_demo.py."""

from __future__ import annotations

import json

import focuse


def test_graph_only_writes_the_embedded_graph(command, careers, tmp_path):
    done = command("demo", "--graph-only", "--out", tmp_path / "new" / "folder", "--json", check=True)
    path = tmp_path / "new" / "folder" / "careers.tsv"
    assert json.loads(done.stdout) == {"graph": str(path)}
    assert focuse.read(path).to_arrow().equals(careers.to_arrow())


def test_invalid_output_and_seed_are_refused(refused, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert "choose another folder" in refused("demo", "--out", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    assert "seed -1" in refused("demo", "--seed", "-1", "--out", tmp_path / "demo")
    assert not (tmp_path / "demo").exists()
