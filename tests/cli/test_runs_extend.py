"""`focuse extend`."""

from __future__ import annotations

import json

import pytest

from focuse.cli.main import app
from focuse.errors import FocuseError


def test_edges_are_added_and_removed(trained, tmp_path, capsys):
    (tmp_path / "new.tsv").write_text("n1\tr0\te2\t0.5\nn1\tr1\te5\t0.9\n", encoding="utf-8")
    (tmp_path / "gone.tsv").write_text("n1\tr0\te2\n", encoding="utf-8")

    def said(*arguments):
        app(["extend", *map(str, arguments), "--quiet"], standalone_mode=False)
        return capsys.readouterr().out

    out = tmp_path / "new"
    data = json.loads(said(trained.folder, tmp_path / "new.tsv", "--out", out, "--json"))
    assert (data["run"], data["added"], data["entities"], data["train_known"]) == (str(out), 2, 1, False)
    app(["predict", str(out), "--head", "n1", "--relation", "r0", "--top", "3"], standalone_mode=False)
    assert len(capsys.readouterr().out.splitlines()) == 5  # a heading, three rows and a note on their order
    more = ["--remove", tmp_path / "gone.tsv", "--out", tmp_path / "all", "--train-known", "--epochs", 1]
    assert said(out, *more).startswith(f"{tmp_path / 'all'}: 0 edges added, 1 removed; 0 new entities")


def test_invalid_extensions_are_refused(refused, trained, tmp_path):
    (tmp_path / "new.tsv").write_text("n1\tr0\te2\t0.5\n", encoding="utf-8")
    (tmp_path / "bad.tsv").write_text("n1\tr0\n", encoding="utf-8")
    out = tmp_path / "out"
    assert "bad.tsv" in refused("extend", trained.folder, tmp_path / "bad.tsv", "--out", out)
    for arguments, words in (
        ((trained.folder, tmp_path / "new.tsv"), "needs a folder"),
        ((tmp_path, tmp_path / "new.tsv", "--out", out), "not a run"),
        ((trained.folder, tmp_path / "new.tsv", "--out", trained.folder), "not empty"),
        ((trained.folder, "--out", out), "nothing to change in the run: give edges to add"),
    ):
        with pytest.raises(FocuseError, match=words):
            app(["extend", *map(str, arguments), "--quiet"], standalone_mode=False)
    assert not out.exists()
