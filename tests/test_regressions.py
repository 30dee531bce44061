"""Faults of earlier versions that must not come back."""

import json
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from older import older
from scoring import make_scorer

import focuse
from focuse.data.graph import AlignedGraph, from_columns
from focuse.data.triple_index import build_triple_index
from focuse.errors import FocuseError
from focuse.evaluation.evaluate import evaluate
from focuse.models.registry import make_model
from focuse.storage.atomic import check_writable
from focuse.storage.run_folder import RunFolder

QUICK = {"dim": 8, "epochs": 3, "eval_every": 1, "eval_start": 0, "lr": 1e-2, "progress": False}


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd", "sparse-adam"])
def test_validation_ranks_with_the_current_tables(optimizer: str) -> None:
    """Equal rows were looked for once and then taken for equal for ever, as fused Adam raises no version."""
    random = np.random.default_rng(0)
    ends = random.integers(0, 300, (2, 900))
    graph = from_columns(map(str, ends[0]), ["r"] * 900, map(str, ends[1]), random.random(900))
    settings = {**QUICK, "model": "distmult", "dim": 1, "epochs": 4, "lr": 0.05, "optimizer": optimizer}
    settings["stop_fraction"] = 1.0
    run = focuse.train(graph, regularizer="none", **settings)
    assert run.last is not None
    tables = {name: table.clone() for name, table in run.last.tables.items()}
    fresh = make_scorer(make_model("distmult"), tables["entity"], tables["relation"])
    parts = [run.splits.train, run.splits.valid, run.splits.test]
    valid, known = run.splits.valid, build_triple_index(parts)
    from focuse.training.validation import rank_validator

    judge = rank_validator(valid, run.splits.train, parts, run.settings.valid_min_weight, run.settings.seed)
    assert judge is not None
    assert run.history[-1]["valid_mrr"] == judge(fresh)
    assert evaluate(fresh, AlignedGraph(valid), run.splits.train, known).all.n == len(valid)


def test_unfinished_run_predicts_with_its_newest_checkpoint(small: focuse.Graph, tmp_path: Path) -> None:
    """The old model.safetensors stayed in the way, and a kill left a run that called itself finished."""
    folder = tmp_path / "run"
    focuse.train(small, out=folder, checkpoint_every=1, **QUICK)
    store = RunFolder.open(folder)
    settings, _, _ = store.metadata()
    checkpoint = store.load_checkpoint()
    assert checkpoint is not None
    checkpoint.progress.finished = ""
    from dataclasses import replace

    store.continue_with(replace(settings, epochs=5), checkpoint)  # as if killed right after
    assert not (folder / "model.safetensors").exists()
    assert len(focuse.load(folder).history) == 3
    assert len(focuse.resume(folder, progress=False).history) == 5


def test_run_killed_between_settings_and_checkpoint_can_be_resumed(small: focuse.Graph, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    focuse.train(small, out=folder, **QUICK)
    text = (older(folder) / "run.toml").read_text(encoding="utf-8")
    (folder / "run.toml").write_text(text.replace("epochs = 3\n", "epochs = 4\n"), encoding="utf-8")
    assert len(focuse.resume(folder, progress=False).history) == 4


def test_epochs_of_a_run_are_never_lowered(small: focuse.Graph, tmp_path: Path) -> None:
    focuse.train(small, out=tmp_path / "run", **QUICK)
    with pytest.raises(FocuseError, match="can only raise"):
        focuse.resume(tmp_path / "run", epochs=2)


@pytest.mark.parametrize("seed", range(10))
def test_often_repeated_triple_does_not_reduce_the_held_out_rows(seed: int) -> None:
    random = np.random.default_rng(0)
    names = random.integers(0, 40, (3, 500))
    columns = [np.concatenate([row, np.repeat(row[:1], 500)]).astype(str) for row in (names[0], names[1] % 3, names[2])]
    parts = focuse.split(from_columns(*columns, random.random(1000)), 0.1, 0.1, seed=seed)
    assert 90 <= len(parts.valid) <= 100
    assert 90 <= len(parts.test) <= 100


def test_divergence_in_the_last_step_is_detected(small: focuse.Graph, tmp_path: Path) -> None:
    settings = {**QUICK, "epochs": 1, "lr": 3e38, "batch_size": 5000, "weight_mode": "focuse"}
    with pytest.raises(FocuseError, match="diverged"):
        focuse.train(small, valid_fraction=0, test_fraction=0, out=tmp_path / "run", **settings)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_settings_too_large_for_memory_are_refused_without_files(small: focuse.Graph, tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match=r"free for them, .* lower dim"):
        focuse.train(small, out=tmp_path / "run", **{**QUICK, "dim": 10**9 * 4})
    with pytest.raises(FocuseError, match=r"below 2\*\*32"):
        focuse.train(small, out=tmp_path / "run", **{**QUICK, "dim": 10**30})
    assert list(tmp_path.iterdir()) == []


def test_path_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match="not UTF-8"):
        focuse.read(str(tmp_path / "n\udcff.tsv"))


