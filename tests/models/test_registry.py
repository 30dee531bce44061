"""Models by name, by plug-in, by import path and by class."""

from __future__ import annotations

import math
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from older import older
from torch import Tensor

import focuse
from focuse.config import Config
from focuse.errors import FocuseError
from focuse.models import registry
from focuse.models.base import ConfidenceHead, Model, TripleModel, score_triples
from focuse.models.bilinear import ComplEx
from focuse.models.checks import check_model
from focuse.models.registry import MODELS, make_model, model_class, model_name
from focuse.models.uncertain import UkgeLogi
from focuse.tuning import make_space

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
TRIPLES = [(f"a{i % 6}", "r" if i % 2 else "q", f"b{i % 7}", float(i % 5)) for i in range(60)]


class Nested:
    """A model need not stand at the top of its module."""

    class Far(TripleModel):
        name = "far"

        def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
            return -(head + relation - tail).square().sum(-1)


def local() -> type[Model]:
    class Local(Nested.Far):
        name = "local"

    return Local


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """Each test begins and ends as a new process does."""
    before = dict(registry._REGISTERED)
    registry._REGISTERED.clear(), registry._load_plug_in.cache_clear()
    yield
    registry._REGISTERED.clear(), registry._load_plug_in.cache_clear()
    registry._REGISTERED.update(before)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path for packages that a test writes."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def write_plug_in(site: Path, package: str, module: str, text: str, *points: str) -> None:
    (site / f"{module}.py").write_text(dedent(text))
    about = site / f"{package}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[focuse.models]\n" + "\n".join(points) + "\n")


FAR = """
    from focuse.models.base import TripleModel
    class Far(TripleModel):
        name = "far-away"
        def triple(self, head, relation, tail):
            return -(head + relation - tail).square().sum(-1)
"""


# ---- as a class ------------------------------------------------------------------------------------------------------


def test_class_is_named_by_its_import_path() -> None:
    name = model_name(Nested.Far)
    assert name == f"{__name__}:Nested.Far"
    assert model_class(name) is Nested.Far
    assert model_name(ComplEx) == "complex"
    settings = Config.from_kwargs(model=Nested.Far)
    assert settings.model == name
    assert settings == Config.from_kwargs(model=name)
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert type(settings.make_model()) is Nested.Far
    assert make_model(name).widths(4) == (4, 4)


@pytest.mark.parametrize("weight_mode", ["soft-labels", "focuse", "none"])
def test_custom_class_trains_and_its_run_loads_with_the_class(weight_mode: str, tmp_path: Path) -> None:
    """One that no import finds trains too; who loads its run hands it over."""
    kind = local()
    asked = {"label_exponent": 1.0} if weight_mode == "soft-labels" else {}
    run = focuse.train(TRIPLES, model=kind, dim=4, epochs=2, weight_mode=weight_mode, progress=False, **asked)
    assert type(run.scorer.model) is kind
    run.save(tmp_path / "run")
    again = focuse.load(tmp_path / "run")  # the same process still knows it
    registry._REGISTERED.clear()
    with pytest.raises(FocuseError, match=r"run\.toml: .*cannot be imported.* focuse\.load\(.*model=MyModel\)"):
        focuse.load(tmp_path / "run")
    handed = focuse.load(tmp_path / "run", model=kind)
    for one in (again, handed):
        assert one.evaluate().all.mrr == run.evaluate().all.mrr


def test_resume_with_a_custom_class_gives_identical_tables(tmp_path: Path) -> None:
    whole = focuse.train(
        TRIPLES, model=local(), dim=4, epochs=4, weight_mode="focuse", beta_decay_epochs=4, progress=False
    )
    focuse.train(
        TRIPLES,
        model=local(),
        dim=4,
        epochs=2,
        weight_mode="focuse",
        beta_decay_epochs=4,
        eval_start=2,
        out=tmp_path / "run",
        progress=False,
    )
    registry._REGISTERED.clear()
    with pytest.raises(FocuseError, match="model=MyModel"):
        focuse.resume(tmp_path / "run", epochs=4, progress=False)
    run = focuse.resume(tmp_path / "run", epochs=4, model=local(), progress=False)
    assert torch.equal(run.scorer.tables["entity"], whole.scorer.tables["entity"])
    assert focuse.resume(tmp_path / "run", model=local(), progress=False).settings.epochs == 4  # finished: loads it


