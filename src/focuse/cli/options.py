"""Options that commands share: how input files are read, and one option per setting of a training.

A command declares a parameter `layout: Layout` for the former and `**settings` for the latter; `with_options` expands
them. The options of settings are generated from the declarations in `focuse.config`.
"""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from focuse.config import GROUPS, SETTINGS
from focuse.errors import FocuseError
from focuse.option_strings import parse_names

if TYPE_CHECKING:
    from focuse.data.graph import Graph


PANELS = (None, "Input", "Search", *GROUPS)


def completed(choices: Sequence[str]) -> Callable[[str], list[str]] | None:
    """Return a function that completes a word to one of the choices, for `autocompletion`."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in choices if word.startswith(incomplete)]

    return complete if choices else None


def option(help: str, panel: str | None = None, choices: Sequence[str] = (), names: str | None = None) -> Any:
    """Return an option whose value can be completed; its panel is the heading in the help of the command.

    `names` are those of the option, such as '--open', by default the name of the parameter.
    """
    declared = () if names is None else (names,)
    return typer.Option(*declared, help=help, rich_help_panel=panel, autocompletion=completed(choices))


def setting_option(name: str) -> Any:
    """Return the option of a setting."""
    declared = SETTINGS[name]
    choices = f" One of {', '.join(declared.choices)}." if declared.choices else ""
    text = f"{declared.help}{choices} Default: {declared.default_text}."
    return option(text, declared.group, declared.choices or declared.examples)


GraphFile = typer.Argument(
    help="Edges: head, relation, tail, weight, as TSV, CSV (.gz, .zst), Parquet, JSON, Excel, .mtx, RDF or GraphML."
)
RunFolder = Annotated[Path, typer.Argument(help="Folder of a run, written by 'focuse train'.")]
TestFile = Annotated[str | None, typer.Argument(help="Test triples. Default: the run's own.")]
PreferOption = Annotated[
    str | None,
    option("likely or strong links, or a number from 0 (likely) to 1 (strong). Default: chosen on validation."),
]
Out = Annotated[Path | None, option("Write all rows to this file (.tsv, .csv, .parquet or .json).", "Output")]
LinksOut = Annotated[
    Path | None, option("Write all rows here (.tsv, .csv, .parquet, .json; RDF: .ttl, .nt …).", "Output")
]
Valid = Annotated[str | None, option("Validation triples. Default: a fraction of the graph.", "Input")]
Test = Annotated[str | None, option("Test triples. Default: a fraction of the graph, none with --valid.", "Input")]
ValidFraction = Annotated[
    float | None, option("Fraction of the graph to validate on, without --valid. Default: 0.1.", "Input")
]
TestFraction = Annotated[
    float | None, option("Fraction of the graph to test on, without --valid and --test. Default: 0.1.", "Input")
]
RelationWeights = Annotated[Path | None, option("File of one weight per relation, instead of per edge.", "Input")]
NodeAttributes = Annotated[Path | None, option("Numeric node attributes: entity, attribute, value.", "Input")]
Device = Annotated[str, option("Device: auto, cpu or cuda.", choices=SETTINGS["device"].examples)]
AsJson = Annotated[bool, option("Print one JSON object instead of text.", "Output", names="--json")]
Quiet = Annotated[bool, option("Show no progress.", "Output")]


FLAGS = {
    "same_ids": ("same-ids", "separate-ids"),
    "undirected": ("undirected", "directed"),
    "header": ("header", "no-header"),
}


@dataclass(frozen=True)
class Layout:
    """How the input files of a command are read; its fields are options."""

    head: Annotated[str | None, option("Column of heads, by heading or number. Default: detected.", "Input")] = None
    relation: Annotated[str | None, option("Column of relations, or none. Default: detected.", "Input")] = None
    tail: Annotated[str | None, option("Column of tails. Default: detected.", "Input")] = None
    weight: Annotated[str | None, option("Column of weights, or none. Default: detected.", "Input")] = None
    columns: Annotated[
        str | None, option("Short form: head,tail or head,relation,tail or head,relation,tail,weight.", "Input")
    ] = None
    weight_columns: Annotated[str | None, option("Several weight columns, by heading or number.", "Input")] = None
    relation_name: Annotated[
        str | None, option("Name of the relation, if no column has any. Default: from the file.", "Input")
    ] = None
    same_ids: Annotated[
        bool | None,
        option(
            "Whether equal numbers in both columns are one entity. Default: detected.",
            "Input",
            names="--same-ids/--separate-ids",
        ),
    ] = None
    undirected: Annotated[
        bool | None,
        option(
            "Whether each pair of entities is one fact. Default: if all are listed in both directions.",
            "Input",
            names="--undirected/--directed",
        ),
    ] = None
    missing_weight: Annotated[
        str | None, option("Weight of edges without one, or drop. Default: an error.", "Input")
    ] = None
    delimiter: Annotated[str | None, option("Separator of a text file. Default: detected.", "Input")] = None
    header: Annotated[bool | None, option("Whether the first line is a header. Default: detected.", "Input")] = None

    def read(self, source: str | Path, relation_weights: Path | None = None, **more: Any) -> Graph:
        """Read a graph from a file; commands that an error proposes are the user's own one, or `focuse describe`."""
        return read_for("describe", source, **self.read_options(relation_weights), **more)

    def read_options(self, relation_weights: Path | None = None) -> dict[str, Any]:
        """Return the keyword arguments of `focuse.read` that are given."""
        given: dict[str, Any] = {name: value for name, value in vars(self).items() if value is not None}
        given |= {name: parse_names(given[name]) for name in ("columns", "weight_columns") if name in given}
        return given if relation_weights is None else {**given, "relation_weights": relation_weights}

    def arguments(self) -> list[str]:
        """Return the words that give these options in a shell."""
        words = []
        for name, value in vars(self).items():
            flags = FLAGS.get(name)
            if value is not None:
                option = name.replace("_", "-") if flags is None else flags[not value]
                words += [f"--{option}"] if flags else [f"--{option}", str(value)]
        return words

    def read_given(self, *sources: str | Path | None) -> list[Graph | None]:
        """Read a graph for each source that is given."""
        if self != Layout() and not any(sources):
            named = next(name for name, value in vars(self).items() if value is not None)
            raise FocuseError(f"{named} requires a file to read; remove it")
        return [None if source is None else self.read(source) for source in sources]


