from __future__ import annotations

import json

import pytest

FIGURES = {"mr", "mrr", "hits@1", "hits@3", "hits@10", "n"}


def test_json_has_the_promised_keys(command, trained):
    done = command("evaluate", trained.folder, "--json", check=True)
    data = json.loads(done.stdout)
    assert {"all", "top", "bottom", "delta_mrr", "delta_median"} <= set(data)
    for part in ("all", "top", "bottom", "weighted"):
        assert set(data[part]) == FIGURES
    assert (data["all"]["n"], data["top"]["n"], data["bottom"]["n"]) == (60, 6, 6)
    assert data["delta_mrr"] == pytest.approx(data["top"]["mrr"] - data["bottom"]["mrr"])
    assert data["settings"] == {"ranks": "filtered", "ties": "worst", "protocol": "sides"}
    assert done.stderr == ""


def test_text_and_options(command, trained, tmp_path):
    (tmp_path / "test.tsv").write_text("e1\tr0\te2\t0.5\ne3\tr1\tstranger\t0.7\ne4\tr1\te5\t0.9\n")
    done = command(
        "evaluate", trained.folder, tmp_path / "test.tsv", "--ties", "mean", "--protocol", "joint", "--raw", check=True
    )
    for word in ("MRR", "Hits@10", "top 10 %", "bottom 10 %", "weighted by w", "ΔMRR", "ΔM "):
        assert word in done.stdout
    assert "ranks raw, ties mean, protocol joint" in done.stdout
    assert "1 of 3 rows name 1 entity ('stranger') not in train" in done.stdout


@pytest.mark.parametrize(
    ("test", "options", "says"),
    [
        ("x\tr0\te1\t1\ne1\tr9\te2\t1\n", [], "no test triple has all its names in train"),
        (None, [], "No such file or directory"),
        ("e1\tr0\te2\t1\n", ["--ties", "wurst"], "did you mean worst?"),
    ],
)
def test_refused(refused, trained, tmp_path, test, options, says):
    if test is not None:
        (tmp_path / "test.tsv").write_text(test)
    assert says in refused("evaluate", trained.folder, tmp_path / "test.tsv", *options)


def test_a_missing_run(refused, tmp_path):
    line = refused("evaluate", tmp_path / "nowhere")
    assert f"{tmp_path / 'nowhere'}: not a run (no run.toml)" in line
    assert not (tmp_path / "nowhere").exists()
