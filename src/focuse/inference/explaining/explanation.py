"""Why a run predicts a triple: what it rests on, what is like it, which rules imply it; in words, data, a picture."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from focuse.errors import printable

LEAST = 0.01  # what a rule must imply to be worth a sentence
BELIEVED = 0.1  # the share of tails among which a link ranks that the model predicts
WORTH_SAYING = 0.5  # of the first support's size that what speaks against must have for a sentence


@dataclass(frozen=True)
class Support:
    """A known fact and how the asked score would change without it: below 0 it supports, above 0 it speaks against.

    `share` is its weight in [0, 1] as training saw it. `end` says which end of the asked triple it touches: head, tail
    or both. `false` is one known to be false.
    """

    head: str
    relation: str
    tail: str
    weight: float
    change: float
    share: float
    end: str
    false: bool = False


@dataclass(frozen=True)
class Like:
    """A known fact of the same relation; `similarity` is the mean cosine of both ends with the asked ones."""

    head: str
    relation: str
    tail: str
    weight: float
    similarity: float


@dataclass(frozen=True)
class Step:
    """A fact in the body of a rule; `weight` is None where the rule wants it absent, and it is."""

    head: str
    relation: str
    tail: str
    weight: float | None
    negated: bool = False


@dataclass(frozen=True)
class Implied:
    """A rule whose head is the asked triple, with its strongest grounding.

    `confidence` is the rule's own truth, `soft` its soft confidence (None for a rule of the user's), `body` how true
    its body is and `implied` what follows: max(0, body + confidence − 1). `groundings` counts all bodies.
    """

    rule: str
    confidence: float
    soft: float | None
    body: float
    implied: float
    groundings: int
    facts: tuple[Step, ...]


@dataclass(frozen=True)
class Explanation:
    """All that speaks for (and against) one triple. `print` shows it in words, `svg` as a picture.

    `supporting` are the facts without which the score would fall most, the strongest first, `against` those without
    which it would rise; `itself` is the change without the asked triple, where train has it. `similar`, `same_head`
    and `same_tail` are known facts to compare with, `rules` what soft logic says. `candidates` facts were looked at.
    `chance` is the probability of a missing link among links of its kind, as `Run.discover` tells it.
    """

    asked: Any  # a row of `Run.predict`
    entities: int
    supporting: tuple[Support, ...] = ()
    against: tuple[Support, ...] = ()
    itself: float | None = None
    similar: tuple[Like, ...] = ()
    same_head: tuple[Like, ...] = ()
    same_tail: tuple[Like, ...] = ()
    rules: tuple[Implied, ...] = ()
    candidates: int = 0
    method: str = ""
    notes: tuple[str, ...] = field(default=())
    chance: float | None = None

    @property
    def triple(self) -> tuple[str, str, str]:
        return self.asked.head, self.asked.relation, self.asked.tail

    @property
    def predicted(self) -> bool:
        """Whether it stands among the best tenth of all tails."""
        return bool(self.asked.rank <= max(1, BELIEVED * self.entities))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, the paragraph under 'words'."""
        found = asdict(self)
        del found["asked"]
        return {**self.asked._asdict(), "words": self.words(), **found}

    def svg(self) -> str:
        """A picture of the two entities and what connects them; needs nothing but itself."""
        from focuse.inference.explaining.picture import drawn

        return drawn(self)

    # ---- in words -------------------------------------------------------------------------------------------------

    def words(self) -> str:
        """A short paragraph."""
        return " ".join(part for part in (self._told(), self._rests(), self._implied()) if part)

    def _told(self) -> str:
        asked = self.asked
        parts = []
        if asked.probability is not None:
            among = "" if self.chance is None else f" beside random triples, {self.chance:.2g} among links of its kind"
            parts.append(f"probability {asked.probability:.2f}{among}")
        if asked.known and asked.weight is not None:
            parts.append(f"a known fact of weight {asked.weight:.3g}")
        elif asked.weight_mean is not None:
            parts.append(f"expected weight {asked.weight_mean:.3g}")
            if asked.weight_low is not None and asked.weight_high is not None:
                parts.append(f"90 % between {asked.weight_low:.3g} and {asked.weight_high:.3g}")
        parts.append(f"place {asked.rank:,} of {self.entities:,} tails")
        return f"{_triple(self.triple)} ({', '.join(parts)})."

    def _rests(self) -> str:
        ranks = "" if self.predicted else "The model does not predict it: it ranks beyond the best tenth. "
        if not self.supporting:
            return f"{ranks}No known fact at its two ends speaks for it."
        shown = "; ".join(
            f"{_triple((one.head, one.relation, one.tail))} (weight {one.weight:.3g})" for one in self.supporting[:3]
        )
        text = f"{ranks}{'It rests' if self.predicted else 'What score it has rests'} mostly on: {shown}."
        if self.against and self.against[0].change >= WORTH_SAYING * -self.supporting[0].change:
            one = self.against[0]
            text += f" Against it speaks {_triple((one.head, one.relation, one.tail))} (weight {one.weight:.3g})."
        return text

    def _implied(self) -> str:
        if not self.rules or self.rules[0].implied < LEAST:
            return ""
        best = self.rules[0]
        path = " and ".join(_triple((one.head, one.relation, one.tail), one.negated) for one in best.facts)
        return (
            f"By the rule {printable(best.rule)}, {path} {'imply' if len(best.facts) > 1 else 'implies'} it "
            f"with confidence {best.implied:.2f}."
        )

    def __str__(self) -> str:
        parts = [self.words()]
        supports = [("Facts that support it (change of the score without them)", self.supporting)]
        supports.append(("Facts that speak against it", self.against))
        for title, rows in supports:
            if rows:
                parts.append(_block(title, [[*_named(one), f"{one.change:+.3f}"] for one in rows]))
        if self.itself is not None:
            parts.append(
                f"Without the fact itself its score of {self.asked.score:.3f} would change by {self.itself:+.3f}."
            )
        for name, likes in (
            ("Similar facts (mean cosine of both ends)", self.similar),
            ("Same head, other tails", self.same_head),
            ("Same tail, other heads", self.same_tail),
        ):
            if likes:
                parts.append(_block(name, [[*_named(one), f"{one.similarity:.3f}"] for one in likes]))
        if self.rules:
            title = "Rules whose head it is (facts with their shares in [0, 1])"
            parts.append("\n".join([title, *(line for one in self.rules for line in _rule(one))]))
        parts += [f"note: {note}" for note in self.notes]
        return "\n\n".join(parts)


def _triple(names: tuple[str, str, str], negated: bool = False) -> str:
    head, relation, tail = map(printable, names)
    return f"{'not ' * negated}{head} {relation} {tail}"


def _named(one: Support | Like) -> list[str]:
    return [printable(one.head), printable(one.relation), printable(one.tail), f"weight {one.weight:.3g}"]


def _block(title: str, rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([title, *(line.rstrip() for line in lines)])


def _rule(one: Implied) -> list[str]:
    soft = "" if one.soft is None else f", soft confidence {one.soft:.2f}"
    more = f", and {one.groundings - 1:,} weaker ways" if one.groundings > 1 else ""
    steps = " and ".join(
        _triple((step.head, step.relation, step.tail), step.negated)
        + ("" if step.weight is None else f" ({step.weight:.3g})")
        for step in one.facts
    )
    return [f"  {printable(one.rule)}{soft}", f"    implies it with {one.implied:.2f} by {steps}{more}"]
