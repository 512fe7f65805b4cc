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


class EnvironmentFaultError(NeveError):
    """The machine lacks something: Java, jars, disk, a writable directory."""

    code = "environment"


class StateError(NeveError):
    """The state store cannot be used."""

    code = "state-store"


class VerificationError(NeveError):
    """A rewrite did not add up: nothing of it was committed."""

    code = "verification-failed"


class CommitConflictError(NeveError):
    """A commit certainly did not land, because the table had changed; it may be tried again on the new state."""

    code = "commit-conflict"
    retryable = True


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


class InDoubtError(NeveError):
    """It is doubtful whose files were found, so that nothing was done to any."""

    code = "in-doubt"
