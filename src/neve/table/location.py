"""The one parser of locations. Pure; used wherever a location is opened, listed, moved or compared.

Iceberg escapes nothing, so a location is not a URL: `#`, `?`, `%`, spaces and newlines stand for themselves. `address` takes
a location apart, and whoever opens a file uses that. `Spellings.parse` makes a key to compare by. Two spellings may get one
key, and one spelling never gets two: applied to both sides of a comparison, it can only keep more files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict

from neve.errors import BadRequestError

SAME_SCHEMES = ("s3a=s3", "s3n=s3")
"""What every client takes for the same."""

HOME = r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(?![^/])"
DOUBLED = "//+"
DOTS = ((r"(/\.)+(?![^/])", ""), *[(r"/[^/]+/\.\.(?![^/])", "")] * 4)
"""Patterns that Java's expressions read as Python's do: what Spark parses must come to the same."""

CUT = r"(?s)(?!(?i:file|hdfs|viewfs):)([A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?/[^?#]*)[?#].*"
"""Locations that Iceberg's S3FileIO, GCSFileIO and ADLSFileIO cut, with what they open instead; Java reads it alike."""

_HOME = re.compile(HOME)
_CUT = re.compile(CUT)
_NAME = re.compile(r"[A-Za-z0-9._+@:-]+")
_KINDS = {"": "file", "s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss", "gcs": "gs"}
_HERE = ("", "localhost")


class Address(NamedTuple):
    """A location taken apart. Joining scheme, authority and path as `spelled` does gives it back; nothing is unescaped."""

    spelled: str
    scheme: str
    """In lower case, empty where it is not given."""
    authority: str
    """A bucket, a container or a host as it is spelled; empty where it is not given."""
    path: str
    """What follows, with its slashes: for an object store the key with a slash before it."""

    @property
    def kind(self) -> str:
        """The storage, by one name for all of its schemes: `file`, `s3`, `gs`, `abfss`, else the scheme itself."""
        return _KINDS.get(self.scheme, self.scheme)

    @property
    def home(self) -> str:
        """Scheme and authority as they are spelled, which may be nothing."""
        return self.spelled[: len(self.spelled) - len(self.path)]

    @property
    def local_path(self) -> str:
        """The path on this machine, without the dots and doubled slashes that Hadoop removes before it asks the disk. Raises
        BadRequestError for a file of another host."""
        if self.kind != "file" or self.authority.lower() not in _HERE:
            raise BadRequestError(f"Cannot open {self.spelled}: it is not a file of this machine")
        return _normal(self.path)

    @property
    def key(self) -> str:
        """The key of an object, which may itself begin with a slash."""
        return self.path[1:]

    @property
    def object_path(self) -> str:
        """Bucket and key with a slash between them, as Arrow wants it."""
        return f"{self.authority}{self.path}"

    @property
    def identity(self) -> tuple[str, str, str]:
        """Equal for two locations only if both name one file to Iceberg's Java and to us. In an object store every character
        of a key counts; on a disk doubled slashes and dots are removed, as Hadoop does."""
        if self.kind != "file":
            return self.kind, self.authority, self.path
        return "file", "" if self.authority.lower() in _HERE else self.authority.lower(), _normal(self.path)


def _normal(path: str) -> str:
    plain = posixpath.normpath(path or "/")
    return plain[1:] if plain.startswith("//") else plain  # POSIX leaves two slashes at the beginning alone


def address(location: str) -> Address:
    """Takes a location apart; never fails, since whatever has no scheme is a path."""
    found = _HOME.match(location)
    if found is None:
        return Address(location, "", "", location)
    return Address(location, found[1].lower(), found[2] or "", location[found.end() :])


def inner_path(place: str, path: str) -> str | None:
    """How a path goes on below a directory, whatever the scheme of either is; None if it does not lie there."""
    outer, inner = address(place), address(path)
    below = f"{outer.path.rstrip('/')}/"
    same = outer.identity[:2] == inner.identity[:2]
    return inner.path[len(below) :] if same and inner.path.startswith(below) else None


