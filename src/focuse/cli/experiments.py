"""Commands that run whole experiments: the demo on the embedded graph, and the paper's."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from focuse.cli.options import Json
from focuse.cli.output import emit
from focuse.errors import FocuseError

# ---- focuse demo: plain, FocusE and labels side by side on the embedded graph ----------------------------------------


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Same seed, same bits on CPU.")] = 0,
    graph_only: Annotated[
        bool, typer.Option("--graph-only", help="Only write the embedded graph as OUT/careers.tsv and stop.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Train ComplEx plain, with FocusE and with labels on an embedded careers graph and compare; no download.

    Prints them side by side with ten predictions in words, and writes an HTML report.
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
    shown = run_demo(seed, progress=not quiet, say=lambda text: None if quiet else typer.echo(text, err=True))
    page = shown.write(out)
    emit({**shown.to_dict(), "report": str(page)}, f"{shown}\n\nreport: {page}", as_json)


# ---- focuse reproduce: the paper's tables and figures, ours beside theirs --------------------------------------------


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder of results and report; the same one goes on.")] = Path(
        "reproduction"
    ),
    data: Annotated[
        list[str] | None, typer.Option(help="ppi5k, nl27k, cn15k, onet20k, onet-importance; may be repeated.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="transe, distmult, complex, ukge-rect, ukge-logi.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="plain, focuse, ukge; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each cell.")] = 1,
    part: Annotated[str, typer.Option(help="tables (2 to 4 and figure 4), figure3 or all.")] = "all",
    decays: Annotated[
        str | None, typer.Option(help="λ of figure 3, like 0,200,800 [default: 0 to 800 in hundreds].")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(help="Train the cells with other settings instead, like 'lr=1e-4 dim=300'; may be repeated."),
    ] = None,
    appendix: Annotated[
        bool, typer.Option("--appendix", help="The paper's settings alone, without what was found to reach further.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A small form (k = 100, shared negatives, few epochs): 15 minutes on 2 cores."),
    ] = False,
    budget: Annotated[str | None, typer.Option(help="Stop and save after this time: 90s, 30m, 2h.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that train cells side by side on the device; for a GPU.")
    ] = 1,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="Keep every trained model, not only its ranks.")
    ] = False,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Train nothing: the report of what is there.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Train the paper's models with its settings and set the figures beside the published ones.

    Writes report.md, report.html and report.json. Data sets are found in FOCUSE_DATA or the cache, or fetched. Ctrl-C
    and --budget save; the same command goes on, finished cells are kept.
    """
    from focuse.option_strings import parse_duration
    from focuse.paper.choice import Choice
    from focuse.paper.reproduce import reproduce as reproduce_paper

    choice = Choice.of(data, model, kind, seeds, part, decays, change, appendix, quick)
    seconds = None if budget is None else parse_duration(budget)
    asked = "focuse " + shlex.join(sys.argv[1:])
    say = (lambda text: None) if quiet else (lambda text: typer.echo(text, err=True))
    options: dict[str, Any] = {"budget": seconds, "device": device, "keep_runs": keep_runs, "workers": workers}
    done = reproduce_paper(choice, out, asked, say, progress=not quiet, report_only=report_only, **options)
    emit(done.to_dict(), str(done), as_json)
    if done.failed:
        raise FocuseError("; ".join(f"{name}: {why}" for name, why in done.failed.items()))
