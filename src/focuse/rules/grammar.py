"""The rule language: a small grammar parses text to rules, and rules print as text. No code is ever evaluated.

rule        = body "->" atom [":" number]        number in (0, 1], 1 if left out
body        = conjunction {"|" conjunction}
conjunction = ["!"] atom {"&" ["!"] atom}
atom        = relation "(" variable "," variable ")"
relation    = bare name | "name in double quotes, with escapes as in JSON"
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from focuse.errors import FocuseError, printable

_BARE = re.compile(r"""(?:(?!->)[^\s(),&|!"#])+""")
_QUOTED = re.compile(r'''"(?:[^"\\]|\\.)*"''')
_NUMBER = re.compile(r"[0-9.eE+-]+")
MAX_SHOWN = 100  # characters of a long line that a message shows


@dataclass(frozen=True)
class Atom:
    """relation(first, second), or its negation.

    >>> str(Atom("competes with", "x", "y", negated=True))
    '!"competes with"(x, y)'
    """

    relation: str
    first: str
    second: str
    negated: bool = False

    @property
    def variables(self) -> tuple[str, str]:
        return self.first, self.second

    def __str__(self) -> str:
        return f"{'!' * self.negated}{quoted(self.relation)}({self.first}, {self.second})"


@dataclass(frozen=True)
class Rule:
    """body -> head : truth. The body is a disjunction of conjunctions; `source` and `line` are where it was read.

    >>> rule = Rule(((Atom("r", "x", "y"), Atom("r", "y", "z")),), Atom("r", "x", "z"), 0.9)
    >>> print(rule)
    r(x, y) & r(y, z) -> r(x, z) : 0.9
    """

    body: tuple[tuple[Atom, ...], ...]
    head: Atom
    truth: float = 1.0
    source: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        fault = rule_fault(self.body, self.head)
        if fault:
            raise FocuseError(f"not a rule that can be grounded: {fault[0]}")
        if not 0.0 < self.truth <= 1.0:
            raise FocuseError(f"a rule's truth is a number above 0 and at most 1, not {self.truth!r}")

    @property
    def relations(self) -> list[str]:
        """Return the relations it uses, each once, in the order of the text."""
        return list(dict.fromkeys(atom.relation for atom in (*self.atoms, self.head)))

    @property
    def atoms(self) -> Iterator[Atom]:
        return (atom for conjunction in self.body for atom in conjunction)

    @property
    def where(self) -> str:
        """Return 'rules.txt, line 3: the rule', for messages."""
        return f"{self.source}, line {self.line}: {self}" if self.line else str(self)

    def __str__(self) -> str:
        body = " | ".join(" & ".join(map(str, conjunction)) for conjunction in self.body)
        return f"{body} -> {self.head} : {float(self.truth)!r}"


class RuleError(FocuseError):
    """A rule that does not parse: what is wrong, then the line, then a caret under the column."""

    def __init__(self, source: str, line: int, text: str, column: int, problem: str) -> None:
        """Make the error of a line; `column` counts from 0."""
        self.source, self.line, self.column = source, line, column
        start = max(0, column - MAX_SHOWN // 2) if len(text) > MAX_SHOWN else 0
        shown = printable(text[start : start + MAX_SHOWN].replace("\t", " "))
        self.picture = f"  {shown}\n  {' ' * len(printable(text[start:column].replace(chr(9), ' ')))}^"
        super().__init__(f"{source}, line {line}, column {column + 1}: {problem}")

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.picture}"


def read_rules(path: str | Path) -> list[Rule]:
    """Read the rules of a UTF-8 text file, one per line; `#` begins a comment."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise FocuseError(f"{path}: not UTF-8 text; save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FocuseError(f"{path}: {reason}; give the path of a file of rules") from None
    return parse_rules(text, str(path))


def parse_rules(text: str, source: str = "rules") -> list[Rule]:
    """Parse rules from text, one per line.

    >>> rules = parse_rules("plays(x,y) & sport(x,z) -> teamsport(y,z) : 0.9  # athletes")
    >>> print(rules[0])
    plays(x, y) & sport(x, z) -> teamsport(y, z) : 0.9
    """
    found = [rule for number, line in enumerate(text.split("\n"), 1) if (rule := _Parser(source, number, line).rule())]
    if not found:
        raise FocuseError(f"{source}: no rules; write one per line, such as r(x, y) & r(y, z) -> r(x, z) : 0.9")
    return found


def as_rules(given: Any) -> list[Rule]:
    """Return rules that are given as the path of a file, as one rule or as several."""
    if isinstance(given, str | PathLike):
        return read_rules(Path(given))
    rules = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(rule, Rule) for rule in rules):
        raise FocuseError("rules: give a file of rules, or what focuse.rules.grammar.parse_rules returns")
    return rules


def rule_fault(body: Iterable[tuple[Atom, ...]], head: Atom) -> tuple[str, Atom] | None:
    """Return why a rule cannot be grounded and the faulty atom; None if it can be grounded."""
    bound: frozenset[str] | None = None
    for conjunction in body:
        for atom in (*conjunction, head):
            if not (atom.first.isidentifier() and atom.second.isidentifier()):
                return f"the variables of {atom} must be words such as x or team_1", atom
        positive = [atom for atom in conjunction if not atom.negated]
        if not positive:
            return "a conjunction needs an atom without '!'", conjunction[0] if conjunction else head
        variables = frozenset(name for atom in positive for name in atom.variables)
        for atom in conjunction:
            if atom.negated and not variables.issuperset(atom.variables):
                return f"the variables of {atom} must also occur in an atom without '!'", atom
        unconnected = _unconnected_atom(positive)
        if unconnected is not None:
            return f"{unconnected} shares no variable with the atoms before it, so every pair would match", unconnected
        if bound is not None and variables != bound:
            both = " and ".join(", ".join(sorted(names)) for names in (bound, variables))
            return f"both sides of '|' must use the same variables, not {both}", conjunction[0]
        bound = variables
    missing = [name for name in head.variables if not bound or name not in bound]
    if head.negated:
        return "the head cannot be negated", head
    if missing:
        return f"the head's variable {missing[0]} does not occur in the body", head
    return None


def _unconnected_atom(atoms: list[Atom]) -> Atom | None:
    """Return the first atom that no chain of shared variables connects to the first one."""
    neighbors: dict[str, set[str]] = {}
    for atom in atoms:
        neighbors.setdefault(atom.first, set()).add(atom.second)
        neighbors.setdefault(atom.second, set()).add(atom.first)
    reached, waiting = {atoms[0].first}, [atoms[0].first]
    while waiting:
        new = neighbors[waiting.pop()] - reached
        reached |= new
        waiting += new
    return next((atom for atom in atoms if atom.first not in reached), None)


def quoted(name: str) -> str:
    """Return a relation's name as rules write it: bare if that can be parsed, else in double quotes.

    >>> quoted("concept:competeswith"), quoted("requires skill")
    ('concept:competeswith', '"requires skill"')
    """
    if name.isprintable() and _BARE.fullmatch(name):
        return name
    plain = (sign if sign.isprintable() and sign not in '"\\' else json.dumps(sign)[1:-1] for sign in name)
    return f'"{"".join(plain)}"'


class _Parser:
    """Parses one line from left to right, with one method per line of the grammar."""

    def __init__(self, source: str, number: int, line: str) -> None:
        self.source, self.number, self.text, self.position = source, number, line.removesuffix("\r"), 0
        self.starts: list[tuple[Atom, int]] = []  # where each atom begins, for the caret of an error

    def rule(self) -> Rule | None:
        """Return the rule of the line; None if it has only spaces and a comment."""
        if self._ended():
            return None
        body = [self._conjunction()]
        while self._match("|"):
            body.append(self._conjunction())
        self._expect("->", "'&', '|' or '->'")
        head = self._atom(negated=False)
        truth = self._number() if self._match(":") else 1.0
        if not self._ended():
            self._fail("expected ': number' or the end of the rule" if truth == 1.0 else "expected the end of the rule")
        fault = rule_fault(body, head)
        if fault:
            self._fail(fault[0], next(start for atom, start in self.starts if atom is fault[1]))
        return Rule(tuple(body), head, truth, self.source, self.number)

    def _conjunction(self) -> tuple[Atom, ...]:
        atoms = [self._atom(negated=bool(self._match("!")))]
        while self._match("&"):
            atoms.append(self._atom(negated=bool(self._match("!"))))
        return tuple(atoms)

    def _atom(self, negated: bool) -> Atom:
        self._skip()
        start = self.position
        relation = self._quoted() if self.text.startswith('"', start) else self._match(_BARE)
        if self.position == start:
            self._fail("expected a relation, such as playsFor(x, y); names with spaces or signs need double quotes")
        self._expect("(")
        first = self._variable()
        self._expect(",")
        second = self._variable()
        self._expect(")")
        atom = Atom(relation, first, second, negated)
        self.starts.append((atom, start))
        return atom

    def _quoted(self) -> str:
        start, text = self.position, self._match(_QUOTED)
        if not text:
            self._fail("this quote is never closed")
        try:
            return str(json.loads(text, strict=False))
        except json.JSONDecodeError as error:
            position = start + text.rindex("\\", 0, error.pos + 1)
            self._fail(r"unknown escape; there are \" \\ \n \t \r and \uXXXX, as in JSON", position)

    def _variable(self) -> str:
        self._skip()
        start = self.position
        name = self._match(_BARE)
        if not name.isidentifier():
            self._fail("expected a variable, such as x", start)
        return name

    def _number(self) -> float:
        self._skip()
        start = self.position
        try:
            value = float(self._match(_NUMBER))
        except ValueError:
            value = math.nan
        if not 0.0 < value <= 1.0:
            self._fail("expected a number above 0 and at most 1: how true the rule is", start)
        return value

    def _skip(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1

    def _ended(self) -> bool:
        self._skip()
        return self.position >= len(self.text) or self.text[self.position] == "#"

    def _match(self, expected: str | re.Pattern[str]) -> str:
        """Skip spaces, move past a sign or pattern if it comes next, and return the text that it matches."""
        self._skip()
        if isinstance(expected, str):
            text = expected if self.text.startswith(expected, self.position) else ""
        else:
            found = expected.match(self.text, self.position)
            text = found[0] if found else ""
        self.position += len(text)
        return text

    def _expect(self, sign: str, described: str = "") -> None:
        if not self._match(sign):
            self._fail(f"expected {described or repr(sign)}")

    def _fail(self, problem: str, position: int | None = None) -> NoReturn:
        raise RuleError(self.source, self.number, self.text, self.position if position is None else position, problem)