def test_class_with_other_widths_is_distinguished_from_a_damaged_run(tmp_path: Path) -> None:
    class Wide(Nested.Far):
        def widths(self, dim: int) -> tuple[int, int]:
            return 2 * dim, dim

    focuse.train(TRIPLES, model=Nested.Far, dim=4, epochs=1, weight_mode="none", progress=False).save(tmp_path / "run")
    with pytest.raises(FocuseError, match=r"damaged run, or not of .*Wide: table 'entity' is"):
        focuse.load(tmp_path / "run", model=Wide)
    focuse.train(TRIPLES, model="complex", dim=4, epochs=1, weight_mode="none", progress=False).save(tmp_path / "plain")
    with pytest.raises(FocuseError, match="its model 'complex' is built in; remove model="):
        focuse.load(tmp_path / "plain", model=Wide)
    assert focuse.load(tmp_path / "plain", model=ComplEx).settings.model == "complex"


def test_search_space_accepts_classes() -> None:
    graph = focuse.read(TRIPLES)
    space = make_space(graph, {"model": ["transe", Nested.Far]}, {"dim": 4, "epochs": 1})
    assert space.searched["model"] == ["transe", model_name(Nested.Far)]
    fixed = make_space(graph, {"dim": [2, 4]}, {"model": Nested.Far, "epochs": 1})
    assert fixed.train_settings({"dim": 2})["model"] == model_name(Nested.Far)


def test_last_given_class_of_a_name_is_used() -> None:
    first, second = local(), local()
    assert model_name(first) == model_name(second)
    assert model_class(model_name(first)) is first
    assert model_class(model_name(second)) is second


class Nameless(Nested.Far):
    name = ""


class Clash(Nested.Far):
    name = "complex"


class Dissimilar(Model):
    name = "dissimilar"

    def query(self, known: Tensor, relation: Tensor, side: str) -> Tensor:
        return known


class Silent(TripleModel):
    name = "silent"


class Needy(Nested.Far):
    name = "needy"

    def __init__(self, size: int) -> None:
        self.size = size


class Lost(Nested.Far):
    name = "lost"
    defaults = {"optimiser": "adam"}  # noqa: RUF012


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (int, "model int: <class 'int'> is not a subclass of focuse.models.Model"),
        (Nested.Far(), "give the class Far, not an instance of it"),
        (3, "model 3: give the name of a model or a class"),
        (Nameless, "model Nameless: it has no name; write in the class: name = 'nameless'"),
        (Clash, "model Clash: a built-in model has the same name 'complex'"),
        (
            Dissimilar,
            "model Dissimilar: it has no similarity; write in the class: similarity = 'dot' or 'l1' or 'l2' or",
        ),
        (Silent, "model Silent: it lacks the method triple"),
        (Needy, "model Needy: cannot be made without arguments: TypeError"),
        (Lost, "unknown setting 'optimiser' in its defaults (did you mean optimizer?)"),
    ],
)
def test_values_that_are_no_model_are_refused(wrong: object, says: str) -> None:
    with pytest.raises(FocuseError) as error:
        focuse.train(TRIPLES, model=wrong, progress=False)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


