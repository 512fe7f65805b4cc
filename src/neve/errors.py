"""Every error that Neve raises on purpose.

Foreign exceptions are wrapped where they enter, with `raise ... from`. A surface decides from `exit_code`, a retry from
`retryable`, a person from the message and its hint: nobody reads message text to decide anything.
"""

from __future__ import annotations

from typing import ClassVar


class NeveError(Exception):
    """The one base class. The message reads "Cannot <verb> <thing>: <reason>"."""

    code: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class BadRequestError(NeveError):
    """The caller asked for something that cannot be right; asking again will not help."""

    code = "bad-request"
    exit_code = 2


class SettingsError(BadRequestError):
    """A settings file, variable or flag is wrong; the message names the file and the key."""

    code = "bad-settings"


class TableNotFoundError(BadRequestError):
    """The catalog answered, and it has no such table."""

    code = "table-not-found"


class AccessDeniedError(BadRequestError):
    """Credentials were refused or have expired; retrying with the same ones cannot help."""

    code = "access-denied"


class MissingExtraError(BadRequestError):
    """An optional library is not installed; the hint names the extra that brings it."""

    code = "missing-extra"


class CatalogUnreachableError(NeveError):
    """The catalog did not answer, or answered with a server error."""

    code = "catalog-unreachable"
    retryable = True


class StorageError(NeveError):
    """A file could not be read or written although the request was right."""

    code = "storage-failed"
    retryable = True


class CorruptMetadataError(NeveError):
    """Table metadata contradicts the Iceberg specification."""

    code = "corrupt-metadata"


class MissingFileError(StorageError):
    """A file that the table's metadata names is not there; asking again will not bring it back."""

    code = "missing-file"
    retryable = False


class NotUnderstoodError(NeveError):
    """Table metadata uses something that this version of Neve does not know, such as a later format version."""

    code = "not-understood"


class EnvironmentFaultError(NeveError):
    """The machine lacks something: Java, jars, disk, a writable directory."""

    code = "environment"


class StateError(NeveError):
    """The state store cannot be used."""

    code = "state-store"


class StateReplacedError(StateError):
    """The file of the state store is no longer the one that was opened."""

    code = "state-replaced"


class NotificationError(NeveError):
    """A message could not be sent to a channel. The message names the host, never the whole address."""

    code = "notification-failed"
    retryable = True

    def __init__(
        self, message: str, *, hint: str | None = None, wait_seconds: float = 0.0, only_this_message: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.wait_seconds = wait_seconds
        """How long the channel asks to wait, where it says so."""
        self.only_this_message = only_this_message
        """Whether the server refused this message and may accept others."""


class VerificationError(NeveError):
    """A rewrite did not add up: nothing of it was committed."""

    code = "verification-failed"


class CommitConflictError(NeveError):
    """A commit certainly did not land, because the table had changed; it may be tried again on the new state."""

    code = "commit-conflict"
    retryable = True


class UnprovableDeletesError(NeveError):
    """Deletes apply of which nobody can tell which rows they delete; the files are left alone."""

    code = "unprovable-deletes"


class CommitNotSentError(NeveError):
    """A commit could not be prepared, so that nothing was sent to the catalog; the files to commit are the cause."""

    code = "commit-not-sent"


class CommitUnknownError(NeveError):
    """Nobody knows whether a commit landed; its files are left alone until that is settled."""

    code = "commit-unknown"


class CommitIncidentError(NeveError):
    """A commit landed where it should not have; a person must look before anyone writes again."""

    code = "commit-incident"


class LeaseHeldError(NeveError):
    """Another run is at work on the table."""

    code = "lease-held"
    retryable = True


class RunTakenOverError(NeveError):
    """Another process has taken over the run or its table; this one stopped, and removed nothing."""

    code = "run-taken-over"


class TableGoneError(NeveError):
    """The table was dropped, renamed or replaced by another one while a run was at work on it."""

    code = "table-gone"


class InDoubtError(NeveError):
    """It is doubtful whose files were found, so that nothing was done to any."""

    code = "in-doubt"


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C stopped a run that can be resumed. A KeyboardInterrupt, so that nothing takes it for a failure."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id[:8]} was interrupted")
        self.run_id = run_id
