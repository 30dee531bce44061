"""`focuse tune`: real processes that share, interrupt and resume a study."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress

import pytest

from focuse.cli.main import run

FIXED = ["dim=4", "epochs=20", "batch-size=60", "num-negatives=4", "eval-every=1", "eval-start=0", "weight-mode=focuse"]
SEARCH = [
    "--search",
    "lr=0.001,0.01,0.05,0.1",
    "--search",
    "beta-decay-epochs=0,2,4",
    "--search",
    "regularizer=l3:1e-3,none",
]
OPTIONS = [*SEARCH, *(part for one in FIXED for part in ("--fix", one)), "--device", "cpu"]


def start(*arguments):
    command = [sys.executable, "-m", "focuse", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_trials(process, folder, count):
    """Wait until so many trials are finished in the database."""
    end = time.monotonic() + 100
    while finished_trials(folder) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def finished_trials(folder):
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{folder / 'study.db'}?mode=ro", uri=True)) as database:
        (count,) = database.execute("select count(*) from trials where state in ('COMPLETE', 'PRUNED')").fetchone()
        return count
    return 0


def found(data):
    names = ("lr", "beta_decay_epochs", "regularizer", "state", "valid_mrr")
    return [tuple(row[name] for name in names) for row in data["rows"]]


@pytest.fixture(scope="module")
def study(command, graph_file, tmp_path_factory):
    """A study of 12 trials: its folder, what it printed, and its progress."""
    folder = tmp_path_factory.mktemp("tuned") / "study"
    done = command("tune", graph_file, "--out", folder, *OPTIONS, "--trials", "12", "--json", check=True)
    return folder, json.loads(done.stdout), done.stderr


def test_json_contains_the_best_and_all_trials(study):
    folder, data, _ = study
    assert set(data) == {"study", "config", "trials", "best", "rows", "notes"}
    assert (data["study"], data["config"]) == (str(folder), str(folder / "best.toml"))
    assert data["trials"] == len(data["rows"]) == 12
    complete = [row for row in data["rows"] if row["state"] == "complete"]
    assert data["best"]["valid_mrr"] == max(row["valid_mrr"] for row in complete)
    assert {name: data["best"][name] for name in ("lr", "regularizer")}.items() <= data["best"]["settings"].items()
    assert sorted(path.name for path in folder.iterdir()) == ["best.toml", "study.db"]


def test_each_trial_prints_a_line_with_the_best_so_far(study):
    first, second, *lines = study[2].splitlines()
    assert first.startswith("search: lr 0.001 | 0.01 | 0.05 | 0.1; regularizer ")
    assert "(24 combinations); fixed: dim 4, epochs 20" in first
    assert second == "tpe: 0 of 12 trials done"
    assert len(lines) == 12
    assert re.fullmatch(
        r"trial 0, state complete, valid_mrr 0\.\d+, lr \S+, regularizer \S+, beta_decay_epochs \d, seconds \d+\.\d+; "
        r"best: valid_mrr 0\.\d{4} \(trial 0\); 1 of 12 trials done",
        lines[0],
    )
    assert lines[-1].endswith("; 12 of 12 trials done")


def test_best_toml_trains_to_the_validation_mrr_of_the_trial(command, study, graph_file, tmp_path):
    folder, data, _ = study
    options = ["--config", folder / "best.toml", "--device", "cpu", "--json", "--quiet"]
    done = command("train", graph_file, "--out", tmp_path / "run", *options, check=True)
    assert json.loads(done.stdout)["valid_mrr"] == data["best"]["valid_mrr"]


def test_finished_study_is_not_repeated_and_suggests_the_next_command(command, study, graph_file):
    folder, data, _ = study
    done = command("tune", graph_file, "--out", folder, *OPTIONS, "--trials", "12", "--quiet", check=True)
    assert done.stderr == ""
    heading, *rows, counted, following = done.stdout.splitlines()
    assert heading.split()[:3] == ["trial", "state", "valid_mrr"]
    assert len(rows) == 12
    assert counted == f"{folder}: 12 of 12 trials done; best: trial {data['best']['trial']}"
    assert following == f"next: focuse train {graph_file} --config {folder}/best.toml --out RUN"
    assert finished_trials(folder) == 12


def test_next_command_repeats_the_options_of_the_input(command, graph_file, tmp_path):
    inputs = ["--valid", str(graph_file), "--columns", "1,2,3,4", "--no-header"]
    few = ["--fix", "dim=4", "--fix", "epochs=1", "--trials", "1", "--quiet"]
    done = command("tune", graph_file, "--out", tmp_path / "study", *inputs, *few, check=True)
    config = ["--config", str(tmp_path / "study" / "best.toml"), "--out", "RUN"]
    assert shlex.split(done.stdout.splitlines()[-1]) == ["next:", "focuse", "train", str(graph_file), *inputs, *config]


@pytest.mark.slow
def test_two_processes_share_one_study(graph_file, tmp_path):
    folder = tmp_path / "study"
    arguments = ("tune", graph_file, "--out", folder, *OPTIONS, "--sampler", "grid", "--pruner", "none", "--json")
    both = [start(*arguments) for _ in range(2)]
    worked = []
    for process in both:
        out, err = process.communicate(timeout=250)
        assert process.returncode == 0, err
        data = json.loads(out)
        assert len({row[:3] for row in found(data)}) == len(data["rows"]) == 24  # both wait for the last trial
        worked.append(err.count("\ntrial "))
    assert sum(worked) == 24
    assert min(worked) >= 1
    assert f"(trial {data['best']['trial']})" in (folder / "best.toml").read_text()


@pytest.mark.slow
def test_interrupted_study_resumes_to_the_same_result(command, study, graph_file, tmp_path):
    folder = tmp_path / "with space" / "study"
    arguments = ("tune", graph_file, "--out", folder, *OPTIONS, "--trials", "12")
    process = start(*arguments)
    wait_for_trials(process, folder, 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    last = err.splitlines()[-1]
    assert re.fullmatch(rf"focuse: {folder}: stopped; \d+ of 12 trials done; continue with the same command", last)
    assert "Traceback" not in err
    data = json.loads(command(*arguments, "--json", check=True).stdout)
    assert found(data) == found(study[1])
    assert data["best"]["settings"] == study[1]["best"]["settings"]


@pytest.fixture
def refused_here(monkeypatch, capsys):
    """As `refused`, in this process: the line of a command that exits with 2."""

    def run_command(*arguments):
        monkeypatch.setattr(sys, "argv", ["focuse", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_code:
            run()
        shown = capsys.readouterr()
        assert (exit_code.value.code, shown.out) == (2, "")
        (line,) = shown.err.splitlines()
        assert line.startswith("focuse: ")
        return line

    return run_command


class TestRefused:
    """Exit code 2, one line on stderr, nothing written."""

    @pytest.fixture(autouse=True)
    def _nothing_written(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "g.tsv").write_text("".join(f"a{i % 9}\tr\tb{i % 7}\t{i / 60}\n" for i in range(60)))
        (tmp_path / "taken").mkdir()
        (tmp_path / "taken" / "thesis").write_text("years of work")
        before = {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}
        yield
        assert before == {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ("g.tsv --out s --search dim=8,x", "dim 'x': give a whole number"),
            ("g.tsv --out s --search dimm=8", "unknown setting 'dimm' (did you mean dim?): choose from model"),
            ("g.tsv --out s --fix lr=0", "lr 0: give a number above 0"),
            ("g.tsv --out s --model complx", "unknown model 'complx' (did you mean complex?)"),
            ("g.tsv --out s --model transe --fix model=complex", "model: given twice"),
            ("g.tsv --out s --time-limit 30", "duration '30': give a number above 0 and its unit"),
            ("g.tsv --out s --sampler random", "unknown sampler 'random': choose one of tpe, grid"),
            ("g.tsv --out s --model kblrn", "model 'kblrn' needs node_attributes"),
            ("g.tsv --out s --node-attributes g.tsv", "model 'complex' does not use node attributes"),
            ("g.tsv --out taken", "taken: exists and is not a study; choose another folder"),
            ("missing.tsv --out s", "missing.tsv: No such file or directory"),
            ("g.tsv", "Missing option '--out'"),
        ],
    )
    def test_invalid_options_are_refused_in_one_line(self, refused_here, arguments, says):
        assert says in refused_here("tune", *arguments.split())

    def test_process_with_an_error_exits_with_2(self, refused):
        assert "give a whole number" in refused("tune", "g.tsv", "--out", "s", "--search", "dim=0")


def test_help_describes_every_option(command):
    shown = command("tune", "--help", check=True).stdout
    promised = (
        "--out --valid --test --model --weight-mode --sampler --trials --time-limit --search --fix --seed --device"
    )
    for flag in f"{promised} --storage --pruner --json --quiet".split():
        assert re.search(rf"^  {flag}\b", shown, re.MULTILINE), flag
