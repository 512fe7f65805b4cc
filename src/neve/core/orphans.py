"""Orphans: which files of a listing may be taken for files that no snapshot needs, and which never are. Pure rules and values.

`maintenance.remove_orphans` decides by them, Spark's tasks judge each listed file by them. Whatever is in doubt is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from urllib.parse import quote_plus

from neve.core.journal import JournaledRun
from neve.core.locations import Location, Spellings
from neve.core.maintenance import MaintenanceRecord
from neve.core.model import Frozen, PartitionSpec, TableState
from neve.core.quarantine import Doomed
from neve.core.units import counted, format_seconds
from neve.errors import BadRequestError

FLOOR_SECONDS = 3 * 86400
"""Files younger than this may belong to a writer that has not committed yet."""

OWN_PLACES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""Properties that tell a table's writers where to put files, besides its location."""

_METADATA = re.compile(r"\.metadata\.json(\.gz)?$")
_BY_NAME = re.compile(r"^(version-hint\.text|partition-stats-.*|.*\.stats)$")
_DOTTED = re.compile(r"/\.\.?(/|\Z)")
_OURS = ("_neve", ".neve")
_OTHER_FORMATS = frozenset({"_delta_log", ".hoodie"})


class Verdict(StrEnum):
    """What a listed file is."""

    CANDIDATE = "candidate"  # an orphan, unless the table's metadata names it
    FRESH = "fresh"  # a writer may be about to commit it
    RUNNING = "running"  # of a run of ours that has not ended
    PROTECTED = "protected"  # by its name or place
    METADATA = "metadata"  # a table's metadata file: never an orphan, and it tells of tables
    OTHER_FORMAT = "other-format"  # a table of another kind is here
    ORPHAN = "orphan"
    HELD = "held"  # an orphan, but for a version that is not in the table's history
    IN_USE = "in-use"
    CONFLICT = "conflict"  # named by the table's metadata, but in another store
    STRANGE = "strange"  # a metadata file that is not among the table's own
    MISSING = "missing"  # named by the table's metadata, and not listed


class Rules(Frozen):
    """By which one listing is judged. `running` has beginnings of file names by directory, `hidden` those of partitions."""

    root: Location
    spellings: Spellings
    cutoff_ms: int
    hidden: tuple[str, ...] = ()
    running: dict[str, tuple[str, ...]] = {}

    def judge(self, path: str, modified_ms: int | None) -> tuple[Verdict, Location] | None:
        """What a file is as far as its path and age tell; None for one outside the place that is looked at."""
        location = self.spellings.parse(path)
        if not self.root.holds(location):
            return None
        parts = location.key[len(self.root.key) + 1 :].split("/")
        return self._verdict(parts, location, modified_ms, path), location

    def _verdict(self, parts: list[str], location: Location, modified_ms: int | None, path: str) -> Verdict:
        name = parts[-1]
        if not _OTHER_FORMATS.isdisjoint(parts):
            return Verdict.OTHER_FORMAT
        if path.endswith("/") or any(self._is_hidden(part) for part in parts):
            return Verdict.PROTECTED
        if _METADATA.search(name):
            return Verdict.METADATA
        if _BY_NAME.match(name):
            return Verdict.PROTECTED
        if self.running and name.startswith(self.running.get(location.key.rpartition("/")[0], ("/",))):
            return Verdict.RUNNING
        if _DOTTED.search(path):
            return Verdict.PROTECTED  # in an object store such a name is another than what it is short for
        # A store that does not tell the age tells nothing that a file could be condemned by.
        return Verdict.CANDIDATE if modified_ms and 0 < modified_ms < self.cutoff_ms else Verdict.FRESH

    def _is_hidden(self, part: str) -> bool:
        """As Iceberg has it: names that begin so are not its files, unless they are partitions by such a column."""
        return part.startswith(_OURS) or (part.startswith(("_", ".")) and not part.startswith(self.hidden or ("/",)))


def is_metadata(path: str) -> bool:
    """Whether it is named as a table's metadata files are."""
    return _METADATA.search(path) is not None


def hidden_partitions(specs: Iterable[PartitionSpec]) -> tuple[str, ...]:
    """How directories of partitions begin that look hidden and are not."""
    names = {field.name for spec in specs for field in spec.fields if field.name.startswith(("_", "."))}
    return tuple(sorted({f"{spelled}=" for name in names for spelled in (name, quote_plus(name))}))


def running_files(runs: Iterable[JournaledRun], spellings: Spellings) -> dict[str, tuple[str, ...]]:
    """What unfinished runs wrote or may have written: beginnings of names by directory."""
    found: dict[str, set[str]] = {}
    for run in runs:
        for group in run.groups:
            outputs = [output.path for output in group.result.outputs] if group.result else []
            for prefix in (group.output_prefix, *outputs):
                directory, _, name = spellings.parse(prefix).key.rpartition("/")
                found.setdefault(directory, set()).add(name)
    return {directory: tuple(sorted(names)) for directory, names in found.items()}


