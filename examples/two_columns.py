"""A table of two endpoints and a number: see how it is read, train, and ask without naming a relation."""

import tempfile
from pathlib import Path

import numpy as np

import focuse


def write_play_counts(path: Path) -> None:
    """Write play counts as a web service exports them: users and artists with ids of their own, no relation."""
    random = np.random.default_rng(0)
    taste, style = random.normal(size=(60, 3)), random.normal(size=(40, 3))
    plays = np.exp(2 + taste @ style.T).round().astype(int)
    lines = [f"{user + 1},{artist + 1},{plays[user, artist]}" for user, artist in np.argwhere(plays > 5)]
    path.write_text("userID,artistID,plays\n" + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    path = Path(tempfile.mkdtemp()) / "plays.csv"
    write_play_counts(path)
    graph = focuse.read(path)
    print(graph, *graph.notes, sep="\n")
    # The same, with every role stated:
    stated = focuse.read(path, head="userID", tail="artistID", weight="plays", same_ids=False)
    assert stated.entities == graph.entities
    run = focuse.train(graph, dim=16, epochs=30, label_exponent=1.0, progress=False)
    print(run.predict(head="user 1", top=5))


if __name__ == "__main__":
    main()
