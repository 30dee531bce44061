"""The fixed part of a run's folder: its settings, names, splits and normaliser, as they were when it began."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays

from focuse import __version__
from focuse.errors import FocuseError
from focuse.graph.arrays import chunks, map_arrays, write_arrays
from focuse.graph.checksums import ALTERED, check_text, file_checksum, seal_text
from focuse.graph.columns import Columns
from focuse.graph.graph import Aligned, Graph, Unseen
from focuse.graph.merging import Merger
from focuse.graph.numbers import Numbers
from focuse.graph.splits import Splits
from focuse.graph.vocabulary import Vocabulary
from focuse.graph.weights import Normaliser, stored_normaliser
from focuse.graph.writing import replacing
from focuse.training.configuration import with_model
from focuse.training.files import reading, writing
from focuse.training.settings import Settings
from focuse.training.toml import to_toml

FORMAT = 2
CHUNK = 1 << 20  # edges looked at together
MAPPED = 1 << 26  # bytes of edges from which on they are mapped, not read
PARTS = ("train", "valid", "test")
COLUMNS = ("head", "relation", "tail", "weight")
BACKUP = "put a copy of it back, or train again"


def read_fixed(folder: Path, model: object = None) -> tuple[Settings, Splits, Normaliser]:
    """Settings, splits and normaliser as they were when the run began; `model` is a class to take for its own."""
    return _read_parts(folder, with_model(_read_config(folder), model, folder))


def read_own(folder: Path) -> tuple[Settings, Splits, Normaliser]:
    """As `read_fixed`, of a folder that this very command has written: whatever its model is, it is trusted."""
    return _read_parts(folder, _read_config(folder))


def _read_config(folder: Path) -> dict[str, Any]:
    with reading(folder / "run.toml", BACKUP) as path:
        text = path.read_bytes().decode()
        config = tomllib.loads(text)
        version = config["format"]
    if version != FORMAT:
        newer = isinstance(version, int) and version > FORMAT
        advice = "update focuse" if newer else f"train it again: focuse train GRAPH --config {path} --out NEW"
        raise FocuseError(f"{path}: run format {version}, this focuse {__version__} reads {FORMAT}; {advice}")
    _check_text(path, text, config)
    return config


def _read_parts(folder: Path, config: dict[str, Any]) -> tuple[Settings, Splits, Normaliser]:
    with reading(folder / "run.toml"):
        # Runs from before validation had parts were stopped by all of it.
        settings = Settings.of(**{"stopping_share": 1.0, **config["settings"]})
        splits = _read_splits(folder, config)
    with _checked(folder / "normaliser.safetensors", config) as path:
        arrays = load_arrays(path)
        arrays.pop("nothing", None)
        kind = "none" if splits.merger is not None else settings.normalize or "relation"
        normaliser = stored_normaliser(kind, arrays, splits.train.lower_is_better)
        every = np.arange(len(splits.train.relations), dtype=np.int32)
        normaliser.transform(np.zeros(len(every)), every)
    return settings, splits, normaliser


def amend(folder: Path, settings: Settings) -> None:
    """Other settings for the rest of the training, so that a later resume has them too."""
    with reading(folder / "run.toml", BACKUP) as path:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    config["settings"] = _known_settings(settings)
    with writing(path), replacing(path, durable=True) as temporary:
        temporary.write_bytes(_sealed(config))


def _sealed(config: dict[str, Any]) -> bytes:
    """The text of run.toml; that of a run with checksums has one of its own."""
    text = to_toml(config)
    return (seal_text(text) if "checksums" in config else text).encode()


def _check_text(path: Path, text: str, config: dict[str, Any]) -> None:
    """Raise where run.toml is not what was written, which may be somebody's wish."""
    meant = "put a copy back, or if you changed it yourself, remove its last line and its table [checksums]"
    with reading(path, meant):
        check_text(text, required="checksums" in config)


@contextmanager
def _checked(path: Path, config: dict[str, Any]) -> Iterator[Path]:
    """`reading` of a file whose checksum stands in run.toml, if that has some."""
    with reading(path, BACKUP):
        written = config.get("checksums")
        if written is not None and file_checksum(path) != dict(written).get(path.name):
            raise ValueError(ALTERED)
        yield path


