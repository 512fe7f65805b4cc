"""The checker sees what is broken, and spares what is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import docs_check
import docs_reference
import pytest

import docs

Check = Callable[[str], list[str]]


def block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n"


def test_links_that_lead_somewhere_are_fine(check_page: Check) -> None:
    text = "# Page\n\n[a](../../other.md) [b](../../other.md#sizes--shapes) [c](#page) [d](https://example.com/x#y)\n"
    assert check_page(text) == []


def test_a_second_heading_of_the_same_words_has_a_number(check_page: Check) -> None:
    assert check_page("[a](../../other.md#again-1)\n") == []


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("gone.md", "link gone.md leads nowhere"),
        ("../../other.md#gone", "link ../../other.md#gone: no heading of that page makes the anchor #gone"),
        ("#gone", "link #gone: no heading of that page makes the anchor #gone"),
        ("../../../x.md", "link ../../../x.md leaves the repository"),
    ],
)
def test_a_dead_link_is_named_with_its_line(check_page: Check, link: str, problem: str) -> None:
    assert check_page(f"# Page\n\n[text]({link})\n") == [f"docs/guide/page.md:3: {problem}"]


def test_a_picture_that_is_not_there_is_a_dead_link(check_page: Check) -> None:
    assert check_page("![a plot](plot.svg)\n") == ["docs/guide/page.md:1: link plot.svg leads nowhere"]


def test_links_inside_code_are_not_links(check_page: Check) -> None:
    assert check_page("`[a](gone.md)`\n\n" + block("text", "[a](gone.md)\n# not a heading")) == []


def test_a_heading_inside_a_block_makes_no_anchor(check_page: Check) -> None:
    page = block("text", "# Hidden") + "\n[a](#hidden)\n"
    assert check_page(page) == ["docs/guide/page.md:5: link #hidden: no heading of that page makes the anchor #hidden"]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("yaml", "policy:\n  target-file-size: 256 MB"),
        ("yaml plain", "anything: [goes]"),
        ("yaml policies", "kind: team\nname: a\n---\nkind: policy\nname: b\nowner: a\ntables: x"),
        ("json", '{"a": 1}'),
        ("json settings", '{"iceberg": {"compaction": {"min_files_to_compact": 3}}}'),
        ("python", "x: int = 1"),
        ("python run", "assert 1 + 1 == 2"),
        ("console", "$ neve inspect db.events --json | jq .health\n{ ... }\n$ NEVE_PROFILE=prod .venv/bin/neve config show"),
        ("console", "$ neve --profile prod inspect \\\n    db.events --depth=summary -h"),
        ("console", "$ make demo PYTHON=python3.12\nwhatever it prints"),
        ("console", "$ git status"),
        ("text", "no rules here"),
    ],
)
def test_a_good_block_is_fine(check_page: Check, language: str, text: str) -> None:
    assert check_page(block(language, text)) == []


@pytest.mark.parametrize(
    ("language", "text", "problem"),
    [
        ("", "x", "code block of unknown language ''"),
        ("bash", "x", "code block of unknown language 'bash'"),
        ("yaml", "a: [1", "yaml does not parse: "),
        ("yaml", "policy:\n  target-file-siz: 1 MB", "did you mean target-file-size"),
        ("yaml policies", "kind: policy\nname: b\nowner: a\ntables: x", "line 3: owner: there is no team 'a'"),
        ("yaml policies", "kind: policy\nname: [", "policies are refused: "),
        ("yaml", "policy:\n  target-file-size: 1 parsec", "unknown unit 'parsec'"),
        ("json", "{", "json does not parse: "),
        ("json settings", '{"iceberg": {"write": {"target": 1}}}', "iceberg.write.target"),
        ("python", "def f(:", "python does not compile: "),
        ("python run", "raise ValueError('no')", "python does not run: ValueError: no"),
        ("console", "neve inspect db.events", "console block does not start with '$ '"),
        ("console", "$ neve inspct db.events", "neve has no command 'inspct'"),
        ("console", "$ neve config shw", "neve config has no command 'shw'"),
        ("console", "$ neve inspect db.events --dept files", "neve inspect has no option --dept"),
        ("console", "$ neve doctor --html x", "neve doctor has no option --html"),
        ("console", "$ make dmo", "no make target 'dmo'"),
        ("console", "$ make PYTHON", "no make target 'PYTHON'"),
        ("console", "$ rm -r x", "console block calls 'rm', which is not ours"),
        ("console", "$ neve inspect 'db.events", "cannot be read: No closing quotation"),
    ],
)
def test_a_broken_block_is_named(check_page: Check, language: str, text: str, problem: str) -> None:
    (found,) = check_page("# Page\n\n" + block(language, text))
    assert found.startswith("docs/guide/page.md:3: ")
    assert problem in found


def test_a_block_that_is_never_closed_is_named(check_page: Check) -> None:
    (found,) = check_page("# Page\n\n```text\nto the end\n")
    assert found.startswith("docs/guide/page.md:3: code block of unknown language '(never closed)'")


def test_a_block_inside_a_list_is_read_without_its_indent(check_page: Check) -> None:
    assert check_page("- item\n\n  ```yaml\n  policy:\n    max-files: 7\n  ```\n") == []


def test_commands_and_files_in_running_text_exist(check_page: Check) -> None:
    text = "`neve inspect` is there, `neve inspct` and `src/gone.py` are not; `docs/guide` is.\n"
    assert check_page(text) == [
        "docs/guide/page.md:1: neve has no command 'inspct'",
        "docs/guide/page.md:1: no such file as src/gone.py",
    ]


def test_a_stale_a_missing_and_a_leftover_reference_page_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "reference"
    folder.mkdir(parents=True)
    (folder / "same.md").write_text("new", encoding="utf-8")
    (folder / "stale.md").write_text("old", encoding="utf-8")
    (folder / "leftover.md").write_text("x", encoding="utf-8")
    assert docs_check.stale_reference(tmp_path, {"same.md": "new", "stale.md": "new", "missing.md": "new"}) == [
        "docs/reference/stale.md:1: differs from the code; run scripts/docs.py generate",
        "docs/reference/missing.md:1: differs from the code; run scripts/docs.py generate",
        "docs/reference/leftover.md:1: is generated by nothing; delete it",
    ]


def test_generating_writes_what_differs_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs.generate(tmp_path)
    assert len(capsys.readouterr().out.splitlines()) == len(docs_reference.pages())
    assert docs_check.stale_reference(tmp_path, docs_reference.pages()) == []
    (tmp_path / "docs" / "reference" / "errors.md").write_text("edited by hand", encoding="utf-8")
    docs.generate(tmp_path)
    assert capsys.readouterr().out == "wrote docs/reference/errors.md\n"


def test_hidden_and_built_folders_hold_no_pages(tmp_path: Path) -> None:
    for name in ("README.md", "docs/a.md", ".venv/b.md", "dist/c.md", "demo-warehouse/d.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("# x\n", encoding="utf-8")
    assert [str(p.relative_to(tmp_path)) for p in docs_check.markdown_files(tmp_path)] == ["README.md", "docs/a.md"]
