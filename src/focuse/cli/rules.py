"""`focuse rules`: what rules infer from a graph, and which rules it suggests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focuse.cli.options import Json, Layout
from focuse.cli.output import MARKUP, Command, Group, emit
from focuse.config import SETTINGS
from focuse.errors import FocuseError, counted, escape_terminal_codes

if TYPE_CHECKING:
    from focuse.rules import grounding, mining

# As in ukge/ (a test compares), which would load pyarrow for every command.
MINIMUM, MOST_GROUNDINGS = 0.5, 1_000_000
SUPPORT, CONFIDENCE, MOST_PATHS = 10, 0.5, 20_000_000
SHAPES = ("symmetry", "inverse", "transitivity", "composition")

File = Annotated[str, typer.Argument(help="A graph with confidences in [0, 1].", show_default=False)]
Columns = Annotated[str | None, typer.Option(help="Columns to use, by heading or counted from 1.")]
Delimiter = Annotated[str | None, typer.Option(help="Separator of a text file.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Whether line 1 is a header.")]
WeightScaling = Annotated[
    str | None,
    typer.Option(
        help=f"Bring weights into [0, 1]: {', '.join(SETTINGS['weight_scaling'].choices)}.", show_default=False
    ),
]
AsJson = Annotated[bool, Json]

app = typer.Typer(
    help="Infer unseen triples by soft-logic rules, and mine such rules.",
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
    cls=Group,
)


@app.command("ground", short_help="Infer triples by rules.", cls=Command)
def ground(
    file: File,
    rules: Annotated[Path, typer.Argument(help="A file of rules, one a line.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Write the inferred triples here.", show_default=False)] = None,
    minimum: Annotated[float, typer.Option(help="Least truth of a rule's body.")] = MINIMUM,
    limit: Annotated[int, typer.Option(help="Most groundings a rule may have.")] = MOST_GROUNDINGS,
    weight_scaling: WeightScaling = None,
    keep_known: Annotated[
        bool, typer.Option("--keep-known", help="Write triples that the graph has, too.", show_default=False)
    ] = False,
    columns: Columns = None,
    delimiter: Delimiter = None,
    header: Header = None,
    as_json: AsJson = False,
) -> None:
    """Ground rules over a graph and write the unseen triples that they infer, with their confidences."""
    from focuse.rules import grounding
    from focuse.rules.grammar import read_rules

    wanted = read_rules(rules)
    graph = Layout(columns, delimiter, header).read(file)
    found = grounding.ground(graph, wanted, minimum=minimum, limit=limit, weight_scaling=weight_scaling)
    inferred = grounding.collect(graph, found, keep_known)
    _note([one.note for one in found if one.note])
    if out is not None:
        if not len(inferred):
            raise FocuseError(f"{out}: nothing to write, the graph has every inferred triple; --keep-known writes them")
        if out.exists() and Path(file).exists() and out.samefile(file):
            raise FocuseError(f"{out}: that is the graph itself; choose another --out")
        inferred.write(out)
    rows = [_figures(one) for one in found]
    written = None if out is None else str(out)
    facts = {"graph": graph.source, "rules": rows, "inferred": len(inferred), "out": written}
    emit(facts, _groundings(rows, len(inferred), written), as_json)


@app.command("mine", short_help="Propose rules.", cls=Command)
def mine(
    file: File,
    out: Annotated[Path | None, typer.Option(help="Write the rules to this file.", show_default=False)] = None,
    support: Annotated[int, typer.Option(help="Least pairs that confirm a rule.")] = SUPPORT,
    confidence: Annotated[float, typer.Option(help="Least share of pairs that do.")] = CONFIDENCE,
    shape: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this shape, may be repeated: {', '.join(SHAPES)}.", show_default=False),
    ] = None,
    top: Annotated[int, typer.Option(help="Most rules to show.")] = 20,
    limit: Annotated[int, typer.Option(help="Most paths of two edges to walk.")] = MOST_PATHS,
    weight_scaling: WeightScaling = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    header: Header = None,
    as_json: AsJson = False,
) -> None:
    """Propose rules that hold in a graph: symmetric and inverse relations, transitivity, compositions."""
    from focuse.rules import mining

    graph = Layout(columns, delimiter, header).read(file)
    found = mining.mine(
        graph,
        shapes=shape or mining.SHAPES,
        minimum_support=support,
        minimum_confidence=confidence,
        limit=limit,
        weight_scaling=weight_scaling,
    )
    _note(found.notes)
    if out is not None:
        found.write(out)
    shown = [_proposal(one) for one in found.rules[: max(top, 0)]]
    written = None if out is None else str(out)
    facts = {"graph": graph.source, "found": len(found), "rules": shown, "notes": found.notes, "out": written}
    emit(facts, _proposals(shown, len(found), written), as_json)


def _figures(one: grounding.Grounding) -> dict[str, Any]:
    return {
        "rule": str(one.rule),
        "line": one.rule.line,
        "groundings": len(one),
        "triples": one.num_triples,
        "new": one.num_new,
        "hit_ratio": one.hit_ratio,
        "mean_confidence": one.mean_confidence,
        "distance": one.distance,
        "minimum": one.minimum,
        "capped": bool(one.note),
    }


def _groundings(rows: list[dict[str, Any]], inferred: int, out: str | None) -> str:
    names = ["groundings", "triples", "new"]
    shares = ["hit_ratio", "mean_confidence", "distance"]
    cells = [
        [row["rule"], *(f"{row[name]:,}" for name in names), *(f"{row[name]:.3f}" for name in shares)] for row in rows
    ]
    from focuse.results import format_table

    text = format_table(["rule", *names, "hit ratio", "confidence", "distance"], cells)
    return f"{text}\n\n{counted(inferred, 'inferred triples')}{f' written to {out}' if out else ''}"


def _proposal(one: mining.MinedRule) -> dict[str, Any]:
    return {
        "rule": str(one.rule),
        "shape": one.shape,
        "support": one.support,
        "pairs": one.pairs,
        "confidence": one.confidence,
        "soft_confidence": one.soft_confidence,
    }


def _proposals(rows: list[dict[str, Any]], found: int, out: str | None) -> str:
    if not found:
        return "no rules hold so often; lower --support or --confidence"
    from focuse.results import format_table

    cells = [
        [
            row["rule"],
            row["shape"],
            *(f"{row[name]:,}" for name in ("support", "pairs")),
            *(f"{row[name]:.3f}" for name in ("confidence", "soft_confidence")),
        ]
        for row in rows
    ]
    text = format_table(["rule", "shape", "support", "pairs", "confidence", "soft"], cells) + "\n\n" if rows else ""
    more = f", the best {len(rows):,} shown" if len(rows) < found else ""
    return f"{text}{counted(found, 'rules')}{more}{f', all written to {out}' if out else ''}"


def _note(notes: list[str]) -> None:
    for note in notes:
        typer.echo(escape_terminal_codes(f"note: {note}"), err=True)
