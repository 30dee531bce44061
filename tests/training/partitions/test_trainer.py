"""Training by partitions: the same as in memory where that can be, and the same bits after any death."""

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
from focuse.errors import FocuseError
from focuse.graph.checksums import check_tensors
from focuse.graph.graph import Graph
from focuse.training import shuffling
from focuse.training.partitions import starting
from focuse.training.partitions.buffer import Buffer
from focuse.training.partitions.edges import StageEdges
from focuse.training.partitions.files import PartitionFiles
from focuse.training.partitions.negatives import ActiveSampler
from focuse.training.partitions.trainer import PartitionedTrainer

SETTINGS: dict[str, Any] = {"dim": 6, "epochs": 3, "sharpness": 2.0, "seed": 3, "check_every": 2, "batch_size": 64}


def edges(entities: int = 60, count: int = 900) -> Graph:
    random = np.random.default_rng(1)
    ends = random.integers(0, entities, (2, count))
    rows = zip(ends[0], random.integers(0, 3, count), ends[1], random.random(count), strict=True)
    return focuse.read([(f"e{head}", f"r{kind}", f"e{tail}", float(weight)) for head, kind, tail, weight in rows])


def trained(folder: Path, partitions: str = "5:2", **more: Any) -> focuse.Run:
    chosen = {**SETTINGS, "engine": "partitioned", "partitions": partitions, **more}
    return focuse.train(edges(), out=folder, progress=False, **chosen)


def losses(run: focuse.Run) -> list[float]:
    return [row["loss"] for row in run.history]


@pytest.mark.parametrize(
    "more", [{}, {"model": "transe", "optimizer": "row-adam"}, {"focus": "paper", "sharpness": None}]
)
def test_one_partition_gives_the_bits_of_a_training_in_memory(tmp_path: Path, more: dict[str, Any]) -> None:
    plain = focuse.train(edges(), progress=False, **SETTINGS | more)
    parted = trained(tmp_path / "run", "1:1", **more)
    assert losses(plain) == losses(parted)
    assert [row.get("valid_mrr") for row in plain.history] == [row.get("valid_mrr") for row in parted.history]
    for name, table in plain.engine.tables.items():
        assert torch.equal(table, parted.engine.tables[name])


