"""Finds every command that Neve shows or documents: in messages, hints, reports, help, examples, next steps and pages.

Nothing is listed by hand. A command in a string of the source counts, whoever shows it; one that is written without backquotes
is reported as a stray, so that it cannot escape the tests. What an f-string fills in stays as `{expression}`.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path

import docs_check

from neve.state.schema import VIEWS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "neve"
PROGRAMS = ("neve", "iceberg-compact")

_RUN = re.compile(r"(?:^|\| *(?:xargs(?: +-\w(?: +(?:\d+|\{\}))?)* +)?)((?:neve|iceberg-compact)(?: .*)?)$")
"""A program of ours: first in its line, or behind a pipe and behind xargs. What follows it in the line stays."""
_JOB = re.compile(r"^(?:spark-submit (?:.* )?(?:\$JOB|job\.py)|python -m neve\.job)( .*)$")
"""The script for spark-submit, which is called `neve.job` here."""
_CONTAINER = re.compile(r"^ *command: (\[.*\])$", re.MULTILINE)
_OPERATOR = re.compile(r"^ *application_args=(\[.*\]),$", re.MULTILINE)
_TEMPLATE = re.compile(r"\{\{ ds \}\}")
"""The date that Airflow fills in."""

_QUOTED = re.compile(r"`([^`]+)`")
_HELP_CALLS = frozenset({"Option", "Argument", "Field", "knob", "option", "required", "operation_command", "request_command"})
_HISTORY = "CHANGELOG.md"
"""Names commands and flags that are gone."""


class Kind(StrEnum):
    """Where a command was found. A mention names a command; all others are to be copied as they are."""

    HINT = "hint"
    NEXT = "next step"
    EXAMPLE = "example"
    BLOCK = "block"
    MENTION = "mention"


@dataclass(frozen=True)
class Found:
    """A command and the place that shows it."""

    text: str
    where: str
    kind: Kind


def in_source(root: Path = SOURCE) -> tuple[list[Found], list[str]]:
    """All commands in strings of the source, and the places of strays."""
    found, strays = list[Found](), list[str]()
    for file in sorted(root.rglob("*.py")):
        commands, unquoted = in_module(file.read_text(encoding="utf-8"), str(file.relative_to(root.parent.parent)))
        found += commands
        strays += unquoted
    for file in sorted(root.rglob("*.html")):
        found += [Found(text, f"{file.name}", Kind.HINT) for text in _commands(file.read_text(encoding="utf-8"))]
    return found, strays


def in_module(source: str, name: str) -> tuple[list[Found], list[str]]:
    """The same for one module."""
    reader = _Reader(name)
    reader.visit(ast.parse(source))
    return reader.found, reader.strays


class _Reader(ast.NodeVisitor):
    """Walks over one module; `_kind` is what a string counts as at this point."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kind = Kind.HINT
        self.found: list[Found] = []
        self.strays: list[str] = []
        self.texts: list[tuple[str, str]] = []

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        where = f"{self._name}:{node.lineno}"
        if called == "examples":
            lines = (command for line in node.args for command in typed(_text(line)))
            self.found += [Found(line, where, Kind.EXAMPLE) for line in lines]
        elif called == "again":
            words = node.args[1:] if isinstance(node.func, ast.Name) else node.args  # a function, or a method of the call
            self.found += [Found(" ".join(["neve", *spelled]), where, Kind.NEXT) for spelled in _spelled(words)]
        else:
            before, self._kind = self._kind, Kind.MENTION if called in _HELP_CALLS else self._kind
            self.generic_visit(node)
            self._kind = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Docstrings of commands are their help; no other is shown."""
        if any(getattr(one, "id", "") == "command" for one in node.decorator_list) and (help_text := ast.get_docstring(node)):
            self._read(help_text, node.lineno, Kind.MENTION)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A string that stands alone is a docstring."""
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._read(_text(node), node.lineno, self._kind)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._read(node.value, node.lineno, self._kind)

    def _read(self, text: str, line: int, kind: Kind) -> None:
        where = f"{self._name}:{line}"
        self.texts.append((where, text))
        self.found += [Found(command, where, kind) for command in _commands(text)]
        if stray := _stray(without_commands(text)):
            self.strays.append(f"{where}: {stray}")


