"""Every statement of ours that removes rows goes through one function, which confirms table, branch and field first."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest

import neve
from neve.maintenance.ttl import TtlRule, limits_of
from neve.spark.maintenance.ttl import SparkPastRows, predicate
from neve.table.calendar import days_to

SOURCES = Path(neve.__file__).parent
EXEMPT = ("samples/", "service/demo_writers.py")
"""Sample data: these drop, fill and change tables that they have made themselves."""
DESTRUCTIVE = re.compile(r"\b(DELETE\s+FROM|TRUNCATE\s+TABLE|INSERT\s+OVERWRITE|MERGE\s+INTO|DROP\s+TABLE)")
DROPS = re.compile(r"(bridge\.drop|rows\.drop|commit_drop)\Z")


def statements(tree: ast.AST) -> list[str]:
    """Texts that would remove rows; docstrings are not sent to anybody."""
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    told = {id(node.body[0].value) for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
    told |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in told]
    return [text for node in texts if DESTRUCTIVE.search(text := ast.unparse(node))]


def sent_through_destroy(method: object) -> bool:
    """Whether a method does nothing but define what is sent and hand it to `_destroy`."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(method))).body  # type: ignore[arg-type]
    assert isinstance(function, ast.FunctionDef)
    last = function.body[-1]
    calls = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and ast.unparse(last.value.func) == "self._destroy"
    return calls and ast.unparse(last.value.args[0]) == "target"  # type: ignore[attr-defined]


def test_only_the_engine_of_ttl_has_statements_that_remove_rows() -> None:
    found = {
        str(path.relative_to(SOURCES)): texts
        for path in sorted(SOURCES.rglob("*.py"))
        if not path.relative_to(SOURCES).as_posix().startswith(EXEMPT)
        and (texts := statements(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert list(found) == ["spark/maintenance/ttl.py"]
    assert all("{table}" in text and text.startswith("f'DELETE FROM {table} WHERE {row_by_row(") for text in found.popitem()[1])


def test_what_removes_rows_is_sent_through_the_function_that_confirms_the_target() -> None:
    assert sent_through_destroy(SparkPastRows.delete)
    assert sent_through_destroy(SparkPastRows.drop)
    order = inspect.getsource(SparkPastRows._destroy)
    places = [order.index(f"{name}(") for name in ("refuse_redirects", "confirm_target", "        send")]
    assert places == sorted(places)


def test_nobody_else_drops_files_of_a_table() -> None:
    callers = [
        (path.name, ast.unparse(node.func))
        for folder in ("spark", "maintenance", "operations", "commit", "context")
        for path in sorted((SOURCES / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and DROPS.search(ast.unparse(node.func))
    ]
    assert callers == [
        ("ttl.py", "self._bridge.drop"),
        ("bridge.py", "commit_drop"),
        ("ttl.py", "self._run.rows.drop"),
    ]


@pytest.mark.parametrize(
    ("kind", "year", "literal"),
    [
        ("timestamp", 2025, "TIMESTAMP_NTZ '2025-01-01T00:00:00.5'"),
        ("timestamp", 525, "TIMESTAMP_NTZ '0525-01-01T00:00:00.5'"),  # Spark reads no year of three digits
        ("timestamp", -975, "TIMESTAMP_NTZ '-0975-01-01T00:00:00.5'"),
        ("timestamp", -290_000, "TIMESTAMP_NTZ '-290000-01-01T00:00:00.5'"),
        ("date", 2025, "DATE '2025-01-01'"),
        ("date", 1, "DATE '0001-01-01'"),
        ("date", -290_000, "DATE '-290000-01-01'"),
    ],
)
def test_a_cutoff_of_any_year_is_written_as_spark_reads_it(kind: str, year: int, literal: str) -> None:
    rule = TtlRule(column="c", field_id=1, type=kind, keep_seconds=1.0)
    cutoff = days_to(year) * 86_400_000 + 500
    assert predicate(rule, limits_of(rule, cutoff), "`c`") == f"`c` < {literal}"
