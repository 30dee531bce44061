"""Free memory decides whether a training is partitioned, and into how many partitions."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import focuse
from focuse import system
from focuse.config import Config
from focuse.data import readers
from focuse.errors import FocuseError
from focuse.option_strings import parse_partitions
from focuse.system import parse_memory
from focuse.training import memory_planner
from focuse.training.callbacks import Reporter
from focuse.training.memory_planner import partitions_for, step_memory


@pytest.mark.parametrize(
    ("text", "size"), [("6GB", 6 * 10**9), ("512 mb", 512 * 10**6), ("2GiB", 2**31), ("1.5k", 1500), ("77b", 77)]
)
def test_memory_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "many", "10", "-6GB", "6XB", "0GB", "nan"])
def test_a_text_that_is_no_memory_size_is_an_error(text: str) -> None:
    with pytest.raises(FocuseError, match=r"memory_limit .*give a size"):
        parse_memory(text)


@pytest.mark.parametrize("text", ["8", "4:8", "0:0", "a:b", "8:-1", "8:4:0", "8:4:2:1"])
def test_a_text_that_gives_no_partitions_is_an_error(text: str) -> None:
    with pytest.raises(FocuseError, match=r"partitions .*give the number of partitions and the number loaded at once"):
        parse_partitions(text)


def test_active_partitions_fit_into_memory() -> None:
    for available in (300, 1_000, 3_300, 9_999):
        partitions, slots = partitions_for(10_000, available)
        assert (slots + 1) * -(-10_000 // partitions) <= available * 1.01
        assert slots >= 2
    with pytest.raises(FocuseError, match=r"needed, .* free for them, next to a batch"):
        partitions_for(10**12, 10**6)


def graph() -> Any:
    return focuse.read([(f"e{i % 50}", "r", f"e{i * 7 % 53}", float(i % 9)) for i in range(400)])


SMALL: dict[str, Any] = {
    "dim": 8,
    "epochs": 1,
    "label_exponent": 1,
    "batch_size": 100,
    "num_negatives": 10,
    "progress": False,
}
# Bytes of a step with these settings.
SMALL_STEP = step_memory(Config.from_kwargs(**{name: SMALL[name] for name in SMALL if name != "progress"}), 53)


def test_auto_is_partitioned_only_if_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "used_memory", lambda: 0)
    plain = focuse.train(graph(), out=tmp_path / "a", memory_limit="1GB", **SMALL)
    assert plain.settings.engine == "auto"
    assert not (tmp_path / "a" / "partitions").exists()
    partitioned = focuse.train(graph(), out=tmp_path / "b", memory_limit=f"{SMALL_STEP + 8000}B", **SMALL)
    assert partitioned.settings.engine == "partitioned"
    assert parse_partitions(partitioned.settings.partitions or "")[0] > 1
    assert {partitioned.settings.provenance[name] for name in ("engine", "partitions")} == {"derived"}
    assert (tmp_path / "b" / "partitions").is_dir()


def test_auto_looks_at_the_free_memory_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_planner, "free_memory", lambda: SMALL_STEP + 8_000)
    run = focuse.train(graph(), out=tmp_path / "a", **SMALL)
    assert run.settings.engine == "partitioned"
    # What cannot be partitioned is trained in memory.
    run = focuse.train(graph(), **SMALL)
    assert run.settings.engine == "auto"


def test_partitions_are_a_setting_of_the_partitioned_engine_only() -> None:
    with pytest.raises(FocuseError, match="partitions requires engine 'partitioned'"):
        focuse.train(graph(), partitions="4:2")


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({"engine": "partitioned", "partitions": "4:2"}, "two partitions in memory"),
        ({"engine": "partitioned", "partitions": "4:3"}, ""),
        ({"engine": "partitioned", "partitions": "2:2"}, ""),
    ],
)
def test_a_choice_of_partitions_that_learns_worse_or_has_no_effect_is_noted(
    tmp_path: Path, settings: dict[str, Any], note: str
) -> None:
    notes: list[str] = []

    class Listening(Reporter):
        def note(self, text: str) -> None:
            notes.append(text)

    given = {"dim": 4, "epochs": 1, "label_exponent": 1, **settings}
    run = focuse.train(graph(), out=tmp_path / "run", progress=Listening(), **given)
    assert {run.settings.provenance[name] for name in given} == {"given"}
    found = [text for text in notes if "partitions are not used" in text or "two partitions" in text]
    assert [note in text for text in found] == ([True] if note else [])


def test_too_little_memory_is_one_error_without_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "used_memory", lambda: 0)
    notes: list[str] = []
    monkeypatch.setattr(Reporter, "note", lambda self, text: notes.append(text))
    with pytest.raises(FocuseError, match=r"needed, .* free for them, next to a batch"):
        focuse.train(
            graph(),
            dim=8,
            epochs=1,
            label_exponent=1,
            out=tmp_path / "run",
            progress=Reporter(),
            memory_limit="100kB",
        )
    assert not [note for note in notes if "kept on disk" in note]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"negative_sampling": "all"}, "needs every entity in memory"),
        ({"optimizer": "adam"}, "needs the optimizer"),
        ({"out": None}, "needs a run folder"),
        (
            {"model": "beurre", "label_exponent": None, "weight_scaling": "global"},
            "initializes its rows as a whole table",
        ),
    ],
)
def test_a_training_that_exceeds_the_memory_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(system, "used_memory", lambda: 0)
    given = {"dim": 8, "epochs": 1, "label_exponent": 1, "out": tmp_path / "run", "progress": False} | settings
    with pytest.raises(FocuseError, match=f"of memory_limit 9MB; .*{reason}"):
        focuse.train(graph(), memory_limit="9MB", **given)
    assert not (tmp_path / "run").exists()


def test_a_training_that_grows_over_the_memory_limit_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([0] * 6)
    monkeypatch.setattr(system, "used_memory", lambda: next(used, 2 * 10**9))
    with pytest.raises(FocuseError, match=r"2 GB of memory are in use, more than the limit of 1 GB; raise"):
        focuse.train(graph(), dim=8, epochs=20, label_exponent=1, progress=False, memory_limit="1GB")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks of anonymous memory are read from Linux")
@pytest.mark.parametrize("limit", ["450MB", "700MB"])
def test_the_memory_limit_bounds_anonymous_memory(tmp_path: Path, limit: str) -> None:
    """The smaller limit needs partitions; the larger one is enough to train in memory."""
    code = f"""
