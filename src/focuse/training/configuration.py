"""Settings from text: a TOML file (best.toml of `focuse tune`, a run's run.toml, one written by hand) or the shell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from focuse.errors import FocuseError
from focuse.focus import default_nonlinearity
from focuse.models import MODELS, kind_of, name_of, pykeen, registry
from focuse.training.optimisers import LEARNING_RATES
from focuse.training.settings import OWN_NEGATIVES, SHARED_POOL, Settings, means_the_papers_layer

# What a model has its own defaults of, or what none but some models have.
OF_THE_MODEL = (
    "reciprocal", "sampling", "optimizer", "regularizer", "loss", "normalize", "judge", "batch_size",
    "semi_supervised", "attribute_share",
)  # fmt: skip


def read_settings(path: str | Path, model: object = None) -> dict[str, Any]:
    """The settings in a TOML file, as keywords of `focuse.train`.

    They stand at the top level or under [settings]. Of a file with that table nothing else is taken, so that a
    run can be trained again from its run.toml. The file's model is left out where another `model` takes its place and
    it is a class that nobody has said to trust: its module is not run only to be put aside.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
    ...     print("dim = 200\\nlr = 1e-4", file=file, flush=True)
    ...     read_settings(file.name)
    {'dim': 200, 'lr': 0.0001}
    """
    content = read_toml(Path(path))
    found = content.get("settings", content)
    if not isinstance(found, dict):
        raise FocuseError(f"{path}: settings is not a table; write [settings] above its lines")
    if found is not content:
        # A setting above the table would be lost in silence.
        lost = [field.name for field in fields(Settings) if field.name in content]
        if lost:
            raise FocuseError(f"{path}: {', '.join(lost)} stands outside of [settings]; move it below that line")
    if model is not None:
        kind_of(name_of(model))  # whoever names it has asked for its module, which may be the file's, too
    if model is not None and _stranger(found):
        found = {name: value for name, value in found.items() if name != "model"}
    check_trust(found, Path(path), "import it first")
    try:
        Settings.of(**found)
    except FocuseError as error:
        raise FocuseError(f"{path}: {error}") from None
    return dict(found)


def merged(found: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a file with `given` ones in their place.

    A run's file holds every setting. What had followed from one that is given anew, as the learning rate from the
    optimizer, is left to follow again; what had been chosen stays.

    >>> merged({"optimizer": "row-adagrad", "lr": 0.1, "dim": 8}, {"optimizer": "adam"})
    {'optimizer': 'adam', 'dim': 8}
    >>> merged({"optimizer": "row-adagrad", "lr": 0.3, "dim": 8}, {"optimizer": "adam"})
    {'optimizer': 'adam', 'lr': 0.3, 'dim': 8}
    """
    if means_the_papers_layer(given) and found.get("focus") == "label":
        given = {"focus": "paper", **given}
    if "model" in given and "focus" in found:
        old, new = (
            kind_of(name_of(each.get("model", Settings.model))).defaults.get("focus", Settings.focus)
            for each in (found, given)
        )
        given = {"focus": new, **given} if found["focus"] == old != new else given
    changed = {name for name, value in given.items() if name in found and found[name] != value}
    kept = dict(found)
    for name, (leader, value) in _followed(Settings.of(**found)).items():
        if changed & set(leader.split()) and name not in given and name in kept and kept[name] == value:
            del kept[name]
            changed.add(name)
    return kept | dict(given)


