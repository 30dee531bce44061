"""The metadata of a run, in run.toml and files of arrays next to it: settings, splits and weight scaling."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pyarrow import parquet
from safetensors.numpy import load_file

from focuse import __version__
from focuse.config import SETTINGS, Config
from focuse.data.attributes import NodeAttributes
from focuse.data.graph import EDGE_COLUMNS, Graph, UnseenNames, Vocabulary, WeightColumns
from focuse.data.splits import Splits
from focuse.data.weights import ColumnMerger, Normalizer, stored_normalizer
from focuse.errors import FocuseError
from focuse.models import registry
from focuse.models.base import split_inverse_relations
from focuse.models.registry import MODELS, model_class, model_name
from focuse.storage.atomic import replace_file
from focuse.storage.old_names import (
    OLD_FILE_NAMES,
    OLD_KEYS,
    OLD_PARAMETER_NAMES,
    OLD_SETTING_NAMES,
    check_removed_settings,
    upgrade_settings,
)
from focuse.storage.tensors import (
    ALTERED,
    check_text,
    file_checksum,
    map_arrays,
    reading,
    seal_text,
    write_arrays,
    writing,
)
from focuse.system import chunks

FORMAT = 4
CHUNK_EDGES = 1 << 20  # edges checked at once
MIN_MAPPED_BYTES = 1 << 26  # edges of at least this size are memory-mapped instead of read
CONFIG = "run.toml"
SPLITS, SCALING = "splits.safetensors", "weight_scaling.safetensors"
COLUMNS, ATTRIBUTES = "weight_columns.safetensors", "node_attributes.safetensors"
PARTS = ("train", "valid", "test")
RESTORE_ADVICE = "put a copy of it back, or train again"

Metadata = tuple[Config, Splits, Normalizer]


def upgrade_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of a run.toml with the keys and settings of the current format."""
    config = dict(config)
    if isinstance(config.get("settings"), dict):
        config["settings"] = upgrade_settings(config["settings"])
    if config["format"] == 2:
        config = {OLD_KEYS.get(key, key): value for key, value in config.items()}
        # Before validation had two parts, all of it decided when to stop.
        config["settings"] = {"stop_fraction": 1.0, **dict(config["settings"])}
        config["lower_weights_are_stronger"] = config.pop("direction", "higher") == "lower"
    return config


def run_file(folder: Path, name: str) -> Path:
    """Return the path of a file of a run; a run of an older format may have it under another name."""
    old = folder / OLD_FILE_NAMES.get(name, name)
    return old if old.exists() and not (folder / name).exists() else folder / name


