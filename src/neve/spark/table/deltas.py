"""The snapshots that we commit: files replaced, deletes exchanged, or both in one transaction. Called by `bridge`.

Every snapshot that becomes visible here reads the same rows as the one before, save where files are dropped on purpose. A
failure is sorted by what it means for the files (`outcome`): what is refused while a commit is put together was never sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from neve.errors import CommitConflictError
from neve.spark.table.methods import Methods
from neve.spark.table.outcome import committing
from neve.table.state import MAIN, RUN_ID


@dataclass(frozen=True)
class Onto:
    """Where a commit goes and what its snapshot says of itself; what happened after `head` is Iceberg's to judge."""

    head: int
    summary: Mapping[str, str]
    branch: str = MAIN

    def apply(self, operation: Any) -> Any:
        """Told to the operation."""
        operation.validateFromSnapshot(self.head)
        for key, value in self.summary.items():
            operation.set(key, value)
        if self.branch != MAIN:
            operation.toBranch(self.branch)
        return operation


@dataclass(frozen=True)
class Exchange:
    """Java sets of files: what a rewrite takes out of a table and puts in."""

    removed: Any
    added: Any
    removed_deletes: Any
    added_deletes: Any
    sequence_number: int | None
    """Of the new data files; None for that of the new snapshot."""

    def operation(self, table: Any, onto: Onto) -> Any:
        """As one RewriteFiles of the table, or of a transaction."""
        operation = table.newRewrite()
        operation.rewriteFiles(self.removed, self.removed_deletes, self.added, self.added_deletes)
        if self.sequence_number is not None:
            operation.dataSequenceNumber(self.sequence_number)
        return onto.apply(operation)


def commit_exchange(table: Any, files: Exchange, onto: Onto, methods: Methods) -> None:
    """Replaces files. Iceberg adds deletes in a RewriteFiles only where it removes some; otherwise it takes a transaction."""
    if files.added_deletes.isEmpty() or not files.removed_deletes.isEmpty():
        with preparing():
            operation = files.operation(table, onto)
        with committing():
            operation.commit()
    else:
        _commit_in_two(table, files, onto, methods)


def commit_row_delta(table: Any, added: Any, removed: Any, referenced: Any, onto: Onto, methods: Methods) -> None:
    """Exchanges delete files; a conflict if a file of `referenced` or of `removed` is gone by then."""
    with preparing():
        operation = _with_deletes(table.newRowDelta(), added, methods)
        methods.give(removed, operation, "RowDelta", "removeDeletes", "DeleteFile")
        operation.validateDataFilesExist(referenced).validateDeletedFiles()
        onto.apply(operation)
    with committing():
        operation.commit()


def commit_drop(table: Any, files: Any, summary: Mapping[str, str], branch: str, methods: Methods) -> None:
    """Takes data files out of the table; a conflict if any of them is gone by then."""
    with preparing():
        operation = table.newDelete().validateFilesExist()
        methods.give(files, operation, "DeleteFiles", "deleteFile", "DataFile")
        for key, value in summary.items():
            operation.set(key, value)
        if branch != MAIN:
            operation.toBranch(branch)
    with committing():
        operation.commit()


def _commit_in_two(table: Any, files: Exchange, onto: Onto, methods: Methods) -> None:
    """First the deletes, which mean nothing yet, then the files that they are for: the other way round rows would come back.

    A delete by position applies to files that are no newer than it, and it comes first; so the files cannot take the number of
    their own snapshot. Where nothing as old as the plan stays they take the head's instead, and since Iceberg might then drop
    an equality delete that comes in between, any delete that does is a conflict.
    """
    number = files.sequence_number
    with preparing():
        transaction = table.newTransaction()
        delta = _with_deletes(transaction.newRowDelta(), files.added_deletes, methods)
        if number is None:
            number = int(table.snapshot(onto.head).sequenceNumber())
            delta.validateNoConflictingDeleteFiles()
        # The commit id stands on the second snapshot alone: it says that all of it is there.
        run = {key: value for key, value in onto.summary.items() if key == RUN_ID}
        Onto(onto.head, run, onto.branch).apply(delta).commit()
        # Nothing is removed here, so that one empty set can stand for both.
        plain = replace(files, added_deletes=files.removed_deletes, sequence_number=number)
        plain.operation(transaction, onto).commit()
    with committing():
        transaction.commitTransaction()


def _with_deletes(operation: Any, added: Any, methods: Methods) -> Any:
    methods.give(added, operation, "RowDelta", "addDeletes", "DeleteFile")
    return operation


@contextmanager
def preparing() -> Iterator[None]:
    """Around what is done before anything is sent: whatever fails here, the table is as it was."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        told = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
        raise CommitConflictError(f"Cannot prepare the commit: {' '.join(str(told).split())[:500]}") from error
