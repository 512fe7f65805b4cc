"""Gives tests a small repository to break."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def check_page(tmp_path: Path) -> Callable[[str], list[str]]:
    """Writes a page of the guide and gives its problems."""
    import docs_check

    (tmp_path / "Makefile").write_text("demo: install\n\ttrue\n\nPYTHON := python3\n", encoding="utf-8")
    (tmp_path / "other.md").write_text("# Other page\n\n## Sizes & shapes\n\n## Again\n\n## Again\n", encoding="utf-8")
    guide = tmp_path / "docs" / "guide"
    guide.mkdir(parents=True)

    def check(text: str) -> list[str]:
        page = guide / "page.md"
        page.write_text(text, encoding="utf-8")
        return docs_check.page_problems(page, root=tmp_path, vocabulary=docs_check.vocabulary(tmp_path))

    return check
