"""The policy of one table: what settings say comes before the table's own properties, and those before the defaults.

Where a property is a promise about the past (`Knob.table_first`), only a flag comes before it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from shlex import quote

from pydantic import ValidationError

from neve.errors import SettingsError
from neve.policy.foreign_properties import WITHOUT_EFFECT, in_force
from neve.policy.model import SMALL_ABOVE_TARGET, Contradiction, Policy, contradictions, knobs, read_property
from neve.rewrite.kernel_options import OPTIONS, RewriteOption, unsupported
from neve.settings.keys import knob_leaves
from neve.settings.layers import Layer, LayerEntry, check, merge
from neve.settings.origins import Origin, OriginKind
from neve.settings.presets import with_preset
from neve.settings.problems import Problem
from neve.settings.section import nearest
from neve.table.properties import NOTES
from neve.table.units import exact_bytes, exact_seconds

log = logging.getLogger(__name__)

Entries = dict[str, LayerEntry]
"""What was said of the knobs, by key; a knob that is not here has its default."""


def knob_entries(layer: Layer, table_properties: Mapping[str, str]) -> Entries:
    """What settings and table say, by precedence. Raises SettingsError for a table property that cannot be read."""
    _warn_of_unknown(table_properties)
    of_table: Layer = {}
    said_by_table = in_force(table_properties)
    for key, knob in knobs().items():
        said_above = layer.get(("policy", key))
        beaten = said_above is None or (knob.table_first and said_above.origin.kind is not OriginKind.FLAG)
        if beaten and (entry := _from_table(key, said_by_table)):
            of_table["policy", key] = entry
    rest = {path: entry for path, entry in layer.items() if path not in of_table}
    said = merge(*with_preset([of_table]), rest)
    return {key: said["policy", key] for key in knobs() if ("policy", key) in said}


def find_contradictions(entries: Entries) -> list[Problem]:
    """Knobs that cannot all be meant, with the origin of each."""
    values = {key: entry.value for key, entry in entries.items()}
    try:
        policy = Policy.model_validate(values)
    except ValidationError:
        # Each value was checked by itself, so that only the pair can be at fault.
        found = Contradiction(("small-file-threshold", "target-file-size"), SMALL_ABOVE_TARGET)
        return [_problem(found, entries)]
    # A preset gives way as a default does.
    explicit = [key for key, entry in entries.items() if entry.origin.kind is not OriginKind.PRESET]
    return [_problem(found, entries) for found in contradictions(policy, explicit)]


def settled_contradictions(layer: Layer) -> list[Problem]:
    """Contradictions that no table property can lift, since every knob involved is set above it."""
    entries = knob_entries(layer, {})
    return [problem for problem in find_contradictions(entries) if set(problem.path[1:]) <= entries.keys()]


def show(key: str, value: object) -> str:
    """A knob's value as people write it."""
    unit = knobs()[key].unit
    if value is None:
        return knobs()[key].unset
    if unit == "size" and isinstance(value, int):
        return exact_bytes(value)
    if unit == "duration" and isinstance(value, int | float):
        return exact_seconds(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def rewrite_options(
    policy: Policy, origins: Mapping[str, Origin], table_properties: Mapping[str, str]
) -> tuple[RewriteOption, ...]:
    """Options that shape output files and were set by anyone, with the kernels that cannot apply them to this table."""
    values = {str(field.alias): getattr(policy, name) for name, field in Policy.model_fields.items()}
    return tuple(
        RewriteOption(
            option=key,
            value=show(key, values[key]),
            origin=str(origins[key]),
            explicit=origins[key].kind is OriginKind.FLAG,
            unsupported=unsupported(policy, key, table_properties),
        )
        for key in OPTIONS
        if values[key] is not None
    )


def _from_table(key: str, said_by_table: Mapping[str, tuple[str, str]]) -> LayerEntry | None:
    declared = next((name for name in knobs()[key].properties if name in said_by_table), None)
    if declared is None:
        return None
    name, text = said_by_table[declared]
    try:
        value = check(read_property(declared, text), knob_leaves()[key], key)
    except ValueError as error:
        hint = f"Correct the property, or override it with {_override(key)}."
        raise SettingsError(f"Cannot use table property {name}: {error}", hint=hint) from None
    return LayerEntry(value, Origin(OriginKind.TABLE_PROPERTY, name), f"table property {name}", f"policy.{key}")


def _override(key: str) -> str:
    """An option that every command takes, with the default as an example."""
    name = next(name for name, field in Policy.model_fields.items() if field.alias == key)
    default = getattr(Policy(), name)
    value = "VALUE" if default is None else show(key, default)
    return f"--set {quote(f'policy.{key}={value}')}"


def _problem(found: Contradiction, entries: Entries) -> Problem:
    first, *others = found.keys
    defaults = Policy()
    values = {str(field.alias): getattr(defaults, name) for name, field in Policy.model_fields.items()}

    def tell(key: str) -> str:
        entry = entries.get(key)
        return f"{show(key, entry.value)} ({entry.origin})" if entry else f"{show(key, values[key])} (default)"

    rest = "".join(f", {key} is {tell(key)}" for key in others)
    blamed = next(entries[key] for key in found.keys if key in entries)
    key = entries[first].key if first in entries else f"policy.{first}"
    return Problem(blamed.where, key, f"{found.reason}; it is {tell(first)}{rest}", ("policy", *found.keys))


def _warn_of_unknown(table_properties: Mapping[str, str]) -> None:
    # Not refused: a newer release may have written the property.
    own = {name for knob in knobs().values() for name in knob.properties} | NOTES
    for name in table_properties:
        if name.startswith("neve.") and name not in own:
            log.warning("table property %s is not known to this release%s", name, nearest(name, own))
        elif name in WITHOUT_EFFECT:
            log.warning("table property %s has no effect: %s", name, WITHOUT_EFFECT[name])
