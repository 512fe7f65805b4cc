"""Sets table properties if they are as expected, and finds out by itself whether a change landed whose answer was lost.

Called by every adapter of `ports.TableEntry`, which differ only in how they load a table and send a change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from neve.errors import CatalogUnreachableError, CommitUnknownError

ATTEMPTS = 20
"""How often a property is set against writers that commit at the same moment."""
UNKNOWN_ATTEMPTS = 3
"""How often a change is sent again whose outcome is not known: each attempt may leave a metadata file behind."""

Loaded = tuple[Mapping[str, str], Callable[[], bool]]
"""The newest properties of a table, and what sends the change on top of these. False if anything has changed since they were
loaded, CommitUnknownError if the change may have landed."""


def swap_until_settled(
    load: Callable[[], Loaded], expected: Mapping[str, str | None], values: Mapping[str, str | None]
) -> bool:
    """Returns whether the properties were as expected and have their new values. None stands for no such property.

    Raises CatalogUnreachableError if that cannot be settled.
    """
    sent, unknown, failure = False, 0, f"others changed the table {ATTEMPTS} times meanwhile"
    for _ in range(ATTEMPTS):
        properties, send = load()
        if sent and all(properties.get(key) == value for key, value in values.items()):
            return True  # the answer was lost, not the change
        if unknown > UNKNOWN_ATTEMPTS:
            break  # nobody else is in the way: it is the catalog or the storage that fails
        if any(properties.get(key) != value for key, value in expected.items()):
            return False
        sent = True
        try:
            if send():
                return True
        except CommitUnknownError as error:
            unknown, failure = unknown + 1, str(error)
    raise CatalogUnreachableError(f"Cannot set property {', '.join(values)}: {failure}")
