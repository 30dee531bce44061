"""TensorBoard: event files in a folder of the training's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from focuse.errors import FocuseError
from focuse.training.callbacks import Beginning
from focuse.training.tracking.base import Tracker


class TensorBoard(Tracker):
    """Scalars, settings as text and hyperparameters under FOLDER/NAME OF THE RUN; see them by tensorboard --logdir."""

    kind, module = "tensorboard", "tensorboard"

    def __init__(self, place: str | Path | None = None, *, evaluate: bool = False) -> None:
        if place is None:
            raise FocuseError("track 'tensorboard': give its folder, like tensorboard:logs")
        super().__init__(place, evaluate=evaluate)

    def absolute(self, place: str) -> str:
        return str(Path(place).absolute())

    def begin(self, beginning: Beginning, before: str | None) -> str:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        name = "run" if beginning.folder is None else beginning.folder.absolute().name
        folder = Path(before) if before is not None else free(Path(self.place or "."), name)
        # Epochs that a killed training has written after its last checkpoint are not shown twice.
        again = beginning.epochs_done + 1 if before is not None else None
        make: Any = SummaryWriter  # torch says no types of it
        self.writer = make(str(folder), purge_step=again)
        self.done = beginning.epochs_done
        if before is None:
            rows = {f"{part}_rows": count for part, count in beginning.rows.items()}
            settings = {key: value for key, value in (beginning.settings | rows).items() if value is not None}
            lines = [f"| {key} | {value} |" for key, value in settings.items()]
            self.writer.add_text("settings", "\n".join(["| setting | value |", "| --- | --- |", *lines]))
            simple = {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in settings.items()}
            for summary in hparams(simple, {"loss": None}):  # type: ignore[no-untyped-call]
                self.writer.file_writer.add_summary(summary)
        self.writer.flush()
        return str(folder)

    def log(self, figures: dict[str, float], epoch: int) -> None:
        self.done = epoch
        for name, value in figures.items():
            self.writer.add_scalar(name, value, epoch)

    def end(self, figures: dict[str, float], texts: dict[str, str]) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(f"end/{name}", value, self.done)
        for name, text in texts.items():
            self.writer.add_text(name, text, self.done)

    def close(self, how: str) -> None:
        self.writer.close()


def free(folder: Path, name: str) -> Path:
    """A folder in `folder` that no other training writes to."""
    places = (folder / (name if count == 1 else f"{name}-{count}") for count in range(1, 1_000_000))
    return next(place for place in places if not place.exists())
