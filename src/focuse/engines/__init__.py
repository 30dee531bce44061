"""How one training step is computed, and scores for ranking."""
