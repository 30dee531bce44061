"""A campaign of faults over trainings: `PYTHONPATH=tests/shared python -m faults`, the figures of docs/faults.md."""
