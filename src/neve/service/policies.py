"""Policy documents: read from files, compared with those in force, and applied. Called by `neve policy` and by `neve serve`.

Documents are checked before anything is stored, and all of them are stored or none.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Collection, Iterable, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from neve.errors import BadRequestError
from neve.operations.policy_options import operation_problems, option_names
from neve.policy.changes import InForce, PolicyPlan, plan_changes
from neve.policy.document import Document
from neve.settings.policy_files import STDIN, Vocabulary, read_policies
from neve.settings.section import nearest

if TYPE_CHECKING:
    from neve.context.connection import Connection
    from neve.settings import Loaded
    from neve.state.policies import DocumentVersion, StoredDocument


HISTORY_POLICY = "neve-history"
"""The policy of the service's own history tables. No file has it, so none lacks it."""
_ALL = 1_000_000


def vocabulary(loaded: Loaded, teams: Collection[str] = ()) -> Vocabulary:
    """The names that documents may use with these settings."""
    settings = loaded.settings
    return Vocabulary(
        operation_problems, settings.service.all_targets(), settings.notifications.channels, teams, option_names()
    )


def in_force_since(stored: Iterable[StoredDocument]) -> dict[str, int]:
    """When each policy, or the team that owns it, was changed last, by the policy's name."""
    listed = list(stored)
    teams = {one.name: one.changed_ms for one in listed if one.kind == "team"}
    return {
        one.name: max(one.changed_ms, teams.get(getattr(one.document, "owner", ""), 0))
        for one in listed
        if one.kind == "policy"
    }


class Policies:
    """The policies of a connection's state store."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def stored(self) -> tuple[StoredDocument, ...]:
        """The documents in force; none where there is no state store yet."""
        store = self.connection.records()
        return store.policies.documents() if store is not None else ()

    def documents(self) -> tuple[Document, ...]:
        """The documents in force. Raises BadRequestError if this release cannot read one of them."""
        stored = self.stored()
        for one in stored:
            if one.document is None:
                raise BadRequestError(
                    f"Cannot read {one.kind} {one.name}: {one.trouble}", hint="Use the release that applied it, or newer."
                )
        return tuple(one.document for one in stored if one.document is not None)

    def log(self, name: str | None = None, *, limit: int = 100) -> tuple[DocumentVersion, ...]:
        """Versions that were applied, the newest first: of all documents, or of those with a name."""
        store = self.connection.records()
        return store.policies.history(name=name, limit=limit) if store is not None else ()

    def named(self, name: str, version: int | None = None) -> tuple[Document, ...]:
        """The documents of this name: those in force, or as they were in a version."""
        if version is None:
            documents = self.documents()
            found = tuple(one for one in documents if one.name == name)
            if not found:
                close = nearest(name, [one.name for one in documents])
                hint = "`neve policy list` lists them."
                raise BadRequestError(f"Cannot show policy {name}: there is none of this name{close}", hint=hint)
            return found
        versions = [one for one in self.log(name, limit=_ALL) if one.version == version]
        for one in versions:
            if one.trouble is not None:
                raise BadRequestError(
                    f"Cannot read version {version} of {one.kind} {name}: {one.trouble}", hint="Use the release that wrote it."
                )
        kept = tuple(one.document for one in versions if one.document is not None)
        if not kept:
            reason = "it was removed in that version" if versions else "there is no such version"
            raise BadRequestError(
                f"Cannot show version {version} of policy {name}: {reason}", hint=f"`neve policy log {quote(name)}` lists them."
            )
        return kept

    def read(self, path: str, *, prune: bool = False) -> tuple[Document, ...]:
        """The documents in files. With `prune`, teams that are not among them do not count."""
        teams = [] if prune else [one.name for one in self.stored() if one.kind == "team"]
        return read_policies(path, vocabulary(self.connection.loaded, teams))

    def plan(self, path: str, *, prune: bool = False) -> PolicyPlan:
        """What applying these files would change."""
        wanted = self.read(path, prune=prune)
        if prune and not wanted:
            raise BadRequestError(
                f"Cannot remove what {path} does not have: it has no document at all",
                hint="Every policy would go. Check what writes the file.",
            )
        return self._plan(self.stored(), wanted, prune=prune)

    def after(self, path: str) -> tuple[Document, ...]:
        """The documents that would be in force if these files were applied."""
        wanted = self.read(path)
        named = {(one.kind, one.name) for one in wanted}
        return (*wanted, *(one for one in self.documents() if (one.kind, one.name) not in named))

    def apply(self, path: str, *, prune: bool = False, by: str | None = None) -> PolicyPlan:
        """Applies files, all of their documents or none; returns what was changed.

        Raises PolicyConflictError if somebody else has changed one of the documents meanwhile.
        """
        from neve.state.policies import PolicyChange

        plan = self.plan(path, prune=prune)
        changes = [
            PolicyChange(kind=one.kind, name=one.name, document=one.after, expected_version=one.version) for one in plan.changes
        ]
        if changes:
            source = "standard input" if path == STDIN else path
            with self.connection.store() as store:
                store.policies.apply(changes, by=by or person(), now_ms=self.connection.clock.now_ms(), source=source)
        return plan

    @staticmethod
    def _plan(stored: Sequence[StoredDocument], wanted: Sequence[Document], *, prune: bool) -> PolicyPlan:
        named = {(one.kind, one.name) for one in wanted}
        kept = [one for one in stored if one.name != HISTORY_POLICY or (one.kind, one.name) in named]
        in_force = {(one.kind, one.name): InForce(version=one.version, document=one.document) for one in kept}
        return plan_changes(in_force, wanted, prune=prune)


def person() -> str:
    """Who works at this machine, for the log."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user without an entry
        name = "unknown"
    return f"{name}@{socket.gethostname()}"
