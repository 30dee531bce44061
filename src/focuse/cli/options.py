"""Options that commands share: how input files are read, and one option per setting of a training.

A command declares a parameter `layout: Layout` for the former and `**settings` for the latter; `with_options` expands
them. The options of settings are generated from the declarations in `focuse.config`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focuse.config import GROUPS, SETTINGS, Setting

if TYPE_CHECKING:
    from focuse.data.graph import Graph


PANELS = ("Input", "Search", *GROUPS)


def completed(choices: Sequence[str]) -> Callable[[str], list[str]] | None:
    """Return a function that completes a word to one of the choices, for `autocompletion`."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in choices if word.startswith(incomplete)]

    return complete if choices else None


def option(help: str, panel: str | None = None, choices: Sequence[str] = (), flag: str | None = None) -> Any:
    """Return an option whose value can be completed; its panel is the heading in the help of the command.

    `flag` is the name of an option without a value, such as '--quiet'.
    """
    names = () if flag is None else (flag,)
    return typer.Option(*names, help=help, rich_help_panel=panel, autocompletion=completed(choices))


RunFolder = typer.Argument(help="Folder of a run, written by 'focuse train --out'.")
Out = option("Write all rows to this file (.tsv, .csv, .parquet or .json).", "Output")
LinksOut = option("Write all rows to this file (.tsv, .csv, .parquet, .json; RDF: .ttl, .nt, .nq, .trig).", "Output")
GraphFile = typer.Argument(
    help="Edges: head, relation, tail and weight, as TSV, CSV (also .gz, .zst), Parquet, RDF or GraphML."
)
Valid = Annotated[str | None, option("Validation triples. Default: a fraction of the graph.", "Input")]
Test = Annotated[str | None, option("Test triples. Default: a fraction of the graph.", "Input")]
ValidFraction = Annotated[float, option("Fraction of the graph to validate on, without --valid.", "Input")]
TestFraction = Annotated[float, option("Fraction of the graph to test on, without --valid and --test.", "Input")]
RelationWeights = Annotated[
    Path | None, option("File of relations and weights: one weight per relation instead of per edge.", "Input")
]
NodeAttributes = Annotated[
    Path | None, option("Numeric node attributes, for models that use them: entity, attribute, value.", "Input")
]
Device = option("Device.", choices=SETTINGS["device"].examples)
Json = option("Print one JSON object instead of text.", "Output", flag="--json")
Quiet = Annotated[bool, option("Show no progress.", "Output", flag="--quiet")]


@dataclass(frozen=True)
class Layout:
    """How the input files of a command are read."""

    columns: str | None = None
    delimiter: str | None = None
    header: bool | None = None
    weight_columns: str | None = None

    def read(self, source: str | Path, relation_weights: Path | None = None, **more: Any) -> Graph:
        """Read a graph from a file."""
        from focuse.data.readers import read

        return read(
            source,
            columns=self.columns.split(",") if self.columns else None,
            weights=self.weight_columns.split(",") if self.weight_columns else None,
            delimiter=self.delimiter,
            header=self.header,
            relation_weights=relation_weights,
            **more,
        )


LAYOUT_OPTIONS: dict[str, Any] = {
    "columns": Annotated[
        str | None,
        option("Columns by heading or number: head,relation,tail[,weight]. Default: detected.", "Input"),
    ],
    "weight_columns": Annotated[
        str | None, option("Several weight columns, by heading or number from 1; values may be missing.", "Input")
    ],
    "delimiter": Annotated[str | None, option("Separator of a text file. Default: detected.", "Input")],
    "header": Annotated[bool | None, option("Whether the first line is a header. Default: detected.", "Input")],
}


def setting_option(declared: Setting) -> Any:
    """Return the annotation of the option of a setting."""
    kinds: dict[str, Any] = {"int": int, "float": float, "bool": bool}
    choices = f" One of {', '.join(declared.choices)}." if declared.choices else ""
    text = f"{declared.help}{choices} Default: {declared.default_text}."
    return Annotated[
        kinds.get(declared.type, str) | None, option(text, declared.group, declared.choices or declared.examples)
    ]


def with_options(settings: Sequence[str] = tuple(SETTINGS)) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Expand `layout: Layout` and `**settings` of a command to options; `settings` are the names of the latter."""

    def expand(function: Callable[..., None]) -> Callable[..., None]:
        options: dict[str, tuple[Any, Any]] = {}
        for each in inspect.signature(function, eval_str=True).parameters.values():
            if each.annotation is Layout:
                options |= {name: (annotation, None) for name, annotation in LAYOUT_OPTIONS.items()}
            elif each.kind is inspect.Parameter.VAR_KEYWORD:
                options |= {name: (setting_option(SETTINGS[name]), None) for name in settings}
            else:
                options[each.name] = each.annotation, each.default

        @wraps(function)
        def command(**values: Any) -> None:
            if "columns" in options:
                values["layout"] = Layout(**{name: values.pop(name) for name in LAYOUT_OPTIONS})
            function(**values)

        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(name, keyword, default=default, annotation=annotation)
            for name, (annotation, default) in sorted(options.items(), key=_panel)
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return expand


def _panel(item: tuple[str, tuple[Any, Any]]) -> int:
    """Return the position of an option's panel in the help; arguments come first."""
    (declared, *_) = getattr(item[1][0], "__metadata__", (None,))
    panel = getattr(declared, "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else -1
