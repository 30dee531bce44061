"""Commands that run whole experiments: the demo on the embedded graph, and the paper's."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.options import Json
from focuse.cli.output import emit
from focuse.errors import FocuseError

# ---- focuse demo: without weights, with FocusE and with soft labels on the embedded graph ----------------------------


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="The same seed gives the same result on a CPU.")] = 0,
    graph_only: Annotated[
        bool, typer.Option("--graph-only", help="Only write the embedded graph as OUT/careers.tsv and stop.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Train ComplEx without weights, with FocusE and with soft labels on an embedded careers graph; no download.

    Prints a comparison and ten predictions as sentences, and writes an HTML page.
    """
    from focuse.config import Config
    from focuse.data.datasets import careers
    from focuse.paper.demo import demo as run_demo

    Config.from_kwargs(seed=seed)  # before anything is written
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FocuseError(f"{out}: {error.strerror or error}; choose another --out") from None
    if graph_only:
        careers().write(out / "careers.tsv")
        emit({"graph": str(out / "careers.tsv")}, f"graph: {out / 'careers.tsv'}", as_json)
        return
    shown = run_demo(seed, progress=not quiet, note=lambda text: None if quiet else typer.echo(text, err=True))
    page = shown.write(out)
    emit({**shown.to_dict(), "report": str(page)}, f"{shown}\n\nreport: {page}", as_json)


# ---- focuse reproduce: the paper's tables and figures, with the published results -----------------------------------


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder of results and report; an existing one is continued.")] = Path(
        "reproduction"
    ),
    data: Annotated[
        list[str] | None, typer.Option(help="ppi5k, nl27k, cn15k, onet20k, onet-importance; may be repeated.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="transe, distmult, complex, ukge-rect, ukge-logi.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="plain, focuse, ukge; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of trainings per cell.")] = 1,
    part: Annotated[str, typer.Option(help="tables (2 to 4 and figure 4), figure3 or all.")] = "all",
    decays: Annotated[
        str | None, typer.Option(help="Values of λ for figure 3, like 0,200,800 [default: 0 to 800 by 100].")
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(help="Train the cells with other settings, like 'lr=1e-4 dim=300'; may be repeated."),
    ] = None,
    paper_settings_only: Annotated[
        bool,
        typer.Option("--paper-settings-only", help="Use the paper's settings also where others reach its results."),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Small models (dim 100, shared negatives, few epochs): 15 minutes on 2 cores."),
    ] = False,
    time_limit: Annotated[str | None, typer.Option(help="Save and stop after this time: 90s, 30m, 2h.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes that train cells on the device; useful on a GPU.")
    ] = 1,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="Keep the trained models, not only the ranks of test triples.")
    ] = False,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Train nothing; write the report on finished cells.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Train the paper's models with its settings and compare the results with the published ones.

    Writes report.md, report.json and the figures. Data sets are found in FOCUSE_DATA or the cache, or downloaded.
    Ctrl-C and --time-limit save the training; the same command continues, and finished cells are kept.
    """
    from focuse.option_strings import parse_duration
    from focuse.paper.grid import select_cells
    from focuse.paper.scheduling import reproduce as reproduce_paper

    log = reproduce_paper(
        select_cells(data, model, kind, seeds, part, decays, override, paper_settings_only, quick),
        out,
        command="focuse " + shlex.join(sys.argv[1:]),
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
