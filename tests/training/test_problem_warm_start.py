"""Training that starts from the embeddings of another run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import focuse
from focuse.cli.main import app
from focuse.data.splits import split
from focuse.errors import FocuseError
from focuse.training.callbacks import Reporter
from focuse.training.preparation import fit_training_normalizer
from focuse.training.trainer import make_trainer

ASKED = {"dim": 8, "label_exponent": 1.0, "progress": False}


@pytest.fixture(scope="module")
def teacher(small: focuse.Graph, tmp_path_factory: pytest.TempPathFactory) -> focuse.Run:
    """KBGAT on 500 of the 600 edges."""
    folder = tmp_path_factory.mktemp("teacher") / "run"
    return focuse.train(small.select(np.arange(500)), model="kbgat", epochs=2, out=folder, **ASKED)


def first_tables(run: focuse.Run) -> dict[str, torch.Tensor]:
    """What a training of the run's settings begins with."""
    normalizer = fit_training_normalizer(run.settings, run.splits)
    return make_trainer(run.settings, run.splits, normalizer, Reporter()).engine.tables


def named(names: focuse.data.graph.Vocabulary, table: torch.Tensor) -> dict[str, list[float]]:
    return dict(zip(names, table.tolist(), strict=True))


def test_encoded_tables_initialize_rows_by_name(small: focuse.Graph, teacher: focuse.Run) -> None:
    reader = focuse.read([*((h, r, t, w) for h, r, t, w in _rows(small)), ("new", "r0", "e1", 0.5)])
    run = focuse.train(
        reader, model="convkb", epochs=1, init_from=teacher, valid_fraction=0.0, test_fraction=0.0, **ASKED
    )
    tables = first_tables(run)
    made = teacher.scorer.encoded_tables()
    assert not torch.equal(made["entity"], teacher.scorer.tables["entity"])
    for table, mine, theirs in (
        ("entity", run.graph.entities, teacher.graph.entities),
        ("relation", run.graph.relations, teacher.graph.relations),
    ):
        known = named(theirs, made[table])
        for name, row in named(mine, tables[table]).items():
            assert (row == known[name]) if name in known else (name == "new" and any(row))
    unstarted = focuse.train(reader, model="convkb", epochs=1, valid_fraction=0.0, test_fraction=0.0, **ASKED)
    chance = first_tables(unstarted)
    at = run.graph.entities.id("new")
    assert torch.equal(tables["entity"][at], chance["entity"][at])
    assert torch.equal(tables["filters"], chance["filters"])
    assert not torch.equal(tables["entity"], chance["entity"])


def _rows(graph: focuse.Graph) -> list[tuple[str, str, str, float]]:
    ends = (graph.entities.take(graph.head), graph.relations.take(graph.relation), graph.entities.take(graph.tail))
    return list(zip(*(column.to_pylist() for column in ends), graph.weight.tolist(), strict=True))


def test_tables_of_another_model_are_taken_over_unchanged(small: focuse.Graph, tmp_path: Path) -> None:
    first = focuse.train(small, model="transe", epochs=1, out=tmp_path / "first", **ASKED)
    second = focuse.train(small, model="distmult", epochs=1, init_from=tmp_path / "first", **ASKED)
    assert second.settings.init_from == str(tmp_path / "first")
    assert torch.equal(first_tables(second)["entity"], first.scorer.tables["entity"])


def test_resume_does_not_need_the_other_run(small: focuse.Graph, teacher: focuse.Run, tmp_path: Path) -> None:
    """Killed before its first checkpoint was due, and with the run that it began with gone: the same bits."""
    shutil.copytree(teacher.path, tmp_path / "teacher")
    asked = {"model": "convkb", "epochs": 2, "init_from": tmp_path / "teacher", "checkpoint_every": "0", **ASKED}
    focuse.train(small, out=tmp_path / "whole", **asked)

    class Killed(BaseException): ...

    class Kill(Reporter):
        def step(self, epoch: int, share: float) -> None:
            raise Killed

    with pytest.raises(Killed):
        focuse.train(small, out=tmp_path / "part", **{**asked, "progress": Kill()})
    shutil.rmtree(tmp_path / "teacher")
    focuse.resume(tmp_path / "part", progress=False)
    whole, part = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    assert whole.keys() == part.keys()
    assert all(torch.equal(whole[name], part[name]) for name in whole)


