"""Wheel and source archive: complete, minimal and reproducible."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "focuse"
OF_THE_ROOT = {"pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"}
# setuptools' own: what it writes about the package.
ABOUT = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
BUILT = (".so", ".pyd", ".dylib")


def parts() -> set[str]:
    """All files of the package that were written by someone, by their path in it."""
    files = (path.relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob("*") if path.is_file())
    return {path for path in files if not path.endswith(BUILT) and "__pycache__" not in path}


def build(kind: str, source: Path, target: Path) -> Path:
    """A wheel or an archive of sources; no compiler is found, so that it takes a second."""
    target.mkdir()
    environment = {**os.environ, "CC": "no-compiler", "CXX": "no-compiler", "SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(target)]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    [made] = target.iterdir()
    return made


def copy(folder: Path) -> Path:
    """The sources as a fresh checkout has them, with a test beside them."""
    folder.mkdir()
    for name in OF_THE_ROOT:
        shutil.copy(ROOT / name, folder)
    shutil.copytree(SOURCE, folder / "src" / "focuse", ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd"))
    (folder / "tests").mkdir()
    shutil.copy(__file__, folder / "tests")
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel and an archive of one copy, and wheels of another copy and of what the archive unpacks to."""
    folder = tmp_path_factory.mktemp("distribution")
    made = {"sdist": build("sdist", copy(folder / "one"), folder / "sdist")}
    made["wheel"] = build("wheel", folder / "one", folder / "wheel")
    made["again"] = build("wheel", copy(folder / "two"), folder / "again")
    with tarfile.open(made["sdist"]) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    [unpacked] = (folder / "unpacked").iterdir()
    made["from_sdist"] = build("wheel", unpacked, folder / "from_sdist")
    return made


def names(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith(BUILT)}


def test_wheel_contains_the_package_and_its_metadata(built: dict[str, Path]) -> None:
    found = names(built["wheel"])
    about = {name.partition("/")[0] for name in found if ".dist-info/" in name}
    assert len(about) == 1
    assert found == parts() | {f"{next(iter(about))}/{name}" for name in ABOUT}
    for part in ("py.typed", "explorer/static/index.html", "engines/native/steps.cpp", "engines/native/step.hpp"):
        assert f"focuse/{part}" in found
    assert not any(name.startswith("reproduction") for name in found)


def test_source_archive_builds_the_same_wheel(built: dict[str, Path]) -> None:
    assert names(built["from_sdist"]) == names(built["wheel"])
    with tarfile.open(built["sdist"]) as archive:
        files = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    written = {name for name in files if ".egg-info/" not in name} - {"PKG-INFO", "setup.cfg"}
    assert written == OF_THE_ROOT | {f"src/{part}" for part in parts()}


def test_building_twice_gives_identical_bytes(built: dict[str, Path]) -> None:
    """With SOURCE_DATE_EPOCH; of the loops' machine code compilers decide, here there is none."""
    assert built["again"].read_bytes() == built["wheel"].read_bytes()


def test_wheel_states_its_requirements(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as archive:
        [path] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        about = archive.read(path).decode("utf-8")
    assert "License-Expression: Apache-2.0" in about
    assert "Requires-Python: >=3.11" in about
    assert "Requires-Dist: torch>=" in about
