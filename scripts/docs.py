"""The documentation's two commands: `generate` writes the reference pages from the code, `check` proves every page.

Called by `make docs`, CI and, through the modules beside it, by `tests/docs`. Exits 1 and prints one line per problem.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import docs_check
import docs_reference

ROOT = Path(__file__).resolve().parent.parent


def generate(root: Path) -> None:
    """Writes the reference pages that differ from what the code says now."""
    for name, text in docs_reference.pages().items():
        page = root / "docs" / "reference" / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
            print(f"wrote {page.relative_to(root)}")


def check(root: Path) -> list[str]:
    """Every problem of every page, as `file:line: what is wrong`."""
    vocabulary = docs_check.vocabulary(root)
    problems = docs_check.stale_reference(root, docs_reference.pages())
    for page in docs_check.markdown_files(root):
        problems += docs_check.page_problems(page, root=root, vocabulary=vocabulary)
    return problems


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("generate", "check"))
    if parser.parse_args().command == "generate":
        generate(ROOT)
        return 0
    logging.getLogger("neve").addHandler(logging.NullHandler())  # settings in examples may warn; that is no problem of a page
    problems = check(ROOT)
    print("\n".join(problems) or f"{len(docs_check.markdown_files(ROOT))} pages are in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
