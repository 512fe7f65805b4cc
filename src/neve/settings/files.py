"""Finds and parses a settings file: YAML, or JSON with // comments. Knows syntax, not meaning."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from neve.errors import SettingsError

NAMES = ("neve.yaml", "neve.yml", "neve.json")

# A string first, so that the // of a URL inside one is not taken for a comment.
_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


class UniqueKeys(yaml.SafeLoader):
    """YAML that refuses a key given twice, of which the plain loader silently keeps the last."""


def _mapping(loader: UniqueKeys, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if isinstance(key_node, yaml.ScalarNode) and key_node.tag != "tag:yaml.org,2002:merge":
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key_node.value!r} is given twice", key_node.start_mark
                )
            seen.add(key_node.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def find_file(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file asked for, else NEVE_CONFIG, else one of the usual names in the working directory, else none."""
    if file is not None:
        return file
    if environ.get("NEVE_CONFIG"):
        return Path(environ["NEVE_CONFIG"])
    return next((Path(name) for name in NAMES if Path(name).is_file()), None)


def parse_file(file: Path) -> dict[str, Any]:
    """What the file says. Raises SettingsError with the file and the line where it cannot be read."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError(
            f"Cannot read settings {file}: {error.strerror or error}", hint="Check --config and NEVE_CONFIG."
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"Cannot read settings {file}: it is not UTF-8 text", hint="Save it as UTF-8.") from error
    value = _parse_json(file, text) if file.suffix == ".json" else _parse_yaml(file, text)
    if value is not None and not isinstance(value, dict):
        raise SettingsError(f"Cannot read settings {file}: it holds no keys", hint="Write `key: value` lines.")
    return value or {}


def _parse_yaml(file: Path, text: str) -> Any:
    try:
        return yaml.load(text, Loader=UniqueKeys)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or "not YAML"
        raise SettingsError(f"Cannot read settings {file}{line}: {reason}", hint="Check indentation and quotes.") from error


def _parse_json(file: Path, text: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(_COMMENT.sub(_blank, text), object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise SettingsError(
            f"Cannot read settings {file}, line {error.lineno}: {error.msg}", hint="Check commas, quotes and braces."
        ) from error
    except ValueError as error:
        raise SettingsError(f"Cannot read settings {file}: {error}", hint="Keep one of the two.") from error


def _blank(match: re.Match[str]) -> str:
    # Line ends stay, so that the line numbers in messages are right.
    return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"key {twice!r} is given twice")
    return dict(pairs)