@pytest.mark.parametrize("partitions", ["5:2", "6:3:4"])
def test_every_edge_is_trained_once_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: str) -> None:
    met: list[tuple[int, int, int, float]] = []
    trainers: list[PartitionedTrainer] = []
    enter, take = PartitionedTrainer._enter, StageEdges.take

    def entered(self: PartitionedTrainer, *given: Any) -> torch.Tensor:
        trainers.append(self)
        return enter(self, *given)

    def taken(self: StageEdges, rows: torch.Tensor) -> Any:
        batch, trainer = take(self, rows), trainers[-1]
        dealt, held = trainer.edges.dealt, trainer.buffer.held
        ids = {
            (int(part), int(row)): entity for entity, (part, row) in enumerate(zip(dealt.part, dealt.row, strict=True))
        }
        slot = trainer.rows_a_slot
        heads, tails = ([ids[held[int(i) // slot], int(i) % slot] for i in end] for end in (batch.head, batch.tail))
        met.extend(zip(heads, batch.relation.tolist(), tails, batch.weight.tolist(), strict=True))
        return batch

    monkeypatch.setattr(PartitionedTrainer, "_enter", entered)
    monkeypatch.setattr(StageEdges, "take", taken)
    run = trained(tmp_path / "run", partitions, epochs=1, focus="off", sharpness=None)
    graph = run.splits.train
    weight = run.normaliser.transform(graph.weight, graph.relation).astype(np.float32)
    columns = (graph.head, graph.relation, graph.tail, weight)
    assert sorted(met) == sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_negatives_are_rows_in_memory_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: set[int] = set()
    allowed: list[set[int]] = []
    call = ActiveSampler.__call__

    def watched(self: ActiveSampler, *given: Any) -> Any:
        groups = call(self, *given)
        drawn.update(groups[0].entities.tolist())
        held = zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
        allowed.append({start + at for start, size in held for at in range(size)})
        assert set(groups[0].entities.tolist()) <= allowed[-1]
        assert groups[0].entities is groups[1].entities
        return groups

    monkeypatch.setattr(ActiveSampler, "__call__", watched)
    trained(tmp_path / "run", "7:3", epochs=1)
    assert drawn == set().union(*allowed)


def test_learning_by_partitions_is_learning(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "6:3", epochs=6)
    assert losses(run)[-1] < 0.97 * losses(run)[0]
    again = focuse.load(tmp_path / "run")
    assert torch.equal(again.engine.tables["entity"], run.engine.tables["entity"])
    assert again.evaluate().to_dict() == run.evaluate().to_dict()
    assert (
        again.predict(head="e1", relation="r1", top=3)[0].score == run.predict(head="e1", relation="r1", top=3)[0].score
    )


class Killed(BaseException):
    """Stands for a process that is no more: nothing above catches it."""


@pytest.mark.parametrize("at", [1, 2, 9, 31, 60])
def test_a_death_at_any_write_loses_nothing_and_changes_nothing(
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
    for name, table in whole.engine.tables.items():
        assert torch.equal(table, run.engine.tables[name])
    named = json.loads((tmp_path / "run" / "partitions" / "manifest.json").read_text(encoding="utf-8"))
    files = {path.name for path in (tmp_path / "run" / "partitions").glob("part-*")}
    kept = {
        f"part-{part}.{v}.safetensors" for key in ("versions", "best_versions") for part, v in enumerate(named[key])
    }
    assert files == kept


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_process_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
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
    for name, table in whole.engine.tables.items():
        assert torch.equal(table, run.engine.tables[name])


def test_a_run_in_partitions_says_so_until_it_is_finished(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match="stopped"):
        trained(tmp_path / "run", deadline=0.0)
    with pytest.raises(FocuseError, match="--resume"):
        focuse.load(tmp_path / "run")
    assert len(focuse.resume(tmp_path / "run", progress=False).history) == 3


def test_a_damaged_partition_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match="stopped"):
        trained(tmp_path / "run", deadline=0.0)
    part = next((tmp_path / "run" / "partitions").glob("part-3.*"))
    part.write_bytes(part.read_bytes()[:-7])
    with pytest.raises(FocuseError, match=r"part-3\..*damaged file"):
        focuse.resume(tmp_path / "run", progress=False)
    part.unlink()
    with pytest.raises(FocuseError, match=r"part-3\..*missing"):
        focuse.resume(tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"optimizer": "adam"}, "optimizer of rows"),
        ({"filter_negatives": True}, "filter_negatives"),
        ({"corrupt": "degree"}, "uniformly"),
        ({"sampling": "all"}, "every entity"),
        ({"model": "ukge-rect", "sharpness": None, "optimizer": "row-adam"}, "confidences"),
        ({"out": None}, "--out"),
    ],
)
def test_what_it_cannot_do_it_declares(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    chosen = {**SETTINGS, "engine": "partitioned", "partitions": "4:2", "out": tmp_path / "run", **given}
    with pytest.raises(FocuseError, match=told):
        focuse.train(edges(), progress=False, **chosen)
    assert not (tmp_path / "run").exists()


def test_a_run_by_partitions_is_copied_and_extended_as_it_can_be(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", epochs=1)
    with pytest.raises(FocuseError, match="copy that folder"):
        run.save(tmp_path / "copy")
    more = [("new", "r1", "e3", 0.5)]
    grown = focuse.extend(tmp_path / "run", more, out=tmp_path / "grown", epochs=1, progress=False)
    assert grown.graph.entities[-1] == "new"
    assert torch.equal(grown.engine.tables["entity"][:-1], run.engine.tables["entity"])
    with pytest.raises(FocuseError, match="frozen"):
        focuse.extend(tmp_path / "run", more, frozen=False, progress=False)


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


def test_an_altered_model_is_written_anew_from_its_partitions(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(FocuseError, match=r"model.safetensors: damaged .* remove it: --resume then writes it anew"):
        focuse.load(tmp_path / "run")
    path.unlink()
    focuse.resume(tmp_path / "run", progress=False)
    assert path.read_bytes() == whole


def test_altered_edges_are_told_before_more_epochs_change_anything(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    path = tmp_path / "run" / "partitions" / "edges.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    before = {each: each.read_bytes() for each in tmp_path.rglob("*.*") if each.is_file()}
    with pytest.raises(FocuseError, match=r"edges.safetensors: damaged file: altered"):
        focuse.resume(tmp_path / "run", epochs=9, progress=False)
    assert {each: each.read_bytes() for each in tmp_path.rglob("*.*") if each.is_file()} == before


def test_history_cut_short_is_told(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    path = tmp_path / "run" / "history.jsonl"
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    for asked in (focuse.load, lambda folder: focuse.resume(folder, epochs=4, progress=False)):
        with pytest.raises(FocuseError, match=r"history.jsonl: damaged file: cut short before epoch 3"):
            asked(tmp_path / "run")


def test_without_room_for_the_first_partitions_it_can_go_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    whole = trained(tmp_path / "whole")
    monkeypatch.setattr(starting, "put_checksum", full)
    with pytest.raises(FocuseError, match=r"part-0.0.safetensors: cannot be written: No space.*--resume"):
        trained(tmp_path / "run")
    monkeypatch.undo()
    assert losses(focuse.resume(tmp_path / "run", progress=False)) == losses(whole)


def test_stages_without_edges_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes next is read while others train; it may be one of them, for another slot."""
    rows = ["e3 r e3 .04", "e4 r e3 .405", "e2 r e3 .358", "e1 r e4 .139", "e1 r e0 .618", "e2 r e4 .983"]
    graph = [(head, kind, tail, float(weight)) for head, kind, tail, weight in map(str.split, rows)]
    asked = {"dim": 2, "epochs": 4, "sharpness": 2.0, "valid_share": 0, "test_share": 0, "progress": False}
    asked |= {"engine": "partitioned", "partitions": "6:2"}
    ahead = focuse.train(graph, out=tmp_path / "ahead", **asked)
    enter = Buffer.enter
    monkeypatch.setattr(Buffer, "enter", lambda self, stage, following: enter(self, stage, None))
    alone = focuse.train(graph, out=tmp_path / "alone", **asked)
    assert torch.equal(ahead.engine.tables["entity"], alone.engine.tables["entity"])


def test_on_a_machine_with_a_gpu_a_resumed_training_stays_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "run")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert focuse.resume(tmp_path / "run", epochs=4, device="auto", progress=False).settings.device == "cpu"


def test_one_partition_gives_the_bits_of_a_training_in_memory_also_where_the_order_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffling, "LARGE", 100)
    plain, parted = focuse.train(edges(), progress=False, **SETTINGS), trained(tmp_path / "run", "1:1")
    assert losses(plain) == losses(parted)
