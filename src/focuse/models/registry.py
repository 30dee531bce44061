"""The registry of models by name: built-in models, families such as PyKEEN's, plug-ins, and the user's own classes.

A package provides models by entry points of the group `focuse.models`, which are looked up if a name is not built in.
"""

from __future__ import annotations

import inspect
import os
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import cast, get_args

from focuse.data.readers import INTEGRATIONS, import_function
from focuse.errors import FocuseError, nearest
from focuse.models.base import Model, Similarity
from focuse.models.bilinear import CP, ComplEx, DistMult, HolE, QuatE, Rescal, SimplE, TuckER
from focuse.models.literals import KBLRN, LiteralEComplEx, LiteralEDistMult, TransEA
from focuse.models.neural import KBGAT, ConvE, ConvKB
from focuse.models.translational import GTransE, PairRE, RotatE, TransE, TransEL2
from focuse.models.uncertain import Beurre, ComplExWeights, PassleafComplEx, PassleafRotatE, Suke, UkgeLogi, UkgeRect
from focuse.option_strings import choose

PLUG_IN_GROUP = "focuse.models"
TRUST_VARIABLE = "FOCUSE_TRUST"  # an environment variable with the modules that files may refer to, comma-separated

_BUILT_IN: tuple[type[Model], ...] = (
    TransE,
    TransEL2,
    GTransE,
    RotatE,
    PairRE,
    DistMult,
    ComplEx,
    QuatE,
    HolE,
    SimplE,
    CP,
    Rescal,
    TuckER,
    ConvE,
    ConvKB,
    KBGAT,
    LiteralEDistMult,
    LiteralEComplEx,
    TransEA,
    KBLRN,
    UkgeRect,
    UkgeLogi,
    ComplExWeights,
    PassleafComplEx,
    PassleafRotatE,
    Suke,
    Beurre,
)
MODELS: dict[str, type[Model]] = {model.name: model for model in _BUILT_IN}
_REGISTERED: dict[str, type[Model]] = {}  # classes that cannot be imported by name, by the name in their runs


def model_family(name: str) -> str:
    """Return the "module:name" of the function that makes a class from a name like "pykeen:TransH", else ''.

    >>> model_family("pykeen:TransH"), model_family("complex")
    ('focuse.integrations.pykeen_models:interaction_model', '')
    """
    prefix, colon, _ = name.partition(":")
    families: dict[str, str] = import_module(INTEGRATIONS).MODEL_FAMILIES if colon else {}
    return families.get(prefix, "")


def model_class(name: str) -> type[Model]:
    """Return the class of a model by its name.

    The name is that of a built-in model or of a plug-in, 'pykeen:NAME', or 'package.module:Class'.

    >>> model_class("complex").similarity
    'dot'
    """
    if name in MODELS:
        return MODELS[name]
    family = model_family(name)
    if family:
        return cast(type[Model], import_function(family)(name))
    if name in _REGISTERED:
        return _REGISTERED[name]
    return check_model_class(import_object(name), f"model {name!r}") if ":" in name else _load_plug_in(name)


def model_name(model: object) -> str:
    """Return the name of a model, which is given as a name or a class, in settings and runs.

    >>> model_name("transe"), model_name(ComplEx), model_name("RotatE")
    ('transe', 'complex', 'rotate')
    """
    if isinstance(model, str) and model.lower() in MODELS:
        return model.lower()
    name = getattr(model, "name", None) if isinstance(model, type) and issubclass(model, Model) else None
    if isinstance(name, str) and model_family(name):
        return name
    return model if isinstance(model, str) else register_model(model)


def make_model(name: str) -> Model:
    """Return an instance of the model called `name`.

    >>> make_model("complex").widths(100)
    (200, 200)
    """
    return model_class(name)()


def register_model(model: object) -> str:
    """Register a model class and return its name, which is 'module:Class' unless the class is built in.

    A class that cannot be imported by that name, such as a class in a notebook, is known to this process only.
    """
    if isinstance(model, Model):
        raise FocuseError(f"model: give the class {type(model).__name__}, not an instance of it")
    if not isinstance(model, type):
        raise FocuseError(f"model {model!r}: give the name of a model or a class")
    checked_class = check_model_class(model, f"model {model.__name__}")
    if checked_class.name in MODELS:
        return checked_class.name
    name = f"{model.__module__}:{model.__qualname__}"
    _REGISTERED.pop(name, None)
    try:
        importable = import_object(name)
    except FocuseError:
        importable = None
    if importable is not checked_class:
        _REGISTERED[name] = checked_class
    return name


def register_alias(name: str, model: type[Model]) -> None:
    """Register a class under the name that a run was written with, unless that name can be imported.

    An untrusted module is not imported for this, because the name comes from a file.
    """
    if ":" in name and name not in _REGISTERED:
        if untrusted_module(name):
            _REGISTERED[name] = model
            return
        try:
            import_object(name)
        except FocuseError:
            _REGISTERED[name] = model


def untrusted_module(name: str) -> str:
    """Return the module that a model name from a file would import without the user's consent, '' if there is none.

    Plug-ins are trusted, because the user installed them. Registered classes, modules that are already imported, and
    the packages, modules and classes that FOCUSE_TRUST lists are trusted too.

    >>> untrusted_module("complex"), untrusted_module("somewhere.else:Model")
    ('', 'somewhere.else')
    """
    module, colon, _ = name.partition(":")
    if not colon or name in _REGISTERED or module in sys.modules:
        return ""
    listed = [word.strip() for word in os.environ.get(TRUST_VARIABLE, "").split(",")]
    return "" if name in listed or any(word and f"{module}.".startswith(f"{word}.") for word in listed) else module


