"""`focuse export`, and `--out` of predict and weigh."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from focuse.api import load
from focuse.data.readers import read


def test_embeddings_are_exported(command, trained, tmp_path: Path) -> None:
    done = command("export", trained.folder, "--out", tmp_path / "x.npz", "--what", "both", "--json", check=True)
    data = json.loads(done.stdout)
    assert data["files"] == [str(tmp_path / "x.npz")]
    with np.load(tmp_path / "x.npz", allow_pickle=False) as found:
        assert len(found["entities"]) == 40
        assert len(found["relations"]) == 3


def test_unknown_format_is_refused(refused, trained, tmp_path: Path) -> None:
    assert "cannot export to .doc" in refused("export", trained.folder, "--out", tmp_path / "x.doc")


def test_predictions_and_weights_are_written_as_rdf(command, trained, graph_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    asked = ("--head", "e1", "--relation", "r0", "--top", "4")
    done = command("predict", trained.folder, *asked, "--out", tmp_path / "x.ttl", check=True)
    assert done.stdout.splitlines()[-1] == f"4 predictions written to {tmp_path / 'x.ttl'}"
    found = load(trained.folder).predict("e1", "r0", top=4)
    back = read(tmp_path / "x.ttl", weight_columns=["probability"])
    assert back.weight.tolist() == [row.probability for row in found]
    command("predict-weights", trained.folder, graph_file, "--out", tmp_path / "w.nt", check=True)
    weighed = read(tmp_path / "w.nt", weight_columns=["weight"])
    assert weighed.to_arrow().equals(read(graph_file).to_arrow())
