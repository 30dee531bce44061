"""`python -m reproduction`: reproduce the tables and figures of the paper, next to the published results."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.main import Command, make_app, run_app
from focuse.cli.options import AsJson, Device, Quiet, option, with_options
from focuse.cli.output import emit
from focuse.errors import FocuseError
from focuse.option_strings import parse_duration


def reproduce(
    out: Annotated[Path, option("Folder of results and report; an existing one is continued.")] = Path(
        "runs/reproduction"
    ),
    data: Annotated[list[str] | None, option("Data sets: ppi5k, nl27k, cn15k, onet20k, onet-importance.")] = None,
    model: Annotated[list[str] | None, option("Models: transe, distmult, complex, ukge-rect, ukge-logi.")] = None,
    kind: Annotated[list[str] | None, option("Kinds: plain, focuse, ukge; may be repeated.")] = None,
    seeds: Annotated[int, option("Number of trainings per cell.")] = 1,
    part: Annotated[str, option("What to reproduce: tables (2 to 4 and figure 4), figure3 or all.")] = "all",
    decays: Annotated[
        str | None, option("Values of λ for figure 3, like 0,200,800 [default: 0 to 800 by 100].")
    ] = None,
    override: Annotated[
        list[str] | None, option("Train the cells with other settings, like 'lr=1e-4 dim=300'; may be repeated.")
    ] = None,
    paper_settings_only: Annotated[
        bool, option("Use only the paper's settings, even where other settings are needed to reach its results.")
    ] = False,
    quick: Annotated[
        bool, option("Small models (dim 100, shared negatives, few epochs): 15 minutes on 2 cores.")
    ] = False,
    time_limit: Annotated[str | None, option("Save and stop after this time: 90s, 30m, 2h.")] = None,
    workers: Annotated[int, option("Number of processes that train cells on the device; useful on a GPU.")] = 1,
    keep_runs: Annotated[bool, option("Keep the trained models, not only the ranks of test triples.")] = False,
    report_only: Annotated[bool, option("Train nothing; write the report on finished cells.")] = False,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train the paper's models with its settings and compare the results with the published ones.

    Writes report.md, report.json and the figures. Data sets are found in FOCUSE_DATA or the cache, or downloaded.
    Ctrl-C and --time-limit save the training; the same command continues, and finished cells are kept.
    """
    from reproduction.grid import select_cells
    from reproduction.scheduling import reproduce as reproduce_paper

    log = reproduce_paper(
        select_cells(data, model, kind, seeds, part, decays, override, paper_settings_only, quick),
        out,
        command=f"python -m reproduction {shlex.join(sys.argv[1:])}".rstrip(),
        note=(lambda text: None) if quiet else (lambda text: typer.echo(text, err=True)),
        time_limit=None if time_limit is None else parse_duration(time_limit),
        device=device,
        workers=workers,
        keep_runs=keep_runs,
        report_only=report_only,
        skip_missing_data=data is None,
        progress=not quiet,
    )
    emit(log.to_dict(), str(log), as_json)
    if log.failed:
        raise FocuseError("; ".join(f"{name}: {reason}" for name, reason in log.failed.items()))


app = make_app(add_completion=False)
app.command(cls=Command)(with_options(reproduce))

if __name__ == "__main__":
    run_app(app, "python -m reproduction")
