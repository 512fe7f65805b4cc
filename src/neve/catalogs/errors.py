"""Where foreign exceptions enter: catalog clients and storage raise dozens of types, the rest of Neve sees five.

Used around every call that leaves the process. What was refused is the caller's to mend (exit code 2); what did not answer may
answer later (exit code 1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote

from neve.errors import (
    AccessDeniedError,
    CatalogUnreachableError,
    CorruptMetadataError,
    MissingExtraError,
    NeveError,
    StorageError,
    TableNotFoundError,
)
from neve.table.location import cut_error

_REFUSED = re.compile(
    r"ACCESS_DENIED|AccessDenied|SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId"
    r"|ExpiredToken|EXPIRED_TOKEN|UnrecognizedClient|NoCredentials|HTTP response code 40[13]|HTTP status code 40[13]"
    r"|password authentication failed|AuthenticationFailed|AuthorizationFailure",
)
_REFUSED_TYPES = frozenset(
    {
        "UnauthorizedError",
        "ForbiddenError",
        "AuthorizationExpiredError",
        "OAuthError",
        "NoCredentialsError",
        "SignError",
    }
)
_ABSENT_TYPES = frozenset({"NoSuchTableError", "NoSuchIcebergTableError", "NoSuchNamespaceError", "NoSuchIdentifierError"})
_MAX_REASON = 300


@contextmanager
def reaching(catalog: str, *, table: str | None = None) -> Iterator[None]:
    """Around calls to a catalog."""
    try:
        yield
    except NeveError:
        raise
    except Exception as error:
        raise _catalog_error(error, catalog, table) from error


@contextmanager
def reading(location: str) -> Iterator[None]:
    """Around reads from storage."""
    try:
        yield
    except NeveError:
        raise
    except Exception as error:
        raise _storage_error(error, location, "read") from error


@contextmanager
def writing(location: str) -> Iterator[None]:
    """Around writes to storage."""
    try:
        yield
    except NeveError:
        raise
    except Exception as error:
        raise _storage_error(error, location, "write") from error


def _catalog_error(error: Exception, catalog: str, table: str | None) -> NeveError:
    what = f"table {table}" if table else f"catalog {catalog}"
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & _ABSENT_TYPES and table:
        return TableNotFoundError(
            f"Cannot load {what}: there is no such table",
            hint=f"`neve tables {quote(catalog)}` lists what is there.",
        )
    if kinds & _REFUSED_TYPES or _REFUSED.search(str(error)):
        return AccessDeniedError(
            f"Cannot load {what}: access denied ({_reason(error)})",
            hint=f"Check the credentials of catalog {catalog}; a token may have expired.",
        )
    if isinstance(error, ModuleNotFoundError) or "NotInstalledError" in kinds:
        return MissingExtraError(f"Cannot load {what}: {_reason(error)}", hint=_extra_for(str(error)))
    if "ValidationError" in kinds or isinstance(error, ValueError | KeyError):
        return CorruptMetadataError(f"Cannot load {what}: {_reason(error)}")
    if isinstance(error, OSError) and not kinds & {"ConnectionError", "RequestException", "Timeout"}:
        return _storage_error(error, what, "read")
    return CatalogUnreachableError(
        f"Cannot load {what}: the catalog did not answer ({_reason(error)})",
        hint=f"Check the uri of catalog {catalog}, and that its server is up.",
    )


def _storage_error(error: Exception, location: str, verb: str) -> NeveError:
    if isinstance(error, PermissionError) or _REFUSED.search(str(error)):
        return AccessDeniedError(
            f"Cannot {verb} {location}: access denied ({_reason(error)})",
            hint="Check the storage credentials of the catalog.",
        )
    if isinstance(error, FileNotFoundError) and (cut := cut_error(f"{verb} the file", location)) is not None:
        return cut
    if isinstance(error, FileNotFoundError) and verb == "read":
        return CorruptMetadataError(
            f"Cannot read {location}: the file is missing",
            hint="Another job may have expired it in between: try again. If it stays missing, metadata was deleted by hand.",
        )
    return StorageError(f"Cannot {verb} {location}: {_reason(error)}", hint="Storage did not answer as it should: try again.")


def _reason(error: Exception) -> str:
    """One line of the foreign message, with anything that looks like a credential blotted out."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    text = re.sub(r"(://[^:/@\s]+:)[^@\s]+@", r"\1***@", text)
    return text if len(text) <= _MAX_REASON else text[:_MAX_REASON] + "..."


def _extra_for(text: str) -> str:
    for word, extra in (("psycopg", "postgres"), ("boto", "aws"), ("hive", "hive"), ("thrift", "hive")):
        if word in text.lower():
            return f"Install it with: pip install 'neve[{extra}]'"
    return "Install the extra that this catalog or storage needs; docs/guide/catalogs.md lists them."
