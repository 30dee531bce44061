"""Completion: the words that may come next, and real shells that insert them."""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from focuse.cli.completion import SCRIPTS, bash_words, candidates, cut, quoted, split_words

from focuse.cli import choices, main
from focuse.data.graph import Vocabulary
from focuse.errors import FocuseError

ROOT = typer.main.get_command(main.app)
ODD = ["Machine Learning", 'Machine\'s "shop"', "concept:city", "a*b $HOME `x`", "Café", "machine tool", "two\nlines"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A folder that looks like a run, with odd names."""
    folder = tmp_path_factory.mktemp("completion") / "my run"
    folder.mkdir()
    (folder / "run.toml").touch()
    Vocabulary(ODD).write(folder / choices.ENTITIES)
    Vocabulary(["requires skill", "knows"]).write(folder / choices.RELATIONS)
    return folder


def offered(*words: str) -> list[str]:
    return [value for value, _ in candidates(ROOT, list(words[:-1]), words[-1])]


# ---- what may come next --------------------------------------------------------------------------------------------


def test_commands_and_subcommands_are_completed():
    assert "predict" in offered("")
    assert offered("pre") == ["predict"]
    assert offered("rules", "") == ["ground", "mine"]
    assert candidates(ROOT, [], "pred") == [("predict", "Complete a triple.")]


def test_options_of_a_command_are_completed():
    assert offered("predict", "run", "--re") == ["--relation"]
    assert set(offered("train", "--head")) == {"--header"}
    assert offered("train", "--no-h") == ["--no-header"]
    assert offered("predict", "--hel") == ["--help"]
    assert offered("predict", "--", "--he") == []


def test_fixed_choices_are_completed():
    assert offered("train", "g.tsv", "--model", "trans") == ["transe", "transe-l2", "transea"]
    assert offered("train", "--weight-mode=f") == ["--weight-mode=focuse"]
    assert offered("datasets", "path", "onet") == ["onet20k", "onet-importance"]
    assert offered("completion", "z") == ["zsh"]
    assert offered("train", "--epochs", "") == []
    assert offered("train", "--quiet", "--loss", "bc") == ["bce"]  # a flag takes no value


def test_names_of_the_run_are_completed(run):
    assert offered("predict", str(run), "--relation", "") == ["requires skill", "knows"]
    assert offered("predict", str(run), "--head", "Mach") == ["Machine Learning", 'Machine\'s "shop"']
    assert offered("predict", str(run), "--head", "MACH") == [name for name in ODD if name.lower().startswith("mach")]
    assert offered("predict", str(run), "--relation", "knows", "--tail", "caf") == ["Café"]
    assert offered("predict", "nowhere", "--head", "") == []


def test_runs_and_files_are_completed(run, monkeypatch):
    monkeypatch.chdir(run.parent)
    (run.parent / "other").mkdir()
    (run.parent / "graph.tsv").touch()
    (run.parent / ".hidden").touch()
    assert offered("predict", "") == ["my run", "other/"]
    assert offered("train", "") == ["graph.tsv", "my run/", "other/"]
    assert offered("train", "--out", "o") == ["other/"]
    assert offered("train", ".h") == [".hidden"]
    assert offered("evaluate", "my run/none/") == []


def test_fixed_choices_agree_with_the_registries():
    from focuse import config as settings
    from focuse import datasets
    from focuse.data.graph import DUPLICATE_POLICIES
    from focuse.data.weights import NORMALIZERS
    from focuse.engines import optimizers
    from focuse.engines.factory import ENGINES
    from focuse.evaluation import ranking
    from focuse.inference.calibration import METHODS
    from focuse.integrations import trackers as tracking
    from focuse.models.registry import MODELS
    from focuse.objective import losses, negatives
    from focuse.objective import losses as regularizers
    from focuse.objective import negatives as chances
    from focuse.objective.focuse import NONLINEARITIES
    from focuse.rules.mining import SHAPES

    known = {
        "negative_sampling": negatives.SAMPLINGS,
        "negative_distribution": chances.ENTITY_DISTRIBUTIONS,
        "corrupt_side": chances.SIDE_DISTRIBUTIONS,
        "weight_mode": settings.WEIGHT_MODES,
        "nonlinearity": ["auto", *NONLINEARITIES],
        "loss": [*losses.LOSSES, *losses.LOSSES_WITH_WEIGHTS, settings.SQUARED_ERROR],
        "reduction": settings.REDUCTIONS,
        "regularizer": ["none", *(f"{name}:" for name in regularizers.POWERS)],
        "regularizer_scope": regularizers.SCOPES,
        "optimizer": optimizers.OPTIMIZERS,
        "weight_scaling": NORMALIZERS,
        "duplicates": DUPLICATE_POLICIES,
        "negative_weights": settings.NEGATIVE_WEIGHTS,
        "zero_weights": settings.ZERO_WEIGHTS,
        "stop_metric": settings.STOP_METRICS,
        "engine": ENGINES,
        "track": ["tensorboard:", *(name for name in tracking.TRACKERS if name != "tensorboard"), tracking.NONE],
        "ties": ranking.TIES,
        "protocol": ranking.PROTOCOLS,
        "method": METHODS,
        "shape": SHAPES,
        "datasets name": datasets.names(),
        "shell": SCRIPTS,
    }
    assert sorted(choices.MODELS) == sorted(MODELS)
    for name, words in known.items():
        assert sorted(choices.CHOICES[name]) == sorted(words), name


def test_completion_does_not_import_torch_or_print_errors(run):
    code = "import sys, focuse.cli.main as m; m.run(); print('torch' in sys.modules)"
    for words in (["predict", str(run), "--head", "Mac"], ["no such", "--thing"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            env={**os.environ, "_FOCUSE_COMPLETE": "zsh"},
            capture_output=True, text=True, encoding="utf-8", timeout=60, check=True,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1] == "False"
        assert done.stderr == ""


# ---- quotes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words", "raw"),
    [
        ("focuse predict a\\ b --head 'x \"y", ["predict", "a b", "--head", 'x "y'], "'x \"y"),
        ('focuse "a\\"b\\c" d', ['a"b\\c', "d"], "d"),
        ("focuse ", [""], ""),
        ("focuse '' ", ["", ""], ""),
        ("focuse", [""], "focuse"),
    ],
)
def test_unfinished_lines_are_split_into_words(line, words, raw):
    assert bash_words(line) == (words, raw)


@pytest.mark.parametrize("name", ODD[:-1])
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_shell_reads_a_quoted_name_unchanged(name, quote):
    line = f"printf %s {quote}{quoted(name, quote)}{quote}"
    assert subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout.decode() == name
    assert split_words(line)[0][-1] == name


def test_bash_replaces_only_the_text_after_a_colon():
    assert cut(quoted("concept:city", "concept:c"), "concept:c", " \t\n\"'><=;|&(:") == "city"
    assert cut("concept:city", "'concept:c", ":") == "concept:city"
    assert cut("a:b", "a:", "") == "a:b"


# ---- real shells ---------------------------------------------------------------------------------------------------

STARTS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "bind 'set bell-style none'; source {script}"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source {script}"),
    "fish": (["fish", "--no-config", "-i"], "source {script}"),
}


class Terminal:
    """A shell in a terminal of its own."""

    def __init__(self, shell: str, folder: Path) -> None:
        import fcntl
        import pty
        import termios

        command, self.first = STARTS[shell]
        self.folder, script = folder, folder / f"completion.{shell}"
        script.write_text(SCRIPTS[shell], encoding="utf-8")
        program = folder / "bin" / "focuse"
        program.parent.mkdir(exist_ok=True)
        # Asked for words it is the real command; else it writes down what it was given.
        program.write_text(
            f'#!/bin/sh\nif [ -n "$_FOCUSE_COMPLETE" ]; then {sys.executable} -m focuse "$@"; echo >> {folder}/asked; '
            f"exit; fi\nexec {sys.executable} -c "
            f'\'import json, sys; json.dump(sys.argv[2:], open(sys.argv[1], "w"))\' {folder}/given "$@"\n',
            encoding="utf-8",
        )
        program.chmod(0o755)
        here, there = pty.openpty()
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        changes = {"PATH": path, "TERM": "dumb" if shell != "fish" else "xterm", "HOME": str(folder)}
        self.process = subprocess.Popen(
            command, stdin=there, stdout=there, stderr=there, start_new_session=True, cwd=folder,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, **changes, "LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": str(folder)},
        )  # fmt: skip
        os.close(there)
        self.terminal, self.seen = here, b""
        self.type(self.first.format(script=script) + f"; echo read''y > {folder}/ready\n")
        self.until(folder / "ready")

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def listen(self, seconds: float) -> None:
        if select.select([self.terminal], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.terminal, 65536)
            except OSError:
                raise AssertionError(f"the shell is gone: {self.seen.decode(errors='replace')}") from None

    def until(self, path: Path) -> None:
        end = time.monotonic() + 60
        while not path.exists() or not path.stat().st_size:
            assert time.monotonic() < end, self.seen.decode(errors="replace")
            self.listen(0.05)
        self.settle()

    def settle(self) -> None:
        quiet = time.monotonic()
        while time.monotonic() - quiet < 0.3:
            before = len(self.seen)
            self.listen(0.1)
            quiet = time.monotonic() if len(self.seen) > before else quiet

    def complete(self, line: str) -> list[str]:
        """The arguments that the command gets after the line, a tab and the return key."""
        for name in ("asked", "given"):
            (self.folder / name).unlink(missing_ok=True)
        self.type(line + "\t")
        self.until(self.folder / "asked")
        self.type("\n")
        self.until(self.folder / "given")
        return json.loads((self.folder / "given").read_text(encoding="utf-8"))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@pytest.mark.slow
@pytest.mark.parametrize("shell", STARTS)
def test_real_shells_insert_whole_names(shell, run, tmp_path):
    if os.name == "nt" or shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    shutil.copytree(run, tmp_path / "my run")
    terminal = Terminal(shell, tmp_path)
    try:
        assert terminal.complete("focuse pred") == ["predict"]
        start = ["predict", "my run"]
        assert terminal.complete("focuse predict my\\ r") == start
        for typed, name in [
            ("Machine\\ L", "Machine Learning"),
            ('"Machine L', "Machine Learning"),
            ("'Machine L", "Machine Learning"),
            ("Machine\\'", 'Machine\'s "shop"'),
            ("concept:c", "concept:city"),
            ("a", "a*b $HOME `x`"),
            ("Caf", "Café"),
        ]:
            assert terminal.complete(f"focuse predict my\\ run --head {typed}") == [*start, "--head", name], typed
    finally:
        terminal.close()


def test_bash_script_passes_the_words(run, tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    (tmp_path / "completion.bash").write_text(SCRIPTS["bash"], encoding="utf-8")
    line = f"focuse predict {quoted(str(run), '')} --head Machine"
    asked = f"""
        source completion.bash
        COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}
        python() {{ {sys.executable} -m focuse "$@"; }}
        _focuse_complete python
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [quoted(name, "") for name in ODD[:2]]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_command_prints_the_scripts(shell, capsys):
    main.app(["completion", shell], standalone_mode=False)
    assert capsys.readouterr().out.strip() == SCRIPTS[shell].strip()


def test_an_unknown_shell_is_an_error():
    with pytest.raises(FocuseError, match=r"unknown shell 'tcsh'.*bash, zsh, fish, powershell"):
        main.app(["completion", "tcsh"], standalone_mode=False)


def test_completions_of_a_large_vocabulary_are_limited(tmp_path):
    Vocabulary(pa.array([f"name {i}" for i in range(1000)])).write(tmp_path / choices.ENTITIES)
    assert len(offered("predict", str(tmp_path), "--head", "name")) == 200
    assert offered("predict", str(tmp_path), "--head", "name 999") == ["name 999"]