def write_fixed(folder: Path, settings: Settings, splits: Splits, normaliser: Normaliser) -> None:
    """All but the weights, in an empty folder."""
    parts = {"train": splits.train, "valid": splits.valid.graph, "test": splits.test.graph}
    others = {"inferred": splits.inferred, "false": splits.false}
    parts |= {name: graph for name, graph in others.items() if graph is not None}
    config: dict[str, Any] = {
        "format": FORMAT,
        "focuse": __version__,
        "torch": torch.__version__,
        "settings": _known_settings(settings),
        "sources": {name: graph.source for name, graph in parts.items()},
        "weighted": {name: graph.weighted for name, graph in parts.items()},
        "unseen": {"valid": asdict(splits.valid.unseen), "test": asdict(splits.test.unseen)},
        "direction": "lower" if splits.train.lower_is_better else "higher",  # which weights are strong
    }
    arrays: dict[str, dict[str, Any]] = {}
    if splits.merger is not None:
        config["columns"] = splits.merger.to_dict()
        arrays["columns"] = splits.merger.arrays()
    if splits.numbers is not None:
        config["numbers"] = splits.numbers.source
        with replacing(folder / "numbers.safetensors") as temporary:
            splits.numbers.write(temporary)
    splits.train.entities.write(folder / "entities.parquet")
    splits.train.relations.write(folder / "relations.parquet")
    columns = {f"{name}/{column}": getattr(graph, column) for name, graph in parts.items() for column in COLUMNS}
    several = {name: graph.columns for name, graph in parts.items() if graph.columns is not None}
    columns |= {f"{name}/columns": np.ascontiguousarray(found.values) for name, found in several.items()}
    # A file of tensors must hold one.
    arrays |= {"splits": columns, "normaliser": normaliser.arrays or {"nothing": np.zeros(1)}}
    for name, values in arrays.items():
        with replacing(folder / f"{name}.safetensors") as temporary:
            (write_arrays(temporary, values) if name == "splits" else save_arrays(values, temporary))
    # Before the other tables, for what is cut short must still say that it had them.
    sums = {"checksums": {path.name: file_checksum(path) for path in sorted(folder.iterdir())}}
    config = {"format": FORMAT, **sums, **config}
    (folder / "run.toml").write_bytes(_sealed(config))


def _known_settings(settings: Settings) -> dict[str, Any]:
    """TOML has no None: what is not set is left out."""
    return {key: value for key, value in settings.to_dict().items() if value is not None}


def _read_splits(folder: Path, config: dict[str, Any]) -> Splits:
    names = {*PARTS, *config["sources"]}
    with _checked(folder / "entities.parquet", config) as path:
        entities = Vocabulary.read(path)
    with _checked(folder / "relations.parquet", config) as path:
        relations = Vocabulary.read(path)
    with _checked(folder / "splits.safetensors", config) as path:
        columns = map_arrays(path) if path.stat().st_size >= MAPPED else load_arrays(path)
        missing = {f"{name}/{column}" for name in names for column in COLUMNS} - set(columns)
        if missing:
            raise ValueError(f"no column {min(missing)}")
        _check_columns(columns, len(entities), len(relations))
    merger = _read_merger(folder, config)
    lower = config.get("direction") == "lower"
    parts = {
        name: Graph(
            columns[f"{name}/head"],
            columns[f"{name}/relation"],
            columns[f"{name}/tail"],
            columns[f"{name}/weight"],
            entities,
            relations,
            config["sources"][name],
            config["weighted"][name],
            _columns(merger, columns.get(f"{name}/columns")),
            lower and name in PARTS,
        )
        for name in config["sources"]
    }
    unseen = {name: Unseen(**config["unseen"][name]) for name in ("valid", "test")}
    if not all(isinstance(part.rows, int) for part in unseen.values()):
        raise ValueError("unseen rows that are no number")
    valid, test = (Aligned(parts[name], unseen[name]) for name in ("valid", "test"))
    numbers = None
    if "numbers" in config:
        with _checked(folder / "numbers.safetensors", config) as path:
            numbers = Numbers.read(path, len(entities))
    return Splits(parts["train"], valid, test, parts.get("inferred"), parts.get("false"), merger, numbers)


def _check_columns(columns: dict[str, Any], entities: int, relations: int) -> None:
    """Raise unless ids are of the vocabularies and weights are numbers, as many as there are edges."""
    sizes = {"head": entities, "relation": relations, "tail": entities}
    for key, values in columns.items():
        part, _, column = key.partition("/")
        if column not in COLUMNS:
            continue
        if values.shape != columns[f"{part}/head"].shape or values.ndim != 1:
            raise ValueError(f"{key} is of another length than {part}/head")
        if values.dtype.kind != ("f" if column == "weight" else "i"):
            raise ValueError(f"{key} holds other kinds of numbers")
        if column == "weight" and not all(np.isfinite(values[piece]).all() for piece in chunks(len(values), CHUNK)):
            raise ValueError(f"{key} holds what is no number")
        if column in sizes and len(values) and not 0 <= values.min() <= values.max() < sizes[column]:
            raise ValueError(f"{key} names what is not in the vocabulary")
    if not len(columns["train/head"]):
        raise ValueError("no edges in train")


def _read_merger(folder: Path, config: dict[str, Any]) -> Merger | None:
    if "columns" not in config:
        return None
    with _checked(folder / "columns.safetensors", config) as path:
        return Merger.stored(config["columns"], load_arrays(path))


def _columns(merger: Merger | None, values: Any) -> Columns | None:
    return None if merger is None or values is None else Columns(merger.names, values, merger.lower)
