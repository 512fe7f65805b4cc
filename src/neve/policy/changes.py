"""What applying documents would change: which are added, changed or removed. Pure; `service.policies` carries it out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from neve.policy.document import Document
from neve.table.frozen import Frozen


class ChangeKind(StrEnum):
    """What happens to a document."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class DocumentChange(Frozen):
    """One document that changes."""

    kind: str
    name: str
    change: ChangeKind
    version: int = 0
    """The one in force; 0 if there is none."""
    before: Document | None = None
    """None also for a document that this release cannot read."""
    after: Document | None = None


class PolicyPlan(Frozen):
    """What an application would do."""

    changes: tuple[DocumentChange, ...] = ()
    unchanged: int = 0
    only_in_force: tuple[str, ...] = ()
    """Documents in force that are not among those applied and stay, as `KIND NAME`."""

    def count(self, change: ChangeKind) -> int:
        """How many documents change in this way."""
        return sum(one.change is change for one in self.changes)


class InForce(Frozen):
    """A document in force with its version."""

    version: int
    document: Document | None


Key = tuple[str, str]
"""Kind and name."""


def plan_changes(in_force: Mapping[Key, InForce], wanted: Iterable[Document], *, prune: bool = False) -> PolicyPlan:
    """Returns what has to change so that the wanted documents are in force; with `prune`, no others are."""
    documents = {(one.kind, one.name): one for one in wanted}
    changes = [_change(key, in_force.get(key), document) for key, document in documents.items()]
    others = sorted(set(in_force) - set(documents))
    removed = [_removed(key, in_force[key]) for key in others] if prune else []
    found = [one for one in (*changes, *removed) if one is not None]
    return PolicyPlan(
        changes=tuple(sorted(found, key=lambda one: (one.kind, one.name))),
        unchanged=sum(one is None for one in changes),
        only_in_force=() if prune else tuple(" ".join(key) for key in others),
    )


def _change(key: Key, before: InForce | None, document: Document) -> DocumentChange | None:
    if before is None:
        return DocumentChange(kind=key[0], name=key[1], change=ChangeKind.ADDED, after=document)
    if before.document == document:
        return None
    what = {"version": before.version, "before": before.document, "after": document}
    return DocumentChange(kind=key[0], name=key[1], change=ChangeKind.CHANGED, **what)


def _removed(key: Key, before: InForce) -> DocumentChange:
    what = {"version": before.version, "before": before.document}
    return DocumentChange(kind=key[0], name=key[1], change=ChangeKind.REMOVED, **what)
