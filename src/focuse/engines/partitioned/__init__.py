"""Training with an entity table that is partitioned on disk."""
