"""What is trained, and whether two runs are the same, bit for bit."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

MODEL, CHECKPOINT, MANIFEST = "model.safetensors", "checkpoint.safetensors", "partitions/manifest.json"
EPOCHS = 8
OPTIONS = (
    "--dim", "10", "--epochs", str(EPOCHS), "--batch-size", "64", "--lr", "0.01", "--num-negatives", "4",
    "--eval-every", "2", "--label-exponent", "1", "--device", "cpu",
)  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A graph in a file, more edges for it in another, a folder to work in, and options besides `OPTIONS`."""

    graph: Path
    more: Path
    room: Path
    options: tuple[str, ...] = ()

    @property
    def partitioned(self) -> bool:
        return "partitioned" in self.options

    @property
    def checkpoint(self) -> str:
        """The file of a run that is replaced last when a checkpoint is made."""
        return MANIFEST if self.partitioned else CHECKPOINT

    def with_options(self, *options: str) -> Subject:
        return replace(self, options=options)

    def in_room(self, room: Path) -> Subject:
        """The same in another folder, which is made."""
        room.mkdir(parents=True, exist_ok=True)
        return replace(self, room=room)

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
        return ["train", self.graph, "--out", out, *OPTIONS, *self.options, "--checkpoint-every", every, "--quiet"]


def tensors(path: Path) -> dict[str, tuple[str, bytes]]:
    """Every tensor of a file by name: kind and shape, and its bytes."""
    with safe_open(path, framework="np") as file:
        found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    return {key: (f"{value.dtype} {value.shape}", value.tobytes()) for key, value in found.items()}


def progress(path: Path) -> dict[str, Any] | None:
    """What a checkpoint or a manifest says of itself; None if it is not there or not whole."""
    try:
        if path.suffix == ".json":
            return dict(json.loads(path.read_text(encoding="utf-8"))["progress"])
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
    parted = (other / MANIFEST).exists()
    found = _unlike(MODEL, folder / MODEL, other / MODEL)
    found += (
        _unlike_partitions(folder, other) if parted else _unlike(CHECKPOINT, folder / CHECKPOINT, other / CHECKPOINT)
    )
    at = MANIFEST if parted else CHECKPOINT
    if progress(folder / at) != progress(other / at):
        found.append("progress")
    if history(folder) != history(other):
        found.append("history")
    for name in ("extended.json", "label_exponent.json"):
        texts = [path.read_bytes() for path in (folder / name, other / name) if path.exists()]
        if len(set(texts)) > 1:
            found.append(name)
    names = [{path.name for path in each.iterdir()} for each in (folder, other)]
    found += [f"file {name}" for name in sorted(names[0] ^ names[1])]
    found += [f"left beside it: {path.name}" for path in folder.parent.glob(f".{folder.name}.*")]
    return found


def _unlike(name: str, one: Path, other: Path) -> list[str]:
    """Tensors in which two files differ."""
    mine, theirs = tensors(one), tensors(other)
    found = [] if mine.keys() == theirs.keys() else [f"{name} holds other tensors"]
    return found + [f"{name} {key}" for key in mine.keys() & theirs.keys() if mine[key] != theirs[key]]


def _unlike_partitions(folder: Path, other: Path) -> list[str]:
    """Tensors of edges, of all partitions, now and at the best epoch, and of what they share; and files left over.

    The number of a version tells how often a partition was written, which depends on who was killed when.
    """
    mine, theirs = (_of_manifest(each) for each in (folder, other))
    found = [] if mine.keys() == theirs.keys() else ["the manifest names other partitions"]
    for name in sorted(mine.keys() & theirs.keys()):
        found += _unlike(f"partitions: {name}", mine[name], theirs[name])
    expected = {path.name for path in mine.values()} | {"manifest.json"}
    there = {path.name for path in (folder / "partitions").iterdir()}
    return found + [f"file partitions/{name}" for name in sorted(there ^ expected)]


def _of_manifest(folder: Path) -> dict[str, Path]:
    """The files that a manifest names, by what they are."""
    told = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    found = {"edges": "edges.safetensors", "shared": f"shared-{told['shared']}.safetensors"}
    found |= {"best shared": f"shared-{told['best_shared']}.safetensors"} if told["best_shared"] else {}
    for kind in ("versions", "best_versions"):
        found |= {f"{kind} {part}": f"part-{part}.{number}.safetensors" for part, number in enumerate(told[kind])}
    return {name: folder / "partitions" / file for name, file in found.items()}
