"""Lays the preset in effect under the layer that chose it: what that layer and higher ones say of a knob wins.

Called by `load_settings` for presets of settings, and by `table_policy` for one that a table property names. Only the highest
choice counts: presets are not mixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from neve.policy.presets import PRESETS
from neve.settings.keys import settings_tree
from neve.settings.layers import Layer, LayerReader
from neve.settings.origins import Origin, OriginKind

PATH = ("policy", "preset")


def with_preset(layers: Sequence[Layer]) -> list[Layer]:
    """The layers, lowest first, and among them that of the preset."""
    chosen = max((i for i, layer in enumerate(layers) if PATH in layer), default=0)
    name = layers[chosen][PATH].value if PATH in layers[chosen] else None
    return [*layers[:chosen], _layer_of(name), *layers[chosen:]] if name else [*layers]


def _layer_of(name: str) -> Layer:
    reader = LayerReader(f"preset {name}", Origin(OriginKind.PRESET, name))
    reader.read({"policy": PRESETS[name].knobs}, settings_tree())
    return reader.layer