def read_for(command: str, source: str | Path, **options: Any) -> Graph:
    """Read a graph from a file; commands that an error proposes are the user's own one, or `focuse COMMAND`."""
    from focuse.data.readers import read

    try:
        return read(source, **options)
    except FocuseError as error:
        proposed, typed = f"focuse describe {shlex.quote(str(source))}", [command, shlex.quote(str(source))]
        if sys.argv[1:2] == [command] and str(source) in sys.argv:
            typed = list(map(shlex.quote, sys.argv[1:]))
        raise FocuseError(str(error).replace(proposed, f"focuse {' '.join(typed)}")) from None


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command for Typer: `layout: Layout` and `**settings` become options, and False becomes a plain flag."""
    options: dict[str, tuple[Any, Any]] = {}
    layout = get_type_hints(Layout, include_extras=True)
    kinds: dict[str, Any] = {"int": int, "float": float, "bool": bool}
    for each in inspect.signature(function, eval_str=True).parameters.values():
        if each.annotation is Layout:
            options |= {name: (annotation, None) for name, annotation in layout.items()}
        elif each.kind is inspect.Parameter.VAR_KEYWORD:
            for name, setting in SETTINGS.items():
                options[name] = Annotated[kinds.get(setting.type, str) | None, setting_option(name)], None
        else:
            if each.default is False:  # without an option for the opposite, such as --no-json
                [declared] = each.annotation.__metadata__
                if declared.default is ...:  # Typer takes a default in an annotation for the option's name
                    declared.default = f"--{each.name.replace('_', '-')}"
            options[each.name] = each.annotation, each.default

    @wraps(function)
    def command(**values: Any) -> None:
        if "columns" in options:
            values["layout"] = Layout(**{name: values.pop(name) for name in layout})
        function(**values)

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in sorted(options.items(), key=_panel)
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _panel(item: tuple[str, tuple[Any, Any]]) -> int:
    """Return the position of an option's panel in the help; arguments come first."""
    [declared] = getattr(item[1][0], "__metadata__", [None])
    return PANELS.index(getattr(declared, "rich_help_panel", None))
