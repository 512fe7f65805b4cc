"""Where foreign exceptions enter: catalog clients and storage raise dozens of types, the rest of Neve sees five.

Used around every call that leaves the process. What was refused is the caller's to mend (exit code 2); what did not answer may
answer later (exit code 1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
from neve.outage import Outage, denial, outage, public_address
from neve.settings.databases import longer_wait
from neve.storage.files import unreachable_storage
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
def reaching(
    catalog: str, *, table: str | None = None, address: str | None = None, endpoint: str | None = None
) -> Iterator[None]:
    """Around calls to a catalog at this address, whose tables are in the storage at this endpoint."""
    try:
        yield
    except NeveError:
        raise
    except Exception as error:
        raise _catalog_error(error, catalog, table, address, endpoint) from error


@contextmanager
def reading(location: str, *, endpoint: str | None = None, catalog: str = "NAME") -> Iterator[None]:
    """Around reads from storage."""
    try:
        yield
    except NeveError:
        raise
    except Exception as error:
        raise _storage_error(error, location, "read", endpoint, catalog) from error


@contextmanager
def writing(location: str, *, endpoint: str | None = None) -> Iterator[None]:
    """Around writes to storage."""
    try:
        yield
    except NeveError:
        raise
    except Exception as error:
        raise _storage_error(error, location, "write", endpoint) from error


def endpoint_of(properties: Mapping[str, str]) -> str | None:
    """The address of the storage that properties of PyIceberg describe; None where the client knows it by itself."""
    keys = ("s3.endpoint", "gcs.service.host", "adls.blob-storage-authority")
    return next((properties[key] for key in keys if properties.get(key)), None)


def _catalog_error(error: Exception, catalog: str, table: str | None, address: str | None, endpoint: str | None) -> NeveError:
    what = f"table {table}" if table else f"catalog {catalog}"
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & _ABSENT_TYPES and table:
        return TableNotFoundError(
            f"Cannot load {what}: there is no such table",
            hint=f"`neve tables {quote(catalog)}` lists what is there.",
        )
    from_storage = isinstance(error, OSError) and not kinds & {"ConnectionError", "RequestException", "Timeout"}
    if not from_storage and (kinds & _REFUSED_TYPES or _REFUSED.search(str(error))):
        return AccessDeniedError(
            f"Cannot load {what}: access denied{_at(address)} ({denial(error) or _reason(error)})",
            hint=f"Check the credentials of catalog {catalog}; a token may have expired. `neve doctor` tests them.",
        )
    if isinstance(error, ModuleNotFoundError) or "NotInstalledError" in kinds:
        return MissingExtraError(f"Cannot load {what}: {_reason(error)}", hint=_extra_for(str(error)))
    if "ValidationError" in kinds or isinstance(error, ValueError | KeyError):
        return CorruptMetadataError(f"Cannot load {what}: {_reason(error)}")
    if from_storage:
        return _storage_error(error, what, "read", endpoint, catalog)
    return _unreachable(error, what, catalog, address)


def _unreachable(error: Exception, what: str, catalog: str, address: str | None) -> CatalogUnreachableError:
    found = outage(error)
    where = _at(address or (found.address if found else None))
    if found is not None and found.cause.startswith("answered"):
        reason = f"the catalog{where} {found.cause}"
    else:
        reason = f"the catalog did not answer{where} ({found.cause if found else _reason(error)})"
    trust = " Set REQUESTS_CA_BUNDLE to a file with the authority of its certificate." if _distrusted(found) else ""
    hint = f"Check catalogs.{catalog}.uri, and that its server is up; `neve doctor` tests it.{trust}"
    hint += longer_wait(found.cause if found else "", address, f"catalogs.{catalog}.uri")
    return CatalogUnreachableError(f"Cannot load {what}: {reason}", hint=hint)


def _storage_error(error: Exception, location: str, verb: str, endpoint: str | None, catalog: str = "NAME") -> NeveError:
    if isinstance(error, PermissionError) or _REFUSED.search(str(error)):
        return AccessDeniedError(
            f"Cannot {verb} {location}: access denied{_at(endpoint)} ({denial(error) or _reason(error)})",
            hint=f"Check the credentials under catalogs.{catalog}.storage; `neve doctor` tests them.",
        )
    if isinstance(error, FileNotFoundError) and (cut := cut_error(f"{verb} the file", location)) is not None:
        return cut
    if isinstance(error, FileNotFoundError) and verb == "read":
        return CorruptMetadataError(
            f"Cannot read {location}: the file is missing",
            hint="Another job may have expired it in between: try again. If it stays missing, metadata was deleted by hand.",
        )
    if (found := outage(error)) is not None:
        return unreachable_storage(found, location, verb, endpoint, catalog=catalog)
    return StorageError(f"Cannot {verb} {location}: {_reason(error)}", hint="Storage did not answer as it should: try again.")


def _distrusted(found: Outage | None) -> bool:
    return found is not None and found.cause == "certificate not trusted"


def _at(address: str | None) -> str:
    shown = public_address(address)
    return f" at {shown}" if shown else ""


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