# ---- by place --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere.models:Far", "there is no module 'nowhere'; install its package or go to its folder"),
        ("far_module.more:Far", "there is no module 'far_module.more'"),
        ("far_module:Fra", "far_module has no class 'Fra' (did you mean Far?)"),
        ("far_module:", "far_module has no class ''"),
        ("far_module:TripleModel", "it has no name"),
        ("far_module:os", "is not a subclass of focuse.models.Model"),
        ("broken_module:Far", "importing broken_module fails: ModuleNotFoundError: No module named 'missing_thing'"),
        ("ends_at_once:Far", "importing ends_at_once fails: SystemExit: 1"),
        ("../far:Far", "write it like package.module:Class"),
        ("__main__:Absent", "cannot be imported; move it to a module"),
    ],
)
def test_import_path_without_a_model_is_refused(site: Path, name: str, says: str) -> None:
    (site / "far_module.py").write_text("import os\n" + dedent(FAR))
    (site / "broken_module.py").write_text("import missing_thing\n")
    (site / "ends_at_once.py").write_text("raise SystemExit(1)\n")
    with pytest.raises(FocuseError) as error:
        model_class(name)
    assert f"model {name!r}: " in str(error.value)
    assert says in str(error.value)


def test_a_module_in_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lies_here.py").write_text(dedent(FAR))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(tmp_path))])
    before = list(sys.path)
    assert model_class("lies_here:Far").name == "far-away"
    assert sys.path == [*before, str(tmp_path)]  # behind all others, for what it may import later


def test_run_loaded_with_its_class_can_start_another_training(small: focuse.Graph, tmp_path: Path) -> None:
    """Its file says a name that nothing is found by."""
    asked = {"dim": 8, "epochs": 1, "label_exponent": 1.0, "progress": False}
    focuse.train(small, model=Cubed, out=tmp_path / "first", **asked)
    path = older(tmp_path / "first") / "run.toml"
    path.write_text(path.read_text().replace(f"{__name__}:Cubed", "gone_module:Cubed"))
    with pytest.raises(FocuseError, match=r"pass its class: focuse\.load\("):
        focuse.load(tmp_path / "first")
    run = focuse.load(tmp_path / "first", model=Cubed)
    again = focuse.train(small, model=Cubed, init_from=run, **asked)
    assert again.settings.init_from == str(tmp_path / "first")


class Cubed(TripleModel):
    """Numbers to the third power."""

    name = "cubed"

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return (head * relation * tail**3).sum(-1)


# ---- plug-ins --------------------------------------------------------------------------------------------------------


def test_plug_in_is_found_by_its_name(site: Path) -> None:
    write_plug_in(site, "far-package", "far_plug", FAR, "far-away = far_plug:Far")
    assert model_class("far-away").__module__ == "far_plug"
    with pytest.raises(FocuseError, match=r"unknown model 'far_away' \(did you mean far-away\?\).*complex.*, far-away"):
        model_class("far_away")


def test_a_name_of_two_plug_ins_is_refused(site: Path) -> None:
    write_plug_in(site, "far-package", "far_plug", FAR, "far-away = far_plug:Far")
    write_plug_in(site, "other-package", "other_plug", FAR, "far-away = other_plug:Far")
    with pytest.raises(FocuseError, match=r"several plug-ins offer it; choose one of far_plug:Far or other_plug:Far"):
        registry.model_class("far-away")


