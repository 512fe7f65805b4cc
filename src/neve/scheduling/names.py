"""Which name of a table its work is done under, where the catalogs list one table several times. Pure; called by `decide`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from neve.policy.effective import EffectivePolicy
from neve.scheduling.job import Job
from neve.scheduling.observation import Observation

Listed = tuple[Observation, EffectivePolicy]


def by_uuid(listed: Iterable[Listed], jobs: Iterable[Job]) -> tuple[dict[str, Listed], list[tuple[Listed, str]]]:
    """Each table under one name, by uuid, and its other names, each with the one that was chosen.

    A name that has a job keeps it. Otherwise a name for which policies have rules goes first, then the one with the newest
    metadata: the other may be a copy that was registered once.
    """
    found: dict[str, Listed] = {}
    several: dict[str, list[Listed]] = {}
    for one in listed:
        uuid = one[0].uuid
        if uuid in found:
            several.setdefault(uuid, [found[uuid]]).append(one)
        else:
            found[uuid] = one
    named = {job.table_uuid: job.table for job in jobs} if several else {}
    others: list[tuple[Listed, str]] = []
    for uuid, names in several.items():
        names.sort(key=lambda one: _order(one, named))
        found[uuid] = names[0]
        others += [(one, names[0][0].table) for one in names[1:]]
    return found, others


def _order(one: Listed, named: Mapping[str, str]) -> tuple[bool, bool, int, int, str]:
    seen, policy = one
    has_job = named.get(seen.uuid) == seen.table
    return not has_job, not policy.rules, -seen.sequence_number, -seen.log_ms, seen.table
