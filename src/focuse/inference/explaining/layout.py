"""Where the entities of a picture stand: the head left, the tail right, what both share between them, others outside.

Five columns, no label on an edge: what a fact says stands in the box of its far end, so that nothing can overlap.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field

from focuse.errors import printable
from focuse.inference.explaining.explanation import Explanation

LEAST, GAP, MARGIN = 130, 54, 12  # width of a box at least, between columns, around the picture
LINE, PAD, SPACE = 16, 8, 14  # height of a line of text, of a box's rim, between boxes
NAME_LETTER, LINE_LETTER = 8.2, 6.2  # widths of a letter, of a name (bold) and of the lines below it
NAME_LETTERS, LINE_LETTERS = 36, 46  # that a box has room for; longer texts are cut
LEFT, HEAD, MIDDLE, TAIL, RIGHT = range(5)


@dataclass
class Box:
    """An entity, or the pill of an edge between head and tail; `lines` below its `name`."""

    name: str
    column: int
    kind: str = "other"  # head, tail, other, asked, direct
    lines: list[str] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    width: float = LEAST

    @property
    def needs(self) -> float:
        """Width of its texts, as many letters of them as are shown."""
        name = NAME_LETTER * letters(shortened(self.name, NAME_LETTERS))
        lines = [LINE_LETTER * letters(shortened(line, LINE_LETTERS)) for line in self.lines]
        return max(LEAST, 2 * PAD + max(name, *lines, 0.0))

    @property
    def height(self) -> float:
        return 2 * PAD + LINE * (bool(self.name) + len(self.lines))

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True)
class Edge:
    """An arrow from box to box; `kind` is asked, for, against or rule, `share` its weight in [0, 1]."""

    start: Box
    end: Box
    kind: str
    share: float
    title: str
    pointed: bool = True  # the first half of an edge through a pill is not


@dataclass
class Layout:
    """Boxes at their places, the edges between them, and the picture's size."""

    boxes: list[Box]
    edges: list[Edge]
    width: float
    height: float


def letters(text: str) -> int:
    """How wide a text is, in letters; those of Chinese, Japanese and Korean count twice.

    >>> letters("abc"), letters("日本")
    (3, 4)
    """
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def shortened(text: str, limit: int) -> str:
    """A text of at most `limit` letters, cut off with an ellipsis.

    >>> shortened("senior ward nurse", 9)
    'senior w…'
    """
    text = printable(text)
    if letters(text) <= limit:
        return text
    kept = ""
    for sign in text:
        if letters(kept + sign) > limit - 1:
            break
        kept += sign
    return kept.rstrip() + "…"


def arrange(explanation: Explanation) -> Layout:
    """The picture of an explanation: the asked edge, what supports it and speaks against it, and the best rule."""
    made = _Made(explanation)
    made.facts()
    made.rules()
    return made.placed()


def _line(relation: str, figures: str) -> str:
    """A relation and figures as one line; where it is too long, the relation is cut."""
    return f"{shortened(relation, LINE_LETTERS - 1 - len(figures))} {figures.replace('-', '−')}"