def test_built_in_names_do_not_load_plug_ins(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(**_: object) -> None:
        raise AssertionError("looked at plug-ins")

    monkeypatch.setattr(registry, "entry_points", forbidden)
    for name in MODELS:
        assert model_class(name) is MODELS[name]
    Config.from_kwargs(model="transe")
    with pytest.raises(AssertionError, match="looked"):
        model_class("far-away")


def test_broken_plug_in_is_named_and_does_not_affect_others(site: Path) -> None:
    write_plug_in(site, "far-package", "far_plug", FAR, "far-away = far_plug:Far")
    write_plug_in(site, "bad-package", "bad_plug", "import missing_thing\n", "bad = bad_plug:Bad")
    write_plug_in(site, "odd-package", "odd_plug", "thing = 3\n", "odd = odd_plug:thing")
    assert model_class("far-away").name == "far-away"
    says = r"model 'bad': the plug-in bad-package \(bad_plug:Bad\) does not load: ModuleNotFoundError: .*missing_thing"
    for _ in range(2):  # a second time too
        with pytest.raises(FocuseError, match=says):
            model_class("bad")
    with pytest.raises(FocuseError, match=r"model 'odd' of the plug-in odd-package: 3 is not a subclass"):
        model_class("odd")


# ---- names that stand in files ---------------------------------------------------------------------------------------


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run from somewhere that names a module as its model's; the module lies beside it and marks that it was run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(registry.TRUST_VARIABLE, raising=False)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "__init__.py").write_text("")
    (tmp_path / "outside" / "theirs.py").write_text("open('was_run', 'w').close()\n" + dedent(FAR))
    focuse.train(TRIPLES, model=Nested.Far, dim=4, epochs=1, weight_mode="none", progress=False, out="run")
    file = older(tmp_path / "run") / "run.toml"
    file.write_text(file.read_text().replace(f"{__name__}:Nested.Far", "outside.theirs:Far"))
    yield tmp_path / "run"
    for name in ("outside.theirs", "outside"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "use",
    [
        focuse.load,
        lambda folder: focuse.resume(folder, epochs=3, progress=False),
        lambda folder: focuse.extend(folder, [("a", "r", "b", 1.0)], progress=False),
        lambda folder: focuse.read_config(folder / "run.toml"),
        lambda folder: focuse.train(TRIPLES, init_from=folder, dim=4, epochs=1, weight_mode="none", progress=False),
    ],
    ids=["load", "resume", "extend", "config", "start"],
)
def test_loading_a_run_does_not_import_untrusted_code(strangers: Path, use: Callable[[Path], object]) -> None:
    says = r"run\.toml: its model 'outside.theirs:Far' is not part of focuse; .* --trust outside\.theirs"
    with pytest.raises(FocuseError, match=says):
        use(strangers)
    assert not Path("was_run").exists()
    assert "outside" not in sys.modules


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "builtins:exec", "this:s", "antigravity:Far"])
def test_other_import_paths_in_a_run_are_neither_called_nor_imported(strangers: Path, name: str) -> None:
    file = strangers / "run.toml"
    file.write_text(file.read_text().replace("outside.theirs:Far", name))
    with pytest.raises(FocuseError, match=r"is not a subclass of|is not part of focuse|is a module of Python"):
        focuse.load(strangers)
    assert not {"this", "antigravity"} & set(sys.modules)


