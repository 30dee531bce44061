"""Names of models: built-in ones, families such as PyKEEN's, plug-ins, and classes of one's own.

A package offers models by entry points of the group `focuse.models`; they are looked up when a name is not built in.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import cast, get_args

from focuse.data.readers import INTEGRATIONS, import_function
from focuse.errors import FocuseError, nearest
from focuse.models import bilinear, literals, neural, translational, uncertain
from focuse.models.base import Model, Similarity
from focuse.option_strings import choose

PLUG_IN_GROUP = "focuse.models"
TRUST = "FOCUSE_TRUST"  # an environment variable: modules that files may name, separated by commas

# One line per built-in model.
_BUILT_IN: tuple[type[Model], ...] = (
    translational.TransE,
    translational.TransEL2,
    translational.GTransE,
    translational.RotatE,
    translational.PairRE,
    bilinear.DistMult,
    bilinear.ComplEx,
    bilinear.QuatE,
    bilinear.HolE,
    bilinear.SimplE,
    bilinear.CP,
    bilinear.Rescal,
    bilinear.TuckER,
    neural.ConvE,
    neural.ConvKB,
    neural.KBGAT,
    literals.LiteralEDistMult,
    literals.LiteralEComplEx,
    literals.TransEA,
    literals.KBLRN,
    uncertain.UkgeRect,
    uncertain.UkgeLogi,
    uncertain.PassleafComplEx,
    uncertain.PassleafRotatE,
    uncertain.Suke,
    uncertain.Beurre,
)
MODELS: dict[str, type[Model]] = {model.name: model for model in _BUILT_IN}
_GIVEN: dict[str, type[Model]] = {}  # classes that no import would find again, by the name they are stored under
_LOADED: dict[str, type[Model]] = {}  # classes of plug-ins


def model_family(name: str) -> str:
    """The function, as "module:name", that makes a class from a name like "pykeen:TransH"; empty for other names.

    >>> model_family("pykeen:TransH"), model_family("complex")
    ('focuse.integrations.pykeen_models:interaction_model', '')
    """
    prefix, colon, _ = name.partition(":")
    families: dict[str, str] = import_module(INTEGRATIONS).MODEL_FAMILIES if colon else {}
    return families.get(prefix, "")


def model_class(name: str) -> type[Model]:
    """The class of the model called `name`: built in, PyKEEN's ('pykeen:NAME'), a plug-in's, or 'package.module:Class'.

    >>> model_class("complex").similarity
    'dot'
    """
    if name in MODELS:
        return MODELS[name]
    family = model_family(name)
    if family:
        return cast(type[Model], import_function(family)(name))
    return find_model(name)


def model_name(model: object) -> str:
    """The word for a model in settings and runs: itself, or of a class the name that `model_class` finds it by.

    >>> model_name("transe"), model_name(bilinear.ComplEx), model_name("RotatE")
    ('transe', 'complex', 'rotate')
    """
    if isinstance(model, str) and model.lower() in MODELS:
        return model.lower()
    if isinstance(model, type) and issubclass(model, Model) and model_family(getattr(model, "name", "")):
        return model.name
    return model if isinstance(model, str) else register(model)


def make_model(name: str) -> Model:
    """The model called `name`.

    >>> make_model("complex").widths(100)
    (200, 200)
    """
    return model_class(name)()


def find_model(name: str) -> type[Model]:
    """The class of a model that is not built in: 'package.module:Class', or the name that a plug-in gives it."""
    if name in _GIVEN:
        return _GIVEN[name]
    if ":" in name:
        return checked(imported(name), f"model {name!r}")
    if name not in _LOADED:
        _LOADED[name] = _loaded(name)
    return _LOADED[name]


def register(given: object) -> str:
    """The name of a class that is given instead of a name: a built-in's own, else 'module:Class'.

    If an import of that name would not find it again, as for a class in a notebook, only this process knows it.
    """
    if isinstance(given, Model):
        raise FocuseError(f"model: give the class {type(given).__name__}, not an instance of it")
    if not isinstance(given, type):
        raise FocuseError(f"model {given!r}: give the name of a model or a class")
    model = checked(given, f"model {given.__name__}")
    if model.name in MODELS:
        return model.name
    name = f"{given.__module__}:{given.__qualname__}"
    _GIVEN.pop(name, None)
    try:
        found = imported(name)
    except FocuseError:
        found = None
    if found is not model:
        _GIVEN[name] = model
    return name


def stand_in(name: str, given: type[Model]) -> None:
    """From now on `given` is found by `name`, the name that a run was written with, unless something else is.

    An untrusted module is not imported to find out, because the name comes from a file.
    """
    if ":" in name and name not in _GIVEN:
        if untrusted(name):
            _GIVEN[name] = given
            return
        try:
            imported(name)
        except FocuseError:
            _GIVEN[name] = given


def untrusted(name: str) -> str:
    """The module whose code a name from a file would run although the user has not asked for it; '' if there is none.

    Names of plug-ins are trusted, because they were installed; so are classes that were given, modules that are
    imported already, and everything that FOCUSE_TRUST lists: packages, modules or classes.

    >>> untrusted("complex"), untrusted("somewhere.else:Model")
    ('', 'somewhere.else')
    """
    module, colon, _ = name.partition(":")
    if not colon or name in _GIVEN or module in sys.modules:
        return ""
    listed = [word.strip() for word in os.environ.get(TRUST, "").split(",")]
    return "" if name in listed or any(word and f"{module}.".startswith(f"{word}.") for word in listed) else module


def trusting(name: str) -> str:
    """The option that a command needs to load a run of this model: a class from elsewhere is trusted each time.

    >>> trusting("complex"), trusting("mine.models:Stretch")
    ('', ' --trust mine.models')
    """
    module, colon, _ = name.partition(":")
    return f" --trust {module}" if colon and not model_family(name) else ""


def checked(found: object, what: str) -> type[Model]:
    """`found` if it is a model class; else an error in one line that says what it lacks."""
    if not (isinstance(found, type) and issubclass(found, Model)):
        raise FocuseError(f"{what}: {found!r} is no subclass of focuse.models.Model; derive it from that")
    name, choices = getattr(found, "name", None), (*get_args(Similarity), None)
    if not isinstance(name, str) or not name:
        raise FocuseError(f"{what}: it has no name; write in the class: name = {found.__name__.lower()!r}")
    if MODELS.get(name, found) is not found:
        raise FocuseError(f"{what}: its name {name!r} is that of a built-in model; give it another")
    if getattr(found, "similarity", "") not in choices:
        words = " or ".join(map(repr, choices))
        raise FocuseError(f"{what}: it has no similarity; write in the class: similarity = {words}")
    if inspect.isabstract(found):
        raise FocuseError(f"{what}: it lacks the method {', '.join(sorted(found.__abstractmethods__))}; define that")
    try:
        found()
    except Exception as error:
        raise FocuseError(f"{what}: cannot be made without arguments: {_message(error)}") from None
    return found


def plug_ins() -> dict[str, list[EntryPoint]]:
    """Models that installed packages offer, by name; none of them is loaded."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=PLUG_IN_GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def _loaded(name: str) -> type[Model]:
    offered = plug_ins()
    points = offered[choose("model", name, [*MODELS, *sorted(set(offered) - set(MODELS))])]
    classes = sorted({point.value for point in points})
    if len(classes) > 1:
        raise FocuseError(f"model {name!r}: several plug-ins offer it; choose one of {' or '.join(classes)}")
    package = points[0].dist.name if points[0].dist is not None else classes[0]
    try:
        found = points[0].load()
    except (Exception, SystemExit) as error:
        raise FocuseError(
            f"model {name!r}: the plug-in {package} ({classes[0]}) does not load: {_message(error)}; "
            "fix or uninstall it"
        ) from None
    return checked(found, f"model {name!r} of the plug-in {package}")


