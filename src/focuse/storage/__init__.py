"""Files of a run: atomic replacement, locks, tensors, metadata and the run folder."""
