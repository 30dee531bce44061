"""How much memory there is decides how a training goes."""

from pathlib import Path
from typing import Any

import pytest

import focuse
from focuse.errors import FocuseError
from focuse.training.partitions import memory
from focuse.training.partitions.memory import partitions_for
from focuse.training.progress import Silent
from focuse.training.specs import parse_memory, parse_partitions


@pytest.mark.parametrize(
    ("text", "size"), [("6GB", 6 * 10**9), ("512 mb", 512 * 10**6), ("2GiB", 2**31), ("1.5k", 1500), ("77b", 77)]
)
def test_sizes_in_words(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "many", "10", "-6GB", "6XB", "0GB", "nan"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(FocuseError, match=r"memory .*give a size"):
        parse_memory(text)


@pytest.mark.parametrize("text", ["8", "4:8", "0:0", "a:b", "8:-1", "8:4:0", "8:4:2:1"])
def test_partitions_that_are_none(text: str) -> None:
    with pytest.raises(FocuseError, match=r"partitions .*give how many"):
        parse_partitions(text)


def test_partitions_fit_into_their_room() -> None:
    for room in (300, 1_000, 3_300, 9_999):
        partitions, slots = partitions_for(10_000, room)
        assert (slots + 1) * -(-10_000 // partitions) <= room * 1.01
        assert slots >= 2
    with pytest.raises(FocuseError, match="too little"):
        partitions_for(10**12, 10**6)


def graph() -> Any:
    return focuse.read([(f"e{i % 50}", "r", f"e{i * 7 % 53}", float(i % 9)) for i in range(400)])


def test_auto_goes_by_partitions_only_where_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "taken_memory", lambda: 0)
    plain = focuse.train(graph(), dim=8, epochs=1, sharpness=1, out=tmp_path / "a", progress=False, memory="1GB")
    assert plain.settings.engine == "auto"
    assert not (tmp_path / "a" / "partitions").exists()
    parted = focuse.train(graph(), dim=8, epochs=1, sharpness=1, out=tmp_path / "b", progress=False, memory="8kB")
    assert parted.settings.engine == "partitioned"
    assert parse_partitions(parted.settings.partitions or "")[0] > 1
    assert (tmp_path / "b" / "partitions").is_dir()


def test_auto_asks_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 8_000)
    run = focuse.train(graph(), dim=8, epochs=1, sharpness=1, out=tmp_path / "a", progress=False)
    assert run.settings.engine == "partitioned"
    # What cannot go by partitions goes on in memory, and says so.
    run = focuse.train(graph(), dim=8, epochs=1, sharpness=1, progress=False)
    assert run.settings.engine == "auto"


def test_partitions_are_of_one_engine() -> None:
    with pytest.raises(FocuseError, match="partitions are of the engine"):
        focuse.train(graph(), engine="fused", partitions="4:2")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"engine": "auto", "partitions": "4:3", "memory": "1GB"}, "no partitions are made"),
        ({"engine": "partitioned", "partitions": "4:2"}, "two partitions in memory"),
        ({"engine": "partitioned", "partitions": "4:3"}, ""),
        ({"engine": "partitioned", "partitions": "2:2"}, ""),
    ],
)
def test_what_partitions_do_not_do_is_told(tmp_path: Path, asked: dict[str, Any], told: str) -> None:
    notes: list[str] = []

    class Listening(Silent):
        def note(self, text: str) -> None:
            notes.append(text)

    focuse.train(graph(), dim=4, epochs=1, sharpness=1, out=tmp_path / "run", progress=Listening(), **asked)
    found = [note for note in notes if "no partitions are made" in note or "two partitions" in note]
    assert [told in note for note in found] == ([True] if told else [])


def test_a_refusal_is_all_that_is_said_of_too_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "taken_memory", lambda: 10**9)
    notes: list[str] = []
    monkeypatch.setattr(Silent, "note", lambda self, text: notes.append(text))
    with pytest.raises(FocuseError, match="too little"):
        focuse.train(graph(), dim=8, epochs=1, sharpness=1, out=tmp_path / "run", progress=Silent(), memory="8kB")
    assert not [note for note in notes if "kept on disk" in note]