def imported(name: str, what: str = "model", base: type = Model) -> object:
    """The object called 'package.module:Class'; `what` it is and the class it derives from are for error messages."""
    module, _, path = name.partition(":")
    place: object = sys.modules["__main__"] if module == "__main__" else None
    for part in path.split("."):
        if part == "<locals>" or (module == "__main__" and not hasattr(place, part)):
            raise FocuseError(
                f"{what} {name!r}: its class is in a function, a notebook or a script, where no import finds it; "
                "move it to a module"
            )
        if place is None:
            place = _module(module, f"{what} {name!r}")
        if not hasattr(place, part):
            near = nearest(path, _classes_in(place, base))
            raise FocuseError(f"{what} {name!r}: {module} has no class {path!r}{near}")
        place = getattr(place, part)
    return place


def check_place(name: str, folder: Path) -> None:
    """Raise if a run names a class in a module of Python itself, or in one that lies in the run's own folder.

    Importing a module runs it. A run may name the user's model that it needs, but must not bring code along.
    """
    module, colon, _ = name.partition(":")
    parts = module.split(".")
    if not colon or name in _GIVEN:
        return
    if parts[0] in sys.stdlib_module_names:
        raise FocuseError(f"model {name!r}: {parts[0]} is a part of Python and holds no models")
    run = folder.resolve()
    for start in (*sys.path, os.getcwd()):
        for depth in range(1, len(parts) + 1):
            place = Path(start or os.curdir, *parts[:depth])
            found = [place.resolve(), place.with_suffix(".py").resolve()]
            if any(path.exists() and path.is_relative_to(run) for path in found):
                raise FocuseError(f"model {name!r}: its module lies in the run's own folder; runs bring no code along")


def _module(module: str, what: str) -> ModuleType:
    if not all(part.isidentifier() for part in module.split(".")):
        raise FocuseError(f"{what}: write it like package.module:Class")
    try:
        with _this_folder() as folder:
            found = import_module(module)
        if Path(getattr(found, "__file__", None) or os.devnull).parent == folder and str(folder) not in sys.path:
            sys.path.append(str(folder))  # for modules next to it that it imports later
        return found
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise FocuseError(
                f"{what}: there is no module {error.name!r}; install its package or go to its folder"
            ) from None
        raise FocuseError(f"{what}: importing {module} fails: {_message(error)}") from None


@contextmanager
def _this_folder() -> Iterator[Path]:
    """Modules in the working folder are found too, after all others: an installed command does not search there."""
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        yield Path(folder)
    finally:
        for place in reversed(range(len(sys.path))):
            if sys.path[place] == folder:
                del sys.path[place]
                break


def _classes_in(place: object, base: type) -> list[str]:
    found = getattr(place, "__dict__", {}).items()
    return [name for name, value in found if isinstance(value, type) and issubclass(value, base)]


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
