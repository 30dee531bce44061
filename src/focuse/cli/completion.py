"""`focuse completion`: a script for the shell; and what it asks for at every tab: words that may come next.

Commands and options come from the command line itself, names of entities from the run that was typed. No torch.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from focuse.cli.choices import CHOICES, GRAPHS, NAMES, RUNS
from focuse.option_strings import choose

ASKED = "_FOCUSE_COMPLETE"  # the shell that asks, set by its script
MOST = 200  # names that are offered at once


def command(
    shell: Annotated[str, typer.Argument(help="bash, zsh, fish or powershell.")],
) -> None:
    """Print a script that makes tab complete commands, options, files, runs and the names in a run.

    bash: put eval "$(focuse completion bash)" in ~/.bashrc; zsh: the same with zsh in ~/.zshrc, after compinit; fish:
    focuse completion fish > ~/.config/fish/completions/focuse.fish; PowerShell: focuse completion powershell >>
    $PROFILE.
    """
    typer.echo(SCRIPTS[choose("shell", shell, SCRIPTS)].strip())


def answer(root: Any) -> None:
    """Print what may come next, as the shell in the environment wants it; never an error."""
    shell, words = os.environ[ASKED], sys.argv[1:]
    raw = ""
    if shell == "bash":
        line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT") or 0)]
        words, raw = bash_words(line)
    elif shell == "fish":
        words = [*words[:-1], split_words(words[-1])[0][-1]] if words else words
    elif shell == "powershell" and words[-1:] == ['""']:  # it cannot hand over a word without letters
        words[-1] = ""
    *before, typed = words or [""]
    lines = []
    for value, help_ in candidates(root, before, typed):
        if not value.isprintable():
            continue  # a line end would be two words
        if shell == "bash":
            lines.append(cut(quoted(value, raw), raw, os.environ.get("COMP_WORDBREAKS", "")))
        else:
            lines.append(f"{value}\t{' '.join(help_.split())}" if help_ else value)
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())


Candidate = tuple[str, str]  # the word, and a help text or nothing


@dataclass
class Typed:
    """A command line as far as it is typed."""

    command: Any
    path: list[str] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    pending: Any = None  # an option whose value comes next
    closed: bool = False  # after --

    def take(self, word: str) -> None:
        if self.pending is not None:
            self.given[self.pending.name], self.pending = word, None
        elif word == "--":
            self.closed = True
        elif word.startswith("-") and not self.closed:
            name, _, value = word.partition("=")
            option = self.option(name)
            if option is not None and takes_value(option):
                if value:
                    self.given[option.name] = value
                else:
                    self.pending = option
        elif word in getattr(self.command, "commands", {}):
            self.command, self.path = self.command.commands[word], [*self.path, word]
        else:
            argument = self.argument()
            self.arguments.append(word)
            if argument is not None:
                self.given.setdefault(argument.name, word)

    def option(self, name: str) -> Any:
        return next((each for each in options(self.command) if name in each.opts), None)

    def argument(self) -> Any:
        """The argument that comes next; the last one again where it takes many."""
        wanted = [each for each in self.command.params if each.param_type_name == "argument"]
        if len(self.arguments) < len(wanted):
            return wanted[len(self.arguments)]
        return wanted[-1] if wanted and wanted[-1].nargs == -1 else None


def options(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "option" and not each.hidden]


def takes_value(option: Any) -> bool:
    return not option.is_flag and not option.count


def candidates(root: Any, before: list[str], word: str) -> list[Candidate]:
    """What `word`, typed after the words `before`, may become."""
    typed = Typed(root)
    for each in before:
        typed.take(each)
    if typed.pending is not None:
        return list(values(typed, typed.pending, word))
    if word.startswith("-") and not typed.closed:
        name, equals, start = word.partition("=")
        option = typed.option(name)
        if equals:
            return [] if option is None else [(f"{name}={v}", h) for v, h in values(typed, option, start)]
        named = [(name, each.help or "") for each in options(typed.command) for name in _spelt(each)]
        return [each for each in [*named, ("--help", "Show this message and exit.")] if each[0].startswith(word)]
    commands = getattr(typed.command, "commands", None)
    if commands is not None:
        found = [(name, each.short_help or "") for name, each in commands.items() if not each.hidden]
        return [each for each in found if each[0].startswith(word)]
    argument = typed.argument()
    return [] if argument is None else list(values(typed, argument, word))


def _spelt(option: Any) -> list[str]:
    return [name for name in [*option.opts, *option.secondary_opts] if name.startswith("--")]


def values(typed: Typed, parameter: Any, word: str) -> Iterator[Candidate]:
    """Values of an option or argument that begin with `word`."""
    name, first = parameter.name, typed.path[0] if typed.path else ""
    known = CHOICES.get(f"{first} {name}") or CHOICES.get(name)
    if name in NAMES and "run" in typed.given:
        yield from ((each, "") for each in names(Path(typed.given["run"]) / NAMES[name], word))
    elif known is not None:
        yield from ((each, "") for each in known if each.startswith(word))
    elif name in RUNS or _is_path(typed.command, name):
        yield from ((each, "") for each in files(word, runs=name in RUNS))


def _is_path(command: Any, name: str) -> bool:
    """By the annotation of the command's function: typer keeps it in another place in every version."""
    function = getattr(command.callback, "__wrapped__", command.callback)
    return "Path" in str(function.__annotations__.get(name, "")) or name in GRAPHS


