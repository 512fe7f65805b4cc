"""Rules by which a store deletes files by itself, without asking any table. Called by `operations.remove_orphans`.

Iceberg never knows of such a rule: an old file is as live as a new one, so that a table under one loses files that it needs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from neve.errors import NeveError
from neve.maintenance.quarantine import TRASH
from neve.storage.files import kind_of
from neve.table.units import counted

log = logging.getLogger(__name__)


def deleting_rules(properties: Mapping[str, str], location: str) -> tuple[str, ...]:
    """What the rules of a bucket say that delete files at this place, each in a sentence. None where we may not look."""
    if kind_of(location) != "s3":
        return ()
    from neve.storage.s3 import S3Files

    try:
        bucket, key, rules = S3Files(properties).lifecycle(location)
    except NeveError as error:
        log.info("rules of the bucket of %s are not known: %s", location, error)
        return ()
    return tuple(_told(bucket, rules, f"{key.rstrip('/')}/"))


def _told(bucket: str, rules: list[Any], place: str) -> Iterator[str]:
    for rule in rules:
        prefix, ends = _prefix(rule), rule.get("Expiration", {})
        if rule.get("Status") != "Enabled" or not ("Days" in ends or "Date" in ends):
            continue  # it cleans up uploads, markers or older versions
        if prefix.startswith(f"{place}{TRASH}/") or not (prefix.startswith(place) or place.startswith(prefix)):
            continue
        when = f"after {counted(ends['Days'], 'day')}" if "Days" in ends else f"on {ends['Date']:%Y-%m-%d}"
        where = f"under {prefix}" if prefix else "of the whole bucket"
        name = rule.get("ID") or "without a name"
        yield f"rule {name} of bucket {bucket} deletes files {where} {when}, those included that are in use"


def _prefix(rule: Any) -> str:
    """How the keys begin that a rule is for; other conditions only make it act on fewer of them."""
    chosen = rule.get("Filter") or {}
    return str(rule.get("Prefix") or chosen.get("Prefix") or chosen.get("And", {}).get("Prefix") or "")
