"""Every command that Neve shows or documents can be typed: it exists, with these options and arguments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_reference import parameters

from tests.builders import parsed_commands as parse
from tests.builders import shown_commands as collect
from tests.builders.shown_commands import Found, Kind

SOURCE, STRAYS = collect.in_source()
PAGES = collect.in_pages()


def problem(found: Found) -> str | None:
    try:
        parse.parse(found.text, complete=found.kind is not Kind.MENTION)
    except parse.USAGE_ERROR as error:
        return f"{found.where}: {found.text}: {error.format_message()}"
    return None


def test_every_command_of_the_source_can_be_typed() -> None:
    assert [why for found in SOURCE if (why := problem(found))] == []


def test_every_command_of_the_pages_can_be_typed() -> None:
    assert [why for found in PAGES if (why := problem(found))] == []


def test_no_command_of_the_source_escapes_for_want_of_backquotes() -> None:
    assert [stray for stray in STRAYS if not stray.endswith("neve {version('neve')}")] == []


def test_a_flag_outside_of_a_command_is_one_that_the_failed_command_has() -> None:
    """A step of `neve maintain` may fail with any hint, so a flag of another command stands in that command."""
    everywhere = set(flags_of(parse.CLI.commands["maintain"]))
    named = [
        f"{where}: {flag}"
        for where, text in collect.strings()
        if not where.startswith(("src/neve/cli/", "src/neve/operations/requests.py:"))  # where options are declared
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", collect.without_commands(text))
        if flag not in everywhere | FLAGS.keys()
    ]
    assert named == []
    assert [flag for flag, command in FLAGS.items() if command and flag not in flags_of(child(command))] == []


FLAGS = {
    "--abandon": "resume",
    "--branch": "compact",
    "--by": "cluster",
    "--depth": "inspect",
    "--sample": "inspect",
    "--expire-snapshots": "compact",
    "--partition": "compact",
    "--snapshot-retention-hours": "compact",
    "--kernel": "compact",
    "--kind": "cluster",
    "--verify": "compact",
    "--older-than": "expire",
    "--keep": "expire",
    "--dropped-table": "orphans",
    "--delete": "quarantine settle",
    "--table": "restore",
    "--file": "",  # of pg_dump
    "--format": "",
    "--add-modules": "",  # of Java
    "--name": "",  # of a hidden command
    "--parent": "",
    "--target": "",
    "--set": "serve",
    "--properties-file": "",  # of spark-submit
    "--seed": "",  # of the writers of `neve serve --demo`
}
"""Flags in messages that only one command leads to, with that command."""


def child(path: str) -> object:
    """A command by its name."""
    command = parse.CLI
    for word in path.split():
        command = command.commands[word]
    return command


def flags_of(command: object) -> list[str]:
    """All options of a command and of those below it."""
    own = [flag for parameter in parameters(command) for flag in (*parameter.opts, *parameter.secondary_opts)]
    below = getattr(command, "commands", None) or {}
    return own + [flag for child in below.values() for flag in flags_of(child)]


def test_the_collection_finds_commands_of_every_kind() -> None:
    kinds = {kind: sum(found.kind is kind for found in (*SOURCE, *PAGES)) for kind in Kind}
    assert all(kinds[kind] > 10 for kind in Kind), kinds
    where = {found.where.partition(":")[0] for found in (*SOURCE, *PAGES)}
    assert {"README.md", "docs/guide/orphans.md", "src/neve/commit/lease.py", "src/neve/cli/compact.py"} <= where


MODULE = '''
"""A docstring may say neve runs."""
hint = f"Run `neve runs show {run[:8]}` or `neve nothing`."
step = again(shared, "expire" if dry else "inspect", record.table, "--dry-run")
help = typer.Option("--x", help="As `neve plan` does.")
epilog = examples("neve demo --keep", 'neve plan db.t --where "a = 1" | jq .x')
lost = "then neve resume " + run
other = f"Try neve {verb}."

@command
def prune() -> None:
    """Shown as help, so `neve orphans` counts."""
'''


def test_nothing_escapes_the_collection() -> None:
    found, strays = collect.in_module(MODULE, "m.py")
    assert [(one.text, one.kind.value) for one in found] == [
        ("neve runs show {run[:8]}", "hint"),
        ("neve nothing", "hint"),
        ("neve expire {record.table} --dry-run", "next step"),
        ("neve inspect {record.table} --dry-run", "next step"),
        ("neve plan", "mention"),
        ("neve demo --keep", "example"),
        ('neve plan db.t --where "a = 1" | jq .x', "example"),
        ("neve orphans", "mention"),
    ]
    assert strays == ["m.py:7: neve resume ", "m.py:8: neve {verb}"]
    assert problem(found[1]) == "m.py:3: neve nothing: No such command 'nothing'. Did you mean 'notify'?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("neve inspect db.t --dept files", "No such option: --dept"),
        ("neve inspect", "Missing argument 'TABLE'"),
        ("neve orphans db.t --limit many", "Invalid value for '--limit'"),
        ("neve quarantine settle", "Missing argument 'TABLE'"),
        ("neve state shwo", "No such command 'shwo'"),
        ("neve doctor now", "unexpected extra argument"),
    ],
)
def test_a_command_that_cannot_be_typed_is_reported(text: str, message: str) -> None:
    with pytest.raises(parse.USAGE_ERROR) as caught:
        parse.parse(text)
    assert message in caught.value.format_message()


def test_a_page_is_read_block_by_block_and_line_by_line(tmp_path: Path) -> None:
    page = "See `neve runs` and `make test`.\n\n```console\n$ .venv/bin/neve inspect db.t \\\n    --json\n$ make demo\n```\n"
    (tmp_path / "README.md").write_text(page, encoding="utf-8")
    assert [(one.text, one.where, one.kind) for one in collect.in_pages(tmp_path)] == [
        ("neve runs", "README.md:1", Kind.MENTION),
        ("neve inspect db.t --json", "README.md:3", Kind.BLOCK),
    ]


IN_BLOCKS = """
```console
$ cat a.json | neve work - > b.json
$ ls *.json | xargs -P 8 -I {} neve work {} --out {}.result
$ spark-submit --packages a:b:1 \\
    --conf spark.sql.catalog.lake=x \\
    $JOB --table lake.db.t --tier minor
$ python -m neve.job --table lake.db.t --dry-run
$ echo neve runs
```

```yaml plain
spec:
  command: ["iceberg-compact", "--table=db.t", "--json"]
```

```python
operator(
    application_args=["--table", "lake.db.t", "--partition", "day = '{{ ds }}'"],
)
```
"""


def test_pipes_containers_and_schedulers_are_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(IN_BLOCKS, encoding="utf-8")
    assert [one.text for one in collect.in_pages(tmp_path)] == [
        "neve work - > b.json",
        "neve work {} --out {}.result",
        "neve.job --table lake.db.t --tier minor",
        "neve.job --table lake.db.t --dry-run",
        "iceberg-compact --table=db.t --json",
        """neve.job --table lake.db.t --partition 'day = '"'"'2025-01-15'"'"''""",
    ]
    assert [problem(one) for one in collect.in_pages(tmp_path)] == [None] * 6


def test_the_filter_of_a_pipe_is_the_last_word() -> None:
    assert collect.filter_of("neve runs --json | jq '.runs[] | .id'") == ".runs[] | .id"
    assert collect.filter_of("neve runs --json | jq .runs") == ".runs"
    assert collect.filter_of("neve runs --json") is None
