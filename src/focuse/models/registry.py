"""Models from elsewhere: of plug-ins, by the place of their class, or handed over as a class.

A package offers models by entry points of the group `focuse.models`; they are looked at when a name is not built in.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import get_args

from focuse.errors import FocuseError, choose, nearest
from focuse.models.base import Form, Model

GROUP = "focuse.models"
TRUST = "FOCUSE_TRUST"  # in the environment: modules whose code files may name, divided by commas
BuiltIn = Mapping[str, type[Model]]
_HANDED: dict[str, type[Model]] = {}  # classes that no import finds again, by the name they are remembered by
_LOADED: dict[str, type[Model]] = {}  # of plug-ins


def find(name: str, built_in: BuiltIn) -> type[Model]:
    """The class of a model that is not built in: 'package.module:Class', or the name that a plug-in gives it."""
    if name in _HANDED:
        return _HANDED[name]
    if ":" in name:
        return checked(imported(name), f"model {name!r}", built_in)
    if name not in _LOADED:
        _LOADED[name] = _loaded(name, built_in)
    return _LOADED[name]


def remember(kind: object, built_in: BuiltIn) -> str:
    """The name of a class that someone hands over: a built-in's own, else 'module:Class'.

    Where an import of that name would not find it again, as of a class in a notebook, it is known to this process only.
    """
    if isinstance(kind, Model):
        raise FocuseError(f"model: hand over the class {type(kind).__name__}, not one made of it")
    if not isinstance(kind, type):
        raise FocuseError(f"model {kind!r}: give a word")
    model = checked(kind, f"model {kind.__name__}", built_in)
    if model.name in built_in:
        return model.name
    name = f"{kind.__module__}:{kind.__qualname__}"
    _HANDED.pop(name, None)
    try:
        found = imported(name)
    except FocuseError:
        found = None
    if found is not model:
        _HANDED[name] = model
    return name


def stand_in(name: str, kind: type[Model]) -> None:
    """From now on `kind` is found by `name`, the one a run was written with, if nothing else is.

    What else there may be is not imported to find out: the name stands in a file.
    """
    if ":" in name and name not in _HANDED:
        if untrusted(name):
            _HANDED[name] = kind
            return
        try:
            imported(name)
        except FocuseError:
            _HANDED[name] = kind


def untrusted(name: str) -> str:
    """The module whose code a name from a file would run, where nobody has asked for it yet; '' if there is none.

    Names of plug-ins are trusted, for they were installed; so are classes that were handed over, modules that are
    imported already, and what FOCUSE_TRUST lists: a package, a module or a class.

    >>> untrusted("complex"), untrusted("somewhere.else:Model")
    ('', 'somewhere.else')
    """
    module, colon, _ = name.partition(":")
    if not colon or name in _HANDED or module in sys.modules:
        return ""
    listed = [word.strip() for word in os.environ.get(TRUST, "").split(",")]
    return "" if name in listed or any(word and f"{module}.".startswith(f"{word}.") for word in listed) else module


def trusting(name: str) -> str:
    """What a command needs before its name to load a run of this model: a class from elsewhere is trusted each time.

    >>> trusting("complex"), trusting("mine.models:Stretch")
    ('', ' --trust mine.models')
    """
    module, colon, _ = name.partition(":")
    return f" --trust {module}" if colon and module != "pykeen" else ""


def checked(kind: object, what: str, built_in: BuiltIn) -> type[Model]:
    """`kind` if it is a model; else one line that says what it lacks."""
    if not (isinstance(kind, type) and issubclass(kind, Model)):
        raise FocuseError(f"{what}: {kind!r} is no subclass of focuse.models.Model; derive it from that")
    name, forms = getattr(kind, "name", None), get_args(Form)
    if not isinstance(name, str) or not name:
        raise FocuseError(f"{what}: it has no name; write in the class: name = {kind.__name__.lower()!r}")
    if built_in.get(name, kind) is not kind:
        raise FocuseError(f"{what}: its name {name!r} is that of a built-in model; give it another")
    if getattr(kind, "form", None) not in forms:
        raise FocuseError(f"{what}: it has no form; write in the class: form = {' or '.join(map(repr, forms))}")
    if inspect.isabstract(kind):
        raise FocuseError(f"{what}: it does not say {', '.join(sorted(kind.__abstractmethods__))}; define that in it")
    try:
        kind()
    except Exception as error:
        raise FocuseError(f"{what}: cannot be made without arguments: {_told(error)}") from None
    return kind


def plug_ins() -> dict[str, list[EntryPoint]]:
    """What installed packages offer, by name; none of it is loaded."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def _loaded(name: str, built_in: BuiltIn) -> type[Model]:
    offered = plug_ins()
    points = offered[choose("model", name, [*built_in, *sorted(set(offered) - set(built_in))])]
    places = sorted({point.value for point in points})
    if len(places) > 1:
        raise FocuseError(f"model {name!r}: several plug-ins offer it; say which one: {' or '.join(places)}")
    package = points[0].dist.name if points[0].dist is not None else places[0]
    try:
        kind = points[0].load()
    except (Exception, SystemExit) as error:
        raise FocuseError(
            f"model {name!r}: the plug-in {package} ({places[0]}) does not load: {_told(error)}; mend or uninstall it"
        ) from None
    return checked(kind, f"model {name!r} of the plug-in {package}", built_in)


def imported(name: str, what: str = "model", base: type = Model) -> object:
    """What 'package.module:Class' names; `what` it is to be and the class it derives from serve the errors."""
    module, _, path = name.partition(":")
    place: object = sys.modules["__main__"] if module == "__main__" else None
    for part in path.split("."):
        if part == "<locals>" or (module == "__main__" and not hasattr(place, part)):
            raise FocuseError(
                f"{what} {name!r}: its class stands in a function, a notebook or a script, where no import finds it; "
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
    """Raise where a run names a class in a module of Python itself, or in one that lies in the run's own folder.

    Importing a module runs it. A run may say which of the user's models it needs, and bring no code along.
    """
    module, colon, _ = name.partition(":")
    parts = module.split(".")
    if not colon or name in _HANDED:
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
            sys.path.append(str(folder))  # for what it imports later, from beside it
        return found
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise FocuseError(
                f"{what}: there is no module {error.name!r}; install its package or go to its folder"
            ) from None
        raise FocuseError(f"{what}: importing {module} fails: {_told(error)}") from None


@contextmanager
def _this_folder() -> Iterator[Path]:
    """Modules in the working folder are found too, after all others: an installed command does not look there."""
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


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
