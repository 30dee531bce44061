"""Soft logic: rules over a weighted graph, what they infer, and which ones a graph suggests."""

from focuse.ukge.grounding import Grounding, ground, inferred
from focuse.ukge.mining import Mined, Proposal, mine
from focuse.ukge.rules import Rule, RuleError, parse_rules, read_rules
from focuse.ukge.softlogic import read_soft_logic

__all__ = [
    "Grounding",
    "Mined",
    "Proposal",
    "Rule",
    "RuleError",
    "ground",
    "inferred",
    "mine",
    "parse_rules",
    "read_rules",
    "read_soft_logic",
]
