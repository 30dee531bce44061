"""One folder that several processes write to, each its own rows, and what tells a restarted job from a new one.

The folder must be one that every process sees. Its files are those of any run: they load on any number of processes,
and without torchrun.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from focuse.engines.company import join as meet
from focuse.engines.company import joined, several
from focuse.engines.reference import ReferenceEngine, make_scorer
from focuse.engines.sharded import SHARDED, sharded_scorer
from focuse.errors import FocuseError
from focuse.graph.checksums import KEY, UNKNOWN, check_tensors, seal_tensors
from focuse.graph.splits import Splits
from focuse.graph.weights import Normaliser
from focuse.graph.writing import flush
from focuse.models import Model
from focuse.training.checkpoints import MODEL, Store, Tables
from focuse.training.files import DamagedError, has_checksums, reading
from focuse.training.lock import UnwritableError
from focuse.training.settings import Settings

DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL"}
ERRORS = (FocuseError, DamagedError, UnwritableError)  # whoever catches one must do so in every process
JOB = "job.txt"  # in a run's folder: which of torchrun's jobs has begun it
CREATED: set[Path] = set()  # folders that this very process has begun
ALIGNED = 64  # bytes: torch's own tables begin at such a place


def store_kind(settings: Settings, out: object = True) -> type[Store]:
    """How a training's folder is written; a sharded one meets its other processes here."""
    if settings.engine not in SHARDED:
        if several():
            raise FocuseError(
                f"torchrun has started several processes, and engine {settings.engine!r} is for one; use "
                "--engine sharded"
            )
        return Store
    if out is None:
        raise FocuseError(f"engine {settings.engine!r} needs a folder that all processes see (--out RUN)")
    meet(settings.device)
    return SharedStore


