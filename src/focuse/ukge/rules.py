"""The rule language: text to rules by a small grammar, and rules back to text. Nothing is ever evaluated.

rule        = body "->" atom [":" number]        number in (0, 1], 1 if left out
body        = conjunction {"|" conjunction}
conjunction = ["!"] atom {"&" ["!"] atom}
atom        = relation "(" variable "," variable ")"
relation    = bare name | "name in double quotes, with \\" \\\\ \\n \\t \\uXXXX"
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from focuse.errors import FocuseError, printable

RESERVED = '(),&|!"#'  # what ends a bare name, besides spaces and an arrow
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
HEX_ESCAPES = {"u": 4, "U": 8}  # digits
NUMBER = set("0123456789.eE+-")
SHOWN = 100  # letters of a long line that a message shows


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
    """body -> head : truth. The body is a disjunction of conjunctions; `source` and `line` say where it stands.

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
        """The names it uses, each once, in the order of the text."""
        return list(dict.fromkeys(atom.relation for atom in (*self.atoms, self.head)))

    @property
    def atoms(self) -> Iterator[Atom]:
        return (atom for conjunction in self.body for atom in conjunction)

    @property
    def where(self) -> str:
        """'rules.txt, line 3: the rule', for messages."""
        return f"{self.source}, line {self.line}: {self}" if self.line else str(self)

    def __str__(self) -> str:
        body = " | ".join(" & ".join(map(str, conjunction)) for conjunction in self.body)
        return f"{body} -> {self.head} : {float(self.truth)!r}"


class RuleError(FocuseError):
    """A rule that does not parse: what is wrong, then the line, then a caret under the place."""

    def __init__(self, source: str, line: int, text: str, column: int, problem: str) -> None:
        """`column` counts from 0."""
        self.source, self.line, self.column = source, line, column
        start = max(0, column - SHOWN // 2) if len(text) > SHOWN else 0
        shown = printable(text[start : start + SHOWN].replace("\t", " "))
        self.picture = f"  {shown}\n  {' ' * len(printable(text[start:column].replace(chr(9), ' ')))}^"
        super().__init__(f"{source}, line {line}, column {column + 1}: {problem}")

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.picture}"


