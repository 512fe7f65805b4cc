"""What finding the rows behind equality deletes takes and gives, and which file must be compared with which. Pure.

`spark.tasks.resolving` carries it out. A delete concerns files of its own scope (a partition of one spec) or all of them, and
only those that are older. Files are never paired with deletes, which would be quadratic: both say which *realms* they are in,
a realm being one set of equality ids within one scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from neve.errors import BadRequestError
from neve.rewrite.work_order import Binary, DeleteFile, DeleteKind, InputFile, WorkOrder
from neve.table.frozen import Frozen
from neve.table.units import MIB

BYTES_PER_KEY = 48
"""What a key takes in a task's memory beside its values, at most."""
KEYS_SHARE = 4
"""The keys of an order may take this part of its memory: one fourth."""

OPENING_BYTES = MIB
"""What opening a file costs, in bytes that could be read meanwhile."""

Scope = int | None


class ResolveInput(Frozen):
    """A data file; `scope` is the caller's number for its spec and partition."""

    file: InputFile
    scope: int


class ResolveDelete(Frozen):
    """An equality delete; without a scope it concerns the whole table."""

    file: DeleteFile
    scope: Scope = None


class ResolvedFile(Frozen):
    """A data file's rows that equality deletes remove, as a vector within the Puffin file at `path`."""

    data_path: str
    path: str
    size_bytes: int
    """Of the whole Puffin file."""
    offset: int
    length: int
    cardinality: int


class Realm(Frozen):
    """Keys that may be equal: those of one set of columns, in one scope or in all."""

    number: int
    field_ids: tuple[int, ...]


class KeyFile(Frozen):
    """A file to take keys from: a delete, or, where it has a number, a data file. `constants` and `content` as in orders."""

    path: str
    size_bytes: int
    records: int
    sequence_number: int
    realms: tuple[Realm, ...]
    number: int | None = None
    constants: dict[int, Any] = {}
    content: Binary = None

    @property
    def keys(self) -> int:
        """How many it gives."""
        return self.records * len(self.realms)


class KeyTask(Frozen):
    """Files for one task."""

    files: tuple[KeyFile, ...]


def key_files(data: Sequence[ResolveInput], deletes: Sequence[ResolveDelete]) -> tuple[list[KeyFile], list[KeyFile]]:
    """The data files and the deletes that have to be read; what is too new or too old to meet the other is left out."""
    realms, newest = _realms(deletes)
    read = []
    for number, one in enumerate(data):
        sequence = _sequence_number(one.file)
        sets = realms.get(one.scope, []) + realms.get(None, [])
        if meant := tuple(realm for realm in sets if newest[realm.number] > sequence):
            read.append(_data_key_file(one.file, number, sequence, meant))
    oldest = dict.fromkeys(newest, 2**63)
    for file in read:
        for realm in file.realms:
            oldest[realm.number] = min(oldest[realm.number], file.sequence_number)
    by_scope = {(scope, realm.field_ids): realm for scope, sets in realms.items() for realm in sets}
    chosen = ((one.file, by_scope[one.scope, _ids(one.file)]) for one in deletes)
    return read, [_delete_key_file(file, realm) for file, realm in chosen if file.sequence_number > oldest[realm.number]]


def cut(files: Iterable[KeyFile], task_bytes: int) -> Iterator[KeyTask]:
    """Tasks of about this size, in the order of the files."""
    task: list[KeyFile] = []
    size = 0
    for file in files:
        cost = file.size_bytes + OPENING_BYTES
        if task and size + cost > task_bytes:
            yield KeyTask(files=tuple(task))
            task, size = [], 0
        task.append(file)
        size += cost
    if task:
        yield KeyTask(files=tuple(task))


def _realms(deletes: Sequence[ResolveDelete]) -> tuple[dict[Scope, list[Realm]], dict[int, int]]:
    """Realms by scope, and the newest delete of each."""
    known: dict[tuple[Scope, tuple[int, ...]], Realm] = {}
    newest: dict[int, int] = {}
    for one in deletes:
        key = (one.scope, _ids(one.file))
        realm = known.setdefault(key, Realm(number=len(known), field_ids=key[1]))
        newest[realm.number] = max(newest.get(realm.number, 0), one.file.sequence_number)
    by_scope: dict[Scope, list[Realm]] = {}
    for (scope, _), realm in known.items():
        by_scope.setdefault(scope, []).append(realm)
    return by_scope, newest


def _ids(file: DeleteFile) -> tuple[int, ...]:
    """The same columns in another order are the same key."""
    if not file.equality_ids:
        raise BadRequestError(f"Cannot resolve {file.path}: it names no columns to compare")
    return tuple(sorted(set(file.equality_ids)))


def _sequence_number(file: InputFile) -> int:
    if file.sequence_number is None:
        raise BadRequestError(f"Cannot resolve deletes of {file.path}: its sequence number is not known")
    return file.sequence_number


def _data_key_file(file: InputFile, number: int, sequence: int, realms: tuple[Realm, ...]) -> KeyFile:
    return KeyFile(
        path=file.path,
        size_bytes=file.size_bytes,
        records=file.records,
        sequence_number=sequence,
        realms=realms,
        number=number,
        constants=file.constants,
    )


def _delete_key_file(file: DeleteFile, realm: Realm) -> KeyFile:
    return KeyFile(
        path=file.path,
        size_bytes=file.size_bytes,
        records=file.records,
        sequence_number=file.sequence_number,
        realms=(realm,),
        content=file.content,
    )


def has_many_keys(order: WorkOrder) -> bool:
    """Whether an order's equality deletes are more than a task may hold, at the least that their keys can take."""
    oldest = min((file.sequence_number or 0 for file in order.inputs), default=0)
    keys = sum(d.records for d in order.deletes if d.kind is DeleteKind.EQUALITY and d.sequence_number > oldest)
    return keys * BYTES_PER_KEY > order.write.memory_bytes // KEYS_SHARE
