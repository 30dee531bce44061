"""What is trained, and whether two runs are the same, bit for bit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

FILES = ("model.safetensors", "checkpoint.safetensors")
EPOCHS = 8
OPTIONS = (
    "--dim", "10", "--epochs", str(EPOCHS), "--batch-size", "64", "--lr", "0.01", "--negatives", "4",
    "--check-every", "2", "--decay", "6", "--sharpness", "1", "--device", "cpu",
)  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A graph in a file, more edges for it in another, and a folder to work in."""

    graph: Path
    more: Path
    room: Path

    @classmethod
    def make(cls, room: Path, seed: int = 0, edges: int = 600, entities: int = 40) -> Subject:
        """A small graph with weights, drawn by chance."""
        random = np.random.default_rng(seed)
        drawn = random.integers(0, (entities, 3, entities), (edges, 3))
        lines = [f"e{h}\tr{r}\te{t}\t{w:.4f}\n" for (h, r, t), w in zip(drawn, random.random(edges), strict=True)]
        (room / "graph.tsv").write_text("".join(lines), encoding="utf-8")
        news = [f"n{i % 5}\tr{i % 3}\te{i}\t{i / 30:.4f}\n" for i in range(30)]
        (room / "more.tsv").write_text("".join(news), encoding="utf-8")
        return cls(room / "graph.tsv", room / "more.tsv", room)

    def train(self, out: Path, every: str = "1") -> list[object]:
        """The command that trains it."""
        return ["train", self.graph, "--out", out, *OPTIONS, "--checkpoint-every", every, "--quiet"]


def tensors(path: Path) -> dict[str, tuple[str, bytes]]:
    """Every tensor of a file by name: kind and shape, and its bytes."""
    with safe_open(path, framework="np") as file:
        found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    return {key: (f"{value.dtype} {value.shape}", value.tobytes()) for key, value in found.items()}


def progress(path: Path) -> dict[str, Any] | None:
    """What a checkpoint says of itself; None if it is not there or not whole."""
    try:
        with safe_open(path, framework="np") as file:
            return dict(json.loads(file.metadata()["progress"]))
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def history(folder: Path) -> list[dict[str, Any]]:
    """The rows of history but for what differs from time to time."""
    rows = []
    for line in (folder / "history.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # cut short
            continue
        rows.append({key: value for key, value in row.items() if key not in ("seconds", "crc32")})
    return rows


def differences(folder: Path, other: Path) -> list[str]:
    """In what two finished runs differ: tensors, progress, history, names of files; nothing if they are the same."""
    found = []
    for name in FILES:
        one, two = tensors(folder / name), tensors(other / name)
        if one.keys() != two.keys():
            found.append(f"{name} holds other tensors")
        found += [f"{name} {key}" for key in one.keys() & two.keys() if one[key] != two[key]]
    if progress(folder / FILES[1]) != progress(other / FILES[1]):
        found.append("progress")
    if history(folder) != history(other):
        found.append("history")
    for name in ("extended.json", "sharpness.json"):
        texts = [path.read_bytes() for path in (folder / name, other / name) if path.exists()]
        if len(set(texts)) > 1:
            found.append(name)
    names = [{path.name for path in each.iterdir()} for each in (folder, other)]
    found += [f"file {name}" for name in sorted(names[0] ^ names[1])]
    found += [f"left beside it: {path.name}" for path in folder.parent.glob(f".{folder.name}.*")]
    return found