class _Made:
    """A picture in the making."""

    def __init__(self, explanation: Explanation) -> None:
        asked = explanation.asked
        self.explanation, self.names = explanation, (asked.head, asked.tail)
        self.head, self.tail = Box(asked.head, HEAD, "head"), Box(asked.tail, TAIL, "tail")
        told = "known" if asked.known else "predicted" if explanation.predicted else "not predicted"
        sure = asked.probability if explanation.chance is None else explanation.chance
        told += "" if sure is None else f", probability {sure:.2f}"
        weight = asked.weight if asked.known else asked.weight_mean
        lines = [told] if weight is None else [told, f"{'weight' if asked.known else 'expected weight'} {weight:.3g}"]
        pill = Box(asked.relation, MIDDLE, "asked", lines)
        self.boxes, self.edges = [self.head, self.tail, pill], list[Edge]()
        self._through(pill, asked.head, asked.tail, "asked", 0.3, f"{asked.head} {asked.relation} {asked.tail}")
        self.others: dict[str, Box] = {}
        self.steps = [step for rule in explanation.rules[:1] for step in rule.facts if not step.negated]

    def facts(self) -> None:
        """Boxes and arrows of what speaks for and against."""
        told = [*((one, "for") for one in self.explanation.supporting)]
        told += [(one, "against") for one in self.explanation.against]
        for one, kind in told:
            line = _line(one.relation, f"{one.weight:.3g} ({one.change:+.2f})")
            title = f"{one.head} {one.relation} {one.tail}, weight {one.weight:.4g}: {one.change:+.4g} without it"
            self._fact((one.head, one.tail), kind, one.share, line, title)

    def rules(self) -> None:
        """The path of the best rule."""
        for step in self.steps:
            weight = step.weight or 0.0
            title = f"{step.head} {step.relation} {step.tail}, share {weight:.3g}, in the body of a rule"
            self._fact((step.head, step.tail), "rule", weight, _line(step.relation, f"{weight:.3g} (rule)"), title)

    def _fact(self, ends: tuple[str, str], kind: str, share: float, line: str, title: str) -> None:
        if ends[0] == ends[1] or all(end in self.names for end in ends):  # a loop, or an edge between the two
            pill = Box("" if ends[0] != ends[1] else "itself", MIDDLE, "direct", [line])
            self.boxes.append(pill)
            self._through(pill, *ends, kind, share, title)
            return
        start, end = (self._box(name) for name in ends)
        for box in {id(one): one for one in (start, end) if one.kind == "other"}.values():
            box.lines.append(line)
        self.edges.append(Edge(start, end, kind, share, title))

    def _through(self, pill: Box, start: str, end: str, kind: str, share: float, title: str) -> None:
        """An edge that runs through a pill of its own in the middle."""
        self.edges.append(Edge(self._end(start, self.head), pill, kind, share, title, pointed=False))
        self.edges.append(Edge(pill, self._end(end, self.tail), kind, share, title))

    def _end(self, name: str, otherwise: Box) -> Box:
        """The box of head or tail by name; of a triple that leads to itself there are two of one name."""
        if self.names[0] == self.names[1]:
            return otherwise
        return self.head if name == self.names[0] else self.tail

    def _box(self, name: str) -> Box:
        if name in self.names:
            return self.head if name == self.names[0] else self.tail
        if name not in self.others:
            box = self.others[name] = Box(name, self._column(name))
            self.boxes.append(box)
        return self.others[name]

    def _column(self, name: str) -> int:
        """Between head and tail what both share or a rule leads over, else on the side of the one that it touches."""
        explained = self.explanation
        shown = (*explained.supporting, *explained.against)
        near = {end for one in shown for end in (one.head, one.tail) if name in (one.head, one.tail) and end != name}
        if any(name in (step.head, step.tail) for step in self.steps) or near >= set(self.names):
            return MIDDLE
        return LEFT if self.names[0] in near else RIGHT

    def placed(self) -> Layout:
        """Boxes at their places: columns beside one another, each about the middle."""
        filled = [column for column in range(5) if any(box.column == column for box in self.boxes)]
        columns = {column: [box for box in self.boxes if box.column == column] for column in filled}
        tall = {column: sum(box.height + SPACE for box in boxes) - SPACE for column, boxes in columns.items()}
        height = max(tall.values()) + 2 * MARGIN
        x = float(MARGIN)
        for column, boxes in columns.items():
            y, wide = (height - tall[column]) / 2, round(max(box.needs for box in boxes))
            for box in boxes:
                box.x, box.y, box.width = x, y, wide
                y += box.height + SPACE
            x += wide + GAP
        return Layout(self.boxes, self.edges, x - GAP + MARGIN, height)
