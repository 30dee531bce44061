"""Free memory decides whether a training is partitioned, and into how many partitions."""

from pathlib import Path
from typing import Any

import pytest

import focuse
from focuse.errors import FocuseError
from focuse.option_strings import parse_partitions
from focuse.system import parse_memory
from focuse.training import preparation
from focuse.training.callbacks import Reporter
from focuse.training.memory_planner import partitions_for


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
    with pytest.raises(FocuseError, match="too little"):
        partitions_for(10**12, 10**6)


def graph() -> Any:
    return focuse.read([(f"e{i % 50}", "r", f"e{i * 7 % 53}", float(i % 9)) for i in range(400)])


def test_auto_is_partitioned_only_if_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "used_memory", lambda: 0)
    plain = focuse.train(
        graph(), dim=8, epochs=1, label_exponent=1, out=tmp_path / "a", progress=False, memory_limit="1GB"
    )
    assert plain.settings.engine == "auto"
    assert not (tmp_path / "a" / "partitions").exists()
    partitioned = focuse.train(
        graph(), dim=8, epochs=1, label_exponent=1, out=tmp_path / "b", progress=False, memory_limit="8kB"
    )
    assert partitioned.settings.engine == "partitioned"
    assert parse_partitions(partitioned.settings.partitions or "")[0] > 1
    assert (tmp_path / "b" / "partitions").is_dir()


def test_auto_looks_at_the_free_memory_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "free_memory", lambda: 8_000)
    run = focuse.train(graph(), dim=8, epochs=1, label_exponent=1, out=tmp_path / "a", progress=False)
    assert run.settings.engine == "partitioned"
    # What cannot be partitioned is trained in memory.
    run = focuse.train(graph(), dim=8, epochs=1, label_exponent=1, progress=False)
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

    focuse.train(graph(), dim=4, epochs=1, label_exponent=1, out=tmp_path / "run", progress=Listening(), **settings)
    found = [text for text in notes if "partitions are not used" in text or "two partitions" in text]
    assert [note in text for text in found] == ([True] if note else [])


def test_too_little_memory_is_one_error_without_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "used_memory", lambda: 10**9)
    notes: list[str] = []
    monkeypatch.setattr(Reporter, "note", lambda self, text: notes.append(text))
    with pytest.raises(FocuseError, match="too little"):
        focuse.train(
            graph(),
            dim=8,
            epochs=1,
            label_exponent=1,
            out=tmp_path / "run",
            progress=Reporter(),
            memory_limit="8kB",
        )
    assert not [note for note in notes if "kept on disk" in note]
