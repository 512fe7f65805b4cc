"""Which tables a policy names, and which of two policies is more specific for a table. Pure; called by `policy.effective`.

Patterns are globs over the whole name, letter case included: `*` also matches dots, so that `prod.*` names every table of the
catalog prod. `[*]` matches a star itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import translate
from functools import lru_cache

from neve.policy.document import PolicyDocument

_ESCAPED = re.compile(r"\[[*?\[]\]")
_WILDCARD = re.compile(r"[*?\[]")

Specificity = tuple[int, int, int, str]


def matches(document: PolicyDocument, table: str, properties: Mapping[str, str]) -> bool:
    """Whether the policy names this table: one of its patterns, no exception, and all of its table properties."""
    return (
        _any_of(document.tables).match(table) is not None
        and (not document.except_tables or _any_of(document.except_tables).match(table) is None)
        and all(
            name in properties and _any_of((glob,)).match(properties[name]) for name, glob in document.table_properties.items()
        )
    )


def specificity(document: PolicyDocument, table: str | None = None) -> Specificity:
    """Returns a sort key; larger is more specific. With a table, only the patterns that match it count.

    First the parts of the pattern that have no wildcard, then the number of table properties, then the length of the pattern,
    then the name: of two policies that are equal otherwise, the one whose name sorts last is more specific.
    """
    patterns = [glob for glob in document.tables if table is None or _any_of((glob,)).match(table)]
    parts, length = max((_of_pattern(glob) for glob in patterns), default=(0, 0))
    return parts, len(document.table_properties), length, document.name


def literal(text: str) -> str:
    """Returns a pattern that matches this text only."""
    return re.sub(r"([*?\[])", r"[\1]", text)


def _of_pattern(glob: str) -> tuple[int, int]:
    plain = _ESCAPED.sub("x", glob)
    return sum(not _WILDCARD.search(part) for part in plain.split(".")), len(plain)


@lru_cache(maxsize=4096)
def _any_of(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{translate(glob)})" for glob in globs))
