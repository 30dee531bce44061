"""The command `focuse`: one thin module a command."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from focuse import __version__
from focuse.cli import (
    analogies,
    calibrate,
    clusters,
    completion,
    convert,
    datasets,
    demo,
    discover,
    duplicates,
    evaluate,
    explain,
    export,
    extend,
    inspect,
    neighbours,
    predict,
    report,
    reproduce,
    rules,
    serve,
    train,
    tune,
    weigh,
)
from focuse.cli.output import alone_to_say, any_letter, speaks, warn
from focuse.errors import FocuseError, Stopped
from focuse.training.interrupts import tidily

# What a mistyped option raises. Typer brings its own click or uses the installed one; this is the right class of both.
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]

# In the order of `focuse --help`.
COMMANDS = (
    train,
    tune,
    evaluate,
    report,
    predict,
    discover,
    explain,
    weigh,
    neighbours,
    duplicates,
    clusters,
    analogies,
    extend,
    serve,
    export,
    convert,
    calibrate,
    inspect,
    demo,
    reproduce,
    completion,
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
for module in COMMANDS:
    app.command(module.NAME, short_help=module.SHORT)(module.command)
for group in (rules, datasets):
    app.add_typer(group.app, name=group.NAME, short_help=group.SHORT)


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
        with tidily():
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
    except (KeyboardInterrupt, typer.Abort):
        warn("stopped")
        sys.exit(130)
    except RuntimeError as error:
        from focuse.engines.company import LOST, lost

        if not lost(error):
            raise
        warn(LOST)
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
