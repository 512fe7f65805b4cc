"""Reads the `iceberg` section of an older application's config.json, sizes in MB and snake_case, as policy overrides.

Such a file is shared with that application, so that its other sections are left alone; inside `iceberg` unknown keys are
refused as everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from neve.settings.keys import Path
from neve.settings.problems import Problem
from neve.settings.section import nearest

log = logging.getLogger(__name__)

SECTION = "iceberg"


def _megabytes(value: Any) -> Any:
    return f"{value} MB" if isinstance(value, int | float) and not isinstance(value, bool) else value


def _same(value: Any) -> Any:
    return value


_KEYS: dict[str, dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "write": {
        "target_file_size_mb": ("target-file-size", _megabytes),
        "compression_codec": ("compression-codec", _same),
        "parquet_row_group_size": ("row-group-rows", _same),
    },
    "compaction": {
        "enabled": ("advise", _same),
        "small_file_threshold_mb": ("small-file-threshold", _megabytes),
        "min_files_to_compact": ("min-input-files", _same),
        "opportunistic_check_interval": ("check-interval", _same),
        "max_files_per_compaction": ("max-files", _same),
    },
}


@dataclass
class Translated:
    """The file in our words, the names its keys had, and what could not be translated."""

    tree: dict[str, Any] = field(default_factory=lambda: {"policy": {}})
    names: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def translate(document: Mapping[str, Any], where: str) -> Translated:
    """Turns a document with an `iceberg` section into one of ours."""
    result = Translated()
    if "policy" in document:
        reason = "cannot stand beside policy, which says the same in other words; keep one of them"
        result.problems.append(Problem(where, SECTION, reason))
    _warn_of_siblings([key for key in document if key not in (SECTION, "policy")], where)
    for name, keys in _sections(document[SECTION], where, result).items():
        for key, value in keys.items():
            _translate_key(name, key, value, where=where, result=result)
    return result


def _sections(iceberg: Any, where: str, result: Translated) -> dict[str, Mapping[str, Any]]:
    if not isinstance(iceberg, Mapping):
        result.problems.append(Problem(where, SECTION, f"should be a section with {' and '.join(_KEYS)}"))
        return {}
    found: dict[str, Mapping[str, Any]] = {}
    for name, section in iceberg.items():
        if name not in _KEYS:
            reason = f"unknown key{nearest(str(name), _KEYS) or '; valid here: ' + ', '.join(_KEYS)}"
            result.problems.append(Problem(where, f"{SECTION}.{name}", reason))
        elif section is not None and not isinstance(section, Mapping):
            result.problems.append(Problem(where, f"{SECTION}.{name}", "should be a section"))
        else:
            found[name] = section or {}
    return found


def _translate_key(section: str, key: str, value: Any, *, where: str, result: Translated) -> None:
    written = f"{SECTION}.{section}.{key}"
    if key not in _KEYS[section]:
        reason = f"unknown key{nearest(str(key), _KEYS[section]) or '; valid here: ' + ', '.join(_KEYS[section])}"
        result.problems.append(Problem(where, written, reason))
        return
    knob, convert = _KEYS[section][key]
    result.tree["policy"][knob] = convert(value)
    result.names["policy", knob] = written
    if knob == "row-group-rows":
        log.warning(
            "%s: %s is read as rows per row group; 8192 rows are few, and such files read slowly: "
            "leave it out to let sizes decide",
            where,
            written,
        )


def _warn_of_siblings(siblings: list[str], where: str) -> None:
    if siblings:
        names = ", ".join(map(str, siblings))
        log.warning("%s: beside %s, these sections belong to another application: %s", where, SECTION, names)
