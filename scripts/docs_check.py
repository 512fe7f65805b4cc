"""Finds what is wrong in Markdown pages: dead links and anchors, code blocks that would not work, stale references.

Called by `scripts/docs.py check` and by `tests/docs`. A block's language says what is checked:

- `yaml` is a Neve settings file and must load (`yaml plain`: parses; `yaml policies`: can be applied)
- `json` parses (`json settings`: loads)
- `python` compiles (`python run`: also runs, in an empty directory)
- `console` starts with `$ ` and calls our CLI, a make target, or a well-known program
- `text` is anything else; a block without a language is a mistake.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from docs_reference import parameters

PLAIN_LANGUAGES = frozenset({"text", "mermaid", "sql", "toml", "properties", "diff"})
FOREIGN_PROGRAMS = frozenset(
    {
        "cat",
        "cd",
        "cp",
        "curl",
        "export",
        "git",
        "java",
        "jq",
        "ls",
        "pip",
        "python",
        "python3",
        "source",
        "spark-submit",
        "uv",
    }
)
SKIPPED_FOLDERS = frozenset({"build", "demo-warehouse", "dist"})

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+|~~~+)(?P<info>[^`]*)$")
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
_INLINE_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *#*$")
_SHELL_SIGNS = frozenset({"|", ">", ">>", "<", "&&", ";", "2>"})
_REPOSITORY_PATH = re.compile(r"(?:bench|docs|scripts|src|stack|tests)(?:/[\w.-]+)*/?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")


@dataclass(frozen=True)
class Block:
    """A fenced code block: the line of its first fence, its language, the words after it, and its text."""

    line: int
    language: str
    marks: frozenset[str]
    text: str


@dataclass(frozen=True)
class Vocabulary:
    """What console blocks may say: our CLI as a tree of click commands, and the make targets."""

    cli: Any
    make_targets: frozenset[str]


def vocabulary(root: Path) -> Vocabulary:
    """The words that exist in this checkout."""
    import typer.main

    from neve.cli.app import app

    makefile = root / "Makefile"
    text = makefile.read_text(encoding="utf-8") if makefile.exists() else ""
    targets = re.findall(r"^([A-Za-z0-9_-][\w .-]*):(?!=)", text, flags=re.MULTILINE)
    return Vocabulary(cli=typer.main.get_command(app), make_targets=frozenset(" ".join(targets).split()))


def markdown_files(root: Path) -> list[Path]:
    """Every page of the repository, generated folders and hidden ones apart."""
    tops = [p for p in root.iterdir() if not p.name.startswith(".") and p.name not in SKIPPED_FOLDERS]
    pages = [p for p in tops if p.suffix == ".md"]
    for folder in (p for p in tops if p.is_dir()):
        pages += folder.rglob("*.md")
    return sorted(pages)


def page_problems(page: Path, *, root: Path, vocabulary: Vocabulary) -> list[str]:
    """What is wrong with one page."""
    text = page.read_text(encoding="utf-8")
    prose, blocks = split_page(text)
    found = list(link_problems(prose, page=page, root=root))
    found += path_problems(prose, root=root)
    if page.is_relative_to(root / "docs" / "guide"):
        found += inline_problems(prose, vocabulary)
    for block in blocks:
        problem = block_problem(block, vocabulary)
        if problem:
            found.append((block.line, problem))
    return [f"{page.relative_to(root)}:{line}: {problem}" for line, problem in sorted(found)]


def split_page(text: str) -> tuple[list[str], list[Block]]:
    """The lines outside code blocks (a block's lines are blank, so that numbers stay right), and the blocks."""
    prose: list[str] = []
    blocks: list[Block] = []
    opened: tuple[int, re.Match[str]] | None = None
    body: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None:
            prose.append("" if fence else line)
            if fence:
                opened, body = (number, fence), []
            continue
        prose.append("")
        start, first = opened
        if fence and fence["ticks"].startswith(first["ticks"]) and not fence["info"].strip():
            blocks.append(_block(start, first, body))
            opened = None
        else:
            body.append(line.removeprefix(first["indent"]))
    if opened is not None:
        blocks.append(Block(line=opened[0], language="(never closed)", marks=frozenset(), text=""))
    return prose, blocks


def _block(line: int, fence: re.Match[str], body: list[str]) -> Block:
    language, *marks = fence["info"].split() or [""]
    return Block(line=line, language=language, marks=frozenset(marks), text="\n".join(body) + "\n")


def link_problems(prose: list[str], *, page: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Relative links whose file or anchor does not exist."""
    for number, line in enumerate(prose, start=1):
        for match in _LINK.finditer(_INLINE_CODE.sub("`code`", line)):
            target = match["target"]
            problem = None if re.match(r"[a-z]+:", target) else _target_problem(target, page=page, root=root)
            if problem:
                yield number, problem


def _target_problem(target: str, *, page: Path, root: Path) -> str | None:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.is_relative_to(root.resolve()):
        return f"link {target} leaves the repository"
    if not file.exists():
        return f"link {target} leads nowhere"
    if anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
        return f"link {target}: no heading of that page makes the anchor #{anchor}"
    return None


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings make, as GitHub makes them."""
    seen: dict[str, int] = {}
    result: set[str] = set()
    for line in split_page(text)[0]:
        heading = _HEADING.match(line)
        if not heading:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["title"]).lower()
        slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        result.add(f"{slug}-{count}" if count else slug)
    return result


def path_problems(prose: list[str], *, root: Path) -> list[tuple[int, str]]:
    """Files and folders of the repository that are named in running text and do not exist; with a slash, or they are words."""
    found = []
    for number, line in enumerate(prose, start=1):
        named = [code for code in _INLINE_CODE.findall(line) if "/" in code and _REPOSITORY_PATH.fullmatch(code)]
        found += [(number, f"no such file as {code}") for code in named if not (root / code).exists()]
    return found


def inline_problems(prose: list[str], vocabulary: Vocabulary) -> list[tuple[int, str]]:
    """Commands named in running text that our CLI does not have."""
    found = []
    for number, line in enumerate(prose, start=1):
        for code in _INLINE_CODE.findall(line):
            if code.startswith(("neve ", "make ")):
                problem = command_problem(code, vocabulary)
                found += [(number, problem)] if problem else []
    return found


def block_problem(block: Block, vocabulary: Vocabulary) -> str | None:
    """What is wrong with a block, or None."""
    if block.language in PLAIN_LANGUAGES:
        return None
    checks: dict[str, Callable[[Block], str | None]] = {
        "yaml": _yaml_problem,
        "json": _json_problem,
        "python": _python_problem,
        "console": lambda b: _console_problem(b, vocabulary),
    }
    if block.language not in checks:
        known = ", ".join(sorted({*checks, *PLAIN_LANGUAGES}))
        return f"code block of unknown language {block.language!r}; write one of {known}"
    return checks[block.language](block)


def _yaml_problem(block: Block) -> str | None:
    if "policies" in block.marks:
        return _policies_problem(block.text)
    try:
        yaml.safe_load(block.text)
    except yaml.YAMLError as error:
        return f"yaml does not parse: {' '.join(str(error).split())}"
    return None if "plain" in block.marks else _settings_problem(block.text, suffix=".yaml")


def _json_problem(block: Block) -> str | None:
    try:
        json.loads(block.text)
    except ValueError as error:
        return f"json does not parse: {error}"
    return _settings_problem(block.text, suffix=".json") if "settings" in block.marks else None


def _policies_problem(text: str) -> str | None:
    """Reads the text as a policy file, with default settings and without a state store."""
    from neve.errors import SettingsError
    from neve.service.policies import vocabulary
    from neve.settings import load_settings
    from neve.settings.policy_files import read_policies

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "policies.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            read_policies(str(file), vocabulary(load_settings(environ={})))
        except SettingsError as error:
            return f"policies are refused: {' '.join(str(error).replace(directory, '').split())}"
    return None


def _settings_problem(text: str, *, suffix: str) -> str | None:
    """Loads the text as a settings file is loaded, with no variables set; secrets stay references, so none is needed."""
    from neve.errors import SettingsError
    from neve.settings import load_settings

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"neve{suffix}"
        file.write_text(text, encoding="utf-8")
        try:
            load_settings(file=file, environ={}).policy({})
        except SettingsError as error:
            return str(error).replace(f"{folder}/", "")
    return None


def _python_problem(block: Block) -> str | None:
    try:
        compile(block.text, "<block>", "exec")
    except SyntaxError as error:
        return f"python does not compile: {error.msg} (line {error.lineno} of the block)"
    if "run" not in block.marks:
        return None
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", block.text], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
    return None if done.returncode == 0 else f"python does not run: {done.stderr.strip().splitlines()[-1]}"


def _console_problem(block: Block, vocabulary: Vocabulary) -> str | None:
    lines = re.sub(r"\\\n\s*", "", block.text).splitlines()
    if not lines or not lines[0].startswith("$ "):
        return "console block does not start with '$ '"
    problems = (command_problem(line.removeprefix("$ "), vocabulary) for line in lines if line.startswith("$ "))
    return next((p for p in problems if p), None)


def command_problem(line: str, vocabulary: Vocabulary) -> str | None:
    """Why a command line would not work, as far as its words tell; only the first program of a pipe is looked at."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        return f"command {line!r} cannot be read: {error}"
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    end = next((i for i, word in enumerate(words) if word in _SHELL_SIGNS), len(words))
    words = words[:end]
    program = Path(words[0]).name if words else ""
    if program == "neve":
        return _cli_problem(words[1:], vocabulary.cli)
    if program == "make":
        missing = [w for w in words[1:] if "=" not in w and not w.startswith("-") and w not in vocabulary.make_targets]
        return f"no make target {missing[0]!r}" if missing else None
    return None if program in FOREIGN_PROGRAMS else f"console block calls {program!r}, which is not ours"


def _cli_problem(words: list[str], command: Any) -> str | None:
    """Walks down the command tree; every option must exist where it stands."""
    path = "neve"
    skip = False
    helps = command.context_settings.get("help_option_names", ["--help"])
    for word in words:
        if skip or word in helps:
            skip = False
        elif word.startswith("-") and word != "-":
            option = _option(command, word.split("=")[0])
            if option is None:
                return f"{path} has no option {word.split('=')[0]}"
            skip = "=" not in word and not getattr(option, "is_flag", False) and not getattr(option, "count", False)
        elif getattr(command, "commands", None):
            if word not in command.commands:
                return f"{path} has no command {word!r}"
            path, command = f"{path} {word}", command.commands[word]
    return None


def _option(command: Any, name: str) -> Any:
    return next((p for p in parameters(command) if name in (*p.opts, *p.secondary_opts)), None)


def stale_reference(root: Path, pages: dict[str, str]) -> list[str]:
    """Reference pages that are missing, differ from the code, or that nothing generates any more."""
    folder = root / "docs" / "reference"
    problems = []
    for name, text in pages.items():
        page = folder / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            problems.append(f"docs/reference/{name}:1: differs from the code; run scripts/docs.py generate")
    leftovers = sorted({p.name for p in folder.glob("*")} - set(pages)) if folder.exists() else []
    return problems + [f"docs/reference/{name}:1: is generated by nothing; delete it" for name in leftovers]
