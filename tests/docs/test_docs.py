"""The repository's own pages are in order."""

from __future__ import annotations

import re
from pathlib import Path

import docs_check
import docs_reference
import pytest

import docs

PAGES = docs_check.markdown_files(docs.ROOT)


@pytest.fixture(scope="module")
def vocabulary() -> docs_check.Vocabulary:
    return docs_check.vocabulary(docs.ROOT)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(docs.ROOT)))
def test_a_page_has_no_dead_link_and_no_broken_block(page: Path, vocabulary: docs_check.Vocabulary) -> None:
    assert docs_check.page_problems(page, root=docs.ROOT, vocabulary=vocabulary) == []


def test_the_reference_pages_say_what_the_code_says() -> None:
    assert docs_check.stale_reference(docs.ROOT, docs_reference.pages()) == []


def test_the_front_pages_are_there_and_checked() -> None:
    names = {str(page.relative_to(docs.ROOT)) for page in PAGES}
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/index.md", "docs/seeds.md"} <= names


def test_every_page_of_the_guide_is_in_the_index() -> None:
    index = (docs.ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [p for folder in ("guide", "adr") for p in (docs.ROOT / "docs" / folder).glob("*.md")]
    assert [p.name for p in pages if f"({p.relative_to(docs.ROOT / 'docs')})" not in index] == []


def test_every_finding_is_explained_with_its_weight() -> None:
    from neve.health.score import RULES, assess
    from neve.policy.model import Policy
    from tests.builders.measurements import SICK

    findings = assess(SICK, Policy()).findings
    assert len(findings) == len(RULES)
    page = (docs.ROOT / "docs" / "guide" / "inspect.md").read_text(encoding="utf-8")
    assert [f.code for f in findings if f"\n| `{f.code}` | {f.weight:.0f} |" not in page] == []


def test_the_seeds_page_gives_every_statement_a_status() -> None:
    lines = (docs.ROOT / "docs" / "seeds.md").read_text(encoding="utf-8").splitlines()
    headers = ("| statement | status |", "| seed | what it is |")
    statements = [line for line in lines if line.startswith("| ") and line not in headers and "](#seed-" not in line]
    words = ("**built**", "**replaced**", "**comes**", "**come**", "**declined**", "**noted**")
    assert [row for row in statements if not any(word in row for word in words)] == []
    assert len(statements) > 200


def test_the_guide_to_work_orders_states_the_format_version() -> None:
    from neve.rewrite.work_order import FORMAT_VERSION

    page = (docs.ROOT / "docs" / "guide" / "work-orders.md").read_text(encoding="utf-8")
    assert re.findall(r"`format_version`, now (\d+)", page) == [str(FORMAT_VERSION)]