class SharedStore(Store):
    """A run's folder that all processes have open: the first writes what is common, each its own rows of entities."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.company = joined()

    @staticmethod
    def free(folder: Path) -> Path:
        return Path(_by_the_first(lambda: Store.free(folder)))

    @classmethod
    def create(
        cls,
        folder: Path,
        settings: Settings,
        splits: Splits,
        normaliser: Normaliser,
        fill: Callable[[Store], None] = lambda store: None,
    ) -> Store:
        made: list[Store] = []

        def create() -> Path:
            made.append(Store.create(folder, settings, splits, normaliser, _sign))
            return made[0].folder

        CREATED.add(folder.resolve())
        store = cls(_by_the_first(create))
        store.lock = made[0].lock if made else None
        fill(store)
        return store

    def take(self) -> None:
        _by_the_first(super().take)

    def append(self, row: dict[str, Any]) -> None:
        if self.company.leads:
            super().append(row)

    def rewind(self, history: list[dict[str, Any]]) -> None:
        _by_the_first(lambda: super(SharedStore, self).rewind(history))

    def _amend(self, settings: Settings) -> None:
        _by_the_first(lambda: super(SharedStore, self)._amend(settings))

    def mend(self, checkpoint: Any) -> None:
        if _by_the_first(lambda: self.lock is not None and not (self.folder / MODEL).exists()):
            self._write_tensors(self.folder / MODEL, checkpoint.final(), {})
        _by_the_first(lambda: super(SharedStore, self).mend(checkpoint))

    def _step_back(self) -> None:
        _by_the_first(super()._step_back)

    def _read_tensors(self, path: Path, device: str, advice: str = "") -> tuple[Tables, dict[str, str]]:
        """Of rows of entities only this process's own; the first looks whether the file is whole."""
        _by_the_first(lambda: _check(path, advice))
        with reading(path, advice), safe_open(path, framework="pt", device="cpu") as file:
            return {key: self._read(file, key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118

    def _read(self, file: Any, key: str) -> torch.Tensor:
        if not _in_pieces(key):
            found: torch.Tensor = file.get_tensor(key).clone()
            return found
        rows = file.get_slice(key)
        mine = self.company.part(rows.get_shape()[0])
        own: torch.Tensor = rows[mine]
        return own.clone()

    def _write_tensors(self, path: Path, tensors: Tables, metadata: dict[str, str], keep: Path | None = None) -> None:
        """The first process makes the file in its full size, all write their parts, then it takes its place."""
        company, temporary = self.company, path.with_name(f".{path.name}.0")
        held = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        sizes = company.sum(torch.tensor([len(held[key]) for key in held if _in_pieces(key)], device=company.device))
        shapes = _shapes(held, sizes.tolist())
        header, places = _header(shapes, held, {**metadata, KEY: UNKNOWN})
        end = len(header) + max(stop for _, stop in places.values())
        _all(path, lambda: _begin(temporary, header, end) if company.leads else None)
        mine = {
            key: len(header) + places[key][0] + self._before(key, shapes[key], value)
            for key, value in held.items()
            if company.leads or _in_pieces(key)
        }
        _all(path, lambda: _fill(temporary, {key: (place, held[key]) for key, place in mine.items()}))
        _all(path, lambda: _take_place(temporary, path, keep) if company.leads else None)

    def _before(self, key: str, shape: list[int], value: torch.Tensor) -> int:
        """Bytes of the other processes' rows that stand before this one's."""
        return self.company.part(shape[0]).start * value[:1].nbytes if _in_pieces(key) and len(value) else 0


def _sign(store: Store) -> None:
    """Say in a folder whose it is, before it is to be seen."""
    (store.folder / JOB).write_text(joined().job, encoding="utf-8")


def _in_pieces(key: str) -> bool:
    """Whether a tensor of a file, such as 'table/entity' or 'optimiser/entity.sum', has rows of entities."""
    return key.rpartition("/")[2].partition(".")[0] == "entity"


def _shapes(held: Tables, sizes: list[int]) -> dict[str, list[int]]:
    """The shapes of whole tensors, of those in pieces with all their rows."""
    rows = iter(sizes)
    return {
        key: [next(rows), *value.shape[1:]] if _in_pieces(key) else list(value.shape) for key, value in held.items()
    }


def _header(
    shapes: Mapping[str, list[int]], held: Tables, metadata: dict[str, str]
) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The first bytes of a file of tensors, and where in what follows each stands."""
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    places, at = {}, 0
    for key in sorted(shapes, key=lambda key: (not _in_pieces(key), -held[key].element_size(), key)):
        size = held[key].element_size()
        for length in shapes[key]:
            size *= length
        places[key] = at, at + size
        entries[key] = {"dtype": DTYPES[held[key].dtype], "shape": shapes[key], "data_offsets": [at, at + size]}
        at += size
    words = json.dumps(entries, separators=(",", ":")).encode()
    words += b" " * (-(len(words) + 8) % ALIGNED)
    return len(words).to_bytes(8, "little") + words, places


def _begin(path: Path, header: bytes, end: int) -> None:
    with path.open("wb") as file:
        file.write(header)
        file.truncate(end)
        if hasattr(os, "posix_fallocate"):  # a disk that is too small is told now, not half-way
            os.posix_fallocate(file.fileno(), 0, end)


def _fill(path: Path, parts: Mapping[str, tuple[int, torch.Tensor]]) -> None:
    with path.open("r+b") as file:
        for place, value in parts.values():
            file.seek(place)
            file.write(value.reshape(-1).view(torch.uint8).numpy().data if value.numel() else b"")
        file.flush()
        os.fsync(file.fileno())


def _take_place(temporary: Path, path: Path, keep: Path | None) -> None:
    """A file that all have written becomes the one that is read, with its checksum; the one before is kept."""
    seal_tensors(temporary)
    flush(temporary)
    if keep is not None and path.exists():
        path.replace(keep)
    os.replace(temporary, path)
    flush(path.parent)


def _check(path: Path, advice: str) -> None:
    with reading(path, advice):
        check_tensors(path, has_checksums(path.parent))


def _all(path: Path, action: Callable[[], object]) -> None:
    """Something that every process does to a file; where one fails, all do, and the old file is still whole."""
    told = ""
    try:
        action()
    except OSError as error:
        told = error.strerror or str(error)
    if joined().agreed(bool(told)):
        with suppress(OSError):
            path.with_name(f".{path.name}.0").unlink()
        raise FocuseError(
            f"{path}: cannot be written: {told or 'another process failed, it says why'}; make room, then go on with "
            "--resume"
        )


def _by_the_first(action: Callable[[], Any]) -> Any:
    """What the first process makes of it, or its error, for all."""
    company = joined()
    company.wait()  # nobody may still be at work on what the first one changes
    found, told, kind = None, "", 0
    if company.leads:
        try:
            found = action()
        except FocuseError as error:
            told, kind = str(error), next((number for number, one in enumerate(ERRORS) if type(error) is one), 0)
    found, told, kind = company.told((found, told, kind))
    if told:
        raise ERRORS[kind](told)
    return found


# ---- a job that torchrun has started again ------------------------------------------------------------------------


def restarted(settings: Settings, folder: object) -> bool:
    """Whether this is a job whose workers were started again, and which has begun the run in the folder."""
    path = Path(str(folder))
    if settings.engine not in SHARDED or folder is None or path.resolve() in CREATED:
        return False
    store_kind(settings)

    def begun() -> bool:
        files = [file for file in (path / JOB, path.with_name(f".{path.name}.{JOB}")) if file.is_file()]
        same = any(file.read_text(encoding="utf-8") == joined().job for file in files)
        return same and (path / "run.toml").is_file()

    return bool(_by_the_first(begun))


# ---- a run that several processes hold ------------------------------------------------------------------------------


def open_together(folder: Path, device: str) -> Store:
    """The folder of a run; where torchrun has started several processes, each reads its own rows."""
    if not several():
        return Store.open(folder)
    meet(device)
    return SharedStore(Store.open(folder).folder)


def rows_of(store: Store, entities: int) -> slice:
    """Which rows of entities a store reads: all, unless several processes share it."""
    return store.company.part(entities) if isinstance(store, SharedStore) else slice(None)


def scorer_of(store: Store, model: Model, tables: Tables, entities: int) -> ReferenceEngine:
    """An engine that scores with tables as the store has read them."""
    if not isinstance(store, SharedStore):
        return make_scorer(model, tables)
    return sharded_scorer(model, tables, entities, store.company)