def upgrade_tensors(folder: Path, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tables and the optimizer state of a run by current names, with one row per inverse relation r + R.

    Older runs have one row of twice the width for a relation and its inverse.
    """
    settings = _read_config(folder)["settings"]
    for old, new in OLD_PARAMETER_NAMES.get(str(settings.get("model")), {}).items():
        tensors = {key.replace(old, new): value for key, value in tensors.items()}
    if not settings.get("reciprocal", False):
        return tensors
    relations = parquet.read_metadata(folder / "relations.parquet").num_rows

    def is_old(key: str, value: torch.Tensor) -> bool:
        table = key.rpartition("/")[2].partition(".")[0]
        return table == "relation" and value.dim() == 2 and len(value) == relations

    return {key: split_inverse_relations(value) if is_old(key, value) else value for key, value in tensors.items()}


# ---- TOML ---------------------------------------------------------------------------------------------------------


def to_toml(table: Mapping[str, Any], path: str = "") -> str:
    """Return the TOML text of a table, with its values first and then its sub-tables.

    >>> print(to_toml({"format": 1, "settings": {"model": "complex", "lr": 0.001}}), end="")
    format = 1
    <BLANKLINE>
    [settings]
    model = "complex"
    lr = 0.001
    """
    lines = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    text = "".join(line + "\n" for line in lines)
    for key, value in table.items():
        if isinstance(value, Mapping):
            name = f"{path}.{_key(key)}" if path else _key(key)
            text += f"\n[{name}]\n" + to_toml(value, name)
    return text


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return repr(float(value))  # np.float64 is a float too, but its repr is not valid TOML
    if isinstance(value, str | int):
        # Strings and bools are written as in JSON, except that TOML requires DEL to be escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"TOML has no value of type {type(value).__name__}")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; an error in the file raises a FocuseError with its line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FocuseError(f"{path}: {error.strerror or error}; give the path of a TOML file") from None
    except UnicodeDecodeError:
        raise FocuseError(f"{path}: not UTF-8 text; give a TOML file") from None
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits, or deep nesting
        fault, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        where = f", line {line[1]}" if line else ", at its end" if place else ""
        raise FocuseError(f"{path}{where}: {fault}; write settings like: lr = 0.001") from None


# ---- writing ------------------------------------------------------------------------------------------------------


def write_metadata(folder: Path, settings: Config, splits: Splits, normalizer: Normalizer) -> None:
    """Write settings, splits and weight scaling to an empty folder."""
    parts = {"train": splits.train, "valid": splits.valid, "test": splits.test}
    others = {"inferred": splits.inferred, "false": splits.known_negatives}
    parts |= {name: graph for name, graph in others.items() if graph is not None}
    config: dict[str, Any] = {
        "focuse": __version__,
        "torch": torch.__version__,
        "lower_weights_are_stronger": splits.train.lower_is_better,
        "undirected": list(compress(splits.train.relations, splits.train.is_undirected)),
        **_settings_tables(settings),
        "sources": {name: graph.source for name, graph in parts.items()},
        "weighted": {name: graph.weighted for name, graph in parts.items()},
        "unseen": {"valid": asdict(splits.unseen_valid), "test": asdict(splits.unseen_test)},
    }
    edges = {f"{name}/{column}": getattr(graph, column) for name, graph in parts.items() for column in EDGE_COLUMNS}
    several = {name: graph.columns.values for name, graph in parts.items() if graph.columns is not None}
    edges |= {f"{name}/columns": values for name, values in several.items()}
    arrays = {SPLITS: edges, SCALING: normalizer.arrays}
    if splits.merger is not None:
        config["weight_columns"], arrays[COLUMNS] = splits.merger.to_dict(), splits.merger.arrays()
    if splits.attributes is not None:
        source, names = splits.attributes.source, json.dumps(splits.attributes.names)
        config["node_attributes"] = source
        write_arrays(folder / ATTRIBUTES, splits.attributes.arrays(), {"names": names, "source": source})
    splits.train.entities.write(folder / "entities.parquet")
    splits.train.relations.write(folder / "relations.parquet")
    for name, values in arrays.items():
        write_arrays(folder / name, values)
    # Checksums come before the other tables, so that a run.toml that was cut short still has this key.
    checksums = {path.name: file_checksum(path) for path in sorted(folder.iterdir())}
    (folder / CONFIG).write_bytes(seal_text(to_toml({"format": FORMAT, "checksums": checksums, **config})).encode())


def write_part(folder: Path, settings: Config, normalizer: Normalizer) -> None:
    """Write the settings and the weight scaling of a model that is a part of a run, and has the splits of that run."""
    write_arrays(folder / SCALING, normalizer.arrays)
    checksums = {SCALING: file_checksum(folder / SCALING)}
    config = {"format": FORMAT, "checksums": checksums, "focuse": __version__, **_settings_tables(settings)}
    with replace_file(folder / CONFIG, durable=True) as temporary:  # it comes last, when all that it needs is written
        temporary.write_bytes(seal_text(to_toml(config)).encode())


def read_part(folder: Path, splits: Splits) -> tuple[Config, Normalizer]:
    """Return the settings and the weight scaling of a part of the run with these splits."""
    config = _read_config(folder)
    with reading(folder / CONFIG):
        settings = Config.from_stored(config["settings"], config.get("provenance"))
    return settings, _read_scaling(folder, config, settings.weight_scaling or "relation", splits)


def write_settings(folder: Path, settings: Config) -> None:
    """Replace the settings of a run, which apply to the rest of its training."""
    with reading(folder / CONFIG, RESTORE_ADVICE) as path:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    config |= _settings_tables(settings)
    with writing(path), replace_file(path, durable=True) as temporary:
        text = to_toml(config)
        temporary.write_bytes((seal_text(text) if "checksums" in config else text).encode())


def _settings_tables(settings: Config) -> dict[str, Any]:
    """Return the settings that are not None, which TOML does not have, and the provenance of each."""
    known = {name: value for name, value in settings.to_dict().items() if value is not None}
    return {"settings": known, "provenance": settings.names_by_provenance()}


# ---- reading ------------------------------------------------------------------------------------------------------


def read_metadata(folder: Path, model: object = None, trusted: bool = False) -> Metadata:
    """Return the settings, splits and weight scaling of a run.

    `model` is the class of its model, if that cannot be imported. In a `trusted` folder, which the same command has
    written, the model's name is not checked.
    """
    config = _read_config(folder)
    config = config if trusted else resolve_stored_model(config, model, folder)
    with reading(folder / CONFIG):
        settings = Config.from_stored(config["settings"], config.get("provenance"))
        splits = _read_splits(folder, config)
    name = "none" if splits.merger is not None else settings.weight_scaling or "relation"
    return settings, splits, _read_scaling(folder, config, name, splits)


def _read_scaling(folder: Path, config: dict[str, Any], name: str, splits: Splits) -> Normalizer:
    with _reading_verified(run_file(folder, SCALING), config) as path:
        arrays = load_file(path)
        arrays.pop("nothing", None)  # a placeholder of format 2 for an empty file
        normalizer = stored_normalizer(name, arrays, splits.train.lower_is_better)
        relations = np.arange(len(splits.train.relations), dtype=np.int32)
        normalizer.transform(np.zeros(len(relations)), relations)  # raises if an array does not fit the relations
        return normalizer


def _read_config(folder: Path) -> dict[str, Any]:
    with reading(folder / CONFIG, RESTORE_ADVICE) as path:
        text = path.read_bytes().decode()
        config = tomllib.loads(text)
        version = config["format"]
    if version not in range(2, FORMAT + 1):
        newer = isinstance(version, int) and version > FORMAT
        advice = "update focuse" if newer else f"train it again: focuse train GRAPH --config {path} --out NEW"
        raise FocuseError(f"{path}: run format {version}, this focuse {__version__} reads 2 to {FORMAT}; {advice}")
    advice = "put a copy back, or if you changed it yourself, remove its last line and its table [checksums]"
    with reading(path, advice):
        check_text(text, required="checksums" in config)
    if isinstance(config.get("settings"), dict):
        check_removed_settings(config["settings"], path)
    with reading(path, RESTORE_ADVICE):
        return upgrade_config(config)


@contextmanager
def _reading_verified(path: Path, config: dict[str, Any]) -> Iterator[Path]:
    """Verify the checksum of a file, if run.toml has checksums, and report errors of the block as `reading` does."""
    with reading(path, RESTORE_ADVICE):
        checksums = config.get("checksums")
        if checksums is not None and file_checksum(path) != dict(checksums).get(path.name):
            raise ValueError(ALTERED)
        yield path


def _read_splits(folder: Path, config: dict[str, Any]) -> Splits:
    with _reading_verified(folder / "entities.parquet", config) as path:
        entities = Vocabulary.read(path)
    with _reading_verified(folder / "relations.parquet", config) as path:
        relations = Vocabulary.read(path)
    with _reading_verified(folder / SPLITS, config) as path:
        edges = map_arrays(path) if path.stat().st_size >= MIN_MAPPED_BYTES else load_file(path)
        for name in {*PARTS, *config["sources"]}:
            _check_edges(edges, name, len(entities), len(relations))
        if not len(edges["train/head"]):
            raise ValueError("no edges in train")
    merger = attributes = None
    if "weight_columns" in config:
        with _reading_verified(run_file(folder, COLUMNS), config) as path:
            merger = ColumnMerger.from_stored(config["weight_columns"], load_file(path))
    if "node_attributes" in config:
        with _reading_verified(run_file(folder, ATTRIBUTES), config) as path:
            attributes = NodeAttributes.read(path, len(entities))

    def graph(name: str) -> Graph:
        columns, values = None, edges.get(f"{name}/columns")
        if merger is not None and values is not None:
            columns = WeightColumns(merger.names, values, merger.lower_is_better)
        lower = config["lower_weights_are_stronger"] is True and name in PARTS
        head, relation, tail, weight = (edges[f"{name}/{column}"] for column in EDGE_COLUMNS)
        source, weighted = config["sources"][name], config["weighted"][name]
        return Graph(
            head, relation, tail, weight, entities, relations, source, weighted, columns, lower, undirected=undirected
        )

    undirected = tuple(relations.ids(config.get("undirected", [])).tolist())  # runs of earlier versions have none
    if -1 in undirected:
        raise ValueError("an undirected relation is not in the vocabulary")

    unseen = [UnseenNames(**config["unseen"][name]) for name in ("valid", "test")]
    if not all(isinstance(part.rows, int) for part in unseen):
        raise ValueError("the number of unseen rows is not an integer")
    train, valid, test = map(graph, PARTS)
    inferred, false = (graph(name) if name in config["sources"] else None for name in ("inferred", "false"))
    return Splits(train, valid, test, inferred, false, merger, attributes, *unseen)


def _check_edges(edges: dict[str, Any], part: str, entities: int, relations: int) -> None:
    """Raise an error unless ids are in the vocabularies, weights are finite, and columns have equal lengths."""
    for column, size in zip(EDGE_COLUMNS, (entities, relations, entities, 0), strict=True):
        key, values = f"{part}/{column}", edges[f"{part}/{column}"]
        if values.shape != edges[f"{part}/head"].shape or values.ndim != 1:
            raise ValueError(f"{key} and {part}/head have different lengths")
        if values.dtype.kind != ("i" if size else "f"):
            raise ValueError(f"{key} has the data type {values.dtype}")
        if size and len(values) and not 0 <= values.min() <= values.max() < size:
            raise ValueError(f"{key} has an id that is not in the vocabulary")
        if not size and not all(np.isfinite(values[chunk]).all() for chunk in chunks(len(values), CHUNK_EDGES)):
            raise ValueError(f"{key} has a weight that is not a finite number")


# ---- settings -------------------------------------------------------------------------------------------------------


def read_config(path: str | Path, model: object = None) -> dict[str, Any]:
    """Return the settings in a TOML file, as keyword arguments of `focuse.train`.

    The settings are at the top level or in the table [settings]. If there is such a table, the rest of the file is
    ignored, so that a run can be trained again from its run.toml: these are the settings that were given and the label
    exponent that was selected; the others are derived again. If `model` is given and the model of the file is an
    untrusted class, the latter is left out, so that its module is not imported needlessly.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
    ...     print("dim = 200\\nlr = 1e-4", file=file, flush=True)
    ...     read_config(file.name)
    {'dim': 200, 'lr': 0.0001}
    """
    content = read_toml(Path(path))
    found = content.get("settings", content)
    if not isinstance(found, dict):
        raise FocuseError(f"{path}: settings is not a table; write [settings] above its lines")
    lost = [name for name in (*SETTINGS, *OLD_SETTING_NAMES) if name in content and found is not content]
    if lost:  # they would be ignored silently
        raise FocuseError(f"{path}: {', '.join(lost)} is outside of [settings]; move it below that line")
    if "format" in content:
        check_removed_settings(found, path)
        found = upgrade_settings(found)
    if model is not None:
        model_class(model_name(model))  # the user has asked for its module, which may be that of the file
    if model is not None and _untrusted_module(found):
        found = {name: value for name, value in found.items() if name != "model"}
    check_trust(found, Path(path), "import it first")
    try:
        if "format" in content:
            return _given_of_run(found, content.get("provenance"))
        Config.from_kwargs(**found)
    except FocuseError as error:
        raise FocuseError(f"{path}: {error}") from None
    return dict(found)


def _given_of_run(stored: Mapping[str, Any], provenance: Any) -> dict[str, Any]:
    """Return the settings of a run that were given, or all that have an effect if the run does not say which.

    A selected label exponent is kept, because it takes several trainings to select it again.
    """
    settings = Config.from_stored(stored, provenance if isinstance(provenance, dict) else None)
    kept = {name for name in stored if settings.provenance.get(name) == "given"} | {"label_exponent"}
    return {name: value for name, value in stored.items() if name in kept and not settings.unmet(name)}


def resolve_stored_model(config: Mapping[str, Any], model: object, folder: Path) -> dict[str, Any]:
    """Return the contents of a run.toml with the name of the given model class, or with the stored name."""
    stored = config.get("settings")
    name = stored.get("model") if isinstance(stored, dict) else None
    if not isinstance(stored, dict) or not isinstance(name, str):
        return dict(config)  # the file is damaged, which is reported when it is read further
    if model is not None:
        if name in MODELS and model_name(model) != name:
            raise FocuseError(f"{folder}: its model {name!r} is built in; remove model=")
        stored_name, name = name, model_name(model)
        registry.register_alias(stored_name, model_class(name))
    hand_over = f"pass its class: focuse.load({str(folder)!r}, model=MyModel)"
    if model is None:
        check_trust(stored, folder / CONFIG, hand_over)
    try:
        registry.check_module_location(name, folder)
        model_class(name)
    except FocuseError as error:
        raise FocuseError(f"{folder / CONFIG}: {error}; or {hand_over}") from None
    return {**config, "settings": {**stored, "model": name}}


def check_trust(settings: Mapping[str, Any], path: Path, otherwise: str) -> None:
    """Raise FocuseError if a file names a model in an untrusted module, because importing a module executes it."""
    module = _untrusted_module(settings)
    if module:
        raise FocuseError(
            f"{path}: its model {settings['model']!r} is not part of focuse; if you trust its code, write "
            f"focuse --trust {module} COMMAND (or set {registry.TRUST_VARIABLE}={module}), or in Python {otherwise}"
        )


def _untrusted_module(settings: Mapping[str, Any]) -> str:
    """Return the module of the model that a file names if it is not trusted, otherwise ''."""
    name = settings.get("model")
    if not isinstance(name, str) or name in MODELS or registry.model_family(name):
        return ""
    return registry.untrusted_module(name)
