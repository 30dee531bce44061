"""What is written by hand: rules, settings in files and in one word, what a search tries, lists of names."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzzing.guard import WrongError

Call = Callable[[bytes], object]
RULES = [
    b"r(x, y) & r(y, z) -> r(x, z) : 0.9\n# a comment\n",
    b'plays(x,y) & !"on loan"(x,y) | sport(x,y) -> "team\\u00e9"(y,x)\n',
    b'"a\\"b\\\\c\\n"(x, y) -> s(y, x) : 1e-3  # end\r\n\r\n',
    b"a:b/c(x_1, \xc3\xa9) -> d-e(x_1, \xc3\xa9)\n",
]
SETTINGS = [
    b'[settings]\nmodel = "complex"\ndim = 20\nlr = 1e-3\nregularizer = "l3:1e-3"\nloss = "margin:2"\n',
    b'dim = 200\nepochs = 5\nweight_mode = "focuse"\n'
    b'beta_decay_epochs = 3\nnum_negatives = 4\nnegative_sampling = "per-triple"\n',
    b'column_importance = "confidence=2,recency=1"\nlower_is_better = "p"\ncheckpoint_every = "60s"\nseed = 3\n',
    b'optimizer = "sparse-adam"\nweight_scaling = "quantile"\nduplicates = "mean"\nbatch_size = 64\n',
    b'model = "transe"\nloss = "self-adversarial:margin=6,temperature=0.5"\n'
    b'negative_distribution = "degree"\nvalid_min_weight = 0.8\n',
]
# Not of these: a model or callback called 'module:Class' is imported, which is the user's word and no file's.
SPACES = [
    b"lr=1e-4,1e-3\ndim=8,16",
    b'loss=["nll", "margin:2"]\nmodel=complex,transe',
    b"epochs=3,5,800\nweight-mode=soft-labels,focuse,none\nlabel_exponent=1,2",
    b"num-negatives=5,10\nnegative-sampling=shared,per-triple\nregularizer=l3:1e-3,l2:1e-2",
]


def rules(folder: Path) -> tuple[Call, list[bytes]]:
    """Rules, which say the same when they are written out and read again."""
    from focuse.rules.grammar import parse_rules, read_rules

    path = folder / "rules.txt"

    def call(data: bytes) -> None:
        path.write_bytes(data)
        found = read_rules(path)
        text = "\n".join(map(str, found))
        if parse_rules(text) != found:
            raise WrongError("rules that read otherwise when written")
        lines = [line for line in data.decode("utf-8").removeprefix("\ufeff").split("\n") if line.split("#")[0].strip()]
        if len(found) > len(lines) or not all(0 < rule.truth <= 1 for rule in found):
            raise WrongError(f"{len(found)} rules in {len(lines)} lines")

    return call, RULES


def settings(folder: Path) -> tuple[Call, list[bytes]]:
    """A file of settings: what is taken is what TOML says, and comes back from a run's own file."""
    import tomllib

    from focuse.config import Config, merge_settings
    from focuse.storage.metadata import read_config, to_toml

    path = folder / "settings.toml"

    def call(data: bytes) -> None:
        path.write_bytes(_without_imports(data))
        found = read_config(path)
        stated = Config.from_kwargs(**found)
        for name, value in found.items():
            own = getattr(stated, name)
            if isinstance(value, int | float) and not isinstance(own, str) and own not in (value, float(value)):
                raise WrongError(f"{name} is {own!r}, the file says {value!r}")
        merge_settings(found, {"model": "transe"})
        known = {name: value for name, value in stated.to_dict().items() if value is not None}
        if Config.from_stored(tomllib.loads(to_toml(known))) != stated:
            raise WrongError("settings that read otherwise when written")

    return call, SETTINGS


def _without_imports(data: bytes) -> bytes:
    """Models and the like by 'module:Class' would be imported, and a fuzzer finds modules that do things."""
    return b"\n".join(line for line in data.split(b"\n") if b"model" not in line or b":" not in line)


def words(folder: Path) -> tuple[Call, list[bytes]]:
    """One setting as one word, by the first byte which."""
    from focuse.config import SETTINGS, Config, parse_setting_value
    from focuse.option_strings import parse_duration, parse_named_numbers, parse_names, parse_option_string

    names = [name for name in SETTINGS if name not in ("model", "init_from", "device")]
    ways: list[Callable[[str], object]] = [
        parse_duration,
        parse_names,
        lambda text: parse_named_numbers(text, "importance"),
        lambda text: parse_option_string(text, "loss"),
        *(lambda text, name=name: Config.from_kwargs(**{name: parse_setting_value(name, text)}) for name in names),  # type: ignore[misc]
    ]

    def call(data: bytes) -> None:
        found: Any = ways[(data[0] if data else 0) % len(ways)](data[1:].decode("utf-8", "replace"))
        numbers = found[1] + list(found[2].values()) if isinstance(found, tuple) else []
        if not all(map(math.isfinite, numbers)):
            raise WrongError("a number that is none")

    seeds = [b"1.5h", b"p, distance", b"confidence=2,recency=1", b"self-adversarial:margin=6,temperature=0.5"]
    seeds += [
        b"margin:2",
        b"l3:1e-3",
        b"sparse-adam",
        b"12",
        b"0.5",
        b"true",
        b"degree:0.75",
        b"quantile",
        b"relation",
        b"all",
    ]
    return call, [bytes([place]) + seed for place in range(len(ways)) for seed in seeds[place % 7 :: 7]]


def spaces(folder: Path) -> tuple[Call, list[bytes]]:
    """The search space of the command line."""
    from focuse.data.readers import read
    from focuse.tuning import make_space, parse_search

    graph = read([("a", "r", "b", 0.5), ("b", "r", "c", 1.0)])

    def call(data: bytes) -> None:
        lines = _without_imports(data).decode("utf-8", "replace").split("\n")
        space = make_space(graph, parse_search(lines))
        if space.size < 1:
            raise WrongError("an empty space")
        str(space)

    return call, list(SPACES)


def lists(folder: Path) -> tuple[Call, list[bytes]]:
    """Lists of names."""
    from focuse.inference.predict import listed_names

    path = folder / "names.txt"

    def call(data: bytes) -> None:
        path.write_bytes(data)
        found = listed_names(["x"], path)
        text = data.decode("utf-8").removeprefix("\ufeff")
        if found is not None and not all(name in text for name in found[1:]):
            raise WrongError("a name that is not in the file")

    return call, [b"a\nb\r\n", b"\xef\xbb\xbfa b\tx\n\n", b"just a name\n"]
