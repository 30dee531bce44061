"""Writing TOML. Python reads it but does not write it, and a run's settings need only a small part of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def to_toml(table: Mapping[str, Any], path: str = "") -> str:
    """Plain values first, then sub-tables.

    >>> print(to_toml({"format": 1, "settings": {"model": "complex", "lr": 0.001}}), end="")
    format = 1
    <BLANKLINE>
    [settings]
    model = "complex"
    lr = 0.001
    """
    lines = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    text = "".join(line + "\n" for line in lines)
    for key, value in table.items():
        if isinstance(value, Mapping):
            name = f"{path}.{_key(key)}" if path else _key(key)
            text += f"\n[{name}]\n" + to_toml(value, name)
    return text


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, float):
        return repr(float(value))  # np.float64 is a float too, but its own repr is no TOML
    if isinstance(value, str):
        # JSON's strings are TOML's but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"no TOML for {type(value).__name__}")
