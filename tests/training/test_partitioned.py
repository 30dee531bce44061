"""Partitioned training: the same bits as in memory with one partition, and the same bits after any interruption."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import focuse
from focuse.data.graph import Graph
from focuse.engines.partitioned import PackedEdges, PartitionBuffer, PartitionedNegativeSampler
from focuse.errors import FocuseError
from focuse.objective import randomness as shuffling
from focuse.storage.tables import PartitionFiles
from focuse.storage.tensors import TensorFile, check_tensors
from focuse.training.partitioned import PartitionedPlacement

SETTINGS: dict[str, Any] = {"dim": 6, "epochs": 3, "label_exponent": 2.0, "seed": 3, "eval_every": 2}
SETTINGS |= {"batch_size": 64, "device": "cpu"}


def edges(entities: int = 60, count: int = 900) -> Graph:
    random = np.random.default_rng(1)
    ends = random.integers(0, entities, (2, count))
    rows = zip(ends[0], random.integers(0, 3, count), ends[1], random.random(count), strict=True)
    return focuse.read(
        [(f"e{head}", f"r{relation}", f"e{tail}", float(weight)) for head, relation, tail, weight in rows]
    )


def trained(folder: Path, partitions: str = "5:2", **more: Any) -> focuse.Run:
    chosen = {**SETTINGS, "engine": "partitioned", "partitions": partitions, **more}
    return focuse.train(edges(), out=folder, progress=False, **chosen)


def losses(run: focuse.Run) -> list[float]:
    return [row["loss"] for row in run.history]


@pytest.mark.parametrize(
    "more", [{}, {"model": "transe", "optimizer": "sparse-adam"}, {"weight_mode": "focuse", "label_exponent": None}]
)
def test_one_partition_equals_training_in_memory_bit_by_bit(tmp_path: Path, more: dict[str, Any]) -> None:
    plain = focuse.train(edges(), progress=False, **SETTINGS | more)
    partitioned = trained(tmp_path / "run", "1:1", **more)
    assert losses(plain) == losses(partitioned)
    assert [row.get("valid_mrr") for row in plain.history] == [row.get("valid_mrr") for row in partitioned.history]
    for name, table in plain.scorer.tables.items():
        assert torch.equal(table, partitioned.scorer.tables[name])


@pytest.mark.parametrize("partitions", ["5:2", "6:3:4"])
def test_every_edge_is_trained_once_per_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: str) -> None:
    met: list[tuple[int, int, int, float]] = []
    placements: list[PartitionedPlacement] = []
    enter, take = PartitionedPlacement._load_stage, PackedEdges.take

    def entered(self: PartitionedPlacement, *given: Any) -> torch.Tensor:
        placements.append(self)
        return enter(self, *given)

    def taken(self: PackedEdges, rows: torch.Tensor) -> Any:
        batch, placement = take(self, rows), placements[-1]
        assignment, held = placement.edges.assignment, placement.buffer.held
        ids = {
            (int(part), int(row)): entity
            for entity, (part, row) in enumerate(zip(assignment.part, assignment.row, strict=True))
        }
        slot = placement.rows_per_slot
        heads, tails = ([ids[held[int(i) // slot], int(i) % slot] for i in end] for end in (batch.head, batch.tail))
        met.extend(zip(heads, batch.relation.tolist(), tails, batch.weight.tolist(), strict=True))
        return batch

    monkeypatch.setattr(PartitionedPlacement, "_load_stage", entered)
    monkeypatch.setattr(PackedEdges, "take", taken)
    run = trained(tmp_path / "run", partitions, epochs=1, weight_mode="none", label_exponent=None)
    graph = run.splits.train
    weight = run.normalizer.transform(graph.weight, graph.relation).astype(np.float32)
    columns = (graph.head, graph.relation, graph.tail, weight)
    assert sorted(met) == sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_negatives_are_rows_of_active_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: set[int] = set()
    allowed: list[set[int]] = []
    call = PartitionedNegativeSampler.__call__

    def watched(self: PartitionedNegativeSampler, *given: Any) -> Any:
        groups = call(self, *given)
        drawn.update(groups[0].entities.tolist())
        held = zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
        allowed.append({start + at for start, size in held for at in range(size)})
        assert set(groups[0].entities.tolist()) <= allowed[-1]
        assert groups[0].entities is groups[1].entities
        return groups

    monkeypatch.setattr(PartitionedNegativeSampler, "__call__", watched)
    trained(tmp_path / "run", "7:3", epochs=1)
    assert drawn == set().union(*allowed)


def test_the_loss_falls_and_the_run_can_be_loaded(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "6:3", epochs=6)
    assert losses(run)[-1] < 0.97 * losses(run)[0]
    again = focuse.load(tmp_path / "run", device="cpu")
    assert torch.equal(again.scorer.tables["entity"], run.scorer.tables["entity"])
    assert again.evaluate().to_dict() == run.evaluate().to_dict()
    assert (
        again.predict(head="e1", relation="r1", top=3)[0].score == run.predict(head="e1", relation="r1", top=3)[0].score
    )


class Killed(BaseException):
    """Stands for a killed process: nothing catches it."""


@pytest.mark.parametrize("at", [1, 2, 9, 31, 60])
def test_resume_after_a_kill_at_any_write_gives_identical_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    whole = trained(tmp_path / "whole", checkpoint_every="0")
    left = [at]
    write, save = PartitionFiles.write, PartitionFiles.save

    def deadly(before: Any) -> Any:
        def does(self: PartitionFiles, *given: Any) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            before(self, *given)

        return does

    monkeypatch.setattr(PartitionFiles, "write", deadly(write))
    monkeypatch.setattr(PartitionFiles, "save", deadly(save))
    try:
        trained(tmp_path / "run", checkpoint_every="0.001s")
    except Killed:
        pass
    else:
        pytest.fail("it did not die")
    monkeypatch.undo()
    run = focuse.resume(tmp_path / "run", progress=False)
    assert losses(run) == losses(whole)
    for name, table in whole.scorer.tables.items():
        assert torch.equal(table, run.scorer.tables[name])
    named = json.loads((tmp_path / "run" / "partitions" / "manifest.json").read_text(encoding="utf-8"))
    files = {path.name for path in (tmp_path / "run" / "partitions").glob("part-*")}
    kept = {
        f"part-{part}.{v}.safetensors" for key in ("versions", "best_versions") for part, v in enumerate(named[key])
    }
    assert files == kept


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_resume_of_a_killed_process_gives_identical_tables(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", epochs=12)
    edges().write(tmp_path / "graph.tsv")
    options = [f"--{name.replace('_', '-')}={value}" for name, value in {**SETTINGS, "epochs": 12}.items()]
    options += ["--engine=partitioned", "--partitions=5:2", "--checkpoint-every=0.05s", "--quiet"]
    command = [sys.executable, "-m", "focuse", "train", str(tmp_path / "graph.tsv"), "--out", str(tmp_path / "run")]
    process = subprocess.Popen([*command, *options], env={**os.environ, "OMP_NUM_THREADS": "1"})
    history = tmp_path / "run" / "history.jsonl"
    while process.poll() is None and (not history.exists() or history.read_bytes().count(b"\n") < 2):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    run = focuse.resume(tmp_path / "run", progress=False)
    assert losses(run) == losses(whole)
    for name, table in whole.scorer.tables.items():
        assert torch.equal(table, run.scorer.tables[name])


def test_an_unfinished_run_is_resumed_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match="stopped"):
        trained(tmp_path / "run", deadline=0.0)
    with pytest.raises(FocuseError, match="--resume"):
        focuse.load(tmp_path / "run")
    assert len(focuse.resume(tmp_path / "run", progress=False).history) == 3


def test_a_damaged_partition_is_one_line_of_error(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match="stopped"):
        trained(tmp_path / "run", deadline=0.0)
    part = next((tmp_path / "run" / "partitions").glob("part-3.*"))
    part.write_bytes(part.read_bytes()[:-7])
    with pytest.raises(FocuseError, match=r"part-3\..*damaged file"):
        focuse.resume(tmp_path / "run", progress=False)
    part.unlink()
    with pytest.raises(FocuseError, match=r"part-3\..*damaged file: No such file"):
        focuse.resume(tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"optimizer": "adam"}, "needs the optimizer 'sparse-adagrad' or 'sparse-adam'"),
        ({"filter_negatives": True}, "filter_negatives"),
        ({"negative_distribution": "degree"}, "uniformly"),
        ({"negative_sampling": "all"}, "every entity"),
        ({"model": "ukge-rect", "label_exponent": None, "optimizer": "sparse-adam"}, "confidences"),
        ({"out": None}, "a run folder for the partitions"),
    ],
)
def test_unsupported_settings_are_errors(tmp_path: Path, given: dict[str, Any], reason: str) -> None:
    chosen = {**SETTINGS, "engine": "partitioned", "partitions": "4:2", "out": tmp_path / "run", **given}
    with pytest.raises(FocuseError, match=reason):
        focuse.train(edges(), progress=False, **chosen)
    assert not (tmp_path / "run").exists()


def test_a_partitioned_run_is_extended_with_frozen_rows_only(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", epochs=1)
    with pytest.raises(FocuseError, match="copy that folder"):
        run.save(tmp_path / "copy")
    more = [("new", "r1", "e3", 0.5)]
    grown = focuse.extend(tmp_path / "run", more, out=tmp_path / "grown", epochs=1, progress=False)
    assert grown.graph.entities[-1] == "new"
    assert torch.equal(grown.scorer.tables["entity"][:-1].cpu(), run.scorer.tables["entity"])
    with pytest.raises(FocuseError, match="leave out train_known"):
        focuse.extend(tmp_path / "run", more, train_known=True, progress=False)


@pytest.mark.parametrize("pattern", ["part-*", "shared-*", "edges*", "manifest*"])
def test_an_altered_file_is_named(tmp_path: Path, pattern: str) -> None:
    trained(tmp_path / "run", "5:2", epochs=1)
    for path in (tmp_path / "run" / "partitions").glob(pattern):  # some are of the best epoch only
        data = bytearray(path.read_bytes())
        data[len(data) * 2 // 3] ^= 1
        path.write_bytes(data)
    with pytest.raises(FocuseError, match=pattern.replace("*", ".*damaged")):
        focuse.resume(tmp_path / "run", epochs=3, progress=False)


def test_first_partitions_have_checksums_too(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match="stopped"):
        trained(tmp_path / "run", deadline=0.0)
    path = next((tmp_path / "run" / "partitions").glob("part-*.0.safetensors"))
    check_tensors(path, required=True)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FocuseError, match=rf"{path.name}: damaged file: altered"):
        focuse.resume(tmp_path / "run", progress=False)


def test_a_damaged_model_file_is_written_again_from_its_partitions(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(FocuseError, match=r"model.safetensors: damaged .* remove it and resume, which writes it again"):
        focuse.load(tmp_path / "run")
    path.unlink()
    focuse.resume(tmp_path / "run", progress=False)
    assert path.read_bytes() == whole


def test_damaged_edges_are_reported_before_anything_is_changed(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    path = tmp_path / "run" / "partitions" / "edges.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    before = {each: each.read_bytes() for each in tmp_path.rglob("*.*") if each.is_file()}
    with pytest.raises(FocuseError, match=r"edges.safetensors: damaged file: altered"):
        focuse.resume(tmp_path / "run", epochs=9, progress=False)
    assert {each: each.read_bytes() for each in tmp_path.rglob("*.*") if each.is_file()} == before


def test_a_history_that_is_cut_short_is_reported(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    path = tmp_path / "run" / "history.jsonl"
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    with pytest.raises(FocuseError, match=r"history.jsonl: damaged file: cut short before epoch 3"):
        focuse.resume(tmp_path / "run", epochs=4, progress=False)


def test_training_without_disk_space_for_its_first_partitions_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal = TensorFile.seal

    def full(self: TensorFile, *given: Any, **named: Any) -> None:
        if self.path.name.startswith("part-"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        seal(self, *given, **named)

    whole = trained(tmp_path / "whole")
    monkeypatch.setattr(TensorFile, "seal", full)
    with pytest.raises(FocuseError, match=r"part-0.0.safetensors: cannot be written: No space.*resume the run"):
        trained(tmp_path / "run")
    monkeypatch.undo()
    assert losses(focuse.resume(tmp_path / "run", progress=False)) == losses(whole)


def test_stages_without_edges_lose_no_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next partition is read in advance; it may be an active one, for another slot."""
    rows = ["e3 r e3 .04", "e4 r e3 .405", "e2 r e3 .358", "e1 r e4 .139", "e1 r e0 .618", "e2 r e4 .983"]
    graph = [(head, relation, tail, float(weight)) for head, relation, tail, weight in map(str.split, rows)]
    asked = {"dim": 2, "epochs": 4, "label_exponent": 2.0, "valid_fraction": 0, "test_fraction": 0, "progress": False}
    asked |= {"engine": "partitioned", "partitions": "6:2"}
    ahead = focuse.train(graph, out=tmp_path / "ahead", **asked)
    load = PartitionBuffer.load_stage
    monkeypatch.setattr(PartitionBuffer, "load_stage", lambda self, stage, following: load(self, stage, None))
    alone = focuse.train(graph, out=tmp_path / "alone", **asked)
    assert torch.equal(ahead.scorer.tables["entity"], alone.scorer.tables["entity"])


def test_on_a_machine_with_a_gpu_a_resumed_training_stays_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "run")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert focuse.resume(tmp_path / "run", epochs=4, device="auto", progress=False).settings.device == "cpu"


def test_one_partition_with_a_computed_order_equals_training_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffling, "MIN_COMPUTED_ROWS", 100)
    plain, partitioned = focuse.train(edges(), progress=False, **SETTINGS), trained(tmp_path / "run", "1:1")
    assert losses(plain) == losses(partitioned)
