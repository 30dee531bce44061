"""`focuse explain`."""

from __future__ import annotations

import json

ASKED = ("--head", "e1", "--relation", "r0", "--tail", "e2")


def test_explanation_is_printed_as_json_and_written(command, trained, tmp_path):
    done = command("explain", trained.folder, *ASKED, "--top", "2", "--json", "--out", tmp_path / "x.html", check=True)
    found = json.loads(done.stdout)
    assert (found["head"], found["relation"], found["tail"]) == ("e1", "r0", "e2")
    assert len(found["supporting"]) <= 2
    assert found["summary"].startswith("e1 r0 e2: ")
    assert (tmp_path / "x.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert done.stderr == ""


def test_invalid_question_is_one_line_and_writes_no_file(command, trained, tmp_path):
    done = command("explain", trained.folder, *ASKED[:5], "e2000", "--out", tmp_path / "x.html")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no entity 'e2000'" in done.stderr
    done = command("explain", trained.folder, *ASKED, "--out", tmp_path / "x.pdf")
    assert done.returncode == 2
    assert "use .html" in done.stderr
    assert list(tmp_path.iterdir()) == []
