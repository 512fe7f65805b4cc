"""The file index: in which directories the files of every table are. Pure values and rules.

`operations.file_index` keeps one `TableIndex` per table in the state store, and asks it which tables may have files at a
place. For each manifest it holds directories, not files: manifests are immutable, so an entry never goes stale. The index may
name more places than a table uses and never fewer; exact paths are read from the few manifests that match.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, Protocol

from neve.maintenance.orphans import Neighbour
from neve.table.frozen import Frozen
from neve.table.location import Location, Spellings, as_read, home_of
from neve.table.state import TableName

MOST_PLACES = 16
"""Directories kept per manifest in an object store. More of them are replaced by the directories above."""

Real = Callable[[str], str]
"""Resolves the symbolic links of a local directory."""

_FORMAT = 2
_PLAIN = Spellings.of()


def places_of_files(paths: Iterable[str]) -> tuple[str, ...]:
    """Returns directories that together hold these files, and what Iceberg opens instead of those that it cuts.

    Local directories are kept one by one, as they are spelled, because each can be a symbolic link. Object stores have no
    links, so many directories become the few above them.
    """
    keys: dict[str, set[str]] = {}
    local = set[str]()
    for directory in {opened.rpartition("/")[0] for path in paths for opened in as_read(path)}:
        if is_local(directory):
            local.add(directory)
        else:
            keys.setdefault(home_of(directory), set()).add(_PLAIN.parse(directory).key)
    return tuple(sorted(local | {home + key for home, found in keys.items() for key in _common(found)}))


def is_local(location: str) -> bool:
    """Returns whether it may be on a local disk."""
    return _PLAIN.parse(home_of(location)).scheme in ("", "file")


def _common(keys: set[str]) -> set[str]:
    """The deepest directories above all of these that are few enough."""
    if len(keys) <= MOST_PLACES:
        return keys
    parts = [key.split("/") for key in keys]
    chosen = {""}
    for depth in range(2, max(map(len, parts)) + 1):
        deeper = {"/".join(names[:depth]) for names in parts}
        if len(deeper) > MOST_PLACES:
            break
        chosen = deeper
    return chosen


class ManifestPlaces(NamedTuple):
    """One manifest: `first` and `last` number the manifest lists that name it, those between included."""

    length: int
    first: int
    last: int
    entries: int
    places: tuple[str, ...]


@dataclass(frozen=True)
class TableIndex:
    """What the index knows of one table. `files` are metadata files and statistics, `lists` manifest lists by number."""

    uuid: str
    fingerprint: str
    own: tuple[str, ...] = ()
    """The table's location, and the paths that its properties name."""
    files: tuple[str, ...] = ()
    lists: Mapping[str, int] = field(default_factory=dict)
    manifests: Mapping[str, ManifestPlaces] = field(default_factory=dict)

    @cached_property
    def metadata_places(self) -> tuple[str, ...]:
        """Directories of everything that is not an entry of a manifest."""
        return places_of_files(self.metadata_files())

    def metadata_files(self) -> Iterator[str]:
        """Metadata files, manifest lists, manifests and statistics."""
        yield from self.files
        yield from self.lists
        yield from self.manifests

    @property
    def entries(self) -> int:
        """Live entries of all manifests."""
        return sum(manifest.entries for manifest in self.manifests.values())

    def to_bytes(self) -> bytes:
        """For the state store. Manifests that share their places name them by number."""
        pool: dict[tuple[str, ...], int] = {}
        manifests = {path: [*one[:4], pool.setdefault(one.places, len(pool))] for path, one in self.manifests.items()}
        document = {
            "format": _FORMAT,
            "uuid": self.uuid,
            "fingerprint": self.fingerprint,
            "own": self.own,
            "files": self.files,
            "lists": dict(self.lists),
            "manifests": manifests,
            "places": list(pool),
        }
        return zlib.compress(json.dumps(document, ensure_ascii=True).encode(), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> TableIndex | None:
        """The inverse; None for what another release wrote in another format, which is then built from scratch."""
        document = json.loads(zlib.decompress(data))
        if document["format"] != _FORMAT:
            return None
        places = [tuple(each) for each in document["places"]]
        manifests = {
            path: ManifestPlaces(length, first, last, entries, places[number])
            for path, (length, first, last, entries, number) in document["manifests"].items()
        }
        own, files = tuple(document["own"]), tuple(document["files"])
        return cls(document["uuid"], document["fingerprint"], own, files, document["lists"], manifests)


def fingerprint(uuid: str, metadata_location: str, lists: Iterable[str], files: Iterable[str]) -> str:
    """Returns a digest of all that a table's metadata file names; a table with the same digest needs no reading.

    An entry in another format has another digest, so that it is built again.
    """
    return sha256("\0".join([str(_FORMAT), uuid, metadata_location, *sorted(lists), "", *sorted(files)]).encode()).hexdigest()


def kept_manifests(known: TableIndex | None, lists: Iterable[str]) -> tuple[dict[str, int], dict[str, ManifestPlaces]]:
    """Returns the lists that are still there with their numbers, and manifests that one of these may name."""
    if known is None:
        return {}, {}
    numbers = {path: known.lists[path] for path in lists if path in known.lists}
    alive = sorted(numbers.values())
    return numbers, {path: one for path, one in known.manifests.items() if _any_between(alive, one.first, one.last)}


def _any_between(numbers: list[int], first: int, last: int) -> bool:
    from bisect import bisect_left

    at = bisect_left(numbers, first)
    return at < len(numbers) and numbers[at] <= last


class IndexTarget(Protocol):
    """Files that are asked about."""

    def may_be_in(self, key: str) -> bool:
        """Returns whether one of them may lie in or below this directory."""
        ...

    def has_other_name(self, keys: Iterable[str], spelled: str) -> bool:
        """Returns whether the directory with these keys is asked about by another name than this key."""
        ...

    def matching(self, key: str) -> Iterable[str]:
        """Returns those that have this key, spelled as they were asked for."""
        ...


class BelowRoot:
    """Every file below a directory."""

    def __init__(self, root: str, spellings: Spellings, real: Real) -> None:
        self._root = root.rstrip("/")
        self._key = spellings.parse(self._root).key
        self._keys = frozenset(keys_of(self._root, spellings, real))

    def may_be_in(self, key: str) -> bool:
        """Directories above it count, since those of object stores stand for all below them."""
        return any(f"{key}/".startswith(f"{root}/") or f"{root}/".startswith(f"{key}/") for root in self._keys)

    def has_other_name(self, keys: Iterable[str], spelled: str) -> bool:
        """As the listing would name it."""
        inside = ((key, root) for key in keys for root in self._keys if f"{key}/".startswith(f"{root}/"))
        return any(self._key + key[len(root) :] != spelled for key, root in inside)

    def matching(self, key: str) -> Iterator[str]:
        """Spelled as the directory is."""
        for root in self._keys:
            if key.startswith(f"{root}/"):
                yield self._root + key[len(root) :]


class TheseFiles:
    """Files by name."""

    def __init__(self, paths: Iterable[str], spellings: Spellings, real: Real) -> None:
        self._paths: dict[str, list[str]] = {}
        self._names: dict[str, set[str]] = {}
        self._above = set[str]()
        for path in paths:
            directory, _, name = path.rpartition("/")
            for key in keys_of(directory, spellings, real):
                self._paths.setdefault(f"{key}/{name}", []).append(path)
                self._names.setdefault(key, set()).add(spellings.parse(directory).key)
        for here in self._names:
            while here not in self._above:
                self._above.add(here)
                here = here.rpartition("/")[0]

    def may_be_in(self, key: str) -> bool:
        """Directories above them count."""
        return key in self._above

    def has_other_name(self, keys: Iterable[str], spelled: str) -> bool:
        """As one of the files names it."""
        return any(name != spelled for key in keys for name in self._names.get(key, ()))

    def matching(self, key: str) -> Iterable[str]:
        """None for most keys."""
        return self._paths.get(key, ())


def keys_of(directory: str, spellings: Spellings, real: Real) -> tuple[str, ...]:
    """Returns what a directory is compared by: its key, and for local ones the key of the real directory.

    Clients disagree whether `link/..` is resolved as text or by the file system, so such a directory has both.
    """
    key = spellings.parse(directory).key
    if not is_local(directory):
        return (key,)
    spelled = directory.removeprefix(home_of(directory))
    return tuple(dict.fromkeys((key, real(key), real(spelled)) if "/." in spelled else (key, real(key))))


@dataclass(frozen=True)
class Comparison:
    """Compares what tables name with what is asked about."""

    target: IndexTarget
    real: Real
    spellings: Spellings = field(default_factory=Spellings.of)

    def may_match(self, place: str, *, is_own: bool) -> bool:
        """Returns whether files there may be asked about. Of the table itself, only other names of its directories count."""
        keys = keys_of(place, self.spellings, self.real)
        if is_own:
            return self.target.has_other_name(keys, self.spellings.parse(place).key)
        return any(self.target.may_be_in(key) for key in keys)

    def matches(self, paths: Iterable[str]) -> Iterator[str]:
        """Returns those that are asked about, spelled as they were asked for."""
        known: dict[str, tuple[str, ...]] = {}
        for opened in (each for path in paths for each in as_read(path)):
            directory, _, name = opened.rpartition("/")
            if (keys := known.get(directory)) is None:
                found = keys_of(directory, self.spellings, self.real)
                keys = known[directory] = found if any(self.target.may_be_in(key) for key in found) else ()
            for key in keys:
                yield from self.target.matching(f"{key}/{name}")


class Trust(Frozen):
    """What the operator vouches for, so that tables which cannot be read need not stop everything."""

    exclusive_prefixes: tuple[str, ...] = ()
    """Below these no table has files but those that can be read."""
    ignored: tuple[str, ...] = ()
    """Tables, namespaces or catalogs that have no files in places of others."""

    def ignores(self, name: str) -> bool:
        """Returns whether a table, a namespace or a catalog is named, or one that it is in."""
        return any(name == each or name.startswith(f"{each}.") for each in self.ignored)

    def covers(self, location: str, spellings: Spellings) -> bool:
        """Returns whether a location is below a prefix."""
        here = spellings.parse(location)
        return any(_is_at_or_below(here, spellings.parse(prefix)) for prefix in self.exclusive_prefixes)


def _is_at_or_below(here: Location, prefix: Location) -> bool:
    return prefix.may_be_home_of(here) and f"{here.key}/".startswith(f"{prefix.key}/")


def unresolved(neighbours: Iterable[Neighbour], places: Iterable[str], trust: Trust, spellings: Spellings) -> Neighbour | None:
    """Returns a table, a namespace or a catalog that cannot be read and that may have files at one of these places."""
    doubtful = next((one for one in neighbours if one.trouble is not None and not trust.ignores(one.name)), None)
    if doubtful is None or all(trust.covers(place, spellings) for place in places):
        return None
    return doubtful


def advice(neighbour: Neighbour, place: str) -> str:
    """Returns how to resolve the doubt."""
    return (
        f"Repair or drop {neighbour.name}, or fix the access to it. If it has no files in {place}, declare that: "
        f"--set orphans.ignore-tables={neighbour.name}, or --set orphans.exclusive-prefixes={place} for all tables."
    )


def swapped(loaded: Mapping[TableName, str]) -> set[TableName]:
    """Returns tables of which the same uuid was loaded under two names: a copy, or a rename between the two loads."""
    names: dict[str, list[TableName]] = {}
    for name, uuid in loaded.items():
        names.setdefault(uuid, []).append(name)
    return {name for same in names.values() if len(same) > 1 for name in same}
