"""Lays the knobs of policies into loaded settings: over file and profile, under variables and flags.

Called by `context` with the policy in force for one table. Values were checked when the policy was applied; one that this
release does not take is refused with the name of its policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from neve.policy.effective import KnobValue
from neve.policy.model import Policy
from neve.settings.effective import Loaded
from neve.settings.keys import settings_tree
from neve.settings.layers import Layer, LayerReader, merge
from neve.settings.origins import Origin, OriginKind
from neve.settings.presets import PATH as PRESET_PATH
from neve.settings.presets import with_preset
from neve.settings.problems import Problem, refuse

_STRONGER = frozenset({OriginKind.FLAG, OriginKind.VARIABLE})


def with_policy_knobs(loaded: Loaded, knobs: Mapping[str, KnobValue]) -> Loaded:
    """Returns settings in which these knobs apply. Raises SettingsError for a value that cannot be used."""
    if not knobs:
        return loaded
    return replace(loaded, layer=_laid_in(loaded.layer, policy_layer(knobs)))


def _laid_in(layer: Layer, of_policies: Layer) -> Layer:
    """The layers merged. As everywhere, only the highest preset counts, and it lies right under the layer that chose it."""
    stronger = {path: entry for path, entry in layer.items() if entry.origin.kind in _STRONGER}
    preset = {path: entry for path, entry in layer.items() if entry.origin.kind is OriginKind.PRESET}
    without_preset = {path: entry for path, entry in layer.items() if path not in preset}
    if PRESET_PATH in stronger:
        return merge(without_preset, of_policies, preset, stronger)
    if PRESET_PATH in of_policies:
        return merge(without_preset, *with_preset([of_policies]), stronger)
    return merge(layer, of_policies, stronger)


def policy_layer(knobs: Mapping[str, KnobValue]) -> Layer:
    """The knobs as a layer of settings, each with the policy that sets it."""
    layer: Layer = {}
    problems: list[Problem] = []
    for key, knob in knobs.items():
        reader = LayerReader(f"policy {knob.policy}", Origin(OriginKind.POLICY, knob.policy))
        reader.read({"policy": {key: knob.value}}, settings_tree())
        layer |= reader.layer
        problems += reader.problems
    refuse(problems, what="use policies")
    return layer


def limited(policy: Policy, origins: dict[str, Origin], limits: Mapping[str, Any]) -> tuple[Policy, dict[str, Origin]]:
    """Returns a policy in which no number exceeds its limit, by key."""
    attributes = {str(field.alias): name for name, field in Policy.model_fields.items() if str(field.alias) in limits}
    exceeded = {
        key: limits[key] for key, name in attributes.items() if (value := getattr(policy, name)) is None or value > limits[key]
    }
    if not exceeded:
        return policy, origins
    origin = Origin(OriginKind.POLICY, "limits of the service")
    bounded = policy.model_copy(update={attributes[key]: value for key, value in exceeded.items()})
    return bounded, origins | dict.fromkeys(exceeded, origin)