def names(path: Path, start: str) -> list[str]:
    """Names in a vocabulary's file that begin with `start`, as typed if there are such, else whatever the capitals."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        column = pq.read_table(path, columns=["name"], memory_map=True)["name"]
    except (OSError, ValueError, KeyError):  # no run there; a tab is no place for errors
        return []
    for ignore_case in (False, True):
        found = column.filter(pc.starts_with(column, start, ignore_case=ignore_case))
        if len(found):
            break
    return list(found.slice(0, MOST).to_pylist())


def files(word: str, runs: bool) -> list[str]:
    """Folders, with a slash, and files that begin with `word`; of `runs` only folders, those of runs without one."""
    folder, start = os.path.split(word)
    try:
        entries = sorted(os.scandir(os.path.expanduser(folder) or "."), key=lambda entry: entry.name)
    except OSError:
        return []
    found = []
    for entry in entries:
        if not entry.name.startswith(start) or (entry.name.startswith(".") and not start.startswith(".")):
            continue
        is_run = runs and os.path.isfile(os.path.join(entry.path, "run.toml"))
        if is_run or not runs or entry.is_dir():
            ending = "/" if entry.is_dir() and not is_run else ""
            found.append(os.path.join(folder, entry.name) + ending)
    return found


# ---- words of a shell's line: taken apart as far as they are typed, and quoted where one replaces the last -----------

SPECIAL = re.compile(r"([\s\"'\\$`!&;|<>()\[\]{}*?#~^])")
IN_DOUBLE = re.compile(r"([\"\\$`])")


def split_words(line: str) -> tuple[list[str], str]:
    """The words of an unfinished line, without their quotes; and the last as it was typed.

    >>> split_words('predict run --head "machine le')
    (['predict', 'run', '--head', 'machine le'], '"machine le')
    >>> split_words("a b ")
    (['a', 'b', ''], '')
    """
    words, word, raw, quote, at, begun = [], "", "", "", 0, False
    while at < len(line):
        letter = line[at]
        if not quote and letter.isspace():
            if begun:
                words.append(word)
            word, raw, begun = "", "", False
            at += 1
            continue
        begun, step = True, 1
        if letter == "\\" and quote != "'" and at + 1 < len(line):
            kept = quote == '"' and not IN_DOUBLE.match(line[at + 1])
            word += f"\\{line[at + 1]}" if kept else line[at + 1]
            step = 2
        elif letter == quote:
            quote = ""
        elif letter in "\"'" and not quote:
            quote = letter
        else:
            word += letter
        raw += line[at : at + step]
        at += step
    return [*words, word], raw


def bash_words(line: str) -> tuple[list[str], str]:
    """The same without the command's own name."""
    words, raw = split_words(line)
    return words[1:] or [""], raw


