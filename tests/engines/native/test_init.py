"""The C++ library of every instruction set exports all functions."""

from __future__ import annotations

import ctypes
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from focuse.engines import native

FOLDER = Path(native.__file__).parent
BUILT = sorted(path for suffix in EXTENSION_SUFFIXES for path in FOLDER.glob(f"*{suffix}"))
FUNCTIONS = [
    name for path in FOLDER.glob("*.cpp") for name in re.findall(r"^EXPORT \w+ (\w+)\(", path.read_text(), re.MULTILINE)
]


@pytest.mark.skipif(not BUILT, reason="needs the C++ library: python setup.py build_ext --inplace")
def test_each_library_has_every_function() -> None:
    assert {"count_competitors", "draw_negatives", "per_triple_negatives", "shared_negatives", "update"} <= set(
        FUNCTIONS
    )
    lacking = {path.name: [name for name in FUNCTIONS if not hasattr(ctypes.CDLL(str(path)), name)] for path in BUILT}
    assert not any(lacking.values()), lacking