import threading, time, numpy as np, focuse
from focuse.system import used_memory
random, size = np.random.default_rng(0), 60_000
with open("edges.tsv", "w") as file:
    for head, tail, weight in zip(*random.integers(0, size, (2, 300_000)), random.random(300_000)):
        file.write(f"e{{head}}\\tr\\te{{tail}}\\t{{weight:.3f}}\\n")
peak, done = 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.005):
        peak = max(peak, used_memory())
watcher = threading.Thread(target=watch)
watcher.start()
run = focuse.train("edges.tsv", dim=100, epochs=1, label_exponent=1, out="run", progress=False, memory_limit={limit!r})
done.set()
watcher.join()
print(run.settings.engine, peak)
"""
    made = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    engine, peak = made.stdout.split()
    assert engine == {"450MB": "partitioned", "700MB": "auto"}[limit]
    assert int(peak) <= parse_memory(limit)


def test_a_graph_that_cannot_be_split_within_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "used_memory", lambda: 0)
    with pytest.raises(FocuseError, match=r"splitting 400 edges takes about .* free of memory_limit 8kB; raise it"):
        focuse.train(graph(), dim=8, epochs=1, memory_limit="8kB", progress=False)


def test_a_large_file_is_refused_if_the_limit_is_too_small_to_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "edges.tsv"
    path.write_text("".join(f"e{number}\tr\te{number + 1}\t0.5\n" for number in range(100_000)))
    monkeypatch.setattr(system, "used_memory", lambda: 400 * 10**6)
    with pytest.raises(FocuseError, match=r"edges\.tsv: reading it takes about 268 MB .* 10 MB are free .*raise"):
        focuse.train(path, memory_limit="410MB", progress=False)
    used = iter([400 * 10**6] * 2)  # until its first block is encoded
    monkeypatch.setattr(readers, "OUT_OF_CORE_BYTES", 1)
    monkeypatch.setattr(system, "used_memory", lambda: next(used, 10**9))
    with pytest.raises(
        FocuseError, match=r"1 GB of memory are in use, more than the limit of 900 MB; raise memory_limit$"
    ):
        focuse.train(path, memory_limit="900MB", progress=False)
    assert next(used, None) is None
