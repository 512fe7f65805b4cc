"""Where files lie, compared by what is meant and not by how it is spelled. Pure; used wherever files are told apart by place.

A location becomes a key, and the home that the key is found in. Making a key may bring two spellings together and never parts
what is spelled alike: applied to both sides of a comparison, it can only keep more files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from neve.core.model import Frozen
from neve.errors import BadRequestError

SAME_SCHEMES = ("s3a=s3", "s3n=s3")
"""What every client takes for the same."""

HOME = r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(?![^/])"
DOUBLED = "//+"
DOTS = ((r"(/\.)+(?![^/])", ""), *[(r"/[^/]+/\.\.(?![^/])", "")] * 4)
"""Patterns that Java's expressions read as Python's do: what Spark parses must come to the same."""

_NAME = re.compile(r"[A-Za-z0-9._+@:-]+")


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


class Spellings(Frozen):
    """Names of schemes and of authorities (buckets, hosts) that mean the same, each with the one that stands for it."""

    schemes: dict[str, str] = {}
    authorities: dict[str, str] = {}

    @classmethod
    def of(cls, equal_schemes: Iterable[str] = (), equal_authorities: Iterable[str] = ()) -> Self:
        """From pairs such as `s3a=s3`; those of `SAME_SCHEMES` are always meant."""
        schemes = _representatives("scheme", [*SAME_SCHEMES, *equal_schemes])
        return cls(schemes=schemes, authorities=_representatives("authority", list(equal_authorities)))

    def parse(self, location: str) -> Location:
        """Scheme, authority and key. Nothing is unescaped, since Iceberg escapes nothing: `%` stands for itself."""
        found = re.match(HOME, location)
        scheme, authority = (found[1].lower(), (found[2] or "").lower()) if found else ("", "")
        key = re.sub(DOUBLED, "/", location[found.end() :] if found else location)
        if "/." in key:
            for pattern, plain in DOTS:
                key = re.sub(pattern, plain, key)
        return Location(self.schemes.get(scheme, scheme), self.authorities.get(authority, authority), key.rstrip("/"))


def home_of(location: str) -> str:
    """Scheme and authority as they are spelled, which may be nothing."""
    found = re.match(HOME, location)
    return found[0] if found else ""


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
