"""How much memory this process has taken, and may take."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

PROCESSES, GROUPS = Path("/", "proc"), Path("/", "sys", "fs", "cgroup")  # where Linux tells


def taken_memory() -> int:
    """Bytes of memory that this process holds for itself, pages of files not counted; 0 where nobody tells."""
    with suppress(OSError):
        told = re.search(r"RssAnon:\s+(\d+) kB", (PROCESSES / "self" / "status").read_text(encoding="ascii"))
        if told:
            return int(told[1]) * 1024
    return 0


def free_memory() -> int | None:
    """Bytes that this process may still take: of the machine, and of the control group that it is in; None: unknown."""
    found = [value for value in (_of_machine(), _of_group()) if value is not None]
    return min(found) if found else None


def _of_machine() -> int | None:
    with suppress(OSError, ValueError, AttributeError):
        text = (PROCESSES / "meminfo").read_text(encoding="ascii")
        told = re.search(r"MemAvailable:\s+(\d+) kB", text)
        if told:
            return int(told[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _of_group() -> int | None:
    """What the process's control group has left, versions 1 and 2; pages of files do not count, they make room."""
    root, found = GROUPS, []
    with suppress(OSError):
        for line in (PROCESSES / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds == "":
                names = root / path.lstrip("/"), "memory.max", "memory.current", r"^file (\d+)"
            elif "memory" in kinds.split(","):
                below = root / "memory" / path.lstrip("/")
                names = below, "memory.limit_in_bytes", "memory.usage_in_bytes", r"^total_cache (\d+)"
            else:
                continue
            folder, limit, usage, cached = names
            with suppress(OSError, ValueError):
                most, used = (int((folder / name).read_text(encoding="ascii")) for name in (limit, usage))
                told = re.search(cached, (folder / "memory.stat").read_text(encoding="ascii"), re.MULTILINE)
                found.append(max(0, most - used + (int(told[1]) if told else 0)))
    return min(found) if found else None
