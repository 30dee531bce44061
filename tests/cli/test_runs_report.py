"""`focuse report`."""

from __future__ import annotations

import json
import shutil


def test_report_is_written_into_the_run_or_the_given_file(command, trained, tmp_path):
    done = command("report", trained.folder, "--out", tmp_path / "page.html", check=True)
    assert done.stdout == f"report: {tmp_path / 'page.html'}\n"
    (tmp_path / "test.tsv").write_text("e1\tr0\te2\t0.5\ne4\tr1\te5\t0.9\n")
    folder = shutil.copytree(trained.folder, tmp_path / "run")  # others look into the first one
    done = command("report", folder, tmp_path / "test.tsv", "--json", check=True)
    assert json.loads(done.stdout) == {"report": str(folder / "report.html")}
    own, other = (path.read_text(encoding="utf-8") for path in (tmp_path / "page.html", folder / "report.html"))
    assert own.startswith("<!DOCTYPE html>")
    assert own != other
    assert "test triples" in done.stderr.splitlines()[0]
    assert command("report", folder, "--quiet", check=True).stderr == ""


def test_invalid_options_are_refused(refused, trained, tmp_path):
    assert "not a run" in refused("report", tmp_path / "nowhere")
    assert "is a folder" in refused("report", trained.folder, "--out", tmp_path)
