"""Nothing that is loaded can run code: the source is scanned, and a run is used with unpickling disabled."""

from __future__ import annotations

import ast
import io
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import focuse

SOURCE = Path(focuse.__file__).parent
MODULES = {
    *("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "yaml", "jsonpickle"),
}  # fmt: skip
CALLS = {
    *("torch.load", "torch.jit.load", "torch.package", "np.load", "numpy.load", "os.system", "os.popen"),
    *("pd.read_pickle", "pandas.read_pickle", "yaml.load", "runpy.run_path", "runpy.run_module"),
}  # fmt: skip
BUILT_IN = {"eval", "exec", "compile", "__import__"}


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path, node


def test_the_source_neither_unpickles_nor_evaluates() -> None:
    for path, node in nodes():
        where = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & MODULES, where
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in MODULES, where
            assert not {f"{node.module}.{alias.name}" for alias in node.names} & {*CALLS, *MODULES}, where
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in CALLS, where
            if isinstance(node.func, ast.Name):
                assert node.func.id not in BUILT_IN, where


def test_source_starts_no_shell_and_allows_no_pickle() -> None:
    for path, node in nodes():
        if isinstance(node, ast.Call):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            where = f"{path.relative_to(SOURCE)}:{node.lineno}"
            assert given.get("shell", "False") == "False", where
            assert given.get("allow_pickle", "False") == "False", where
            assert given.get("weights_only", "True") == "True", where


def test_scan_finds_forbidden_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it could not fail."""
    for text in ("import pickle", "from joblib import load", "import torch\ntorch.load('x')", "eval('1')"):
        (tmp_path / "bad.py").write_text(text, encoding="utf-8")
        monkeypatch.setitem(globals(), "SOURCE", tmp_path)
        with pytest.raises(AssertionError):
            test_the_source_neither_unpickles_nor_evaluates()


def test_run_works_with_unpickling_disabled(
    tmp_path: Path, small: focuse.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train, go on, load, predict, evaluate, export and report."""

    def shut(*_: object, **__: object) -> None:
        raise AssertionError("something was unpickled")

    class Shut(pickle.Unpickler):
        def load(self) -> None:  # type: ignore[override]
            shut()

    import matplotlib.pyplot  # noqa: F401 - libraries may do as they like while they are imported

    monkeypatch.setattr(pickle, "load", shut)
    monkeypatch.setattr(pickle, "loads", shut)
    monkeypatch.setattr(pickle, "Unpickler", Shut)
    monkeypatch.setattr(torch, "load", shut)
    monkeypatch.setattr(np, "load", shut)
    with pytest.raises(AssertionError):
        pickle.loads(b"x")
    with pytest.raises(AssertionError):
        pickle.Unpickler(io.BytesIO(b"x")).load()
    folder = tmp_path / "run"
    focuse.train(small, dim=4, epochs=2, eval_every=1, label_exponent=1, out=folder, progress=False)
    focuse.resume(folder, epochs=3, progress=False)
    run = focuse.load(folder)
    head, relation = run.graph.entities[0], run.graph.relations[0]
    assert len(run.predict(head=head, relation=relation, top=3)) == 3
    assert run.evaluate().all.n
    assert len(focuse.load(folder).predict(head=head, relation=relation, top=2)) == 2  # with what is kept by now
    run.export(tmp_path / "entities.parquet")
    run.report(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1_000
