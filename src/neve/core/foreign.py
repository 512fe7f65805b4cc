"""Table properties of Iceberg and of Apache Amoro that are read as policy: their spellings, units and conditions. Pure.

Which knob a property sets is declared with the knob (`core.policy`); docs/guide/properties.md tells of each, also of those that
are not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

_AMORO, _DOTTED = "self-optimizing.", "self.optimizing."
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
    found |= {name: (name, text) for name, text in properties.items() if not name.startswith(_DOTTED)}
    if properties.get(_EXPIRES, "").strip().lower() != "true":
        return {name: value for name, value in found.items() if not name.startswith(_EXPIRE)}
    if "neve.ttl" not in properties and f"{_EXPIRE}retention-time" in properties:
        found = {name: (_EXPIRES, text) for name, text in _EXPIRE_DEFAULTS.items()} | found
    return found


def _declared(name: str) -> str:
    return _AMORO + name.removeprefix(_DOTTED) if name.startswith(_DOTTED) else name


def read_foreign(name: str, text: str) -> object:
    """A value as its knob reads it; ValueError says what is wrong. Iceberg's names end in the unit that they are written in."""
    if name in _READERS:
        return _READERS[name](text.strip())
    if name.endswith("-bytes"):
        return _whole(text, "bytes")
    return f"{_whole(text, 'milliseconds')} ms" if name.endswith("-ms") else text


def _whole(text: str, unit: str) -> int:
    if not text.strip().isdigit():
        raise ValueError(f"{text!r} is not a whole number of {unit}")
    return int(text)


def _interval(never: str | None) -> Callable[[str], str | None]:
    """Milliseconds; a number below zero stands for never."""
    return lambda text: (
        never if text.startswith("-") and text[1:].isdigit() else f"{_whole(text, 'milliseconds, nor below zero')} ms"
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