@pytest.mark.parametrize("name", ["conve", "convkb", "kbgat"])
def test_neural_models_resume_to_identical_tables(small: focuse.Graph, name: str, tmp_path: Path) -> None:
    """Dropout, running statistics and all."""
    asked = {"model": name, "epochs": 3, "batch_size": 64, "checkpoint_every": "0", "eval_every": 2, **ASKED}
    focuse.train(small, out=tmp_path / "whole", **asked)
    reached = []

    class Late(Reporter):
        def step(self, epoch: int, share: float) -> None:
            reached.append((epoch, share))

    class Clock:
        """After eleven batches time is up."""

        def __lt__(self, now: float) -> bool:
            return len(reached) >= 11

    with pytest.raises(focuse.errors.Stopped):
        focuse.train(small, out=tmp_path / "part", **{**asked, "progress": Late()}, deadline=Clock())
    assert reached[-1][0] == 1  # in the second epoch
    focuse.resume(tmp_path / "part", progress=False)
    whole, part = (load_file(tmp_path / folder / "checkpoint.safetensors") for folder in ("whole", "part"))
    assert whole.keys() == part.keys()
    assert all(torch.equal(whole[key], part[key]) for key in whole)


class Told(Reporter):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_notes_state_matched_names_and_leaked_held_out_triples(small: focuse.Graph, tmp_path: Path) -> None:
    asked = {**ASKED, "epochs": 1}
    first = focuse.train(small, out=tmp_path / "first", **asked)
    alike, apart = Told(), Told()
    focuse.train(small, init_from=first, **{**asked, "progress": alike})
    focuse.train(small, init_from=first, seed=1, **{**asked, "progress": apart})
    entities = len(small.entities)
    begun = f"{entities} of {entities} entities and {len(small.relations)} of {len(small.relations)} relations start"
    assert [note for note in alike.notes if begun in note and "complex embeddings" in note]
    assert not [note for note in alike.notes if "metrics will be too high" in note]
    learnt = set(_facts(first.splits.train))
    second = split(small, seed=1)
    for name, part in (("validation", second.valid), ("test", second.test)):
        seen = sum(fact in learnt for fact in _facts(part))
        assert 0 < seen < len(part)
        told = f"trained on {seen} of the {len(part)} {name} triples, so metrics will be too high"
        assert [note for note in apart.notes if told in note]


def _facts(graph: focuse.Graph) -> list[tuple[str, str, str]]:
    return [row[:3] for row in _rows(graph)]


class TestFaults:
    def test_run_without_common_entities_is_refused(
        self, small: focuse.Graph, teacher: focuse.Run, tmp_path: Path
    ) -> None:
        other = focuse.read([(f"x{i % 9}", "r", f"y{i % 7}", 0.5) for i in range(60)])
        with pytest.raises(FocuseError, match="it has none of this graph's entities"):
            focuse.train(other, model="convkb", init_from=teacher, out=tmp_path / "out", **ASKED)
        assert not (tmp_path / "out").exists()

    def test_run_with_another_dimension_is_refused(
        self, small: focuse.Graph, teacher: focuse.Run, tmp_path: Path
    ) -> None:
        for model, dim, width in (("convkb", 6, 6), ("complex", 8, 16)):
            expected = rf"its entity table \(kbgat, dim 8\) has 8 values, but this training needs {width}; choose a"
            with pytest.raises(FocuseError, match=expected):
                focuse.train(small, model=model, init_from=teacher, out=tmp_path / "out", **{**ASKED, "dim": dim})
        assert not (tmp_path / "out").exists()

    def test_run_with_another_reciprocal_is_refused(self, small: focuse.Graph, tmp_path: Path) -> None:
        base = focuse.train(small, epochs=1, out=tmp_path / "base", **ASKED)
        with pytest.raises(FocuseError, match="it was trained with reciprocal=False; use the same"):
            focuse.train(small, reciprocal=True, init_from=base, out=tmp_path / "out", **ASKED)
        assert not (tmp_path / "out").exists()

    def test_folder_without_a_run_is_refused(self, small: focuse.Graph, tmp_path: Path) -> None:
        with pytest.raises(FocuseError, match="not a run"):
            focuse.train(small, init_from=tmp_path, out=tmp_path / "out", **ASKED)
        assert not (tmp_path / "out").exists()

    def test_unsaved_run_is_refused(self, small: focuse.Graph) -> None:
        run = focuse.train(small, epochs=1, **ASKED)
        with pytest.raises(FocuseError, match="save it first"):
            focuse.train(small, init_from=run, **ASKED)

    def test_value_that_is_no_path_is_refused(self, small: focuse.Graph) -> None:
        with pytest.raises(FocuseError, match="init_from 3: give text"):
            focuse.train(small, init_from=3, **ASKED)


def test_train_command_starts_from_a_run(small: focuse.Graph, teacher: focuse.Run, tmp_path: Path, capsys) -> None:
    small.write(tmp_path / "small.tsv")
    options = f"--model convkb --dim 8 --epochs 1 --label-exponent 1 --init-from {teacher.path} --quiet --json".split()
    app(["train", str(tmp_path / "small.tsv"), "--out", str(tmp_path / "run"), *options], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    assert told["settings"]["init_from"] == str(teacher.path)
    run = focuse.load(tmp_path / "run")
    assert torch.equal(first_tables(run)["relation"], teacher.scorer.encoded_tables()["relation"])
