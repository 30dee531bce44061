"""`focuse train`: output, progress, interrupts and errors."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from focuse.models.registry import MODELS

QUICK = ["--dim", "4", "--epochs", "2"]


def lines(folder):
    path = folder / "history.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def history(folder):
    return [json.loads(line) for line in lines(folder)]


def plain_history(folder):
    return [{key: value for key, value in row.items() if key not in ("seconds", "crc32")} for row in history(folder)]


def start_and_signal(arguments, folder, epochs, number):
    """Run until `epochs` epochs are done, then send the signal; (exit code, stdout, stderr)."""
    started = [sys.executable, "-m", "focuse", *map(str, arguments)]
    process = subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 100
    while len(lines(folder)) < epochs:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_json_is_one_object_with_the_documented_keys(trained, small):
    data = trained.data
    assert set(data) == {
        "run",
        "epochs",
        "best_epoch",
        "valid_mrr",
        "valid_mse",
        "seconds",
        "train_rows",
        "valid_rows",
        "test_rows",
        "known_negatives",
        "weight_columns",
        "node_attributes",
        "settings",
        "provenance",
        "finished",
        "quality",
        "new_links",
        "notes",
        "next",
        "leakage",
    }
    assert data["finished"] == "all epochs"
    assert data["run"] == str(trained.folder)
    assert (data["train_rows"], data["valid_rows"], data["test_rows"]) == (480, 60, 60)
    assert data["epochs"] == len(history(trained.folder)) == 20
    best = max((row for row in history(trained.folder) if "valid_mrr" in row), key=lambda row: row["valid_mrr"])
    assert (data["best_epoch"], data["valid_mrr"]) == (best["epoch"], best["valid_mrr"])
    assert data["settings"]["batch_size"] == 4
    assert data["settings"]["weight_mode"] == "focuse"


def test_progress_without_a_terminal_is_lines_on_stderr(trained):
    model, weights, sources, *shown = trained.errors.splitlines()
    assert model == "model: complex, dim 6, 20 epochs, batch size 4, sparse-adagrad, lr 0.01"
    assert weights == (
        "weights: focuse, β falls to 0 in 12 epochs; loss: multiclass-nll; negatives: 4 shared per batch"
    )
    assert sources.startswith("given: dim, weight_mode, beta_decay_epochs, num_negatives, epochs, batch_size, lr, ")
    assert "; derived: nonlinearity softplus, weight_scaling relation, " in sources
    assert re.fullmatch(r"epoch 1/20  loss \d\S*  β 1\.00", shown[0])
    assert re.fullmatch(r"epoch 20/20  loss \d\S*  β 0\.00  valid MRR 0\.\d{3}", shown[-2])
    assert "whose embeddings are kept" in shown[-1]
    assert "\x1b" not in trained.errors


def test_resume_after_interrupt_and_kill_gives_identical_tables(command, trained, graph_file, options, tmp_path):
    folder = tmp_path / "with space" / "run"
    arguments = ["train", graph_file, "--out", folder, *options]
    code, out, err = start_and_signal(arguments, folder, 3, signal.SIGINT)
    assert (code, out) == (130, "")
    last = err.splitlines()[-1]
    assert re.search(r"stopped after \d+ epochs? and \d+ batch(es)?, saved; continue with: ", last)
    assert last.endswith(f"focuse train --resume '{folder}'")
    assert "Traceback" not in err
    done = len(history(folder))
    code, _, _ = start_and_signal(["train", "--resume", folder], folder, done + 5, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert not (folder / "model.safetensors").exists()
    finished = command("train", "--resume", folder, "--json", "--quiet", check=True)
    assert finished.stderr == ""
    assert json.loads(finished.stdout)["epochs"] == 20
    for name in ("model.safetensors", "splits.safetensors", "checkpoint.safetensors"):
        assert (folder / name).read_bytes() == (trained.folder / name).read_bytes()
    assert plain_history(folder) == plain_history(trained.folder)
    asked = {"calibration.safetensors", "weights.safetensors", "probability.safetensors"}  # another test may have asked
    assert {path.name for path in folder.iterdir()} - asked == {path.name for path in trained.folder.iterdir()} - asked


def test_resuming_a_finished_run_gives_a_note(command, trained):
    done = command("train", "--resume", trained.folder, check=True)
    assert done.stderr == f"{trained.folder}: already finished after 20 epochs; give more epochs to continue\n"
    assert f"{trained.folder}: 20 epochs in" in done.stdout


def test_text_output_suggests_the_next_command_and_quiet_prints_nothing(command, graph_file, tmp_path):
    done = command("train", graph_file, "--out", tmp_path / "run", "--quiet", *QUICK, check=True)
    assert done.stderr == ""
    first, leakage, quality, *links, following = done.stdout.splitlines()
    assert re.fullmatch(rf"{tmp_path}/run: 2 epochs in \d+\.\d s on 480 triples", first)
    assert "leakage: the reverse of 36 of 60 test triples" in leakage
    assert re.search(r"^(no )?(better|worse) than ranking by .* on 60 test triples: MRR 0\.\d{3} against", quality)
    assert links[0] == "new links, with the probability that they are true:"
    assert len(links) == 6
    assert following.startswith("next: focuse ")
    again = command("train", "--resume", tmp_path / "run", "--epochs", "3", "--json", "--quiet", check=True)
    assert json.loads(again.stdout)["epochs"] == 3


NAMES = ("Ward Nurse", 'it\'s "quoted"', "-x", "$HOME `id`", "ünï · 名")


@pytest.mark.parametrize("name", NAMES)
def test_next_command_runs_as_printed_in_a_shell(command, tmp_path, name):
    relations = 1 + NAMES.index(name) % 2
    rows = [(name + "!" * (i % 2), f"is r{i // 2 % relations}", f"t {i * 3 % 13}", i) for i in range(20)]
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "a graph.tsv").write_text(f"head\trelation\ttail\tweight\n{text}", encoding="utf-8")
    data = json.loads(command("train", "a graph.tsv", "--quiet", "--json", *QUICK, cwd=tmp_path, check=True).stdout)
    best, typed = data["new_links"][0], data["next"]
    assert best["head"] in (name, f"{name}!")
    assert typed.startswith("focuse predict runs/a-graph --head ")
    assert ("--relation" in typed) == (relations == 2)
    shell = f'focuse() {{ "{sys.executable}" -m focuse "$@"; }}; {typed} --scores-only --json'
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)["rows"]
    assert {(row["head"], row["relation"]) for row in answers} == {(best["head"], best["relation"])}
    assert best["tail"] in {row["tail"] for row in answers}


def test_run_that_is_worse_and_still_improving_is_continued(command, graph_file, tmp_path):
    asked = ["--epochs", "2", "--dim", "4", "--lr", "1e-6", "--eval-every", "2", "--weight-mode", "none"]
    asked += ["--test-fraction", "0.3", "--quiet"]
    done = command("train", graph_file, *asked, "--out", "my run", cwd=tmp_path, check=True)
    _, _, quality, *_, following = done.stdout.splitlines()
    assert quality.startswith("worse than ranking by ")
    assert following == "next: focuse train --resume 'my run' --epochs 4"
    again = command(*shlex.split(following)[2:], "--json", cwd=tmp_path, check=True)
    assert json.loads(again.stdout)["epochs"] == 4


def test_folder_is_named_after_the_file_and_never_overwritten(command, small, tmp_path):
    small.write(tmp_path / "play counts.v2.csv.gz")
    (tmp_path / "runs" / "play-counts.v2").mkdir(parents=True)  # empty, as of a training that has just started
    for name in ("play-counts.v2-2", "play-counts.v2-3"):
        done = command("train", "play counts.v2.csv.gz", "--quiet", *QUICK, cwd=tmp_path, check=True)
        assert done.stdout.startswith(f"runs/{name}: 2 epochs")
        assert "MRR" in command("evaluate", f"runs/{name}", cwd=tmp_path, check=True).stdout
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "play-counts.v2",
        "play-counts.v2-2",
        "play-counts.v2-3",
    ]
    assert not list((tmp_path / "runs" / "play-counts.v2").iterdir())


def test_several_processes_need_a_folder(refused, graph_file, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "several processes need the same folder: give --out RUN" in refused("train", graph_file, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_partitioned_run_has_answers_too(command, graph_file, tmp_path):
    options = ["--engine", "partitioned", "--partitions", "2:2", "--label-exponent", "1", "--quiet", "--json", *QUICK]
    data = json.loads(command("train", graph_file, "--out", tmp_path / "run", *options, check=True).stdout)
    assert data["quality"]["every"]["triples"] == data["test_rows"]
    assert len(data["new_links"]) == 5


def test_graph_of_few_edges_has_answers_too(command, tmp_path):
    (tmp_path / "g.csv").write_text("a,b,1\nb,c,2\nc,d,3\nd,e,4\ne,a,5\n")
    done = command("train", "g.csv", "--quiet", *QUICK, cwd=tmp_path, check=True)
    first, quality, links, *_, following = done.stdout.splitlines()
    assert first.startswith("runs/g: 2 epochs")
    assert quality == "no test triples: how good the run is was not measured"
    assert links == "new links:"
    assert following.startswith("next: focuse predict runs/g --head ")


def test_progress_on_a_terminal_is_a_bar(graph_file, tmp_path):
    master, slave = pty.openpty()
    arguments = [sys.executable, "-m", "focuse", "train", str(graph_file), "--out", str(tmp_path / "run"), *QUICK]
    arguments += ["--weight-mode", "focuse"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140"}
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=slave, env=environment, text=True)
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # Linux says so when the other end is closed
            break
        if not piece:
            break
        shown += piece
    out, _ = process.communicate(timeout=60)
    os.close(master)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert process.returncode == 0
    assert re.search(r"epoch 2/2 .*loss \S+  β 0\.50  valid MRR 0\.\d{3} .*\d:\d\d:\d\d.* left", text)
    assert "loss" not in out


class TestRefused:
    """Exit code 2, one line on stderr, nothing written."""

    @pytest.fixture(autouse=True)
    def _nothing_written(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "nan.tsv").write_text("a\tr\tb\t0.5\nb\tr\tc\tnan\n")
        (tmp_path / "g.tsv").write_text("head\trelation\ttail\tweight\na\tr\tb\t0.5\nb\tr\tc\t0.9\n")
        (tmp_path / "taken").mkdir()
        (tmp_path / "taken" / "thesis").write_text("years of work")
        before = {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}
        yield
        assert before == {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ("missing.tsv --out run", "missing.tsv: No such file or directory; give the path"),
            ("nan.tsv --out run", "nan.tsv, line 2: "),
            ("g.tsv --out run --model complx", "unknown model 'complx' (did you mean complex?)"),
            ("g.tsv --out run --device banana", "device 'banana' is not available"),
            ("g.tsv --out run --valid missing.tsv", "missing.tsv: No such file"),
            (
                "g.tsv --out run --negative-distribution type",
                "negative_distribution 'type' requires negative_sampling 'per-triple'",
            ),
            (
                "g.tsv --out run --negative-sampling all --corrupt-side bernoulli",
                "requires negative_sampling 'per-triple'",
            ),
            ("g.tsv --out taken", "taken: exists and is not empty; choose another folder"),
            ("--out run", "train needs a GRAPH: focuse train GRAPH (or --resume RUN)"),
            ("missing.tsv", "missing.tsv: No such file or directory; give the path"),
            ("g.tsv --model complx", "unknown model 'complx' (did you mean complex?)"),
            ("taken/thesis --partitions 8:2", "partitions requires engine 'partitioned', not 'auto'"),
            ("--resume nowhere", "nowhere: not a run"),
            ("g.tsv --out run --init-from taken", "taken: not a run"),
            ("g.tsv --out run --beta 0.5", "beta requires weight_mode 'focuse', not 'separate'"),
            ("g.tsv --out run --partitions 8:2", "partitions requires engine 'partitioned', not 'auto'"),
            ("g.tsv --out run --loss nll --label-exponent 2", "loss 'nll' requires weight_mode 'focuse' or 'none'"),
            ("g.tsv --out run --model conve --dim 7", "model 'conve' needs a dim that makes a rectangle, not 7; try 8"),
            ("--resume taken --lr 0.1 --valid-fraction 0.2 --test g.tsv", "remove lr, test, valid-fraction"),
            ("g.tsv --resume taken --out run", "remove graph, out"),
        ],
    )
    def test_invalid_options_are_refused_in_one_line(self, refused, arguments, says):
        assert says in refused("train", *arguments.split())


def test_list_shows_every_model_and_its_equation(command):
    shown = command("train", "--model", "list", check=True).stdout.splitlines()
    assert [line.split()[0] for line in shown] == [*MODELS, "pykeen:NAME"]
    assert all(len(line.split()) > 2 for line in shown)
    told = json.loads(command("train", "--model", "list", "--json", check=True).stdout)
    assert list(told["models"]) == [*MODELS, "pykeen:NAME"]


def test_inverse_relations_and_negative_options_reach_the_training(command, graph_file, tmp_path):
    asked = [
        "--reciprocal",
        "--negative-sampling",
        "per-triple",
        "--negative-distribution",
        "type",
        "--corrupt-side",
        "bernoulli",
    ]
    asked += ["--regularizer", "n3:1e-2"]
    told = command("train", graph_file, "--out", tmp_path / "run", *QUICK, *asked, "--json", check=True).stdout
    settings = json.loads(told)["settings"]
    names = ("reciprocal", "negative_distribution", "corrupt_side", "regularizer")
    assert [settings[name] for name in names] == [True, "type", "bernoulli", "n3:1e-2"]
    figures = json.loads(command("evaluate", tmp_path / "run", "--json", check=True).stdout)
    assert 0 < figures["all"]["mrr"] <= 1
    answers = json.loads(
        command("predict", tmp_path / "run", "--tail", "e1", "--relation", "r0", "--json", check=True).stdout
    )
    assert len(answers["rows"]) == 10


def test_relation_weights_and_given_files_reach_the_training(command, graph_file, tmp_path):
    (tmp_path / "weights.csv").write_text("relation,weight\nr0,1\nr1,5\nr2,9\n")
    (tmp_path / "test.tsv").write_text("e1\tr0\te2\t0.5\ne3\tr1\tstranger\t0.7\n")
    done = command(
        *("train", graph_file, "--out", tmp_path / "run", "--json", "--valid-fraction", "0.2"),
        *("--relation-weights", tmp_path / "weights.csv", "--test", tmp_path / "test.tsv", *QUICK),
        check=True,
    )
    data = json.loads(done.stdout)
    assert data["settings"]["weight_scaling"] == "global"
    assert (data["train_rows"], data["valid_rows"], data["test_rows"]) == (480, 120, 1)
    assert "1 of 2 rows name 1 entity ('stranger')" in done.stderr


def test_callback_and_tracker_can_be_given_by_name(command, graph_file, tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "mine.py").write_text(
        "import focuse\nclass Enough(focuse.Callback):\n    def epoch(self, row):\n        return row['epoch'] == 2\n",
        encoding="utf-8",
    )
    options = [
        "--dim",
        "4",
        "--epochs",
        "4",
        "--label-exponent",
        "1",
        "--callback",
        "mine:Enough",
        "--track",
        "tensorboard:logs",
    ]
    done = command("train", graph_file, "--out", "run", *options, cwd=tmp_path, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("run: 2 epochs in ")
    assert lines[1] == "stopped by Enough at epoch 2 of 4; --resume continues"
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["run"]
    more = ["--track", "tensorboard:logs", "--callback", "mine:Enough", "--quiet", "--json"]
    done = command("train", "--resume", "run", *more, cwd=tmp_path, check=True)
    told = json.loads(done.stdout)
    assert (told["epochs"], told["finished"]) == (4, "all epochs")
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["run"]


def test_a_wrong_callback_or_tracker_is_one_line(refused, graph_file, tmp_path):
    given = ("train", graph_file, "--out", tmp_path / "run")
    assert "there is no module 'nowhere'" in refused(*given, "--callback", "nowhere:Mine")
    assert "unknown tracker 'tensorflow'" in refused(*given, "--track", "tensorflow:logs")