@pytest.mark.parametrize("words", ["outside", "outside.theirs", "outside.theirs:Far", "other, outside"])
def test_a_trusted_module_is_imported(strangers: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv(registry.TRUST_VARIABLE, words)
    assert focuse.load(strangers).evaluate().all.n
    assert Path("was_run").exists()


@pytest.mark.parametrize("words", ["out", "outside.their", "outside.theirs:Near", "theirs", "", ","])
def test_trust_matches_whole_names_only(strangers: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv(registry.TRUST_VARIABLE, words)
    with pytest.raises(FocuseError, match="--trust"):
        focuse.load(strangers)


def test_given_class_is_used_without_importing_the_named_module(strangers: Path) -> None:
    run = focuse.load(strangers, model=Nested.Far)
    assert run.evaluate().all.n
    assert focuse.load(strangers).settings.model == "outside.theirs:Far"  # this process knows whom to take for it
    assert not Path("was_run").exists()


def test_already_imported_module_is_trusted(strangers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(strangers.parent))
    model_class("outside.theirs:Far")
    assert focuse.load(strangers).evaluate().all.n


def test_command_asks_for_trust_in_one_line(strangers: Path) -> None:
    asked = ["evaluate", "run", "--json"]
    refused = run(["-m", "focuse", *asked], strangers.parent)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "focuse --trust outside.theirs COMMAND" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not Path("was_run").exists()
    done = run(["-m", "focuse", "--trust", "outside", *asked], strangers.parent)
    assert done.returncode == 0, done.stderr
    assert Path("was_run").exists()


# ---- in processes of their own ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package as pip installs it."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLES / "own_model_package", folder / "source")  # pip leaves files beside what it builds
    target = folder / "site"
    command = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([sys.executable, *command, "--no-index", "--target", str(target), str(folder / "source")])
    assert done.returncode == 0
    return target


def run(arguments: list[str], folder: Path, *places: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*map(str, places), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )


SHORT = ["--dim", "4", "--epochs", "2", "--label-exponent", "1", "--quiet"]


def test_the_example_package_works_by_name_in_another_process(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_text("\n".join("\t".join(map(str, row)) for row in TRIPLES))
    done = run(
        ["-m", "focuse", "train", "graph.tsv", *SHORT, "--model", "stretch", "--out", "named"], tmp_path, installed
    )
    assert done.returncode == 0, done.stderr
    assert 'model = "stretch"' in (tmp_path / "named" / "run.toml").read_text()
    both = """
        import focuse
        asked = {**focuse.read_config("named/run.toml"), "model": "stretch_model:Stretch"}
        focuse.train("graph.tsv", **asked, out="placed", progress=False)
        print(*(focuse.load(folder).evaluate().all.mrr for folder in ("named", "placed")))
    """
    done = run(["-c", dedent(both)], tmp_path, installed)
    assert done.returncode == 0, done.stderr
    one, other = done.stdout.split()
    assert one == other
    with pytest.raises(FocuseError, match=r"run\.toml: unknown model 'stretch'.* focuse\.load\(.*model=MyModel\)"):
        focuse.load(tmp_path / "named")  # here it is not installed


def test_class_of_a_script_can_be_loaded_in_another_process(tmp_path: Path) -> None:
    """What `__main__` trains, another process loads with the class, and the same script without."""
    script = dedent(FAR) + dedent(
        f"""
        import sys, focuse
        if sys.argv[1] == "train":
            focuse.train({TRIPLES[:30]}, model=Far, dim=4, epochs=1, weight_mode="none", progress=False, out="run")
        print(focuse.load("run").settings.model)
        """
    )
    (tmp_path / "mine.py").write_text(script)
    assert run(["mine.py", "train"], tmp_path).stdout == "__main__:Far\n"
    assert run(["mine.py", "again"], tmp_path).stdout == "__main__:Far\n"
    with pytest.raises(FocuseError, match=r"run\.toml: model '__main__:Far': .* focuse\.load\(.*model=MyModel\)"):
        focuse.load(tmp_path / "run")


def test_example_model_and_its_package_give_equal_scores(
    installed: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ways to write one model: as a triple, and as query and candidates."""
    monkeypatch.syspath_prepend(str(installed))
    shutil.copy(EXAMPLES / "own_model.py", site / "own_model_example.py")
    short, fast = model_class("own_model_example:Stretch"), model_class("stretch")
    for model in (short, fast):
        check_model(model)
    draw = torch.Generator().manual_seed(1)
    head, relation, tail = (torch.randn(5, width, generator=draw) for width in (6, 12, 6))
    scale, step = relation.numpy()[:, :6], relation.numpy()[:, 6:]
    expected = -abs((1 + scale) * (head.numpy() + step - tail.numpy())).sum(1)
    for made in (short(), fast()):
        torch.testing.assert_close(score_triples(made, head, relation, tail), torch.from_numpy(expected))
    assert replace(Config.from_kwargs(model=fast), model="") == replace(Config.from_kwargs(model=short), model="")


class CauchitHead(ConfidenceHead):
    """An activation that no kernel knows."""

    def unclipped(self, score: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        return 0.5 + torch.atan(score) / math.pi


class Cauchit(UkgeLogi):
    name, confidence_head = "cauchit", CauchitHead("cauchit")


def test_unknown_activation_is_trained_by_autograd(small: focuse.Graph) -> None:
    asked = {"model": Cauchit, "dim": 8, "epochs": 3, "progress": False}
    found, expected = (focuse.train(small, engine=engine, **asked) for engine in ("auto", "torch"))
    assert [row["loss"] for row in found.history] == pytest.approx([row["loss"] for row in expected.history], rel=1e-6)
