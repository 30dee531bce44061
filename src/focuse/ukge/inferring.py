"""What rules infer, added to a training's splits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from focuse.errors import FocuseError
from focuse.evaluation.weighing import join
from focuse.graph.splits import Splits
from focuse.models import MODELS, kind_of
from focuse.training.progress import Reporter
from focuse.training.settings import Settings
from focuse.ukge.grounding import collect, ground
from focuse.ukge.rules import Rule, read_rules
from focuse.ukge.softlogic import read_soft_logic


def with_inferred(splits: Splits, soft_logic: Any, rules: Any, settings: Settings, reporter: Reporter) -> Splits:
    """The splits with what rules infer, from a soft-logic file, from rules, or from both."""
    if soft_logic is None and rules is None:
        return splits
    if not kind_of(settings.model).confident:
        names = " or ".join(name for name, kind in MODELS.items() if kind.confident)
        raise FocuseError(f"soft logic and rules bear on confidences; train the model {names}, not {settings.model!r}")
    parts = []
    if soft_logic is not None:
        parts.append(read_soft_logic(soft_logic, splits.train).graph)
    if rules is not None:
        normalize = "none" if splits.merger is not None else settings.normalize
        found = ground(splits.train, _rules(rules), normalize=normalize)
        for one in found:
            if one.note:
                reporter.note(one.note)
        parts.append(collect(splits.train, found))
    whole = join(parts)
    if not len(whole):
        raise FocuseError("the rules infer no triple that train does not have; leave them out, or write others")
    reporter.note(f"{len(whole):,} inferred triples (soft logic)")
    return replace(splits, inferred=whole)


def _rules(given: Any) -> list[Rule]:
    """Rules from a file, or as they are."""
    if isinstance(given, str | PathLike):
        return read_rules(Path(given))
    rules = [given] if isinstance(given, Rule) or not isinstance(given, Iterable) else list(given)
    if not all(isinstance(rule, Rule) for rule in rules):
        raise FocuseError("rules: give a file of them, or what focuse.ukge.parse_rules makes of a text")
    return rules
