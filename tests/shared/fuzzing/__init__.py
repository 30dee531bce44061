"""Bad input, a million times: every reader, the rule grammar, settings, archives, kept graphs and run folders.

PYTHONPATH=tests/shared python -m fuzzing --cases 1000000 --seed 0

A target (`fuzzing.targets`) takes bytes, reads them as a user's file and returns, or raises `FocuseError`; anything
else is a fault, and so is an answer that an independent reader does not give. Three drivers make the bytes:
`atheris` (guided by coverage), `hypothesis` (valid files with edits, graphs with hostile names), `mutator` (ours).
"""