def test_damaged_runs_are_reported(small: focuse.Graph, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    focuse.train(small, out=folder, **QUICK)
    (older(folder) / "history.jsonl").write_bytes(b'\xff\n3\n{"epoch": 1, "loss": 1, "beta": 1, "seconds": 1}\n')
    with pytest.raises(FocuseError, match=r"history\.jsonl.*damaged"):
        focuse.load(folder)
    (folder / "history.jsonl").write_text('{"epoch": 1, "loss": 1, "beta": 1, "seconds": 1}\n', encoding="utf-8")
    assert [row["epoch"] for row in focuse.load(folder).history] == [1]
    text = (folder / "run.toml").read_text(encoding="utf-8")
    (folder / "run.toml").write_text(text.replace('model = "complex"', 'model = "transe"'), encoding="utf-8")
    with pytest.raises(FocuseError, match="instead of"):
        focuse.load(folder)
    (folder / "run.toml").write_text(text.replace("[weighted]\ntrain", "[weighted]\nbrain"), encoding="utf-8")
    with pytest.raises(FocuseError, match=r"run\.toml: damaged"):
        focuse.load(folder)


def test_hostile_names_do_not_reach_the_terminal() -> None:
    rows = [(f"a{i}", "r", f"b\x1b[31m\n{i % 4}", i) for i in range(12)]
    run = focuse.train(rows, **QUICK)
    shown = str(run.predict(head="a3", relation="r", top=3))
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 5  # headings, three rows and a note
    assert json.dumps(run.predict(head="a3", relation="r").to_json())


def test_an_empty_valid_graph_means_no_validation(small: focuse.Graph) -> None:
    empty = small.select(np.empty(0, np.int64))
    run = focuse.train(small, valid=empty, **QUICK)
    assert all("valid_mrr" not in row for row in run.history)
    assert torch.isfinite(run.scorer.tables["entity"]).all()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> focuse.Run:
    rows = [(f"e{i % 30}", f"r{i % 3}", f"e{i * 7 % 31}", i % 10 / 10) for i in range(300)]
    return focuse.train(rows, out=tmp_path_factory.mktemp("runs") / "run", label_exponent=1, **QUICK)


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [
        ("evaluate", {"ties": None}, "tie rule None: choose one of worst"),
        ("evaluate", {"sample_candidates": "3"}, "sample_candidates '3': give a whole number"),
        ("discover", {"top": None}, "top None: give a whole number"),
        ("discover", {"min_probability": None}, "min_probability None: give a number in"),
        ("discover", {"max_scores": 0}, "max_scores 0: give a number above 0"),
        ("discover", {"max_scores": float("nan")}, "max_scores nan: give a number above 0"),
        ("duplicates", {"min_similarity": "3"}, "min_similarity '3': give a number in"),
        ("predict", {"head": "e1", "relation": "r1", "top": 10**20}, "top 1.*: give a whole number"),
    ],
)
def test_options_of_wrong_types_are_refused(
    run: focuse.Run, method: str, options: dict[str, object], says: str
) -> None:
    with pytest.raises(FocuseError, match=says):
        getattr(run, method)(**options)


