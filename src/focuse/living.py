"""Runs that go on: more edges, new names and facts that are gone, without starting over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from focuse.engines import make_scorer
from focuse.engines.company import several
from focuse.engines.sharded import SHARDED
from focuse.errors import FocuseError
from focuse.run import Run, finish, load
from focuse.training.callbacks import Followers
from focuse.training.checkpoints import Store
from focuse.training.extending import Extension, Origin, extension, write_extended
from focuse.training.growing import Change
from focuse.training.loop import Trainer, model_in
from focuse.training.machine import enough_memory
from focuse.training.progress import Reporter, make_reporter
from focuse.training.sharpness import write_choice


def extend(
    run: Run | str | Path,
    edges: Any = None,
    *,
    out: str | Path | None = None,
    frozen: bool = True,
    epochs: int | None = None,
    remove: Any = None,
    duplicates: str = "last",
    valid_share: float = 0.0,
    test_share: float = 0.0,
    numbers: Any = None,
    model: object = None,
    progress: bool | Reporter = True,
) -> Run:
    """A new run with more edges, new entities and relations among them, without starting over; the old one stays.

    `run` is a run or its folder, `edges` whatever `focuse.read` takes. `frozen`: only the rows of new names learn, for
    `epochs` of their edges, and all others keep their bits. Else all rows train on, for `epochs` more. `remove` are
    triples that are facts no longer, `duplicates` says what a triple of train weighs that comes again (last, max, mean,
    keep), `numbers` are those of new entities. Shares of the new edges may be held out; `model` as of `load`.

    >>> from focuse import train
    >>> run = train([("a", "r", str(i), i) for i in range(20)], epochs=1, dim=4, progress=False)
    >>> extend(run, [("b", "r", "3", 3.0)], epochs=1, progress=False).graph.entities[-1]
    'b'
    """
    if several():
        raise FocuseError("a run is extended by one process; leave torchrun out")
    if out is not None:
        Store.free(Path(out))
    base = run if isinstance(run, Run) else load(run, model=model)
    if not frozen and base.settings.engine == "partitioned":
        raise FocuseError("a run trained by partitions has its optimiser's state on disk; extend it with frozen rows")
    reporter = make_reporter(progress)
    change = Change(edges, remove, duplicates, valid_share, test_share, numbers)
    with enough_memory():
        grown = extension(_origin(base), change, frozen, epochs, reporter)
        return _settled(base, grown, out) if frozen else _warmed(base, grown, out, reporter)


def _origin(run: Run) -> Origin:
    """What an extension begins with."""
    last = run.last if run.last is not None or run.folder is None else Store.open(run.folder).checkpoint()
    name = "a run in memory" if run.folder is None else str(run.folder)
    settings = run.settings  # whatever it was trained by, it is extended in memory
    if settings.engine in ("partitioned", *SHARDED):
        settings = replace(settings, engine="auto", partitions=None)
    parts = settings, run.splits, run.normaliser, run.engine.tables, last, run.history
    return Origin(*parts, run.extended, name)


def _settled(base: Run, grown: Extension, out: str | Path | None) -> Run:
    """The run as it is: its new rows have learnt already."""
    model = model_in(replace(grown.settings, device=str(base.engine.device)), grown.splits)
    engine, last = make_scorer(model, grown.checkpoint.tables), grown.checkpoint
    made = Run(grown.settings, grown.splits, grown.normaliser, engine, last.history, last, choice=base.choice)
    made = replace(made, extended=grown.extended)
    if out is not None:
        made.save(out)
    return made


def _warmed(base: Run, grown: Extension, out: str | Path | None, reporter: Reporter) -> Run:
    """All rows train on; in a folder, from where a resume could go on."""
    followers = Followers(reporter, (), grown.splits, None if out is None else Path(out))
    trainer = Trainer(grown.settings, grown.splits, grown.normaliser, followers, checkpoint=grown.checkpoint)
    if out is not None:

        def fill(store: Store) -> None:
            """From chance a resume would come to another run: its folder appears with where it begins."""
            store.rewind(grown.checkpoint.history)
            store.save(trainer.checkpoint())
            write_choice(store.folder, base.choice)
            write_extended(store.folder, grown.extended)

        trainer.store = Store.create(Path(out), grown.settings, grown.splits, grown.normaliser, fill)
    made = finish(trainer, grown.splits, grown.normaliser, followers, base.choice)
    *before, record = grown.extended
    record = {**record, "epochs": made.history[-1]["epoch"] - record["before"]}  # validation may have ended it early
    if out is not None:
        write_extended(Path(out), [*before, record])
    return replace(made, extended=[*before, record])
