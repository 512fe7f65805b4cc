"""Policy documents: those in force, and every version that ever was, with who applied it and when.

A set of changes is applied wholly or not at all, and only if nobody has changed these documents since they were read. Documents
are stored without what equals its default, so that an older release can read all that do not use something newer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, delete, func, insert, null, select, text, update

from neve.errors import BadRequestError
from neve.policy.document import Document, PolicyDocument, TeamDocument
from neve.state import schema
from neve.state.database import guarded, writing
from neve.table.frozen import Frozen

_KINDS: dict[str, type[PolicyDocument | TeamDocument]] = {"policy": PolicyDocument, "team": TeamDocument}
_current, _versions = schema.policies.c, schema.policy_versions.c


class PolicyConflictError(BadRequestError):
    """Somebody else has changed a document since it was read."""


class PolicyChange(Frozen):
    """What a document should become. `document` is None for a deletion."""

    kind: str
    name: str
    document: Document | None = None
    expected_version: int = 0
    """The version in force when the change was worked out; 0 if there was no such document."""


class StoredDocument(Frozen):
    """A document in force. `document` is None, with the reason in `trouble`, if this release cannot read it."""

    kind: str
    name: str
    version: int
    changed_ms: int
    document: Document | None = None
    trouble: str | None = None


class DocumentVersion(StoredDocument):
    """A version that was applied once. A deletion has neither a document nor a trouble."""

    changed_by: str
    source: str


class PolicyStore:
    """Reads and changes policy documents."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def documents(self) -> tuple[StoredDocument, ...]:
        """Returns the documents in force, by kind and name; those that cannot be read as such."""
        query = select(schema.policies).order_by(_current.kind, _current.name)
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            return tuple(StoredDocument(**_stored(row)) for row in connection.execute(query))

    def history(self, kind: str | None = None, name: str | None = None, *, limit: int = 100) -> tuple[DocumentVersion, ...]:
        """Returns versions, the newest first: of all documents, of a kind, or of one document."""
        wanted = [column == value for column, value in ((_versions.kind, kind), (_versions.name, name)) if value is not None]
        order = (_versions.changed_ms.desc(), _versions.version.desc(), _versions.kind, _versions.name)
        query = select(schema.policy_versions).where(*wanted).order_by(*order).limit(limit)
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return tuple(DocumentVersion(**_stored(row), changed_by=row.changed_by, source=row.source) for row in rows)

    def apply(self, changes: Iterable[PolicyChange], *, by: str, now_ms: int, source: str = "") -> tuple[StoredDocument, ...]:
        """Applies all changes or none, and returns the documents that it changed; one that stays the same gets no new version.

        Raises PolicyConflictError if a document is no longer at its expected version.
        """
        wanted = _by_key(changes)
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            _lock(connection)
            _require_versions(connection, wanted)
            rows = [(change.kind, change.name, _document(change)) for change in wanted.values()]
            return _write(connection, rows, by=by, now_ms=now_ms, source=source)


def _by_key(changes: Iterable[PolicyChange]) -> dict[tuple[str, str], PolicyChange]:
    found: dict[tuple[str, str], PolicyChange] = {}
    for change in changes:
        key = (change.kind, change.name)
        written = (change.document.kind, change.document.name) if change.document is not None else key
        if key in found or written != key:
            reason = "it is changed twice" if key in found else f"its document is that of {written[0]} {written[1]}"
            raise BadRequestError(f"Cannot apply {change.kind} {change.name}: {reason}", hint="Name each document once.")
        found[key] = change
    return dict(sorted(found.items()))


def _lock(connection: Connection) -> None:
    """Lets one process apply at a time; others go on reading. On SQLite every transaction that writes has this lock."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE policies IN SHARE ROW EXCLUSIVE MODE"))


def _require_versions(connection: Connection, wanted: dict[tuple[str, str], PolicyChange]) -> None:
    rows = connection.execute(select(_current.kind, _current.name, _current.version))
    versions = {(kind, name): version for kind, name, version in rows}
    problems = [
        f"{change.kind} {change.name} is at version {versions.get(key, 0)}, not {change.expected_version}"
        for key, change in wanted.items()
        if versions.get(key, 0) != change.expected_version
    ]
    if problems:
        raise PolicyConflictError(
            f"Cannot apply policies: somebody else has changed them since ({'; '.join(problems)})",
            hint="Nothing was applied. Compare with the documents in force, then apply again.",
        )


def _write(
    connection: Connection, rows: list[tuple[str, str, Any]], *, by: str, now_ms: int, source: str
) -> tuple[StoredDocument, ...]:
    changed = []
    for kind, name, document in rows:
        of = (_current.kind == kind, _current.name == name)
        before = connection.execute(select(_current.document).where(*of)).scalar()
        if before == document:
            continue
        known = select(func.max(_versions.version)).where(_versions.kind == kind, _versions.name == name)
        key = {"kind": kind, "name": name}
        row = {"version": (connection.execute(known).scalar() or 0) + 1, "changed_ms": now_ms}
        stored = null() if document is None else document
        audit = {**key, **row, "document": stored, "changed_by": by, "source": source}
        connection.execute(insert(schema.policy_versions).values(**audit))
        if document is None:
            connection.execute(delete(schema.policies).where(*of))
        elif before is None:
            connection.execute(insert(schema.policies).values(**key, **row, document=document))
        else:
            connection.execute(update(schema.policies).where(*of).values(**row, document=document))
        changed.append(StoredDocument(**key, **row, document=None if document is None else _read(kind, document)))
    return tuple(changed)


def _document(change: PolicyChange) -> dict[str, Any] | None:
    if change.document is None:
        return None
    written = change.document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"kind": change.kind, "name": change.name, **written}


def _stored(row: Any) -> dict[str, Any]:
    document, trouble = None, None
    if row.document is not None:
        try:
            document = _read(row.kind, row.document)
        except (ValidationError, KeyError) as error:
            trouble = _trouble(row.kind, error)
    names = ("kind", "name", "version", "changed_ms")
    return {**{name: getattr(row, name) for name in names}, "document": document, "trouble": trouble}


def _read(kind: str, document: Any) -> PolicyDocument | TeamDocument:
    return _KINDS[kind].model_validate(document)


def _trouble(kind: str, error: ValidationError | KeyError) -> str:
    if isinstance(error, KeyError):
        return f"this release does not know the kind {kind}"
    problems = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False))
    return f"this release cannot read it ({'; '.join(problems)})"
