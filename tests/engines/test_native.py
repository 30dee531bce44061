"""Every kind of processor has a library of its own, with all loops in it."""

from __future__ import annotations

import ctypes
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from focuse.engines import native

FOLDER = Path(native.__file__).parent
BUILT = sorted(path for suffix in EXTENSION_SUFFIXES for path in FOLDER.glob(f"*{suffix}"))
LOOPS = [
    name for path in FOLDER.glob("*.cpp") for name in re.findall(r"^EXPORT \w+ (\w+)\(", path.read_text(), re.MULTILINE)
]


@pytest.mark.skipif(not BUILT, reason="needs the C++ loops: python setup.py build_ext --inplace")
def test_each_kind_has_every_loop() -> None:
    assert {"count_rivals", "draw_corruptions", "own_corruptions", "update"} <= set(LOOPS)
    lacking = {path.name: [name for name in LOOPS if not hasattr(ctypes.CDLL(str(path)), name)] for path in BUILT}
    assert not any(lacking.values()), lacking
