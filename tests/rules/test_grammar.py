"""The rule language: parsing, printing and syntax errors."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.rules.grammar import Atom, Rule, RuleError, parse_rules, quoted, read_rules, rule_fault

VARIABLES = st.sampled_from(["x", "y", "z", "team_1", "é"])


RELATIONS = st.one_of(
    st.sampled_from(
        ["r", "concept:competeswith", "0", "+", "a-b", "a->b", "requires skill", "#1", 'say "hi"', "\\", "!"]
    ),
    st.text(min_size=1, max_size=6),
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """Rules that can be grounded: chains, their disjuncts turned round, negations over bound variables."""
    names = draw(st.lists(VARIABLES, min_size=2, max_size=4))
    body = []
    for _ in range(draw(st.integers(1, 3))):
        links = list(itertools.pairwise(names))
        atoms = [Atom(draw(RELATIONS), *(link if draw(st.booleans()) else link[::-1])) for link in links]
        bound = st.sampled_from(names)
        atoms += [Atom(draw(RELATIONS), draw(bound), draw(bound), True) for _ in range(draw(st.integers(0, 2)))]
        body.append(tuple(atoms))
    head = Atom(draw(RELATIONS), draw(st.sampled_from(names)), draw(st.sampled_from(names)))
    return Rule(tuple(body), head, draw(st.floats(0.0, 1.0, exclude_min=True)))


@given(st.lists(rules(), min_size=1, max_size=3))
def test_printed_rules_parse_to_the_same_rules(several: list[Rule]) -> None:
    text = "\n".join(f"  {rule}  # {rule}" for rule in several)
    assert parse_rules(text) == several


def test_a_rule_is_parsed() -> None:
    text = "athletePlaysForTeam(x,y) & athletePlaysSport(x,z) -> teamPlaysSport(y,z) : 0.75"
    body = (Atom("athletePlaysForTeam", "x", "y"), Atom("athletePlaysSport", "x", "z"))
    assert parse_rules(text) == [Rule((body,), Atom("teamPlaysSport", "y", "z"), 0.75)]


def test_and_binds_tighter_than_or_and_not_belongs_to_one_atom() -> None:
    [rule] = parse_rules("a(x,y) & !b(y,x) | c(x,y)->d(x,y)")
    assert rule.body == ((Atom("a", "x", "y"), Atom("b", "y", "x", True)), (Atom("c", "x", "y"),))
    assert rule.truth == 1.0


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("concept:competeswith", "concept:competeswith"),
        ("0", "0"),
        ("/r/IsA", "/r/IsA"),
        ('"requires skill"', "requires skill"),
        (r'"tab\there \"now\" \\ \u00e9 \ud83d\ude00"', 'tab\there "now" \\ é 😀'),
    ],
)
def test_names_bare_and_quoted(written: str, name: str) -> None:
    assert parse_rules(f"{written}(x, y) -> r(y, x)")[0].relations == [name, "r"]


def test_names_are_quoted_only_if_necessary() -> None:
    assert quoted("a.b:c/d+e*f-g>h") == "a.b:c/d+e*f-g>h"
    assert [quoted(name) for name in ("", "a b", "a->b", "a#", "a\nb")] == [
        '""',
        '"a b"',
        '"a->b"',
        '"a#"',
        '"a\\nb"',
    ]


def test_comments_blank_lines_and_line_ends(tmp_path) -> None:
    path = tmp_path / "rules.txt"
    path.write_bytes(b"\xef\xbb\xbf# two rules\r\n\r\nr(x, y) -> r(y, x) : 0.5 # back\r\n  s(x,y)->r(x,y)")
    first, second = read_rules(path)
    assert (first.line, first.truth, second.line, second.source) == (3, 0.5, 4, str(path))
    assert first.where == f"{path}, line 3: r(x, y) -> r(y, x) : 0.5"


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("r(x, y", 7, "expected ')'"),
        ("r x, y) -> r(y, x)", 3, "expected '('"),
        ("r(x) -> r(x, x)", 4, "expected ','"),
        ("r(x, y) r(y, z) -> r(x, z)", 9, "expected '&', '|' or '->'"),
        ("r(x, y) & -> r(x, y)", 11, "expected a relation"),
        ("r(1, y) -> r(y, y)", 3, "expected a variable"),
        ("r(x, y) -> r(y, x) : 2", 22, "above 0 and at most 1"),
        ("r(x, y) -> r(y, x) : 0", 22, "above 0 and at most 1"),
        ("r(x, y) -> r(y, x) : nan", 22, "above 0 and at most 1"),
        ("r(x, y) -> r(y, x) : 1e-", 22, "above 0 and at most 1"),
        ("r(x, y) -> r(y, x) 0.5", 20, "expected ': number' or the end"),
        ("r(x, y) -> r(y, x) : 0.5 5", 26, "expected the end"),
        ("r(x, y) -> !r(y, x)", 12, "expected a relation"),
        ('"r(x, y) -> r(y, x)', 1, "never closed"),
        (r'"\q"(x, y) -> r(y, x)', 2, "unknown escape"),
        (r'"\u12"(x, y) -> r(y, x)', 2, "unknown escape"),
        ("r(x, y) -> r(x, w)", 12, "variable w does not occur in the body"),
        ("r(x, y) & s(z, w) -> r(x, y)", 11, "shares no variable"),
        ("r(x, y) & !s(x, z) -> r(x, y)", 12, "must also occur in an atom without '!'"),
        ("!r(x, y) -> r(x, y)", 2, "needs an atom without '!'"),
        ("r(x, y) | r(x, z) -> r(x, x)", 11, "must use the same variables, not x, y and x, z"),
        ("__import__('os') -> r(x, y)", 12, "expected a variable"),
    ],
)
def test_a_caret_points_to_the_fault(text: str, column: int, says: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules(f"# a comment\n{text}", "my.rules")
    message, line, caret = str(caught.value).split("\n")
    assert message.startswith(f"my.rules, line 2, column {column}: ")
    assert says in message
    assert line == f"  {text}"
    assert caret == " " * (column + 1) + "^"


@pytest.mark.parametrize("before", ["\t", "x" * 300, "\x1b"])
def test_the_caret_is_right_after_tabs_long_lines_and_control_codes(before: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules(f'"{before}"(x, y) % s')
    _, line, caret = str(caught.value).split("\n")
    assert line[caret.index("^")] == "%"
    assert line.isprintable()
    assert len(line) < 120


def test_files_without_rules_are_refused(tmp_path) -> None:
    empty, latin = tmp_path / "empty.txt", tmp_path / "latin.txt"
    empty.write_text("# nothing\n\n")
    latin.write_bytes(b"r\xe9(x, y) -> r(y, x)")
    for path, says in (
        (empty, "no rules; write one per line"),
        (latin, "not UTF-8"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(FocuseError, match=says) as caught:
            read_rules(path)
        assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("truth", [0.0, -0.5, 1.1, float("nan")])
def test_rules_made_in_python_are_checked(truth: float) -> None:
    r = Atom("r", "x", "y")
    with pytest.raises(FocuseError, match="truth is a number"):
        Rule(((r,),), r, truth)
    with pytest.raises(FocuseError, match="must be words"):
        Rule(((Atom("r", "x y", "z"),),), r)
    with pytest.raises(FocuseError, match="cannot be negated"):
        Rule(((r,),), Atom("r", "x", "y", negated=True))
    with pytest.raises(FocuseError, match="does not occur in the body"):
        Rule((), r)


def test_atoms_connected_by_a_later_atom_are_connected() -> None:
    atoms = (Atom("r", "x", "y"), Atom("r", "z", "w"), Atom("r", "y", "z"))
    assert rule_fault((atoms,), Atom("r", "x", "w")) is None


def test_long_names_are_read_in_one_pass() -> None:
    name = "x" * 200_000 + "1é"
    (rule,) = parse_rules(f"r({name}, y) -> s(y, {name})")
    assert rule.head.second == name
    with pytest.raises(RuleError, match="expected a variable"):
        parse_rules("r(1x, y) -> s(y, x)")
