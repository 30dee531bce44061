"""Runs as they were written before there were checksums, for tests that change files by hand."""

from __future__ import annotations

import json
import struct
from pathlib import Path


def older(folder: Path) -> Path:
    """The run's folder without the checksums of its run.toml, as a user who edits it is told to do."""
    path = folder / "run.toml"
    text = path.read_text(encoding="utf-8")
    before, _, after = text.partition("\n[checksums]\n")
    tables = after[after.index("\n[") : after.index("# crc32 ")]
    path.write_text(before + tables, encoding="utf-8")
    return folder


def without_checksums(folder: Path) -> Path:
    """The run's folder without any checksum, as the first versions wrote it and as anyone can make it."""
    older(folder)
    for path in folder.glob("*.safetensors"):
        content = path.read_bytes()
        size = struct.unpack_from("<Q", content)[0]
        header = json.loads(content[8 : 8 + size])
        header.get("__metadata__", {}).pop("crc32", None)
        if header.get("__metadata__") == {}:
            del header["__metadata__"]
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
        path.unlink()  # it may be mapped
        path.write_bytes(content[:8] + text.encode().ljust(size) + content[8 + size :])
    for path in folder.glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        text = "".join(f"{json.dumps({key: row[key] for key in row if key != 'crc32'})}\n" for row in rows)
        path.write_text(text, encoding="utf-8")
    return folder