def trust_option(name: str) -> str:
    """Return the command-line option that loading a run of this model needs, '' for models that need none.

    >>> trust_option("complex"), trust_option("mine.models:Stretch")
    ('', ' --trust mine.models')
    """
    module, colon, _ = name.partition(":")
    return f" --trust {module}" if colon and not model_family(name) else ""


def check_model_class(model: object, where: str) -> type[Model]:
    """Return `model` if it is a complete model class, else raise an error that begins with `where`."""
    if not (isinstance(model, type) and issubclass(model, Model)):
        raise FocuseError(f"{where}: {model!r} is not a subclass of focuse.models.Model; derive it from that class")
    name, choices = getattr(model, "name", None), (*get_args(Similarity), None)
    if not isinstance(name, str) or not name:
        raise FocuseError(f"{where}: it has no name; write in the class: name = {model.__name__.lower()!r}")
    if MODELS.get(name, model) is not model:
        raise FocuseError(f"{where}: a built-in model has the same name {name!r}; choose another name")
    if getattr(model, "similarity", "") not in choices:
        words = " or ".join(map(repr, choices))
        raise FocuseError(f"{where}: it has no similarity; write in the class: similarity = {words}")
    if inspect.isabstract(model):
        raise FocuseError(f"{where}: it lacks the method {', '.join(sorted(model.__abstractmethods__))}; define it")
    try:
        model()
    except Exception as error:
        raise FocuseError(f"{where}: cannot be made without arguments: {_message(error)}") from None
    return model


def plug_ins() -> dict[str, EntryPoint]:
    """Return the entry points of models in installed packages, by name, without loading them."""
    return {point.name: point for point in entry_points(group=PLUG_IN_GROUP)}


@cache
def _load_plug_in(name: str) -> type[Model]:
    """Load the class of a plug-in's model."""
    available = plug_ins()
    point = available[choose("model", name, [*MODELS, *sorted(set(available) - set(MODELS))])]
    classes = sorted({each.value for each in entry_points(group=PLUG_IN_GROUP) if each.name == name})
    if len(classes) > 1:
        raise FocuseError(f"model {name!r}: several plug-ins offer it; choose one of {' or '.join(classes)}")
    package = point.dist.name if point.dist is not None else point.value
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:
        raise FocuseError(
            f"model {name!r}: the plug-in {package} ({point.value}) does not load: {_message(error)}; "
            "fix or uninstall it"
        ) from None
    return check_model_class(loaded, f"model {name!r} of the plug-in {package}")


def import_object(name: str, kind: str = "model", base: type = Model) -> object:
    """Import the object called 'package.module:Class'; `kind` and the class `base` are for error messages."""
    module, _, path = name.partition(":")
    current: object = sys.modules["__main__"] if module == "__main__" else None
    for part in path.split("."):
        if part == "<locals>" or (module == "__main__" and not hasattr(current, part)):
            raise FocuseError(
                f"{kind} {name!r}: its class is in a function, a notebook or a script and cannot be imported; "
                "move it to a module"
            )
        if current is None:
            current = _import_module(module, f"{kind} {name!r}")
        if not hasattr(current, part):
            suggestion = nearest(path, _classes_in(current, base))
            raise FocuseError(f"{kind} {name!r}: {module} has no class {path!r}{suggestion}")
        current = getattr(current, part)
    return current


def check_module_location(name: str, folder: Path) -> None:
    """Raise FocuseError if the class of a run's model is in the standard library or in the run's own folder.

    Importing a module runs its code. A run may refer to the user's model, but must not contain code itself.
    """
    module, colon, _ = name.partition(":")
    parts = module.split(".")
    if not colon or name in _REGISTERED:
        return
    if parts[0] in sys.stdlib_module_names:
        raise FocuseError(f"model {name!r}: {parts[0]} is a module of Python and has no models")
    run = folder.resolve()
    for root in (*sys.path, os.getcwd()):
        for depth in range(1, len(parts) + 1):
            path = Path(root or os.curdir, *parts[:depth])
            candidates = [path.resolve(), path.with_suffix(".py").resolve()]
            if any(candidate.exists() and candidate.is_relative_to(run) for candidate in candidates):
                raise FocuseError(f"model {name!r}: its module is in the run's own folder; a run must not contain code")


def _import_module(module: str, where: str) -> ModuleType:
    """Import a module, also from the working folder; raise an error that begins with `where` if that fails."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise FocuseError(f"{where}: write it like package.module:Class")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # installed commands do not search the working folder
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise FocuseError(
                f"{where}: there is no module {error.name!r}; install its package or go to its folder"
            ) from None
        raise FocuseError(f"{where}: importing {module} fails: {_message(error)}") from None


def _classes_in(container: object, base: type) -> list[str]:
    """Return the names of the subclasses of `base` in a module or class."""
    attributes = getattr(container, "__dict__", {}).items()
    return [name for name, value in attributes if isinstance(value, type) and issubclass(value, base)]


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