def strings(root: Path = SOURCE) -> Iterator[tuple[str, str]]:
    """Every string of the source that is no docstring, with its place."""
    for file in sorted(root.rglob("*.py")):
        reader = _Reader(str(file.relative_to(root.parent.parent)))
        reader.visit(ast.parse(file.read_text(encoding="utf-8")))
        yield from reader.texts


def typed(line: str) -> list[str]:
    """The command of ours in a line of a shell, with what follows it; none if there is none."""
    if job := _JOB.search(line):
        return [f"neve.job{job[1]}"]
    return [found[1]] if (found := _RUN.search(line)) else []


def filter_of(text: str) -> str | None:
    """The filter of jq that a command is piped into."""
    found = re.search(r" \| jq (?:'([^']+)'|(\S+))$", text)
    return found and (found[1] or found[2])


def _commands(text: str) -> Iterator[str]:
    return (code for code in _QUOTED.findall(text) if code.split(" ")[0] in PROGRAMS and " " in code)


def without_commands(text: str) -> str:
    """What is left of a text outside of backquotes."""
    return _QUOTED.sub("", text)


def _stray(text: str) -> str | None:
    """A command outside of backquotes, or the beginning of one that is put together elsewhere."""
    found = re.search(rf"\bneve (?:{'|'.join(_names())}|\{{|$)[^.;,]*", text)
    return found[0] if found else None


def _names() -> list[str]:
    from tests.builders.parsed_commands import CLI

    return sorted(CLI.commands)


def _text(node: ast.expr) -> str:
    """A string as it is written, with expressions in braces."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    if isinstance(node, ast.Constant):
        return str(node.value)
    return f"{{{ast.unparse(node)}}}"


def _spelled(arguments: list[ast.expr]) -> Iterator[tuple[str, ...]]:
    """Every way in which the arguments of a next step can be spelled: either side of each condition; options that are only
    sometimes there are left out."""
    always = [one for one in arguments if not isinstance(one, ast.Starred)]
    ways = [[_text(one.body), _text(one.orelse)] if isinstance(one, ast.IfExp) else [_text(one)] for one in always]
    return product(*ways)


def in_pages(root: Path = ROOT) -> list[Found]:
    """All commands in Markdown pages: in running text and in blocks for a shell, a container or Airflow.

    Generated pages repeat what the source has.
    """
    found = list[Found]()
    for page in docs_check.markdown_files(root):
        name = str(page.relative_to(root))
        if name.startswith("docs/reference/") or name == _HISTORY:
            continue
        prose, blocks = docs_check.split_page(page.read_text(encoding="utf-8"))
        for number, line in enumerate(prose, start=1):
            found += [Found(text, f"{name}:{number}", Kind.MENTION) for text in _commands(line)]
        found += [Found(text, f"{name}:{block.line}", Kind.BLOCK) for block in blocks for text in _of_block(block)]
    return found


def _of_block(block: docs_check.Block) -> list[str]:
    if block.language == "yaml":
        return [shlex.join(json.loads(words)) for words in _CONTAINER.findall(block.text)]
    if block.language == "python":
        given = _OPERATOR.findall(_TEMPLATE.sub("2025-01-15", block.text))
        return [shlex.join(["neve.job", *ast.literal_eval(words)]) for words in given]
    if block.language != "console":
        return []
    return [command for line in shell_lines(block) for command in typed(line)]


def shell_lines(block: docs_check.Block) -> list[str]:
    """What is typed in a console block."""
    lines = re.sub(r"\\\n\s*", "", block.text).splitlines()
    return [line.removeprefix("$ ").removeprefix(".venv/bin/") for line in lines if line.startswith("$ ")]


def sql_in_pages(root: Path = ROOT) -> list[Found]:
    """All blocks of Spark SQL in Markdown pages; tests/state/test_views.py runs those that ask the views of the state store."""
    pages = ((page, docs_check.split_page(page.read_text(encoding="utf-8"))[1]) for page in docs_check.markdown_files(root))
    return [
        Found(block.text.strip(), f"{page.relative_to(root)}:{block.line}", Kind.BLOCK)
        for page, blocks in pages
        for block in blocks
        if block.language == "sql" and not any(view in block.text for view in VIEWS)
    ]
