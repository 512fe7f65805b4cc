"""What an older release can tell about a value that a newer one has stored. Pure.

Records that are only shown are read without the fields that this release does not know. What a change rests on, such as the
journal of a run that is resumed, is read strictly: an unknown field may carry meaning that must not be ignored.
"""

from __future__ import annotations

from pydantic import ValidationError

NEWER = "written by a newer version of Neve"
UPGRADE = "Upgrade Neve on this machine, or"
_UNKNOWN_FIELD = "extra_forbidden"
_UNKNOWN_VALUES = ("enum", "literal_error")


def unknown_parts(error: ValidationError) -> tuple[str, ...]:
    """The fields and values that this release does not know, such as `plan.policy.x`; none if anything else is wrong."""
    found = [(each["type"], ".".join(map(str, each["loc"])), each["input"]) for each in error.errors()]
    if any(kind != _UNKNOWN_FIELD and kind not in _UNKNOWN_VALUES for kind, _, _ in found):
        return ()
    return tuple(path if kind == _UNKNOWN_FIELD else f"{path} {value!r}" for kind, path, value in found)
