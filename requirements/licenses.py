"""Every dependency with its license, as the installed packages state it.

    make licenses                           # a table
    make licenses ARGUMENTS=--json          # for programs
    make licenses ARGUMENTS=--markdown      # docs/licenses.md

Required ones first, then what each extra adds. What is not permissive is marked; what is unknown, too.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PERMISSIVE = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0",
    "HPND", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "public domain",
}  # fmt: skip
KINDS = ("permissive", "weak copyleft", "copyleft", "unknown")  # the later, the more one has to look at it
# What packages write instead of the names of https://spdx.org/licenses; compared without case, 'license' and marks.
WORDS = {
    "apache": "Apache-2.0", "apache 2": "Apache-2.0", "apache 2.0": "Apache-2.0", "apache software": "Apache-2.0",
    "apache version 2.0": "Apache-2.0", "3 clause bsd": "BSD-3-Clause", "bsd 3": "BSD-3-Clause", "iscl": "ISC",
    "bsd 3 clause": "BSD-3-Clause", "bsd 2 clause": "BSD-2-Clause", "mozilla public 2.0": "MPL-2.0",
    "python software foundation": "PSF-2.0",
} | {name.lower().replace("-", " "): name for name in (*PERMISSIVE, "MPL-2.0")}  # fmt: skip


@dataclass(frozen=True)
class Package:
    """One dependency; `needed` is 'required' or the first extra that brings it."""

    name: str
    version: str
    license: str
    kind: str
    needed: str


def license_of(package: Distribution) -> str:
    """By its expression, else its field, its classifiers, or the first lines of its license file; else 'unknown'."""
    about = package.metadata
    expression = about.get("License-Expression")
    if expression:
        return str(expression)
    said = [str(about.get("License") or "").strip()]
    said += [line.split(" :: ")[-1] for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
    files = [file for file in package.files or [] if "licen" in file.name.lower() and ".dist-info" in str(file)]
    said += [Path(str(file.locate())).read_text(encoding="utf-8", errors="replace").lstrip() for file in files[:1]]
    for text in said:
        found = [name for part in re.split(r"\s+(?:OR|AND)\s+", text.partition("\n")[0]) if (name := _named(part))]
        if found:
            return (" AND " if " AND " in text.partition("\n")[0] else " OR ").join(found)
    return "unknown"


def _named(text: str) -> str:
    """The name of a license that is put in other words, '' if it is none of them.

    >>> _named("The MIT License (MIT)"), _named("BSD-3-Clause"), _named("Apache License, Version 2.0"), _named("mine")
    ('MIT', 'BSD-3-Clause', 'Apache-2.0', '')
    """
    plain = re.sub(r"\(.*?\)|\blicen[sc]e\b|\bthe\b|[,:=-]", " ", text.lower())
    return WORDS.get(" ".join(plain.split()), "")


def kind_of(license: str) -> str:
    """How much a license asks of whoever passes the work on: of A AND B the stricter, of A OR B the milder.

    >>> kind_of("MIT"), kind_of("MPL-2.0 AND MIT"), kind_of("GPL-3.0-only OR MIT"), kind_of("LicenseRef-Own")
    ('permissive', 'weak copyleft', 'permissive', 'unknown')
    """
    choices = [part.strip("() ").split(" AND ") for part in license.split(" OR ")]
    return KINDS[min(max(KINDS.index(_kind(part.strip("() "))) for part in parts) for parts in choices)]


def _kind(name: str) -> str:
    if name in PERMISSIVE:
        return "permissive"
    if name.startswith(("MPL-", "LGPL-", "EPL-", "CDDL-")):
        return "weak copyleft"
    return "copyleft" if name.startswith(("GPL-", "AGPL-")) else "unknown"


def listed() -> tuple[list[Package], list[str]]:
    """All that is installed, required ones first; and the names of what some extra needs that is not installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"required": project["dependencies"], **project["optional-dependencies"]}
    # It is installed beside this extra, and without what it asks for itself.
    alone = (ROOT / "requirements" / "torchrec.in").read_text(encoding="utf-8").splitlines()
    groups["distributed"] = [*groups["distributed"], *(line for line in alone if line and not line.startswith("#"))]
    found: dict[str, Package] = {}
    missing: list[str] = []
    for group, texts in groups.items():
        waiting = [Requirement(text) for text in texts]
        while waiting:
            need = waiting.pop(0)
            name = re.sub(r"[-_.]+", "-", need.name).lower()
            if name == "focuse" or (name in found and not need.extras) or not _applies(need, ("",)):
                continue
            try:
                package = distribution(name)
            except PackageNotFoundError:
                missing.append(name)
                continue
            if name not in found:
                license = license_of(package)
                found[name] = Package(name, package.version, license, kind_of(license), group)
            needs = [] if name == "torchrec" else [Requirement(text) for text in package.requires or []]
            waiting += [_plain(each) for each in needs if _applies(each, ("", *need.extras)) and each.name != need.name]
            need.extras.clear()
    return list(found.values()), sorted(set(missing))


def _applies(need: Requirement, extras: Iterable[str]) -> bool:
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras)


def _plain(need: Requirement) -> Requirement:
    need.marker = None
    return need


def table(packages: list[Package], missing: list[str]) -> str:
    """For the eye: one line each, under its group."""
    name, version = (max(len(getattr(each, word)) for each in packages) for word in ("name", "version"))
    lines = []
    for group in dict.fromkeys(each.needed for each in packages):
        lines += ["", group if group == "required" else f"extra {group}"]
        for each in sorted((each for each in packages if each.needed == group), key=lambda each: each.name):
            mark = "" if each.kind == "permissive" else f"   <- {each.kind}"
            lines.append(f"  {each.name:{name}}  {each.version:{version}}  {each.license}{mark}")
    lines += ["", *([f"not installed: {', '.join(missing)}"] if missing else [])]
    return "\n".join(lines).strip()


def page(packages: list[Package]) -> str:
    """docs/licenses.md, without versions."""
    lines = [
        "# Licenses of the dependencies",
        "",
        "focuse itself is under the Apache License 2.0. What it needs, and what extras add, as the packages state it;",
        "written by `make licenses ARGUMENTS=--markdown`. `make licenses` lists what is installed with its versions,",
        "as a table or with `ARGUMENTS=--json`. Packages are installed beside focuse, none is part of it. Builds of",
        "torch for a GPU bring NVIDIA's libraries under NVIDIA's own terms.",
    ]
    for group in dict.fromkeys(each.needed for each in packages):
        lines += ["", f"## {'Required' if group == 'required' else f'Extra `{group}`'}", ""]
        lines += ["| package | license | kind |", "| --- | --- | --- |"]
        rows = sorted((each for each in packages if each.needed == group), key=lambda each: each.name)
        lines += [f"| {each.name} | {each.license} | {each.kind} |" for each in rows]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    packages, missing = listed()
    if "--json" in arguments:
        told: dict[str, Any] = {"packages": [asdict(each) for each in packages], "not_installed": missing}
        print(json.dumps(told, indent=2))
    else:
        print(page(packages) if "--markdown" in arguments else table(packages, missing))


if __name__ == "__main__":
    main(sys.argv[1:])
