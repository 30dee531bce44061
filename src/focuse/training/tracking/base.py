"""What trackers share: when they write what, and that their failures stay their own."""

from __future__ import annotations

import tomllib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from focuse.errors import FocuseError, Stopped
from focuse.graph.checksums import check_text, seal_text
from focuse.graph.writing import replacing
from focuse.training.callbacks import Beginning, Callback, told
from focuse.training.stopping import best_look
from focuse.training.toml import to_toml

FILE = "tracking.toml"


class Tracker(Callback):
    """A callback that writes settings, figures of each epoch and the end of a training somewhere.

    `place` says where, in the tracker's own words. With `evaluate` the test figures are measured and written at the
    end. A tracker that cannot begin is an error before the first step; one that fails later is noted, once, and the
    training goes on.
    """

    kind: ClassVar[str]
    module: ClassVar[str]  # of the library that it needs

    def __init__(self, place: str | Path | None = None, *, evaluate: bool = False) -> None:
        self.place = None if place is None else self.absolute(str(place))
        self.evaluate = evaluate
        self.asked = True  # by the user; not by a run that goes on
        self.broken = False
        self.note: Callable[[str], None] = lambda text: None
        try:
            import_module(self.module)
        except ImportError as error:
            raise FocuseError(
                f"tracking with {self.kind} needs focuse[{self.kind}]: pip install 'focuse[{self.kind}]' ({error})"
            ) from None

    # ---- what each kind says --------------------------------------------------------------------------------------

    def absolute(self, place: str) -> str:
        """`place` so that it means the same in another folder."""
        return place

    @abstractmethod
    def begin(self, beginning: Beginning, before: str | None) -> str:
        """Open what is written to, going on with `before` if that is given; the name to find it by."""

    @abstractmethod
    def log(self, figures: dict[str, float], epoch: int) -> None:
        """Figures of an epoch."""

    @abstractmethod
    def end(self, figures: dict[str, float], texts: dict[str, str]) -> None:
        """Figures and texts of a whole training."""

    @abstractmethod
    def close(self, how: str) -> None:
        """No more follows; `how` is finished, stopped or failed."""

    # ---- when -----------------------------------------------------------------------------------------------------

    def started(self, beginning: Beginning) -> None:
        self.note, self.broken = beginning.note, False
        folder = beginning.folder
        places = {} if folder is None else read_places(folder)
        before = places.get(self.kind, {}).get("id") if beginning.epochs_done else None
        try:
            found = self.begin(beginning, before)
            if folder is not None:
                places[self.kind] = {"place": self.place or "", "id": found}
                write_places(folder, places)
        except Exception as error:
            if self.asked:
                raise
            self._give_up(error)

    def epoch(self, row: dict[str, Any]) -> None:
        figures = {name: float(value) for name, value in row.items() if name != "epoch" and value is not None}
        self._try(lambda: self.log(figures, int(row["epoch"])))

    def finished(self, run: Any) -> None:
        self._try(lambda: self.end(*self._summary(run)))
        self._try(lambda: self.close("finished"))

    def failed(self, error: BaseException) -> None:
        how = "stopped" if isinstance(error, Stopped | KeyboardInterrupt) else "failed"
        self._try(lambda: self.close(how))

    def _summary(self, run: Any) -> tuple[dict[str, float], dict[str, str]]:
        best = best_look(run.history) or {}
        figures = {"epochs": len(run.history), "total_seconds": sum(row["seconds"] for row in run.history)}
        figures |= {f"best_{name}": best[name] for name in ("epoch", "valid_mrr", "valid_mse") if name in best}
        if self.evaluate and len(run.splits.test.graph):
            found = run.evaluate().to_dict()
            figures |= flat({**found.pop("all"), **found}, "test")
        texts = {"folder": "" if run.folder is None else str(run.folder.absolute()), "fingerprint": run.tables}
        return {name: float(value) for name, value in figures.items()}, {k: v for k, v in texts.items() if v}

    def _try(self, do: Callable[[], None]) -> None:
        if self.broken:
            return
        try:
            do()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.broken = True
        self.note(f"{self.kind}: {' '.join(told(error).split())}; training goes on without it")


def flat(figures: Mapping[str, Any], name: str) -> dict[str, float]:
    """Numbers of nested tables, by the path to them.

    >>> flat({"mrr": 0.5, "hits": {"10": 1.0}, "ties": "worst"}, "test")
    {'test_mrr': 0.5, 'test_hits_10': 1.0}
    """
    found: dict[str, float] = {}
    for key, value in figures.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}_{key}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{name}_{key}"] = value
    return found


def read_places(folder: Path) -> dict[str, dict[str, str]]:
    """Where a run is tracked: by kind its place and id."""
    path = folder / FILE
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        check_text(text, required=False)
        found = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise FocuseError(f"{path}: damaged file: {error}; delete it to track the run anew") from None
    return {kind: about for kind, about in found.items() if isinstance(about, dict)}


def write_places(folder: Path, places: dict[str, dict[str, str]]) -> None:
    with replacing(folder / FILE) as temporary:
        temporary.write_text(seal_text(to_toml(places)), encoding="utf-8")
