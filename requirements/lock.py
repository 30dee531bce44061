"""Writes the locks beside it: every package that is installed for development, pinned, with hashes of its files.

    make lock                             # needs the network; versions follow constraints.txt
    python requirements/lock.py --check   # whether they still agree with it and with pyproject.toml; needs none

torch is left out, and with it the libraries of a GPU: README.md says why.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# File: the extras whose packages it holds. Each of the first three holds only what the one before it lacks.
LOCKS = {"runtime.lock": ("report",), "dev.lock": ("dev",), "check.lock": ("dev", "check"), "tools.lock": ()}
# torch comes in the build that pip finds, and torchrec asks for that of fbgemm for GPUs and for figures we do not use.
EXCLUDED = ("torch", "fbgemm-gpu", "torchmetrics")
HEAD = "# Written by `make lock` (requirements/lock.py) from pyproject.toml and constraints.txt; do not edit.\n"


def command(extras: tuple[str, ...], folder: Path) -> list[str]:
    """What resolves a lock: for every platform and Python since the oldest, without torch."""
    oldest = "3.11.5" if "check" in extras else "3.11"  # that of the manual's theme
    asked = ["uv", "pip", "compile", "--universal", "--python-version", oldest, "--generate-hashes", "--no-config"]
    asked += ["--no-header", "--no-annotate", "--no-emit-index-url", "--quiet"]
    if not extras:
        return [*asked, str(HERE / "tools.in")]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    (folder / "build.in").write_text("\n".join(build), encoding="utf-8")
    (folder / "excluded").write_text("\n".join(EXCLUDED), encoding="utf-8")
    asked += ["--constraints", str(ROOT / "constraints.txt"), "--excludes", str(folder / "excluded")]
    asked += [word for extra in extras for word in ("--extra", extra)]
    torchrec = [str(HERE / "torchrec.in")] if "dev" in extras else []
    return [*asked, str(ROOT / "pyproject.toml"), str(HERE / "torch.in"), *torchrec, str(folder / "build.in")]


def packages(text: str) -> dict[str, str]:
    """A lock's packages: what stands before the first '\\', and all of it."""
    parts = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    return {part.partition(" \\")[0]: part for part in parts}


def named(text: str) -> dict[str, str]:
    """Versions by name, of a lock or of constraints.txt."""
    found = re.findall(r"^([A-Za-z0-9][\w.-]*)==([^\s;]+)", text, flags=re.MULTILINE)
    return {canonical(name): version for name, version in found}


def canonical(name: str) -> str:
    """A name as locks write it.

    >>> canonical("Jinja2"), canonical("ruamel_yaml.clib")
    ('jinja2', 'ruamel-yaml-clib')
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def disagreements(project: dict[str, Any], constraints: dict[str, str], locks: dict[str, dict[str, str]]) -> list[str]:
    """Where pyproject.toml, constraints.txt and the locks say different things; needs no network.

    `locks` are versions by name, of each file. What a dependency needs in turn is looked up where it is installed.
    """
    lines = []
    for file, versions in locks.items():
        for name, version in versions.items():
            if file != "tools.lock" and constraints.get(name) != version:
                lines.append(f"{file}: {name} {version}, but {constraints.get(name, 'nothing')} in constraints.txt")
    known: dict[str, str] = {}
    for file, extra in (("runtime.lock", "report"), ("dev.lock", "dev"), ("check.lock", "check")):
        known |= locks[file]
        for need, whose in needs(project, extra).items():
            version = known.get(canonical(need.name))
            if version is None:
                lines.append(f"{file}: {need.name} is missing, which {whose} needs")
            elif not need.specifier.contains(version, prereleases=True):
                lines.append(f"{file}: {need.name} {version}, but {whose} needs {need}")
    return sorted(set(lines))


def needs(project: dict[str, Any], extra: str) -> dict[Requirement, str]:
    """Everything that focuse with an extra needs here, directly or not, but torch; and who needs it."""
    offered = project["project"]["optional-dependencies"]
    waiting = [(Requirement(text), "pyproject.toml") for text in project["project"]["dependencies"]]
    waiting += [(Requirement(text), "the build") for text in project["build-system"]["requires"]]
    waiting += [(Requirement(text), f"the extra {extra}") for text in offered[extra]]
    found: dict[Requirement, str] = {}
    while waiting:
        need, whose = waiting.pop()
        if need in found or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        if need.name == "focuse":
            waiting += [(Requirement(text), f"the extra {each}") for each in need.extras for text in offered[each]]
        elif canonical(need.name) == "torch":
            plain = (HERE / "torch.in").read_text(encoding="utf-8").splitlines()[1:]
            waiting += [(Requirement(text), "torch") for text in plain]
        else:
            found[need] = whose
            waiting += [(each, need.name) for each in _of(need)]
    return found


def _of(need: Requirement) -> list[Requirement]:
    """What an installed package needs, with the extras it is asked for."""
    try:
        listed = requires(need.name) or []
    except PackageNotFoundError:
        return []
    parsed = [Requirement(text) for text in listed]
    asked = ("", *need.extras)
    kept = [each for each in parsed if not each.marker or any(each.marker.evaluate({"extra": word}) for word in asked)]
    for each in kept:
        each.marker = None
    return kept


def check() -> int:
    """`--check`: what disagrees, a line each."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    constraints = named((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    locks = {name: named((HERE / name).read_text(encoding="utf-8")) for name in LOCKS}
    lines = disagreements(project, constraints, locks)
    print(
        "\n".join([*lines, "run: make lock"] if lines else ["the locks agree with pyproject.toml and constraints.txt"])
    )
    return 1 if lines else 0


def main() -> int:
    if "--check" in sys.argv[1:]:
        return check()
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as place:
        for name, extras in LOCKS.items():
            done = subprocess.run(
                [sys.executable, "-m", *command(extras, Path(place))], stdout=subprocess.PIPE, text=True
            )
            if done.returncode:
                print(f"{name}: not written", file=sys.stderr)
                return done.returncode
            found[name] = packages(done.stdout)
    for package in found["runtime.lock"]:
        found["dev.lock"].pop(package, None)
    for package in [*found["runtime.lock"], *found["dev.lock"]]:
        found["check.lock"].pop(package, None)
    for name, parts in found.items():
        text = HEAD + "".join(parts.values())
        (HERE / name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(parts)} packages, {text.count('--hash=')} hashes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