def cut_by_java(location: str) -> str | None:
    """What Iceberg's FileIOs for object stores open instead, since they cut off `?` and `#`; None where they cut nothing."""
    found = _CUT.fullmatch(location)
    return found[1] if found is not None else None


def as_read(location: str) -> tuple[str, ...]:
    """The location, and what Iceberg's FileIOs open instead where they cut it: clients disagree, so both are in use."""
    if "#" not in location and "?" not in location:
        return (location,)
    cut = cut_by_java(location)
    return (location,) if cut is None else (location, cut)


def refuse_cut(table: str, *locations: str) -> None:
    """Raises BadRequestError for a table that Iceberg's Java cannot keep in an object store."""
    for location in locations:
        if (error := cut_error(f"work on {table}", location)) is not None:
            raise error


def cut_error(what: str, location: str) -> BadRequestError | None:
    """What to say of a location that Iceberg's FileIOs cut; None for any other."""
    if (cut := cut_by_java(location)) is None:
        return None
    return BadRequestError(
        f"Cannot {what}: its location {location} has a `#` or a `?`, and Iceberg's FileIO for this store opens {cut} instead",
        hint="Copy the table to a location without these characters. Other tables are not affected.",
    )


class Location(NamedTuple):
    """A place. Scheme and authority are empty where they are not said; the key begins with a slash and ends without one."""

    scheme: str
    authority: str
    key: str

    def holds(self, other: Location) -> bool:
        """Whether the other lies inside: below a slash, so that `/t` does not hold `/t_2`."""
        return other.key.startswith(self.key + "/") and self.may_be_home_of(other)

    def overlaps(self, other: Location) -> bool:
        """Whether they are the same place, or one is inside the other."""
        if not (self.may_be_home_of(other) or other.may_be_home_of(self)):
            return False
        longer, shorter = sorted((self.key + "/", other.key + "/"), key=len, reverse=True)
        return longer.startswith(shorter)

    def may_be_home_of(self, other: Location) -> bool:
        """Whether they may be in the same store: what this one does not say can be anything."""
        return self.scheme in ("", other.scheme or "file") and self.authority in ("", other.authority)


class Spellings(BaseModel):
    """Names of schemes and of authorities (buckets, hosts) that mean the same, each with the one that stands for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")  # as `Frozen`, whose module loads Arrow: settings come here too

    schemes: dict[str, str] = {}
    authorities: dict[str, str] = {}

    @classmethod
    def of(cls, equal_schemes: Iterable[str] = (), equal_authorities: Iterable[str] = ()) -> Self:
        """From pairs such as `s3a=s3`; those of `SAME_SCHEMES` are always meant."""
        schemes = _representatives("scheme", [*SAME_SCHEMES, *equal_schemes])
        return cls(schemes=schemes, authorities=_representatives("authority", list(equal_authorities)))

    def parse(self, location: str) -> Location:
        """Scheme, authority and key. Nothing is unescaped, since Iceberg escapes nothing: `%` stands for itself."""
        _, scheme, authority, path = address(location)
        authority = authority.lower()
        key = re.sub(DOUBLED, "/", path)
        if "/." in key:
            for pattern, plain in DOTS:
                key = re.sub(pattern, plain, key)
        return Location(self.schemes.get(scheme, scheme), self.authorities.get(authority, authority), key.rstrip("/"))


def home_of(location: str) -> str:
    """Scheme and authority as they are spelled, which may be nothing."""
    return address(location).home


def _representatives(what: str, pairs: Sequence[str]) -> dict[str, str]:
    stands_for: dict[str, str] = {}

    def representative(name: str) -> str:
        while name in stands_for:
            name = stands_for[name]
        return name

    for pair in pairs:
        one, equals, other = (part.strip().lower() for part in pair.partition("="))
        if not (equals and _NAME.fullmatch(one) and _NAME.fullmatch(other)):
            hint = "Write two names that mean the same, such as s3a=s3."
            raise BadRequestError(f"Cannot read the equal {what} {pair!r}: no NAME=NAME", hint=hint)
        one, other = representative(one), representative(other)
        if one != other:
            stands_for[one] = other
    return {name: representative(name) for name in stands_for}
