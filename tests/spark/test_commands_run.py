"""Every command that Neve shows or documents is run on real tables, with real values where it stands for some."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.builders import shown_commands as collect
from tests.builders.command_scenes import Scene, staged
from tests.builders.parsed_commands import Parsed, parse
from tests.builders.shown_commands import Found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELSEWHERE = {
    ("", "install_completion"): "changes the shell of the user",
    ("demo",): "tests/surfaces/test_cli_demo.py",
    ("demo", "warehouse"): "tests/surfaces/test_cli_demo.py",
    ("demo", "keep", "warehouse"): "tests/surfaces/test_cli_demo.py",
    ("doctor", "spark"): "tests/surfaces/test_cli_doctor.py",
    ("deletes",): "shows its help: tests/surfaces/test_cli_help.py",
}
"""Shapes that are not run here, each with where it is run, or why not."""


def shapes() -> dict[tuple[str, ...], tuple[Found, Parsed]]:
    """One command of each shape: the same command with the same parameters need not run twice. Fewer parameters come first, so
    that a limit is previewed before it is enforced."""
    found: dict[tuple[str, ...], tuple[Found, Parsed]] = {}
    for one in (*collect.in_source()[0], *collect.in_pages()):
        parsed = parse(one.text, complete=False)
        program = one.text.split(" ")[0]
        found.setdefault((program, *parsed.shape), (one, parsed))
    return dict(sorted(found.items(), key=lambda item: (item[0][:2], len(item[0]), item[0])))


SHAPES = shapes()


@pytest.fixture(scope="module")
def scene(spark: SparkSession, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with staged(spark, warehouse, tmp_path_factory.mktemp("place")) as found:
        yield found


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[1:] not in ELSEWHERE], ids=" ".join)
def test_a_command_that_is_shown_or_documented_runs(scene: Scene, shape: tuple[str, ...]) -> None:
    found, parsed = SHAPES[shape]
    args = scene.filled(parsed)
    stdin = Path(scene._order()).read_text(encoding="utf-8") if args[:2] == ["work", "-"] else None
    result = scene.run(args, shape[0], stdin)
    assert result.exit_code == 0, f"{found.where}: {shlex.join([shape[0], *args])}\n{result.output}\n{result.exception!r}"
    for step in result.output.partition("\nNext\n")[2].splitlines():
        parse(step.strip())


def test_what_is_not_run_here_is_known_and_run_elsewhere() -> None:
    root = Path(__file__).parents[2]
    named = {shape[1:] for shape in SHAPES}
    assert [shape for shape in ELSEWHERE if shape not in named] == []
    places = [text.rpartition(" ")[2] for text in ELSEWHERE.values() if text.endswith(".py")]
    assert [place for place in places if not (root / place).exists()] == []
