"""Code that would break on Windows or macOS, found by scanning the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import focuse

SOURCE = Path(focuse.__file__).parent
ROOMS = sorted(path for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
ONLY_POSIX = {"fcntl", "pwd", "grp", "resource", "termios", "pty", "tty", "posix", "msvcrt", "winreg"}
NOT_EVERYWHERE = {
    "fork", "forkpty", "killpg", "getpgid", "setsid", "getuid", "geteuid", "mkfifo", "sync", "statvfs", "chown", "nice",
    "sched_getaffinity", "sched_setaffinity", "getloadavg", "uname", "O_DIRECTORY", "O_NOFOLLOW",
}  # fmt: skip
SIGNALS = {"SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGPIPE"}


def modules(room: Path) -> list[tuple[Path, ast.Module]]:
    paths = sorted(room.rglob("*.py")) if room.is_dir() else [room]
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


def name_of(node: ast.expr) -> str:
    return ast.unparse(node)


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.stem)
def test_text_files_are_opened_with_an_encoding(room: Path) -> None:
    """The default is that of the machine: cp1252 on most Windows."""
    for path, node in ((path, node) for path, tree in modules(room) for node in ast.walk(tree)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = {keyword.arg for keyword in node.keywords}
        if called in ("read_text", "write_text"):
            assert "encoding" in given, f"{path.name}:{node.lineno}"
        if called == "open":
            places = node.args[1:] if isinstance(node.func, ast.Name) else node.args[:1]
            modes = [arg.value for arg in places if isinstance(arg, ast.Constant)] or ["r"] * isinstance(
                node.func, ast.Name
            )
            text = any(re.fullmatch(r"[rwax]\+?t?\+?", str(mode)) for mode in modes)
            assert not text or "encoding" in given, f"{path.name}:{node.lineno}"
        if called in ("Popen", "run", "check_output") and "text" in given:
            assert "encoding" in given, f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.stem)
def test_platform_specific_modules_are_not_imported_at_top_level(room: Path) -> None:
    for path, node in (
        (path, node) for path, tree in modules(room) for node in tree.body
    ):  # not inside `if sys.platform` or `try`
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & ONLY_POSIX, path


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.stem)
def test_platform_specific_calls_are_not_used(room: Path) -> None:
    for path, node in ((path, node) for path, tree in modules(room) for node in ast.walk(tree)):
        if isinstance(node, ast.Attribute):
            assert not (name_of(node.value) == "os" and node.attr in NOT_EVERYWHERE), f"{path.name}:{node.lineno}"
            assert not (name_of(node.value) == "signal" and node.attr in SIGNALS), f"{path.name}:{node.lineno}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not re.match(r"/(tmp|dev|proc|var|home|etc|usr)\b", node.value), f"{path.name}:{node.lineno}"
        if isinstance(node, ast.Call) and name_of(node.func) == "os.fsync":
            assert "'rb'" not in path.read_text(encoding="utf-8").replace('"', "'").split("os.fsync")[0][-160:], path


def test_file_names_differ_beyond_case_and_are_not_reserved() -> None:
    root = SOURCE.parent.parent
    places = [root] if (root / "pyproject.toml").exists() else [SOURCE]
    paths = [str(path.relative_to(places[0])) for path in places[0].rglob("*") if ".git" not in path.parts]
    lower = [path.lower() for path in paths]
    assert len(set(lower)) == len(lower)
    for path in paths:
        name = Path(path).name
        assert not re.match(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", name.lower()), path


def test_names_of_the_graph_do_not_become_file_names(tmp_path: Path) -> None:
    """Whatever entities and relations are called, no name becomes that of a file."""
    odd = ["CON", "a/b", "..", "nul.txt", "x:y", "end.", "*?", "<>|"]
    rows = [(odd[i % 8], odd[i % 3], odd[(i + 3) % 8], i) for i in range(40)]
    run = focuse.train(rows, dim=4, epochs=1, label_exponent=1, out=tmp_path / "run", progress=False)
    run.predict(head="CON", relation="a/b")
    allowed = re.compile(r"[a-z_]+\.(toml|parquet|safetensors|jsonl)|run")
    assert all(allowed.fullmatch(path.name) for path in tmp_path.rglob("*"))


def test_output_with_unencodable_letters_is_escaped(tmp_path: Path) -> None:
    """As on a console of western Windows, which has no Greek."""
    code = "from focuse.cli.output import print_any_character; print_any_character(); print('ΔMRR ▁▂ β')"
    environment = {"PYTHONPATH": str(SOURCE.parent), "PYTHONIOENCODING": "cp1252", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert done.stdout.strip() == rb"\u0394MRR \u2581\u2582 \u03b2"


def test_tensors_are_copied_out_of_their_file_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from safetensors.torch import save_file

    from focuse.storage import tensors as files

    save_file({"entity": torch.arange(64.0)}, tmp_path / "x.safetensors")
    clones = []
    monkeypatch.setattr(torch.Tensor, "clone", lambda self: clones.append(1) or self.detach() + 0)
    monkeypatch.setattr(files.sys, "platform", "win32")
    tables, _ = files.read_tensors(tmp_path / "x.safetensors", "cpu")
    assert clones
    assert torch.equal(tables["entity"], torch.arange(64.0))