def required_age(seconds: float, *, writers_may_be_running: bool) -> float:
    """The age itself; below the floor only for whoever says that they know what that means."""
    if seconds >= FLOOR_SECONDS or writers_may_be_running:
        return seconds
    raise BadRequestError(
        f"Cannot take files of {format_seconds(seconds)} for orphans: writers may need up to "
        f"{format_seconds(FLOOR_SECONDS)} to commit what they have written",
        hint="Where no writer is at work, add --i-know-that-writers-may-be-running.",
    )


def places_of(state: TableState) -> tuple[str, ...]:
    """Where a table's files are put: its location, and what its properties say."""
    return (state.location, *(state.properties[key] for key in OWN_PLACES if state.properties.get(key)))


class Neighbour(Frozen):
    """Another table of the catalog; `trouble` says why nobody knows where it is."""

    name: str
    places: tuple[str, ...] = ()
    trouble: str | None = None


def chosen_root(asked: str | None, state: TableState, spellings: Spellings) -> str:
    """The place to look at, as the table spells it. Raises BadRequestError where that is no place of this table."""
    own = places_of(state)
    root = (asked or state.location).rstrip("/")
    here = spellings.parse(root)
    if here.key.count("/") < 1:
        raise BadRequestError(f"Cannot look for orphans in {root}: that is a whole store", hint="Give the table a location.")
    mine = [spellings.parse(place) for place in own]
    if any(place.holds(here) or (place.key == here.key and place.may_be_home_of(here)) for place in mine):
        return root
    raise BadRequestError(
        f"Cannot look for orphans in {root}: it is not inside a place of the table ({', '.join(own)})",
        hint="Other files there would all be taken for orphans.",
    )


class Judged(Frozen):
    """What became of a listing: files by verdict, and those that need a closer look."""

    files: dict[Verdict, int]
    listed: int = 0
    orphan_bytes: int = 0
    strange: tuple[str, ...] = ()
    """Metadata files that are not in the table's history."""
    other_formats: tuple[str, ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()
    """Some, each as it is listed and as the table spells it."""
    lost: tuple[str, ...] = ()
    """Some that the table needs and that are not there, looked for one by one."""
    holders: tuple[str, ...] = ()
    """Those of the strange ones that can read what nobody else needs."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the table, by what is not there, and what is kept for versions that it does not know."""
        lost, held, told = len(self.lost), self.count(Verdict.HELD), list[str]()
        if lost:
            least = "at least " if self.count(Verdict.MISSING) > lost else ""
            verb = "is" if lost == 1 else "are"
            told.append(f"{least}{counted(lost, 'file')} that the table needs {verb} not there, such as {self.lost[0]}")
        if held:
            versions = f"{counted(len(self.holders), 'version')} of the table not in its history, such as {self.holders[0]}"
            whose = "of a second catalog, of one that was set back, or of a lost commit"
            told.append(f"{counted(held, 'file')} kept for {versions}: {whose}")
        return tuple(told)

    def count(self, verdict: Verdict) -> int:
        """Files of this kind."""
        return self.files.get(verdict, 0)

    @property
    def objection(self) -> tuple[str, str] | None:
        """What makes the listing doubtful by itself, and what to do about it."""
        if self.other_formats:
            return f"{self.other_formats[0]} belongs to a table of another format", "Move one of the two tables."
        if self.conflicts:
            listed, known = self.conflicts[0]
            return (
                f"{listed} is listed and the table names {known}: they may be the same file",
                "If they are, say so: --equal-scheme a=b, --equal-authority a=b.",
            )
        in_use, missing = self.count(Verdict.IN_USE), self.count(Verdict.MISSING)
        if missing > in_use:
            return (
                f"the listing lacks {missing:,} of {missing + in_use:,} files that the table needs there",
                "It may be old, or of another place, or spell paths in another way; neve inspect tells whether files are gone.",
            )
        return None


class OrphanRecord(MaintenanceRecord):
    """One search for orphans, in numbers. `files` are those that would be recorded, in a dry run only."""

    location: str
    older_than_seconds: float
    listed: int = 0
    verdicts: dict[Verdict, int] = {}
    orphan_bytes: int = 0
    taken: int = 0
    """Orphans that went into the quarantine, or would: those that wait there already are not among them."""
    limited: bool = False
    """Whether there are more than one run may take."""
    files: tuple[Doomed, ...] = ()
    warnings: tuple[str, ...] = ()
    """Files that the table needs and that are gone, rules of the store by which more will be, and what is held."""

    @property
    def orphans(self) -> int:
        """Files that nothing needs, those included that wait in the quarantine."""
        return self.verdicts.get(Verdict.ORPHAN, 0)


def overlapping(root: Location, neighbours: Iterable[Neighbour], spellings: Spellings) -> Mapping[str, str]:
    """Tables that have a place inside or around this one: their names with that place."""
    return {
        neighbour.name: place for neighbour in neighbours for place in neighbour.places if root.overlaps(spellings.parse(place))
    }