def quoted(value: str, raw: str) -> str:
    """`value` so that the shell reads it as one word, in the quotes that `raw` begins with."""
    if raw.startswith("'"):
        return value.replace("'", "'\\''")
    if raw.startswith('"'):
        return IN_DOUBLE.sub(r"\\\1", value)
    if value.startswith("~/") and raw.startswith("~/"):
        return "~/" + SPECIAL.sub(r"\\\1", value[2:])
    return SPECIAL.sub(r"\\\1", value)


def cut(value: str, raw: str, breaks: str) -> str:
    """What bash replaces: it takes for a word only what follows the last of `breaks`, such as a colon.

    >>> cut("concept:city", "concept:c", " :=")
    'city'
    """
    if raw[:1] in ("'", '"'):
        return value
    start = max((raw.rfind(each) for each in breaks if each in ":=@"), default=-1) + 1
    return value[start:]


# ---- the scripts: each hands over the words that are typed and offers the lines it gets ------------------------------

# No mapfile: macOS has bash 3.2.
BASH = r"""
_focuse_complete() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(_FOCUSE_COMPLETE=bash COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" \
        COMP_WORDBREAKS="$COMP_WORDBREAKS" "$1" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/:=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o nosort -F _focuse_complete focuse 2>/dev/null || complete -F _focuse_complete focuse
"""

ZSH = r"""
#compdef focuse
_focuse() {
    local -a lines values shown open
    local line value
    lines=("${(@f)$(_FOCUSE_COMPLETE=zsh "${words[1]}" "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    for line in "${lines[@]}"; do
        value="${line%%$'\t'*}"
        [[ -z "$value" ]] && continue
        if [[ "$value" == *[/:=] ]]; then
            open+=("$value")
        elif [[ "$line" == *$'\t'* ]]; then
            values+=("$value") shown+=("$value  -- ${line#*$'\t'}")
        else
            values+=("$value") shown+=("$value")
        fi
    done
    (( ${#open} )) && compadd -M 'm:{[:lower:][:upper:]}={[:upper:][:lower:]}' -S '' -- "${open[@]}"
    (( ${#values} )) && compadd -M 'm:{[:lower:][:upper:]}={[:upper:][:lower:]}' -l -d shown -- "${values[@]}"
}
compdef _focuse focuse
"""

FISH = r"""
function __focuse_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    env _FOCUSE_COMPLETE=fish $words[1] $words[2..-1] "$typed" 2>/dev/null
end
complete -c focuse -f -a '(__focuse_complete)'
"""

POWERSHELL = r"""
Register-ArgumentCompleter -Native -CommandName focuse -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition } |
        ForEach-Object { if ($_.PSObject.Properties['Value']) { [string]$_.Value } else { $_.Extent.Text } })
    $typed = $wordToComplete.Trim('"', "'")
    if ($typed -eq '') { $typed = '""' }
    $env:_FOCUSE_COMPLETE = 'powershell'
    try { $lines = @(& focuse @words $typed 2>$null) } finally { Remove-Item Env:_FOCUSE_COMPLETE }
    foreach ($line in $lines) {
        $value, $help = $line -split "`t", 2
        if (-not $help) { $help = $value }
        $text = if ($value -match "[\s'`"`$;&|()<>{}@#,]") { "'" + $value.Replace("'", "''") + "'" } else { $value }
        [System.Management.Automation.CompletionResult]::new($text, $value, 'ParameterValue', $help)
    }
}
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH, "powershell": POWERSHELL}
