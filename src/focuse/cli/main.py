"""The command `focuse`: every command, each thin, with the line that `focuse --help` has for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from focuse import __version__
from focuse.cli import completion, datasets, evaluate, experiments, graphs, queries, rules, runs, train, tune
from focuse.cli.output import alone_to_say, any_letter, speaks, warn
from focuse.errors import FocuseError, Stopped
from focuse.system import signals_as_interrupts

# What a mistyped option raises. Typer brings its own click or uses the installed one; this is the right class of both.
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]

# In the order of `focuse --help`.
COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("train", train.command, "Learn a graph and write a run."),
    ("tune", tune.command, "Search the best settings."),
    ("evaluate", evaluate.command, "Rank or weigh held-out triples."),
    ("report", runs.report, "Write an HTML report on a run."),
    ("predict", queries.predict, "Complete a triple."),
    ("discover", queries.discover, "The most probable missing links of a graph."),
    ("explain", queries.explain, "Explain a prediction."),
    ("predict-weights", queries.predict_weights, "Weights, intervals and probabilities of given triples."),
    ("similar", queries.similar, "Entities most like given ones."),
    ("duplicates", queries.duplicates, "Entities that may be one and the same."),
    ("clusters", queries.clusters, "Groups of entities that are alike."),
    ("analogies", queries.analogies, "A is to B as C is to what?"),
    ("extend", runs.extend, "Add edges and new names to a run."),
    ("serve", runs.serve, "Explore a run in a browser, or by its JSON API."),
    ("export", runs.export, "Write embeddings with their names for other tools."),
    ("convert", graphs.convert, "A graph from one form to another."),
    ("calibrate", queries.calibrate, "Fit the map from scores to weights."),
    ("describe", graphs.describe, "Describe a graph and its leaks."),
    ("demo", experiments.demo, "Plain and focused, side by side."),
    ("reproduce", experiments.reproduce, "The paper's tables and figures again."),
    ("completion", completion.command, "Print a script that completes words by tab."),
)
GROUPS = (
    ("rules", rules.app, "Infer triples by rules, and mine rules."),
    ("datasets", datasets.app, "List, find and fetch benchmark graphs."),
)

app = typer.Typer(
    name="focuse",
    help="Learn embeddings of knowledge graphs whose edges carry numbers, and predict missing links.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for name, function, summary in COMMANDS:
    app.command(name, short_help=summary)(function)
for name, group, summary in GROUPS:
    app.add_typer(group, name=name, short_help=summary)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"focuse {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE", help="Run this module's code where a run names it as its model's; may be repeated."
        ),
    ] = None,
) -> None:
    """Learn embeddings of knowledge graphs whose edges carry numbers, and predict missing links."""
    if trust:  # in the environment, where processes that a command starts find it too
        os.environ["FOCUSE_TRUST"] = ",".join(filter(None, (os.environ.get("FOCUSE_TRUST", ""), *trust)))


def run() -> None:
    """Run the command; what the user can mend is one line on stderr and exit code 2."""
    any_letter()
    if completion.ASKED in os.environ:  # a shell, at a tab
        return completion.answer(typer.main.get_command(app))
    if "RANK" in os.environ:  # one of several processes: torch has pages to say of one that is gone, we have a line
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        with signals_as_interrupts():
            code = app(standalone_mode=False)
        if code == 130:  # typer has swallowed a Ctrl-C
            raise KeyboardInterrupt
    except FocuseError as error:
        if speaks() if isinstance(error, Stopped) else alone_to_say(str(error)):
            warn(str(error))
        sys.exit(130 if isinstance(error, Stopped) else 2)
    except USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # asked nothing: typer's message is the help itself
            print(error.format_message())
            sys.exit(2)
        asked = _asked(error)
        misplaced = asked and getattr(error, "option_name", "") == "--trust"
        told = f"--trust stands before the command: focuse --trust MODULE {asked}…"
        warn(told if misplaced else f"{error.format_message()} (see focuse {asked}--help)")
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort) as error:
        warn(f"stopped; {error}" if str(error) else "stopped")
        sys.exit(130)
    except RuntimeError as error:
        from focuse.engines.process_group import PEER_LOST, is_peer_lost

        if not is_peer_lost(error):
            raise
        warn(PEER_LOST)
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _asked(error: Any) -> str:
    """The command that was meant, such as 'train ' or 'datasets path '."""
    names, context = "", error.ctx
    while context is not None and context.parent is not None:
        names, context = f"{context.info_name} {names}", context.parent
    return names
