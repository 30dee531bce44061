"""The page's own files, read into memory at start: no request ever names a path."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    """One file as it is sent."""

    content: bytes
    kind: str
    tag: str


def assets() -> dict[str, Asset]:
    """Every file of `static/` by its name.

    >>> sorted(name for name in assets() if name.endswith(".html"))
    ['docs.html', 'index.html']
    """
    found = {}
    for entry in files("focuse.serve").joinpath("static").iterdir():
        suffix = "." + entry.name.rpartition(".")[2]
        if suffix in TYPES:
            content = entry.read_bytes()
            found[entry.name] = Asset(content, TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return found
