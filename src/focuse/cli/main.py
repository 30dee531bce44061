"""The command `focuse`: all commands in the order of `focuse --help`, and how errors end it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from focuse import __version__
from focuse.cli import graphs, runs, train
from focuse.cli.options import with_options
from focuse.cli.output import is_main_process, print_any_character, warn
from focuse.errors import FocuseError, Stopped
from focuse.storage.old_names import OLD_SETTING_NAMES
from focuse.system import signals_as_interrupts

# The error of a mistyped option. Typer has its own copy of click or uses the installed one; this is the class of both.
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]

# Rich formats help on a terminal; elsewhere, help is plain text, which also starts faster.
MARKUP: Any = "rich" if sys.stdout is not None and sys.stdout.isatty() else None
DATASETS, RULES = "List, find and download benchmark graphs.", "Infer triples by soft-logic rules, and mine such rules."
# Heading in `focuse --help`, name, function and summary; a name of two words is that of a command in a group.
COMMANDS: tuple[tuple[str, str, Any, str], ...] = (
    ("Start", "describe", graphs.describe, "Describe a graph and check its splits for leakage."),
    ("Start", "train", train.train, "Train embeddings of a graph and write a run."),
    ("Start", "evaluate", runs.evaluate, "Evaluate a run on test triples."),
    ("Start", "predict", runs.predict, "Predict the missing part of a triple."),
    ("Start", "report", runs.report, "Write an HTML report on a run."),
    ("Explore", "discover", runs.discover, "Find the most probable missing links."),
    ("Explore", "explain", runs.explain, "Explain a prediction."),
    ("Explore", "predict-weights", runs.predict_weights, "Predict weights and probabilities of triples."),
    ("Explore", "similar", runs.similar, "Find similar entities."),
    ("Explore", "duplicates", runs.duplicates, "Find entities that may be duplicates."),
    ("Explore", "clusters", runs.clusters, "Cluster the entities."),
    ("Explore", "analogies", runs.analogies, "Complete analogies: A is to B as C is to what?"),
    ("Explore", "calibrate", runs.calibrate, "Calibrate scores to weights and probabilities."),
    ("Explore", "serve", runs.serve, "Explore a run in a browser, or by a JSON API."),
    ("Data", "convert", graphs.convert, "Convert a graph to another format."),
    ("Data", "extend", runs.extend, "Add edges and new entities to a run."),
    ("Data", "export", runs.export, "Export embeddings for other tools."),
    ("Data", "datasets list", graphs.list_datasets, "List the datasets."),
    ("Data", "datasets path", graphs.path, "Print the folder of a dataset."),
    ("Data", "datasets fetch", graphs.fetch, "Download a dataset."),
    ("Data", "rules ground", graphs.ground, "Infer triples by rules."),
    ("Data", "rules mine", graphs.mine, "Propose rules."),
    ("Experiments", "tune", train.tune, "Search for the best settings."),
    ("Experiments", "demo", train.demo, "Compare weight modes on a sample graph."),
)


def write_panels(formatter: Any, records: Iterable[tuple[str, tuple[str, str]]]) -> None:
    """Write records of a plain help under the headings of their panels."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for panel, record in records:
        panels.setdefault(panel, []).append(record)
    for name, rows in panels.items():
        with formatter.section(name):
            formatter.write_dl(rows)


class Command(TyperCommand):
    """A command whose plain help lists its options under the headings of their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        usual = {"argument": "Arguments", "option": "Options"}
        found: list[Any] = [(each, each.get_help_record(ctx)) for each in self.get_params(ctx)]
        records = [(each.rich_help_panel or usual[each.param_type_name], record) for each, record in found if record]
        write_panels(formatter, records)


class Group(TyperGroup):
    """A group of commands whose plain help lists them under the headings of their panels."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands: list[Any] = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        rows = [(each.name, each.get_short_help_str(formatter.width)) for each in commands]
        write_panels(formatter, zip([each.rich_help_panel or "Commands" for each in commands], rows, strict=True))


def make_app(name: str | None = None, help: str | None = None, **options: Any) -> typer.Typer:
    """Return a group of commands, or a program of one command."""
    context = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(
        name=name,
        help=help,
        cls=Group,
        rich_markup_mode=MARKUP,
        context_settings=context,
        pretty_exceptions_enable=False,
        **options,
    )


app = make_app("focuse", no_args_is_help=True)
GROUPS = {name: make_app(name, text, no_args_is_help=True) for name, text in (("datasets", DATASETS), ("rules", RULES))}
for group in GROUPS.values():
    app.add_typer(group, rich_help_panel="Data")
for panel, name, command, summary in COMMANDS:
    *parent, own = name.split()
    home, heading = (GROUPS[parent[0]], None) if parent else (app, panel)
    home.command(own, cls=Command, short_help=summary, rich_help_panel=heading)(with_options(command))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"focuse {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Allow runs to import their model from this module; may be repeated."),
    ] = None,
) -> None:
    """Train embeddings of knowledge graphs with edge weights, and predict missing links."""
    if trust:  # in the environment, which processes that a command starts inherit
        os.environ["FOCUSE_TRUST"] = ",".join(filter(None, (os.environ.get("FOCUSE_TRUST", ""), *trust)))


def run() -> None:
    """Run the command `focuse`."""
    run_app(app, "focuse")


def run_app(app: typer.Typer, name: str) -> None:
    """Run the command of this `name`; an error that the user can fix is one line on stderr and exit code 2."""
    print_any_character()
    if "RANK" in os.environ:  # one of several processes; torch would print pages about a lost one
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        with signals_as_interrupts():
            code = app(standalone_mode=False, prog_name=name)
        if code == 130:  # typer has caught a Ctrl-C
            raise KeyboardInterrupt
    except FocuseError as error:
        if is_main_process() if isinstance(error, Stopped) else _is_first_to_report(str(error)):
            warn(str(error))
        sys.exit(130 if isinstance(error, Stopped) else 2)
    except USAGE_ERROR as error:
        _report_usage_error(error)
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
    except OSError as error:  # for example, of a name that is too long
        if error.filename is None:
            raise
        warn(f"{error.filename}: {error.strerror}; choose another file or folder")
        sys.exit(2)


def _is_first_to_report(text: str) -> bool:
    """Return whether this process is to print an error that all processes of a torchrun may have."""
    if "WORLD_SIZE" not in os.environ:
        return True
    from focuse.engines.process_group import is_first_to_report

    return is_first_to_report(text)


def _report_usage_error(error: Any) -> None:
    """Print a mistyped command in one line, or the help if no command was given."""
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
        try:
            print(error.format_message(), flush=True)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    path = "focuse" if error.ctx is None else error.ctx.command_path
    command, option = path.partition(" ")[2], getattr(error, "option_name", "")
    new = OLD_SETTING_NAMES.get(option.lstrip("-").replace("-", "_"))
    if new and command == "train":
        warn(f"no such option: {option} (did you mean --{new.replace('_', '-')}?)")
    elif command and option == "--trust":
        warn(f"--trust must precede the command: focuse --trust MODULE {command} …")
    else:
        warn(f"{error.format_message()} (see {path} --help)")
