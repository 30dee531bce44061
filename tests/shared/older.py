"""Runs as they were written before there were checksums, for tests that change files by hand."""

from __future__ import annotations

from pathlib import Path


def older(folder: Path) -> Path:
    """The run's folder without the checksums of its run.toml, as a user who edits it is told to do."""
    path = folder / "run.toml"
    text = path.read_text(encoding="utf-8")
    before, _, after = text.partition("\n[checksums]\n")
    tables = after[after.index("\n[") : after.index("# crc32 ")]
    path.write_text(before + tables, encoding="utf-8")
    return folder
