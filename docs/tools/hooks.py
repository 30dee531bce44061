"""What turns pages that read well on a code forge into a site, all of it done while building.

- Notebooks become pages; the commands' own help and the table of settings are filled in.
- A link out of docs/ (code, examples, the changelog) leads to a page that shows that file, or lists that folder; one
  whose text is a name in that file leads to its line.
- The changelog and the notes for contributors and on security, which stand at the root of the repository, become pages.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
# Files at the root that are pages of the manual themselves.
OF_THE_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
# A link such as [`FocusELayer.beta`](../src/focuse/objective/focuse.py), as the site renders it.
NAME_IN_CODE = re.compile(r'(<a href="[^"#]*code/([^"#]+\.py)\.html)("><code>([A-Za-z_][\w.]*)</code>)')
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "sh", ".cpp": "cpp", ".hpp": "cpp", ".json": "json"}
SHOWN = (*LANGUAGES, ".md", ".yml", ".txt", "Makefile")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made here."""
    from mkdocs.structure.files import File  # only the site needs mkdocs; tests of the rest do not

    made: dict[str, str] = {}
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        made[f"notebooks/{path.stem}.md"] = notebook_page(json.loads(path.read_text(encoding="utf-8")))
    for name, page in OF_THE_ROOT.items():
        made[page] = redirect((ROOT / name).read_text(encoding="utf-8"), ROOT, page)
    pages = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in OF_THE_ROOT)]
    for path in linked(pages):
        made[code_page(path)] = redirect(show(path), path if path.is_dir() else path.parent, code_page(path))
    made["reference/commands.md"] = commands_page()
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of a page of docs/ that lead elsewhere in the repository."""
    if page.file.generated_by is not None:
        return markdown
    if page.parent is None:  # no list of pages beside one that stands alone
        page.meta.setdefault("hide", ["navigation"])
    return redirect(markdown, (DOCS / page.file.src_uri).parent, page.file.src_uri)


def on_page_content(html: str, **_: Any) -> str:
    """Links to a name in a file lead to its line. Only now: mkdocs looks for anchors before code is coloured."""

    def at_its_line(match: re.Match[str]) -> str:
        line = line_of(match[4], ROOT / match[2])
        return f"{match[1]}#__span-0-{line}{match[3]}" if line else match[0]

    return NAME_IN_CODE.sub(at_its_line, html)


def redirect(text: str, folder: Path, page: str) -> str:
    """`text`, written in `folder`, as the text of the site's `page`: its links lead to pages of the site."""

    def lead(match: re.Match[str]) -> str:
        target = destination(match[2], folder)
        if target is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(target, posixpath.dirname(page) or '.')}{match[3] or ''}{match[4]}"

    return LINK.sub(lead, text)


def line_of(name: str, path: Path) -> int | None:
    """Return the line on which a class or function such as 'FocusELayer.beta' begins in a file, or None.

    >>> line_of("nobody", Path(__file__)) is None, line_of("line_of", Path(__file__)) is None
    (True, False)
    """
    inner: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []
    line = None
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = next((node for node in inner if isinstance(node, kinds) and node.name == part), None)
        if found is None:
            return None
        line, inner = found.lineno, found.body
    return line


def destination(target: str, folder: Path) -> str | None:
    """The page or file of the site that a link leads to, None for one that is no file of the repository."""
    if re.match(r"[a-z]+:", target):
        return None
    path = (folder / target).resolve()
    if not path.exists():
        return None
    if path.suffix == ".ipynb":
        return f"notebooks/{path.stem}.md"
    if path.is_relative_to(DOCS):
        return "README.md" if path == DOCS else path.relative_to(DOCS).as_posix()
    return OF_THE_ROOT.get(path.relative_to(ROOT).as_posix()) or code_page(path)


def code_page(path: Path) -> str:
    """The page that shows a file of the repository or lists a folder."""
    return f"code/{path.relative_to(ROOT).as_posix()}.md"


def linked(pages: list[Path]) -> list[Path]:
    """Every file and folder outside docs/ that pages lead to, and what these folders hold."""
    found: set[Path] = set()
    for page in pages:
        for _, target, _, _ in LINK.findall(page.read_text(encoding="utf-8")):
            path = destination(target, page.parent)
            if path is not None and path.startswith("code/"):
                found.add(ROOT / path.removeprefix("code/").removesuffix(".md"))
    waiting = list(found)
    while waiting:  # folders list what they hold
        path = waiting.pop()
        for inner in contents(path) if path.is_dir() else ():
            if inner not in found:
                found.add(inner)
                waiting.append(inner)
    return sorted(found)


def contents(folder: Path) -> list[Path]:
    """What of a folder is worth a page."""
    inner = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__")))
    return [path for path in inner if path.is_dir() or path.name.endswith(SHOWN)]


def show(path: Path) -> str:
    """A page on a file or a folder of the repository."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"# {name}\n\n" + "\n".join(f"- [{inner.name}]({inner.name})" for inner in contents(path)) + "\n"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    fence = "`" * 4
    return f"# {path.name}\n\n`{name}`\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}{fence}\n"


def notebook_page(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: its words, its code, and what that printed."""
    return "\n\n".join(part for cell in notebook["cells"] for part in cell_parts(cell)) + "\n"


def cell_parts(cell: dict[str, Any]) -> list[str]:
    """A cell and its outputs, each as a piece of Markdown."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    parts = [f"```python\n{source}\n```"] if source.strip() else []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/png" in data:
            picture = "".join(data["image/png"]).replace("\n", "")
            parts.append(f"![what the cell draws](data:image/png;base64,{picture})")
        else:
            parts.append(block("".join(output.get("text", data.get("text/plain", "")))))
    return parts


def block(text: str) -> str:
    """Printed text, as it was."""
    return f"```text\n{text.rstrip()}\n```"


def commands() -> dict[str, Any]:
    """Every command by its words, like 'rules mine', the whole program as ''."""
    import typer

    from focuse.cli.main import app

    found: dict[str, Any] = {}
    waiting = [("", typer.main.get_command(app))]
    while waiting:
        words, command = waiting.pop(0)
        found[words] = command
        waiting += [(f"{words} {name}".strip(), inner) for name, inner in getattr(command, "commands", {}).items()]
    return found


def commands_page() -> str:
    """What every command says about itself."""
    from typer.testing import CliRunner

    from focuse.cli.main import app

    parts = ["# Commands", "What `focuse --help` and `focuse COMMAND --help` print."]
    for words in commands():
        done = CliRunner().invoke(app, [*words.split(), "--help"], prog_name="focuse", env={"COLUMNS": "100"})
        parts.append(f"## focuse {words}".rstrip() + "\n\n" + block(done.output))
    return "\n\n".join(parts) + "\n"