def read_rules(path: str | Path) -> list[Rule]:
    """The rules of a UTF-8 text file, one a line; `#` begins a comment."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise FocuseError(f"{path}: not UTF-8 text; save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FocuseError(f"{path}: {reason}; give the path of a file of rules") from None
    return parse_rules(text, str(path))


def parse_rules(text: str, source: str = "rules") -> list[Rule]:
    """Rules from text, one a line.

    >>> rules = parse_rules("plays(x,y) & sport(x,z) -> teamsport(y,z) : 0.9  # athletes")
    >>> print(rules[0])
    plays(x, y) & sport(x, z) -> teamsport(y, z) : 0.9
    """
    found = [rule for number, line in enumerate(text.split("\n"), 1) if (rule := _Parser(source, number, line).rule())]
    if not found:
        raise FocuseError(f"{source}: no rules; write one a line, such as r(x, y) & r(y, z) -> r(x, z) : 0.9")
    return found


def rule_fault(body: Iterable[tuple[Atom, ...]], head: Atom) -> tuple[str, Atom] | None:
    """Why a rule cannot be grounded, and the atom to blame; None if it can."""
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
                return f"the variables of {atom} must also stand in an atom without '!'", atom
        apart = _apart(positive)
        if apart is not None:
            return f"{apart} shares no variable with the atoms before it, so every pair would match", apart
        if bound is not None and variables != bound:
            return f"both sides of '|' must use the same variables, not {_listed(bound)} and {_listed(variables)}", (
                conjunction[0]
            )
        bound = variables
    missing = [name for name in head.variables if not bound or name not in bound]
    if head.negated:
        return "the head cannot be negated", head
    if missing:
        return f"the head's variable {missing[0]} does not stand in the body", head
    return None


def _apart(atoms: list[Atom]) -> Atom | None:
    """The first atom that no chain of shared variables ties to the first one."""
    beside: dict[str, set[str]] = {}
    for atom in atoms:
        beside.setdefault(atom.first, set()).add(atom.second)
        beside.setdefault(atom.second, set()).add(atom.first)
    reached, waiting = {atoms[0].first}, [atoms[0].first]
    while waiting:
        new = beside[waiting.pop()] - reached
        reached |= new
        waiting += new
    return next((atom for atom in atoms if atom.first not in reached), None)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def quoted(name: str) -> str:
    """A relation's name as rules write it: bare where that reads back, else in double quotes.

    >>> quoted("concept:competeswith"), quoted("requires skill")
    ('concept:competeswith', '"requires skill"')
    """
    if name and "->" not in name and all(_bare(letter) for letter in name):
        return name
    return '"' + "".join(map(_escaped, name)) + '"'


def _bare(letter: str) -> bool:
    return letter.isprintable() and not letter.isspace() and letter not in RESERVED


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08x}"


class _Parser:
    """One line, read from left to right by one function a line of the grammar."""

    def __init__(self, source: str, number: int, line: str) -> None:
        self.source, self.number, self.text, self.place = source, number, line.removesuffix("\r"), 0
        self.starts: list[tuple[Atom, int]] = []  # where each atom begins, for carets

    def rule(self) -> Rule | None:
        """The line's rule; None if it has only spaces and a comment."""
        if self._ended():
            return None
        body = [self._conjunction()]
        while self._takes("|"):
            body.append(self._conjunction())
        self._expect("->", "'&', '|' or '->'")
        head = self._atom(negated=False)
        truth = self._number() if self._takes(":") else 1.0
        if not self._ended():
            self._fail("expected ': number' or the end of the rule" if truth == 1.0 else "expected the end of the rule")
        fault = rule_fault(body, head)
        if fault:
            self._fail(fault[0], next(start for atom, start in self.starts if atom is fault[1]))
        return Rule(tuple(body), head, truth, self.source, self.number)

    def _conjunction(self) -> tuple[Atom, ...]:
        atoms = [self._literal()]
        while self._takes("&"):
            atoms.append(self._literal())
        return tuple(atoms)

    def _literal(self) -> Atom:
        return self._atom(negated=self._takes("!"))

    def _atom(self, negated: bool) -> Atom:
        self._skip()
        start = self.place
        relation = self._relation()
        self._expect("(")
        first = self._variable()
        self._expect(",")
        second = self._variable()
        self._expect(")")
        atom = Atom(relation, first, second, negated)
        self.starts.append((atom, start))
        return atom

    def _relation(self) -> str:
        start = self.place
        if self.text[start : start + 1] == '"':
            return self._quoted()
        while self.place < len(self.text) and _bare(self.text[self.place]) and not self._at("->"):
            self.place += 1
        if self.place == start:
            self._fail("expected a relation, such as playsFor(x, y); names with spaces or signs need double quotes")
        return self.text[start : self.place]

    def _quoted(self) -> str:
        start, letters = self.place, []
        self.place += 1
        while not self._at('"'):
            if self.place >= len(self.text):
                self._fail("this quote is never closed", start)
            letters.append(self._escape() if self._at("\\") else self.text[self.place])
            self.place += 1
        self.place += 1
        return "".join(letters)

    def _escape(self) -> str:
        """The letter that a backslash here stands for; ends on its last sign."""
        start = self.place
        kind = self.text[start + 1 : start + 2]
        if kind in ESCAPES:
            self.place += 1
            return ESCAPES[kind]
        length = HEX_ESCAPES.get(kind, 0)
        digits = self.text[start + 2 : start + 2 + length]
        if not length or len(digits) < length or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            self._fail(r"unknown escape; there are \" \\ \n \t \r \uXXXX and \UXXXXXXXX")
        if int(digits, 16) > 0x10FFFF:
            self._fail("no such letter")
        self.place += 1 + length
        return chr(int(digits, 16))

    def _variable(self) -> str:
        self._skip()
        start = self.place
        # Letter by letter: behind a first one that may begin a name, each is judged as its second.
        while (
            self.place < len(self.text) and f"{'x' if self.place > start else ''}{self.text[self.place]}".isidentifier()
        ):
            self.place += 1
        if self.place == start:
            self._fail("expected a variable, such as x")
        return self.text[start : self.place]

    def _number(self) -> float:
        self._skip()
        start = self.place
        while self.place < len(self.text) and self.text[self.place] in NUMBER:
            self.place += 1
        try:
            value = float(self.text[start : self.place])
        except ValueError:
            value = math.nan
        if not 0.0 < value <= 1.0:
            self._fail("expected a number above 0 and at most 1: how true the rule is", start)
        return value

    def _skip(self) -> None:
        while self.place < len(self.text) and self.text[self.place].isspace():
            self.place += 1

    def _ended(self) -> bool:
        self._skip()
        return self.place >= len(self.text) or self._at("#")

    def _at(self, sign: str) -> bool:
        return self.text.startswith(sign, self.place)

    def _takes(self, sign: str) -> bool:
        """Step over `sign` if it comes next."""
        self._skip()
        found = self._at(sign)
        self.place += len(sign) * found
        return found

    def _expect(self, sign: str, described: str = "") -> None:
        if not self._takes(sign):
            self._fail(f"expected {described or repr(sign)}")

    def _fail(self, problem: str, place: int | None = None) -> NoReturn:
        raise RuleError(self.source, self.number, self.text, self.place if place is None else place, problem)
