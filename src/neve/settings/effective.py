"""Loaded settings: the values, where each came from, and the policy of a table once its own properties are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neve.errors import SettingsError
from neve.policy.model import Policy, knobs
from neve.settings.explain import Row, explain_policy, explain_settings
from neve.settings.layers import Layer
from neve.settings.model import Settings
from neve.settings.origins import DEFAULT, Origin
from neve.settings.problems import refuse
from neve.settings.section import nearest
from neve.settings.table_policy import find_contradictions, knob_entries


@dataclass(frozen=True)
class Loaded:
    """What `load_settings` returns."""

    settings: Settings
    file: Path | None
    layer: Layer

    def policy(self, table_properties: Mapping[str, str] | None = None) -> tuple[Policy, dict[str, Origin]]:
        """The policy of a table with these properties, and the origin of each knob by its key."""
        entries = knob_entries(self.layer, table_properties or {})
        refuse(find_contradictions(entries), what="use this policy")
        policy = Policy.model_validate({key: entry.value for key, entry in entries.items()})
        return policy, {key: entries[key].origin if key in entries else DEFAULT for key in knobs()}

    def origin(self, path: str) -> str:
        """Where the value at a dotted key came from, tables left aside."""
        found = next((entry for key, entry in self.layer.items() if ".".join(key) == path), None)
        if found is not None:
            return str(found.origin)
        keys = [row.key for row in explain_settings(self.settings, self.layer)] + [f"policy.{key}" for key in knobs()]
        if path not in keys:
            raise SettingsError(
                f"Cannot tell the origin of {path}: no such value{nearest(path, keys)}", hint="`neve config show` lists all."
            )
        return str(DEFAULT)

    def explain(self, table_properties: Mapping[str, str] | None = None) -> list[Row]:
        """Every effective value with its origin; secrets appear as the references they are."""
        policy, origins = self.policy(table_properties)
        return [*explain_settings(self.settings, self.layer), *explain_policy(policy, origins)]
