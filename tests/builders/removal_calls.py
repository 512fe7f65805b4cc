"""Finds code that could remove a file or a row, by reading the source: what `tests/test_removals.py` allows, and nothing else.

A finding is a name: of a function that removes or replaces files in any library that we have, of an operation of Iceberg that
takes files or snapshots out of a table, or of an SQL statement that does. It counts wherever it occurs, called or only handed
on, as an attribute, as a bare name or as a string for reflection; comments and docstrings do not count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILES = frozenset(
    {
        # Python: os, pathlib, shutil, tempfile
        *("unlink", "remove", "rmdir", "removedirs", "rmtree", "rename", "renames", "move", "truncate"),
        # pyarrow, fsspec, boto3, pyiceberg
        *("delete", "delete_file", "delete_dir", "delete_dir_contents", "delete_root_dir_contents", "rm", "rm_file", "mv"),
        *("delete_object", "delete_objects", "delete_bucket", "delete_folder", "delete_blob", "purge_table", "drop_table"),
        # Hadoop's FileSystem and Iceberg's FileIO, actions and procedures, by name or by reflection
        *("deleteFile", "deleteFiles", "deletePrefix", "deleteOnExit", "dropTable", "purgeTable", "cleanExpiredFiles"),
        *("deleteReachableFiles", "deleteOrphanFiles", "removeOrphanFiles", "deleteWith", "executeDeleteWith"),
        *("expireSnapshots", "expire_snapshots", "remove_orphan_files", "cleanUncommitted", "cleanAll"),
    }
)
ROWS = frozenset(
    {
        *("newRewrite", "newRowDelta", "newDelete", "newOverwrite", "newReplacePartitions", "rewriteManifests", "rewriteFiles"),
        *("removeSnapshots", "removeRef", "removeBranch", "removeTag", "replaceBranch", "setBranchSnapshot", "rollbackTo"),
        *("setCurrentSnapshot", "rewriteDataFiles", "rewritePositionDeletes", "deleteManifest", "removeDeletes", "overwrite"),
    }
)
SQL = re.compile(
    r"\b(?:DELETE\s+FROM|TRUNCATE\s+TABLE|DROP\s+(?:TABLE|NAMESPACE|SCHEMA|DATABASE)|INSERT\s+OVERWRITE|MERGE\s+INTO|REPLACE\s+TABLE"
    r"|UPDATE\s+\{|CALL\b(?:\s+\S*system\.)?)",
)
_SHELL = re.compile(r"^(?:rm|rmdir|unlink|shred)(?:\s|$)")


class Finding(NamedTuple):
    """Where something stands: the module, the function or class around it, and what was found."""

    module: str
    where: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        return f"{self.module}:{self.where}", self.name


def findings(text: str, module: str, names: frozenset[str], sql: re.Pattern[str] | None = None) -> Iterator[Finding]:
    """All of a module, in the order in which they stand there."""
    yield from _walk(ast.parse(text), module, "", names, sql)


def in_package(package: Path, names: frozenset[str], sql: re.Pattern[str] | None = None) -> list[Finding]:
    return [
        found
        for path in sorted(package.rglob("*.py"))
        for found in findings(path.read_text(encoding="utf-8"), str(path.relative_to(package)), names, sql)
    ]


def _walk(node: ast.AST, module: str, where: str, names: frozenset[str], sql: re.Pattern[str] | None) -> Iterator[Finding]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}".lstrip(".")
    for name in _named(node, names, sql):
        yield Finding(module, where, name)
    docstring = _docstring(node)
    for child in ast.iter_child_nodes(node):
        if child is not docstring:
            yield from _walk(child, module, where, names, sql)


def _docstring(node: ast.AST) -> ast.AST | None:
    """A string that stands alone: a docstring, or the description of a field before it."""
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    return first if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None


def _named(node: ast.AST, names: frozenset[str], sql: re.Pattern[str] | None) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and node.attr in names:
        yield node.attr
    elif isinstance(node, ast.ImportFrom):
        yield from (alias.name for alias in node.names if alias.name in names and not (node.module or "").startswith("neve"))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if (node.value in names and _is_reflected(node.value)) or (_SHELL.match(node.value) and "unlink" in names):
            yield node.value
        yield from (" ".join(match.split()) for match in (sql.findall(node.value) if sql else ()))
    elif isinstance(node, ast.Call) and "unlink" in names and _replaces_a_file(node):
        yield "replace"
    elif isinstance(node, ast.Call) and "overwrite" in names and ast.unparse(node).endswith("mode('overwrite')"):
        yield "overwrite"


def _is_reflected(text: str) -> bool:
    """Whether a string is a name for reflection, and not a plain word that something shows or compares."""
    return "_" in text or text != text.lower()


def _replaces_a_file(call: ast.Call) -> bool:
    """`Path.replace` and `os.replace`; text is replaced with two arguments, a dataclass with keywords."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "replace" or call.keywords:
        return False
    return len(call.args) == 1 or (isinstance(call.func.value, ast.Name) and call.func.value.id == "os")
