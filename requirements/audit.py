"""Known vulnerabilities of everything that the locks and constraints.txt pin, by pip-audit.

    make audit

Findings fail, but for those that audit.toml ignores with a reason. Where no service of vulnerabilities can be reached,
one line says so and nothing fails: the CI of a machine without a network goes on.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pip._internal.models.index import PyPI

HERE = Path(__file__).resolve().parent
FILES = (*sorted(HERE.glob("*.lock")), HERE.parent / "constraints.txt")
ASKED, WORD = f"{PyPI.pypi_url}/pip/24.0/json", b'"vulnerabilities"'  # what pip-audit asks by itself, and a word of it
SECONDS = 60
UNREACHABLE = "audit: no service of vulnerabilities can be reached from here; nothing was audited"


def reachable(seconds: float = 5) -> bool:
    """Whether the index's service of vulnerabilities answers."""
    try:
        with urllib.request.urlopen(ASKED, timeout=seconds) as answer:
            return WORD in answer.read()
    except (OSError, ValueError):
        return False


def pinned() -> list[str]:
    """Every 'name==version' in the locks and constraints.txt, once."""
    texts = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
    found = re.findall(r"^([A-Za-z0-9][\w.-]*)==([\w.]+)", texts, re.MULTILINE)
    return sorted({f"{re.sub('[-_.]+', '-', name.lower())}=={version}" for name, version in found})


def ignored() -> dict[str, str]:
    """Findings that are no danger here, by their number, with the reason."""
    listed = tomllib.loads((HERE / "audit.toml").read_text(encoding="utf-8")).get("ignore", [])
    return {each["id"]: each["reason"] for each in listed}


def judge(report: Mapping[str, Any], passed_over: Mapping[str, str]) -> tuple[list[str], int]:
    """What pip-audit found, in lines, and the exit code: 1 for anything that is not passed over."""
    lines, found = [], 0
    answered = [each for each in report["dependencies"] if "skip_reason" not in each]
    if not answered:
        return [UNREACHABLE], 0
    for each in answered:
        for fault in each["vulns"]:
            numbers = [fault["id"], *fault.get("aliases", ())]
            reason = next((passed_over[number] for number in numbers if number in passed_over), None)
            mended = ", ".join(fault.get("fix_versions", ())) or "no version yet"
            known = f"ignored: {reason}" if reason else f"mended in {mended}"
            lines.append(f"{each['name']} {each['version']}: {' '.join(numbers)}; {known}")
            found += reason is None
    unknown = len(report["dependencies"]) - len(answered)
    left = f", {unknown} unknown to the service" if unknown else ""
    lines.append(f"audit: {len(answered)} packages, {found} vulnerabilities{left}")
    return lines, 1 if found else 0


def main() -> int:
    probing = "--probe" in sys.argv[1:]
    if not reachable():
        print(UNREACHABLE)
        return 3 if probing else 0
    if probing:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "pinned.txt"
        asked.write_text("\n".join(pinned()), encoding="utf-8")
        command = ["-m", "pip_audit", "--requirement", str(asked), "--no-deps", "--disable-pip", "--format", "json"]
        command += ["--progress-spinner", "off", "--timeout", "10"]
        try:
            done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            print(f"audit: no answer within {SECONDS} seconds; nothing was audited")
            return 0
    try:
        report = json.loads(done.stdout)
    except ValueError:
        told = done.stderr.strip().splitlines() or ["no answer"]
        print(f"audit: pip-audit failed: {told[-1]}")
        return 1
    lines, code = judge(report, ignored())
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
