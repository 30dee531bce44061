"""Files: atomic replacement, locks, tensors and the folder of a run."""
