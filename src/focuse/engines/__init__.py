"""Engines, which compute one training step, and scorers, which compute the scores for ranking."""
