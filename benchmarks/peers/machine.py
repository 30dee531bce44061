"""What a benchmark ran on, in one line and as a table of words."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def describe() -> dict[str, str]:
    """Processor, cores, memory, and the versions that matter."""
    found = {"processor": _line("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()}
    found["cores"] = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    memory = _line("/proc/meminfo", "MemTotal")
    if memory:
        found["memory"] = f"{int(memory.split()[0]) / 2**20:.0f} GiB"
    found["system"] = f"{platform.system()} {platform.release()}"
    found["python"] = platform.python_version()
    return found | {name: version(name) for name in ("focuse", "torch", "numpy")}


def sentence(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.items())


def busy() -> str:
    """A warning if others work on this machine, else empty; to be asked before anything is measured."""
    load = os.getloadavg()[0]
    return f"; THE MACHINE WAS BUSY (load {load:.1f}): the times are worth little" if load > 0.5 else ""


def _line(path: str, key: str) -> str:
    """The value of the first line 'key: value' of a file of the kernel, empty if there is none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
