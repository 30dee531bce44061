"""In which order several workers train cells: whole tables first, and in each the longest training first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from focuse.experiments.paper.cells import Cell
from focuse.experiments.paper.results import Result

ROWS = 200_000  # of a training graph: as many as the paper's have, about
UNLIMITED = 1000  # epochs above which a training is expected to stop early
PLAIN_EPOCHS = 2000  # a plain model peaks after 1,000 to 2,400
# Seconds a number (row of a batch × its triples × size of an embedding), a step and a cell, on an H200.
PACE = {"complex": 3.8e-12, "distmult": 1.8e-12, "transe": 1.8e-12}
OWN_PACE, STEP, CELL = 3e-12, 6e-5, 5.0


def in_order(cells: Sequence[Cell], finished: Iterable[Result] = ()) -> list[Cell]:
    """Seed after seed, the tables before figure 3, and of these the longest first, so that the short ones end it.

    How long a cell takes is known from its other seeds, or estimated.
    """
    known = {}
    for result in finished:
        if "times" in result.facts:
            known[_row(Cell(**result.cell))] = float(result.facts["times"]["whole"])
    return sorted(
        cells, key=lambda cell: (cell.form == "figure3", cell.seed, -known.get(_row(cell), estimate(cell)), cell.name)
    )


def estimate(cell: Cell, rows: int = ROWS) -> float:
    """About how many seconds a GPU will need."""
    given = cell.settings(rows)
    epochs = int(given.get("epochs", 100))
    if epochs > UNLIMITED:  # FocusE peaks about where it is first looked at, at λ/2
        patience = int(given.get("patience", 8)) * int(given.get("check_every", 25))
        focused = int(given.get("decay", 800)) // 2 + patience + 50
        epochs = min(epochs, focused if cell.kind == "focuse" else PLAIN_EPOCHS)
    size = int(given.get("batch_size", 512))
    numbers = size * int(given.get("dim", 128)) * (int(given.get("negatives") or 20) + 1)
    return CELL + epochs * (rows / size) * (STEP + numbers * PACE.get(cell.model, OWN_PACE))


def _row(cell: Cell) -> str:
    return replace(cell, seed=0).name
