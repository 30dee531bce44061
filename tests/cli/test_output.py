"""Output of commands: JSON, tables and bars."""

from __future__ import annotations

import json

import pytest

from focuse.cli.output import emit
from focuse.data.statistics import bars


def test_emit_prints_json_or_text(capsys):
    emit({"name": "ΔMRR"}, "text", as_json=True)
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"name": "ΔMRR"}
    assert "ΔMRR" in shown
    emit({"name": "ΔMRR"}, "text", as_json=False)
    assert capsys.readouterr().out == "text\n"


def test_nan_in_json_is_an_error():
    with pytest.raises(ValueError, match="not JSON compliant"):
        emit({"mrr": float("nan")}, "", as_json=True)


def test_bars_are_scaled_and_never_vanish():
    assert bars([0, 0]) == "  "
    assert bars([8, 4, 1]) == "█▄▁"
    assert bars([1000, 1])[1] == "▁"  # a single one is still to be seen
