"""Files for kernels, by location: local disks, and object stores through pyarrow. Used in tasks, so pyiceberg is not needed.

A `Storage` is made from the catalog's storage properties in pyiceberg's spelling; `unsupported` tells which of them it would
have to ignore, so that such a group goes to Spark instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

from neve.errors import AccessDeniedError, BadRequestError, MissingFileError, NeveError, StorageError
from neve.kernels.request_counts import count
from neve.kernels.streams import LocalSink, LocalSource, Sink, Source
from neve.outage import Outage, denial, outage, public_address
from neve.table.location import Address, address

_S3_KEYS = {
    "s3.endpoint": "endpoint_override",
    "s3.region": "region",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_key",
    "s3.session-token": "session_token",
    "s3.role-arn": "role_arn",
    "s3.connect-timeout": "connect_timeout",
    "s3.request-timeout": "request_timeout",
}
_VIRTUAL_ADDRESSING = "s3.force-virtual-addressing"
_OTHERS = frozenset({_VIRTUAL_ADDRESSING, "s3.path-style-access", "s3.resolve-region"})
_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.")
_DENIED = re.compile(
    "ACCESS_?DENIED|INVALID_?ACCESS_?KEY_?ID|SIGNATURE_?DOES_?NOT_?MATCH|(EXPIRED|INVALID)_?TOKEN|HTTP status 40[13]"
    # The answer to a HEAD has no body to name the reason; with this status S3 refuses tokens that have expired.
    r"|HTTP status 400\) during HeadObject",
    re.IGNORECASE,
)


def unsupported(properties: Mapping[str, str]) -> str | None:
    """The first storage property that this adapter does not implement, None if there is none."""
    asked = (key for key in properties if key.startswith(_PREFIXES))
    return next((key for key in asked if key not in _S3_KEYS and key not in _OTHERS), None)


REFUSAL = "neve.refusal"
"""A property that keeps tasks away altogether; its value is the reason."""


def refusal(properties: Mapping[str, str], locations: Iterable[str]) -> str | None:
    """Why tasks cannot open these locations with these properties, None if they can."""
    if REFUSAL in properties:
        return properties[REFUSAL]
    remote = [found for found in map(address, locations) if found.kind != "file"]
    kinds = {found.kind for found in remote}
    if kinds - {"s3"}:
        return f"tasks do not read storage {min(kinds - {'s3'})}"
    if reason := next(filter(None, map(_unnameable, remote)), None):
        return reason
    key = unsupported({key: "" for key in properties if key.startswith("s3.")}) if kinds else None
    return f"tasks do not implement the storage property {key}" if key else None


class StorageEntry(NamedTuple):
    """A file of a directory, or a directory in it, which has no size."""

    path: str
    size_bytes: int | None
    modified_ms: int | None


class Storage:
    """Opens files. One per process: connections are kept. It cannot delete: only a sink can take back what it wrote itself, and
    whatever is known to others leaves by way of the quarantine (`storage_moves`)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)

    def source(self, location: str, size_bytes: int) -> Source:
        """A file to read, of this size."""
        if _is_local(location):
            return LocalSource(local_path(location))
        return _RemoteSource(self._filesystem(location), key_of(location), location, size_bytes, self._endpoint)

    def stored(self, location: str) -> Source:
        """A file to read, of the size that it has now, which the storage is asked for."""
        if _is_local(location):
            return LocalSource(local_path(location))
        source = _RemoteSource(self._filesystem(location), key_of(location), location, 0, self._endpoint)
        source.measure()
        return source

    def sink(self, location: str) -> Sink:
        """A file to write, which exists only once it is complete."""
        if _is_local(location):
            from pathlib import Path

            path = Path(local_path(location))
            with translated(location, "create"):
                path.parent.mkdir(parents=True, exist_ok=True)
            return LocalSink(path)
        return _RemoteSink(self._filesystem(location), key_of(location), location, self._endpoint)

    def begins_with(self, prefix: str) -> list[str]:
        """The files whose location begins so."""
        count("list")
        directory, _, name = prefix.rpartition("/")
        if _is_local(prefix):
            found = (entry.path.rpartition("/")[2] for entry in _local_entries(directory, recursive=False))
            return [f"{directory}/{file}" for file in found if file.lstrip(".").startswith(name)]
        from pyarrow.fs import FileSelector

        with translated(directory, "list", endpoint=self._endpoint):
            entries = self._filesystem(prefix).get_file_info(FileSelector(key_of(directory), allow_not_found=True))
        return [f"{directory}/{entry.base_name}" for entry in entries if entry.base_name.startswith(name)]

    def entries(self, directory: str, *, recursive: bool = False) -> Iterator[StorageEntry]:
        """What lies in a directory, spelled as it is; nothing for one that is gone. Links are not followed."""
        count("list")
        if _is_local(directory):
            with translated(directory, "list"):
                yield from _local_entries(directory, recursive=recursive)
            return
        from pyarrow.fs import FileSelector, FileType

        key = key_of(directory).rstrip("/")
        with translated(directory, "list", endpoint=self._endpoint):
            found = self._filesystem(directory).get_file_info(FileSelector(key, allow_not_found=True, recursive=recursive))
        for info in found:
            path = f"{directory.rstrip('/')}{info.path[len(key) :]}"
            if info.type == FileType.Directory:
                yield StorageEntry(path, None, None)
            elif info.type == FileType.File:
                yield StorageEntry(path, info.size, None if info.mtime_ns is None else info.mtime_ns // 1_000_000)

    @property
    def _endpoint(self) -> str | None:
        return self._properties.get("s3.endpoint")

    def _filesystem(self, location: str) -> Any:
        kind = kind_of(location)
        if kind == "s3":
            return self._s3
        raise BadRequestError(f"Cannot open {location}: storage {kind} is not read by tasks", hint="Use the spark kernel.")

    @cached_property
    def _s3(self) -> Any:
        from pyarrow.fs import S3FileSystem

        options: dict[str, Any] = {name: self._properties[key] for key, name in _S3_KEYS.items() if key in self._properties}
        for name in ("connect_timeout", "request_timeout"):
            if name in options:
                options[name] = float(options[name])
        virtual = self._properties.get(_VIRTUAL_ADDRESSING, "").lower() == "true"
        return S3FileSystem(**options, force_virtual_addressing=virtual)


def _local_entries(directory: str, *, recursive: bool) -> Iterator[StorageEntry]:
    import os

    open_ = [directory]
    while open_:
        here = open_.pop()
        with suppress(FileNotFoundError), os.scandir(local_path(here)) as found:
            for entry in found:
                if not _is_text(entry.name):
                    continue  # no table can name it
                path = f"{here}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    open_ += [path] if recursive else []
                    yield StorageEntry(path, None, None)
                elif entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        facts = entry.stat(follow_symlinks=False)
                        yield StorageEntry(path, facts.st_size, facts.st_mtime_ns // 1_000_000)


def _is_text(name: str) -> bool:
    """Whether a name on disk is UTF-8; Python keeps other bytes as lone surrogates, which nobody can pass on."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class RealDirectories:
    """Resolves symbolic links of local directories, each directory above them once.

    On a disk that ignores upper and lower case, or how accents are encoded, a directory gets the name that a listing shows.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {"": "", "/": ""}

    def __call__(self, directory: str) -> str:
        """Returns the real path without a slash at its end; of a directory that is not there, what it would be."""
        import os

        found = self._known.get(directory)
        if found is None:
            above, _, name = directory.rpartition("/")
            if not directory.startswith("/") or name in ("", ".", ".."):
                found = os.path.realpath(directory).rstrip("/")
            else:
                here = f"{self(above)}/{_name_on_disk(self(above), name)}"
                found = os.path.realpath(here).rstrip("/") if os.path.islink(here) else here  # noqa: PTH114
            self._known[directory] = found
        return found


def _name_on_disk(directory: str, name: str) -> str:
    """The name by which a directory lists what it opens by this one; the name itself where there is no other."""
    import os
    from unicodedata import normalize

    def alike(text: str) -> str:
        return normalize("NFC", normalize("NFC", text).casefold())

    spelled = {name.swapcase(), normalize("NFC", name), normalize("NFD", name)} - {name}
    if not any(os.path.lexists(f"{directory}/{other}") for other in spelled):
        return name
    with suppress(OSError):
        listed = os.listdir(f"{directory}/")  # noqa: PTH208
        if name not in listed and os.path.lexists(f"{directory}/{name}"):
            return next((other for other in listed if alike(other) == alike(name)), name)
    return name


def kind_of(location: str) -> str:
    """`file`, `s3` in any of its spellings, and so on (`table.location`)."""
    return address(location).kind


def _is_local(location: str) -> bool:
    return kind_of(location) == "file"


def local_path(location: str) -> str:
    """The path on this machine's disks (`table.location`)."""
    return address(location).local_path


def key_of(location: str) -> str:
    """Bucket and key, with a slash between them. Raises BadRequestError for a key that Arrow cannot name."""
    found = address(location)
    if reason := _unnameable(found):
        raise BadRequestError(f"Cannot open {location}: {reason}", hint="Use the spark kernel.")
    return found.object_path


def _unnameable(location: Address) -> str | None:
    """Why Arrow cannot open an object: it takes doubled slashes for a mistake."""
    if not location.authority:
        return "it names no bucket"
    return "Arrow cannot name keys with doubled slashes" if "//" in location.path else None


class _RemoteSource:
    def __init__(self, filesystem: Any, key: str, location: str, size_bytes: int, endpoint: str | None = None) -> None:
        self.path = location
        self._endpoint = endpoint
        self.size_bytes = size_bytes
        self._filesystem = filesystem
        self._key = key

    def read_at(self, offset: int, length: int) -> bytes:
        with translated(self.path, "read", endpoint=self._endpoint):
            count("read")
            data = bytes(self._file.read_at(length, offset))
        if len(data) != length:
            raise StorageError(f"Cannot read {self.path}: it ended after {offset + len(data)} bytes")
        return data

    def measure(self) -> None:
        """Takes the size that the storage tells."""
        with translated(self.path, "open", endpoint=self._endpoint):
            self.size_bytes = int(self._file.size())

    @cached_property
    def _file(self) -> Any:
        """Opened once, as opening costs a request for the size; it holds no connection, and threads may share it."""
        count("read")
        return self._filesystem.open_input_file(self._key)


class _RemoteSink:
    def __init__(self, filesystem: Any, key: str, location: str, endpoint: str | None = None) -> None:
        self._location, self._endpoint = location, endpoint
        with translated(location, "create", endpoint=endpoint):
            self._stream = filesystem.open_output_stream(key)
        self._filesystem, self._key = filesystem, key
        self._open = True

    def write(self, data: bytes | memoryview) -> None:
        with translated(self._location, "write", endpoint=self._endpoint):
            self._stream.write(data)

    def close(self) -> None:
        count("write")
        with translated(self._location, "complete", endpoint=self._endpoint):
            self._stream.close()
        self._open = False

    def abort(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            self._stream.abort() if hasattr(self._stream, "abort") else self._stream.close()
            count("delete")
            self._filesystem.delete_file(self._key)
        except OSError:
            return

    def take_back(self) -> None:
        self.abort()
        count("delete")
        with translated(self._location, "delete", endpoint=self._endpoint), suppress(FileNotFoundError):
            self._filesystem.delete_file(self._key)


class translated:  # noqa: N801 - reads as a verb
    """Turns pyarrow's OSError into ours."""

    def __init__(self, location: str, verb: str, *, endpoint: str | None = None) -> None:
        self._location, self._verb, self._endpoint = location, verb, endpoint

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, NeveError) or not isinstance(error, OSError):
            return
        text = " ".join(str(error).split())[:300]
        if isinstance(error, PermissionError) or _DENIED.search(text):
            reason = denial(error) or text
            raise AccessDeniedError(f"Cannot {self._verb} {self._location}: access denied ({reason})") from error
        if (found := outage(error)) is not None and not _is_local(self._location):
            raise unreachable_storage(found, self._location, self._verb, self._endpoint) from error
        kind = MissingFileError if isinstance(error, FileNotFoundError) else StorageError
        raise kind(f"Cannot {self._verb} {self._location}: {text}") from error


def rewritten(location: str) -> StorageError:
    """What to raise for a file that is not the one that was checked."""
    return StorageError(f"Cannot move {location}: it was written again since it was checked")


def unreachable_storage(
    found: Outage, location: str, verb: str, endpoint: str | None = None, *, catalog: str = "NAME"
) -> StorageError:
    """What to raise where storage is down or answered with an error."""
    where = public_address(endpoint or found.address)
    at = f" at {where}" if where else ""
    if found.cause.startswith("answered"):
        reason = f"the storage{at} {found.cause}"
    else:
        reason = f"the storage did not answer{at} ({found.cause})"
    trust = " Add the authority of its certificate to the trust store of this machine." if "not trusted" in found.cause else ""
    hint = f"Check the endpoint under catalogs.{catalog}.storage, and that its server is up; `neve doctor` tests it.{trust}"
    return StorageError(f"Cannot {verb} {location}: {reason}", hint=hint)
