"""The same question to two runs, row by row."""

from __future__ import annotations

from typing import Literal

from focuse.serve.explorer import Explorer
from focuse.serve.problems import Refused
from focuse.serve.schemas import Compared, Comparison, Link, Question

Part = Literal["head", "relation", "tail"]


def compare(first: Explorer, second: Explorer, asked: Question) -> Comparison:
    """Both answers, and every completion that either has, in the first run's order, then the second's."""
    missing = missing_part(asked)
    sides = first.side(asked), second.side(asked)
    problems = [side.problem for side in sides]
    if problems[0] is not None and problems[1] is not None:
        raise Refused(404, problems[0].error, problems[0].hint, problems[0].nearest)
    ranked: list[dict[str, Link]] = [{getattr(link, missing): link for link in side.links} for side in sides]
    names = list(dict.fromkeys([*ranked[0], *ranked[1]]))
    rows = [_row(name, ranked[0].get(name), ranked[1].get(name)) for name in names]
    shared = sum(row.moved is not None for row in rows)
    return Comparison(missing=missing, first=sides[0], second=sides[1], rows=rows, shared=shared)


def missing_part(asked: Question) -> Part:
    """The part that is left out; 422 unless it is exactly one."""
    parts: tuple[Part, ...] = ("head", "relation", "tail")
    left_out = [part for part in parts if getattr(asked, part) is None]
    if len(left_out) != 1:
        raise Refused(422, "give two of head, relation and tail", "the third is ranked")
    return left_out[0]


def _row(name: str, first: Link | None, second: Link | None) -> Compared:
    moved = None if first is None or second is None else first.rank - second.rank
    return Compared(name=name, first=first, second=second, moved=moved)