@pytest.mark.parametrize("name", ["extended.json", "label_exponent.json", "probability.safetensors"])
def test_results_are_not_written_to_files_that_a_run_may_get_later(run: focuse.Run, name: str) -> None:
    assert run.folder is not None
    with pytest.raises(FocuseError, match="this file is a part of the run"):
        check_writable(run.folder / name)


def test_tables_of_results_are_pickled(run: focuse.Run) -> None:
    table = run.predict(head="e1", relation="r1", top=3)
    assert table[0].rank == 1  # which makes the class of rows
    assert pickle.loads(pickle.dumps(table)) == table


def test_graphs_are_split_and_described_by_path(tmp_path: Path) -> None:
    path = tmp_path / "graph.tsv"
    path.write_text("".join(f"e{i % 9}\tr\te{i % 7}\t0.5\n" for i in range(63)))
    assert len(focuse.split(path, 0.2, 0.0).valid) == 12
    assert focuse.describe(path, {"again": str(path)}).leakage["again"].same_triple == 63


def test_training_that_fails_before_its_first_checkpoint_leaves_no_folder(small: focuse.Graph, tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match="training diverged"):
        focuse.train(small, out=tmp_path / "run", **{**QUICK, "lr": 1e300})
    assert not (tmp_path / "run").exists()
    focuse.train(small, out=tmp_path / "run", **QUICK)


def test_memory_of_wide_embeddings_is_counted(small: focuse.Graph) -> None:
    """Rows of a batch take more memory than a small table: a training of 3.5 GB was started with 0.7 GB."""
    with pytest.raises(FocuseError, match=r"takes about \d\.?\d* GB, .* of memory_limit 900MB"):
        focuse.train(small, dim=100_000, epochs=1, label_exponent=1, memory_limit="900MB", progress=False)


def test_extending_by_many_epochs_draws_the_anchors_of_one_epoch_at_a_time(run: focuse.Run) -> None:
    tracemalloc.start()
    focuse.extend(run, [("new", "r1", "e3", 0.5)], epochs=200, progress=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * 300 * 8  # an int64 for each epoch and edge


def test_options_without_effect_are_refused(run: focuse.Run) -> None:
    for options in ({"seed": 3}, {"sample_size": 5}, {"strategy": "popular", "seed": 3}):
        with pytest.raises(FocuseError, match="requires the strategy"):
            run.discover(**options)  # type: ignore[arg-type]
    with pytest.raises(FocuseError, match="epochs requires new entities"):
        focuse.extend(run, [("e1", "r1", "e3", 0.5)], epochs=7, progress=False)
    with pytest.raises(FocuseError, match="regularizer_scope requires a regularizer"):
        focuse.train(run.graph, regularizer="none", regularizer_scope="rows", progress=False)


def test_choices_of_completion_are_those_of_the_code() -> None:
    from focuse.cli import runs
    from focuse.data import weights
    from focuse.evaluation import ranking
    from focuse.inference import calibration, link_search
    from focuse.integrations import export

    assert tuple(ranking.TIES) == runs.TIES
    assert ranking.PROTOCOLS == runs.PROTOCOLS
    assert weights.STRENGTH_RULES == runs.DECILES
    assert link_search.STRATEGIES == runs.STRATEGIES
    assert calibration.METHODS == runs.CALIBRATIONS
    assert (export.FORMATS, export.TABLES) == (runs.EXPORT_FORMATS, runs.EXPORTED)


def test_retraining_without_rules_ignores_their_batch_size(small: focuse.Graph) -> None:
    settings = {**QUICK, "model": "ukge-logi", "weight_scaling": "global", "rule_batch_size": 16, "rule_loss_weight": 0}
    assert focuse.train(small, **settings).history


def test_removing_edges_trains_nothing(run: focuse.Run) -> None:
    first = run.graph.to_arrow().to_pylist()[0]
    gone = [(first["head"], first["relation"], first["tail"])]
    assert focuse.extend(run, remove=gone, progress=False).extended[-1]["epochs"] == 0
