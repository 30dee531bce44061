"""Dependencies: locks with hashes, the audit and licenses."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import sys
import tomllib
from importlib.metadata import Distribution, requires
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
OF_A_GPU = ("nvidia-", "cuda-", "triton")


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"requirements_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


lock, audit, licenses = tool("lock"), tool("audit"), tool("licenses")


# ---- locks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sources():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    constraints = lock.named((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    locks = {name: lock.named((FOLDER / name).read_text(encoding="utf-8")) for name in lock.LOCKS}
    return project, constraints, locks


def test_locks_agree_with_what_they_are_made_from(sources):
    assert lock.disagreements(*sources) == []  # else: make lock


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda p, c, k: p["project"]["dependencies"].append("missing>=1"), "missing is missing, which pyproject"),
        (lambda p, c, k: p["project"]["dependencies"].append("numpy>=99"), "but pyproject.toml needs numpy>=99"),
        (lambda p, c, k: p["project"]["optional-dependencies"]["rdf"].append("rdflib"), "rdflib is missing"),
        (lambda p, c, k: p["build-system"]["requires"].append("wheel>=1"), "wheel is missing, which the build needs"),
        (lambda p, c, k: c.update(rich="1.0"), "but 1.0 in constraints.txt"),
        (lambda p, c, k: c.pop("rich"), "but nothing in constraints.txt"),
        (lambda p, c, k: k["runtime.lock"].pop("pydantic-core"), "pydantic-core is missing, which pydantic needs"),
        (lambda p, c, k: k["runtime.lock"].pop("sympy"), "sympy is missing, which torch needs"),
        (lambda p, c, k: k["dev.lock"].pop("starlette"), "starlette is missing, which fastapi needs"),
    ],
)
def test_disagreement_of_locks_is_named(sources, change, line):
    changed = copy.deepcopy(sources)
    change(*changed)
    assert any(line in found for found in lock.disagreements(*changed))


@pytest.mark.parametrize("name", lock.LOCKS)
def test_every_locked_package_has_hashes(name):
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    packages = 0
    for before, line in zip(["", *lines], lines, strict=False):
        if re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; [^\\]+)? \\", line):
            packages += 1
        elif not line.startswith("#"):
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), line
            assert before.endswith("\\")
    assert packages == len(lock.named("\n".join(lines))) > 20


def test_locks_exclude_torch_and_gpu_libraries():
    names = ("runtime.lock", "dev.lock")
    found = lock.named("".join((FOLDER / name).read_text(encoding="utf-8") for name in names))
    assert {"numpy", "pytest"} <= set(found)
    assert not [name for name in found if name == "torch" or name.startswith(OF_A_GPU)]


def test_dependencies_of_torch_are_listed():
    parsed = map(Requirement, requires("torch") or [])
    found = {lock.canonical(each.name) for each in parsed if "extra" not in str(each.marker or "")}
    listed = (FOLDER / "torch.in").read_text(encoding="utf-8").splitlines()[1:]
    assert {name for name in found if not name.startswith(OF_A_GPU)} == set(listed)


def test_make_installs_by_hash():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--require-hashes" in text
    installs = [line for line in text.splitlines() if "$(PIP)" in line and not line.startswith(("PIP", "LOCKED"))]
    # The exceptions: torch, by its version, and focuse itself.
    assert [line.split("$(PIP) ")[1] for line in installs] == [
        "-c constraints.txt torch",
        "--no-deps --no-build-isolation -e .",
    ]
    assert "pip install" not in text.replace("-m pip install --quiet --disable-pip-version-check", "", 1)


# ---- audit -----------------------------------------------------------------------------------------------------------


def fault(number: str, *aliases: str) -> dict[str, object]:
    return {"id": number, "aliases": list(aliases), "fix_versions": ["2.0"], "description": ""}


def report(*faults: dict[str, object], skipped: int = 0) -> dict[str, object]:
    found = {"name": "thing", "version": "1.0", "vulns": list(faults)}
    clean = {"name": "other", "version": "3.1", "vulns": []}
    return {"dependencies": [found, clean, *({"name": "x", "skip_reason": "not found"} for _ in range(skipped))]}


def test_findings_fail_unless_they_are_ignored_with_a_reason():
    assert audit.judge(report(), {}) == (["audit: 2 packages, 0 vulnerabilities"], 0)
    lines, code = audit.judge(report(fault("PYSEC-1", "CVE-1"), fault("PYSEC-2")), {"CVE-1": "not used here"})
    assert code == 1
    assert lines[0] == "thing 1.0: PYSEC-1 CVE-1; ignored: not used here"
    assert lines[1] == "thing 1.0: PYSEC-2; mended in 2.0"
    assert lines[2] == "audit: 2 packages, 1 vulnerabilities"
    assert audit.judge(report(fault("PYSEC-1", "CVE-1")), {"CVE-1": "not used here"})[1] == 0


def test_unreachable_audit_service_is_distinguished_from_a_clean_audit():
    nothing = {"dependencies": [{"name": "x", "skip_reason": "not found"}]}
    assert audit.judge(nothing, {}) == ([audit.UNREACHABLE], 0)
    assert "1 unknown to the service" in audit.judge(report(skipped=1), {})[0][-1]


def test_audit_without_network_is_an_error_of_one_line(monkeypatch, capsys):
    def unreachable(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(audit.urllib.request, "urlopen", unreachable)
    monkeypatch.setattr("sys.argv", ["audit.py"])
    assert audit.main() == 0
    assert capsys.readouterr().out == f"{audit.UNREACHABLE}\n"
    monkeypatch.setattr("sys.argv", ["audit.py", "--probe"])
    assert audit.main() == 3


def test_everything_pinned_is_audited_and_every_exception_has_a_reason(sources):
    _, constraints, locks = sources
    pinned = {line.partition("==")[0] for line in audit.pinned()}
    assert pinned == set(constraints).union(*locks.values())
    assert "torch" in pinned
    assert all(reason.strip() for reason in audit.ignored().values())


# ---- licenses --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def packages():
    return licenses.listed()[0]


def test_required_packages_have_permissive_licenses(packages):
    """MIT, BSD, Apache and their like. A GPU's libraries come with some builds of torch, on NVIDIA's terms."""
    required = [each for each in packages if each.needed == "required" and not each.name.startswith(OF_A_GPU)]
    assert {"torch", "numpy", "pyarrow", "safetensors", "typer", "rich", "rapidfuzz", "scikit-learn"} <= {
        each.name for each in required
    }
    assert [each for each in required if each.kind != "permissive"] == []


def test_extras_have_known_and_compatible_licenses(packages):
    extras = [each for each in packages if each.needed != "required" and not each.name.startswith(OF_A_GPU)]
    assert extras
    assert [each for each in extras if each.kind not in ("permissive", "weak copyleft")] == []
    if sys.platform == "linux":
        assert {each.needed for each in extras if each.name == "torchrec"} == {"distributed"}


def test_every_locked_dependency_is_in_the_license_list(packages, sources):
    """Of those that are installed: markers leave out others."""
    project, _, _ = sources
    names = {each.name for each in packages}
    for extra in ("dev", "tune", "serve"):
        assert {lock.canonical(need.name) for need in lock.needs(project, extra)} - {"wheel"} <= names


@pytest.mark.parametrize(
    ("license", "kind"),
    [
        ("MIT", "permissive"),
        ("(MIT OR GPL-2.0-only)", "permissive"),
        ("MIT AND LGPL-3.0-only", "weak copyleft"),
        ("GPL-3.0-or-later", "copyleft"),
        ("AGPL-3.0-only OR GPL-2.0-only", "copyleft"),
        ("MIT AND LicenseRef-Proprietary", "unknown"),
        ("unknown", "unknown"),
    ],
)
def test_licenses_are_classified(license, kind):
    assert licenses.kind_of(license) == kind


@pytest.mark.parametrize(
    ("about", "license"),
    [
        ("License-Expression: MPL-2.0\nLicense: MIT", "MPL-2.0"),
        ("License: Apache License, Version 2.0", "Apache-2.0"),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: ISC License (ISCL)", "ISC"),
        ("License: Copyright (c) me\nClassifier: License :: OSI Approved :: BSD License", "BSD"),
        ("License: MIT OR Apache-2.0", "MIT OR Apache-2.0"),
        ("License: MPL-2.0 AND MIT", "MPL-2.0 AND MIT"),
        ("License: my own words", "unknown"),
        ("Summary: nothing said", "unknown"),
    ],
)
def test_license_is_read_from_package_metadata(tmp_path, about, license):
    (tmp_path / "x-1.dist-info").mkdir()
    (tmp_path / "x-1.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.4\nName: x\nVersion: 1\n{about}\n")
    assert licenses.license_of(Distribution.at(tmp_path / "x-1.dist-info")) == license


def test_licenses_are_printed_as_json_and_text(packages, capsys):
    licenses.main(["--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["packages"][0].keys() == {"name", "version", "license", "kind", "needed"}
    assert len(told["packages"]) == len(packages)
    licenses.main([])
    shown = capsys.readouterr().out
    assert all(each.name in shown for each in packages)
    assert re.search(r"certifi .*MPL-2.0   <- weak copyleft", shown)


def test_license_page_names_the_dependencies_of_pyproject(sources):
    """Names alone: other platforms and versions bring others."""
    project, constraints, _ = sources
    page = (ROOT / "docs" / "licenses.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| ([a-z0-9][a-z0-9-]*) \| .+ \| .+ \|$", page, flags=re.MULTILINE)) - {"package"}
    groups = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    direct = {lock.canonical(Requirement(text).name) for texts in groups for text in texts} | {"torchrec"}
    assert direct - {"focuse", "triton"} <= listed  # else: make licenses ARGUMENTS=--markdown > docs/licenses.md
    assert listed <= set(constraints)
