"""Names of the package, and lazy imports."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import focuse


@pytest.mark.parametrize("name", focuse.__all__)
def test_every_public_name_exists_with_a_docstring(name):
    assert getattr(focuse, name).__doc__


def test_lazy_imports_cover_exactly_the_public_names():
    homes = [name for names in focuse._HOMES.values() for name in names]
    assert sorted([*homes, "datasets"]) == sorted(focuse.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        focuse.trian  # noqa: B018


def test_version_is_the_installed_one():
    assert focuse.__version__ == importlib.metadata.version("focuse")


def test_reading_and_inspecting_do_not_import_torch():
    code = (
        "import focuse, sys; graph = focuse.read([('a', 'r', 'b', 0.5)]); focuse.describe(graph); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
