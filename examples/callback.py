"""A callback of your own: it draws the loss as it falls, and ends the training when an epoch gains less than 1 %."""

from typing import Any

import focuse
from focuse.data.datasets import careers


class Patience(focuse.Callback):
    def __init__(self, least: float = 0.01) -> None:
        self.least, self.last = least, float("inf")

    def epoch(self, row: dict[str, Any]) -> bool:
        gained = 1 - row["loss"] / self.last
        self.last = row["loss"]
        print(f"epoch {row['epoch']:2}  {'#' * int(8 * row['loss'])} {row['loss']:.3f}")
        return gained < self.least

    def finished(self, run: focuse.Run) -> None:
        print(f"ended after {len(run.history)} epochs: {run.last.progress.finished}")


focuse.train(careers(), dim=20, epochs=20, label_exponent=1, callbacks=[Patience(0.05)], progress=False)