def _followed(settings: Settings) -> dict[str, tuple[str, Any]]:
    """What follows from which settings, and the value that it has then; leaders before those who follow them."""
    kind = kind_of(settings.model)
    usual = {**asdict(Settings()), **kind.defaults}
    usual |= {"judge": "mse" if kind.confident else "mrr", "attribute_share": settings.attribute_share}
    usual["normalize"] = usual["normalize"] or "relation"
    size = SHARED_POOL if settings.sampling == "shared" else OWN_NEGATIVES
    size = usual["negatives"] or size if settings.sampling == usual["sampling"] else size
    rate = usual["lr"] if settings.optimizer == usual["optimizer"] else None
    return {
        **{name: ("model", usual[name]) for name in OF_THE_MODEL},
        "nonlinearity": ("model", default_nonlinearity(kind)),
        "lr": ("optimizer", rate or LEARNING_RATES[settings.optimizer]),
        "regularize": ("model", usual["regularize"])
        if usual["regularize"]
        else ("optimizer", replace(settings, regularize=None).scope),
        "negatives": ("sampling", size),
        "decay": ("epochs", settings.epochs),
        "burn_in": ("focus", 0) if settings.focus == "label" else ("focus decay", settings.epochs // 2),
        "sharpness": ("focus", settings.sharpness),
    }


def with_model(config: Mapping[str, Any], model: object, folder: Path) -> dict[str, Any]:
    """A run's file with its model as it is called here: like the class that is given, else as it was called there."""
    stored = config.get("settings")
    name = stored.get("model") if isinstance(stored, dict) else None
    if not isinstance(stored, dict) or not isinstance(name, str):
        return dict(config)  # damaged: whoever reads it on says so
    if model is not None:
        if name in MODELS and name_of(model) != name:
            raise FocuseError(f"{folder}: its model {name!r} is built in; leave model= out")
        stored_name, name = name, name_of(model)
        registry.stand_in(stored_name, kind_of(name))
    hand_over = f"hand its class over: focuse.load({str(folder)!r}, model=MyModel)"
    if model is None:
        check_trust(stored, folder / "run.toml", hand_over)
    try:
        registry.check_place(name, folder)
        kind_of(name)
    except FocuseError as error:
        advice = f"or {hand_over}"
        raise FocuseError(f"{folder / 'run.toml'}: {error}; {advice}") from None
    return {**config, "settings": {**stored, "model": name}}


def check_trust(settings: Mapping[str, Any], path: Path, otherwise: str) -> None:
    """A file is data: the module that it names as its model's is imported, and so run, only if the user says so."""
    module = _stranger(settings)
    if module:
        raise FocuseError(
            f"{path}: its model {settings['model']!r} is code that is not focuse's; if you trust it, write "
            f"focuse --trust {module} COMMAND (or set {registry.TRUST}={module}), or in Python {otherwise}"
        )


def _stranger(settings: Mapping[str, Any]) -> str:
    """The module of the model that a file names, if nobody has said to trust it; else ''."""
    name = settings.get("model")
    if not isinstance(name, str) or name in MODELS or name.startswith(pykeen.PREFIX):
        return ""
    return registry.untrusted(name)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file; what is wrong with it is one line that says where."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FocuseError(f"{path}: {error.strerror or error}; give the path of a TOML file") from None
    except UnicodeDecodeError:
        raise FocuseError(f"{path}: not a text in UTF-8; give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        fault, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        where = f"line {line[1]}" if line else "at its end"
        raise FocuseError(f"{path}, {where}: {fault}; write settings like: lr = 0.001") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets in brackets in …
        raise FocuseError(f"{path}: not TOML that can be read ({error}); write settings like: lr = 0.001") from None


def assignments(option: str, texts: Sequence[str]) -> dict[str, str]:
    """'batch-size=64' as {'batch_size': '64'}."""
    found: dict[str, str] = {}
    example = "--search lr=1e-4,1e-3" if option == "--search" else f"{option} dim=200"
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        name = name.replace("-", "_")
        if not name or not value:
            raise FocuseError(f"{option} {text!r}: write it like {example}")
        if name in found:
            raise FocuseError(f"{option} {text!r}: {name} is given twice")
        found[name] = value
    return found


def value_of(name: str, text: str) -> Any:
    """The text as the kind of its setting, or as it is: then Settings says what is wrong with it."""
    kinds = {field.name: str(field.type).partition(" | ")[0] for field in fields(Settings)}
    kind = kinds.get(name)
    if kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return int(text) if kind == "int" else float(text) if kind == "float" else text
    except ValueError:
        return text
