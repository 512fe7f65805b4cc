"""Table properties of Iceberg and of Apache Amoro that are read as policy: their spellings, units and conditions. Pure.

Which knob a property sets is declared with the knob (`policy.model`); docs/guide/properties.md tells of each, also of those
that are not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from neve.table.units import whole_number

_AMORO, _DOTTED = "self-optimizing.", "self.optimizing."
_OTHER_NAMES = {
    "table.expire.enabled": "table-expire.enabled",
    "table-expire.enable": "table-expire.enabled",
    "clean-orphan-file.enable": "clean-orphan-file.enabled",
}
"""Spellings of older releases and of their documentation."""
_CHANGE_STORE = "it limits the change store of Amoro's mixed tables, which an Iceberg table has not; neve.ttl limits its rows"
WITHOUT_EFFECT = {"change.data.ttl.minutes": _CHANGE_STORE, "change.data.ttl": _CHANGE_STORE}
"""Properties that look like policy and are none here, each with the reason."""
_EXPIRE = "data-expire."
_EXPIRES = f"{_EXPIRE}enabled"
_EXPIRE_DEFAULTS = {f"{_EXPIRE}level": "partition", f"{_EXPIRE}base-on-rule": "LAST_COMMIT_TIME"}
_CENTURY = "36500 days"


def in_force(properties: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """By the name that knobs declare: the name that the table has, and the value.

    Amoro's data expiry counts only where it is switched on, and then with Amoro's own defaults, by which it removes whole files
    and counts from the last write: with ours, more rows would go than its tables were promised.
    """
    found = {_declared(name): (name, text) for name, text in properties.items()}
    found |= {name: (name, text) for name, text in properties.items() if _declared(name) == name}
    if properties.get(_EXPIRES, "").strip().lower() != "true":
        return {name: value for name, value in found.items() if not name.startswith(_EXPIRE)}
    if "neve.ttl" not in properties and f"{_EXPIRE}retention-time" in properties:
        found = {name: (_EXPIRES, text) for name, text in _EXPIRE_DEFAULTS.items()} | found
    return found


def _declared(name: str) -> str:
    return _AMORO + name.removeprefix(_DOTTED) if name.startswith(_DOTTED) else _OTHER_NAMES.get(name, name)


def read_foreign(name: str, text: str) -> object:
    """A value as its knob reads it; ValueError says what is wrong. Iceberg's names end in the unit that they are written in."""
    if name in _READERS:
        return _READERS[name](text.strip())
    if name.endswith("-bytes"):
        return _whole(text, "bytes")
    return f"{_whole(text, 'milliseconds')} ms" if name.endswith("-ms") else text


def _whole(text: str, unit: str) -> int:
    if (number := whole_number(text.strip())) is None:
        raise ValueError(f"{text!r} is not a whole number of {unit}")
    return number


def _interval(never: str | None) -> Callable[[str], str | None]:
    """Milliseconds; a number below zero stands for never."""
    return lambda text: (
        never
        if text.startswith("-") and whole_number(text[1:]) is not None
        else f"{_whole(text, 'milliseconds, nor below zero')} ms"
    )


def _word(**words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"{text!r} is not one of {', '.join(word.upper() for word in words)}")
        return words[text.lower()]

    return read


_READERS: dict[str, Callable[[str], object]] = {
    "self-optimizing.minor.trigger.interval": _interval(_CENTURY),
    "self-optimizing.full.trigger.interval": _interval(None),
    "snapshot.base.keep.minutes": lambda text: f"{_whole(text, 'minutes')} min",
    "data-expire.datetime-number-format": _word(timestamp_ms="milliseconds", timestamp_s="seconds"),
    "data-expire.level": _word(partition="file", file="file"),
    "data-expire.base-on-rule": _word(last_commit_time="last-write", current_time="now"),
}
