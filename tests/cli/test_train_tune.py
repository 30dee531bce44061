"""`focuse tune`: real processes that share, interrupt and resume a study."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from focuse.cli.main import run

FIXED = ["dim=4", "epochs=4", "batch-size=60", "num-negatives=4", "eval-every=1", "eval-start=0"]
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
    """Until so many trials have ended in the journal."""
    journal, end = folder / "journal.log", time.monotonic() + 100
    while not journal.exists() or journal.read_text().count('"datetime_complete"') < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def found(data):
    return [(tuple(row["searched"].items()), row["state"], row["valid_mrr"]) for row in data["trials"]]


@pytest.fixture(scope="module")
def study(command, graph_file, tmp_path_factory):
    """A study of 12 trials made in one go: its folder, what it printed, what it said meanwhile."""
    folder = tmp_path_factory.mktemp("tuned") / "study"
    done = command("tune", graph_file, "--out", folder, *OPTIONS, "--trials", "12", "--json", check=True)
    return folder, json.loads(done.stdout), done.stderr


def test_json_contains_the_best_and_all_trials(study):
    folder, data, _ = study
    assert set(data) == {"study", "config", "wanted", "done", "running", "best", "trials"}
    assert (data["study"], data["config"]) == (str(folder), str(folder / "best.toml"))
    assert (data["wanted"], data["done"], data["running"], len(data["trials"])) == (12, 12, 0, 12)
    complete = [row for row in data["trials"] if row["state"] == "complete"]
    assert data["best"]["valid_mrr"] == max(row["valid_mrr"] for row in complete)
    assert data["best"]["searched"].items() <= data["best"]["settings"].items()
    assert set(data["best"]["searched"]) == {"lr", "beta_decay_epochs", "regularizer"}
    assert sorted(path.name for path in folder.iterdir()) == ["best.toml", "journal.log", "workers"]


def test_each_trial_prints_a_line_with_the_best_so_far(study):
    first, second, *lines = study[2].splitlines()
    assert first.startswith(
        "search: lr 0.001 | 0.01 | 0.05 | 0.1; regularizer l3:1e-3 | none; beta_decay_epochs 0 | 2 | 4 (24 "
    )
    assert (
        "(24 combinations); fixed: negative_sampling per-triple, optimizer sparse-adam, weight_mode focuse, dim 4"
        in first
    )
    assert second == "tpe: 12 trials wanted, 0 done"
    assert len(lines) == 12
    assert re.fullmatch(
        r"trial 0: valid MRR 0\.\d{4} at epoch \d, \d+\.\d s \(lr \S+, regularizer \S+, beta_decay_epochs \d\); "
        r"best 0\.\d{4} \(trial 0\); 1 of 12 done, about \d:\d\d:\d\d left",
        lines[0],
    )
    assert lines[-1].endswith("; 12 of 12 done")


def test_best_toml_trains_to_the_validation_mrr_of_the_trial(command, study, graph_file, tmp_path):
    folder, data, _ = study
    options = ["--config", folder / "best.toml", "--device", "cpu", "--json", "--quiet"]
    done = command("train", graph_file, "--out", tmp_path / "run", *options, check=True)
    trained = json.loads(done.stdout)
    assert trained["valid_mrr"] == data["best"]["valid_mrr"]
    assert trained["best_epoch"] == data["best"]["best_epoch"]
    assert data["best"]["searched"].items() <= trained["settings"].items()


def test_finished_study_is_not_repeated_and_suggests_the_next_command(command, study, graph_file):
    folder, data, _ = study
    before = (folder / "journal.log").read_text().count('"datetime_complete"')
    done = command("tune", graph_file, "--out", folder, *OPTIONS, "--trials", "12", "--quiet", check=True)
    assert done.stderr == ""
    heading, *rows, counted, best, following = done.stdout.splitlines()
    assert heading.split() == [
        "trial",
        "state",
        "valid",
        "MRR",
        "epoch",
        "seconds",
        "lr",
        "regularizer",
        "beta_decay_epochs",
    ]
    assert len(rows) == 10
    assert rows[0].split()[:3] == [str(data["best"]["trial"]), "complete", f"{data['best']['valid_mrr']:.4f}"]
    assert counted == f"{folder}: 12 of 12 trials done"
    assert best == f"best: trial {data['best']['trial']}, validation MRR {data['best']['valid_mrr']:.4f}"
    assert following == f"next: focuse train {graph_file} --config {folder}/best.toml --out RUN"
    assert (folder / "journal.log").read_text().count('"datetime_complete"') == before


@pytest.mark.slow
def test_two_processes_share_one_study(graph_file, tmp_path):
    folder = tmp_path / "study"
    slower = [{"epochs=4": "epochs=6", "batch-size=60": "batch-size=20"}.get(option, option) for option in OPTIONS]
    arguments = ("tune", graph_file, "--out", folder, *slower, "--sampler", "grid", "--pruner", "none", "--json")
    both = [start(*arguments) for _ in range(2)]
    results = []
    for process in both:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        results.append((json.loads(out), err))
    last = max((data for data, _ in results), key=lambda data: data["done"])
    tried = [tuple(row["searched"].values()) for row in last["trials"]]
    assert (last["done"], len(set(tried)), last["running"]) == (24, 24, 0)
    worked = [err.count("trial ") - err.count("(trial ") for _, err in results]
    assert sum(worked) == 24
    assert min(worked) >= 1
    assert f"trial {last['best']['trial']} of the study" in (folder / "best.toml").read_text()
    assert list((folder / "workers").iterdir()) == []


@pytest.mark.slow
def test_interrupted_and_killed_study_resumes_to_the_same_result(command, study, graph_file, tmp_path):
    folder = tmp_path / "with space" / "study"
    arguments = ("tune", graph_file, "--out", folder, *OPTIONS, "--trials", "12")
    process = start(*arguments)
    wait_for_trials(process, folder, 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert re.fullmatch(
        rf"focuse: {folder}: stopped with \d+ of 12 trials done, .* tried again; go on with the same command",
        err.splitlines()[-1],
    )
    assert "Traceback" not in err
    process = start(*arguments)
    wait_for_trials(process, folder, 7)
    process.kill()
    process.communicate(timeout=60)
    done = command(*arguments, "--json", check=True)
    data = json.loads(done.stdout)
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
        (tmp_path / "even.tsv").write_text("".join(f"a{i % 9}\tr\tb{i % 7}\t1\n" for i in range(60)))
        (tmp_path / "bad.toml").write_text("lr = [0.1, 0.2]\ndimm = 3\n")
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
            ("g.tsv --out s --space bad.toml", "bad.toml: unknown setting 'dimm'"),
            ("g.tsv --out s --time-limit 30", "duration '30': give a number above 0 and its unit"),
            ("g.tsv --out s --sampler random", "unknown sampler 'random': choose one of tpe, grid"),
            ("g.tsv --out s --model kblrn", "model 'kblrn' needs node_attributes"),
            ("g.tsv --out s --node-attributes g.tsv", "model 'complex' does not use node attributes"),
            ("g.tsv --out taken", "taken: exists and is not a study; choose another --out"),
            ("even.tsv --out s", "even.tsv: all weights are equal"),
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
    promised = "--out --valid --test --model --weight-mode --sampler --trials --time-limit --search --fix --space"
    for flag in f"{promised} --seed --device --storage --pruner --json --quiet".split():
        assert re.search(rf"^  {flag}\b", shown, re.MULTILINE), flag
