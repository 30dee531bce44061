"""Soft logic: rules over a weighted graph, what they infer, and which ones a graph suggests."""

from focuse.rules.augmentation import read_soft_logic
from focuse.rules.grammar import Rule, RuleError, parse_rules, read_rules
from focuse.rules.grounding import Grounding, ground, inferred
from focuse.rules.mining import MinedRule, MinedRules, mine

__all__ = [
    "Grounding", "MinedRule", "MinedRules", "Rule", "RuleError", "ground", "inferred", "mine", "parse_rules",
    "read_rules", "read_soft_logic",
]  # fmt: skip
