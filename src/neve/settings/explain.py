"""Effective values as rows of text, for `neve config show`. Derived from the tree of keys, so that no value can be missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from neve.policy.model import Policy
from neve.settings.keys import Path
from neve.settings.layers import Layer
from neve.settings.model import Settings
from neve.settings.origins import DEFAULT, Origin
from neve.settings.table_policy import show
from neve.table.units import exact_bytes, exact_seconds


@dataclass(frozen=True)
class Row:
    """One value: its dotted key, how it reads, and where it came from."""

    key: str
    value: str
    origin: str


def explain_settings(settings: Settings, layer: Layer) -> list[Row]:
    """All settings but the policy. Optional values that nobody set are left out, unless something stands in for them."""
    stand_ins = {
        ("default-catalog",): settings.catalog_name,
        ("state", "url"): settings.state.database,
        ("cache", "directory"): settings.cache.path,
    }
    rows = []
    for path, value, field in values_of(settings, ()):
        shown = stand_ins.get(path) if value is None else value
        if shown is not None and shown != ():
            origin = layer[path].origin if path in layer else DEFAULT
            rows.append(Row(".".join(path), _text(shown, field), str(origin)))
    return rows


def explain_policy(policy: Policy, origins: Mapping[str, Origin]) -> list[Row]:
    """Every knob, derived values included."""
    rows = []
    for name, field in Policy.model_fields.items():
        key = str(field.alias)
        value = getattr(policy, name)
        text = show(key, value)
        if key == "small-file-threshold" and value is None:
            text = f"{show(key, policy.small_bytes)} ({text})"
        rows.append(Row(f"policy.{key}", text, str(origins[key])))
    return rows


def values_of(model: BaseModel, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    """Every value with its key and its field; the policy and other profiles apart."""
    for name, field in type(model).model_fields.items():
        key = (*path, str(field.alias))
        value = getattr(model, name)
        if key in (("policy",), ("profiles",)):
            continue
        if isinstance(value, BaseModel):
            yield from values_of(value, key)
        elif isinstance(value, dict):
            for entry, inner in value.items():
                nested = isinstance(inner, BaseModel)
                yield from values_of(inner, (*key, entry)) if nested else [((*key, entry), inner, None)]
        else:
            yield key, value, field


def _text(value: Any, field: Any) -> str:
    name = "" if field is None else str(field.alias)
    if isinstance(value, bool):
        return str(value).lower()
    if name == "max-size":
        return exact_bytes(value)
    if name in ("ttl", "keep", "at-most-every"):
        return exact_seconds(value)
    return ", ".join(value) if isinstance(value, tuple) else str(value)
