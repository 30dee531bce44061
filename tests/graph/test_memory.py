"""What a process may take, of the machine and of its control group."""

from pathlib import Path

import numpy as np
import pytest

from focuse.graph import memory
from focuse.graph.memory import free_memory, taken_memory


def test_free_memory_is_a_number_of_this_machine() -> None:
    found = free_memory()
    assert found is None or 10**6 < found < 10**15


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nobody tells")
def test_what_is_taken_is_seen() -> None:
    before = taken_memory()
    more = np.ones(1 << 24)
    assert taken_memory() - before > 100_000_000
    del more


@pytest.mark.parametrize(
    ("line", "folder", "files"),
    [
        ("0::/box", "box", {"memory.max": "7000", "memory.current": "5000", "memory.stat": "anon 1\nfile 3000\n"}),
        (
            "9:memory:/box",
            "memory/box",
            {
                "memory.limit_in_bytes": "7000",
                "memory.usage_in_bytes": "5000",
                "memory.stat": "cache 1\ntotal_cache 3000\n",
            },
        ),
    ],
)
def test_a_control_group_has_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, folder: str, files: dict[str, str]
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / folder / name).write_text(text, encoding="ascii")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"3:cpu:/elsewhere\n{line}\n", encoding="ascii")
    (tmp_path / "meminfo").write_text("MemAvailable:   999 kB\n", encoding="ascii")
    monkeypatch.setattr(memory, "PROCESSES", tmp_path)
    monkeypatch.setattr(memory, "GROUPS", tmp_path)
    assert free_memory() == 7000 - 5000 + 3000  # pages of files make room
