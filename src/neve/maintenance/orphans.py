"""Orphans: which files of a listing may be taken for files that no snapshot needs, and which never are. Pure rules and values.

`operations.remove_orphans` decides by them, Spark's tasks judge each listed file by them. `spark/maintenance/judging.py` has
the same rules as Spark expressions, for inventories: change both. Whatever is in doubt is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from shlex import quote
from urllib.parse import quote_plus

from neve.errors import BadRequestError, InDoubtError
from neve.health.not_due import NotDue, nearest
from neve.maintenance.quarantine import Candidate
from neve.maintenance.record import MaintenanceRecord
from neve.rewrite.journal import JournaledRun
from neve.rewrite.record import RunOutcome
from neve.table.document import PATH_PROPERTIES
from neve.table.frozen import Frozen
from neve.table.location import Location, Spellings
from neve.table.state import PartitionSpec, TableState
from neve.table.units import counted, exact_seconds, format_seconds

FLOOR_SECONDS = 3 * 86400
"""Files younger than this may belong to a writer that has not committed yet."""

OWN_PLACES = PATH_PROPERTIES
"""Properties that tell a table's writers where to put files, besides its location."""

_METADATA = re.compile(r"\.metadata\.json(\.gz)?$")
_BY_NAME = re.compile(r"^(version-hint\.text|partition-stats-.*|.*\.stats)$")
_DOTTED = re.compile(r"/\.\.?(/|\Z)")
_OURS = ("_neve", ".neve")
_OTHER_FORMATS = frozenset({"_delta_log", ".hoodie"})
CHECKPOINT = (
    r"/metadata\Z|/(offsets|commits|sources/[0-9]+)/[0-9]+(\.compact)?\Z"
    r"|/state/[0-9]+/[0-9]+/([^/]+/)?[^/]+\.(delta|snapshot|zip|changelog|sst|log)\Z"
    r"|/(chk-[0-9]+|savepoint-[0-9a-f]{6}-[0-9a-f]{12})/"
)
"""Files of checkpoints, by path: of Spark's streams, which have a file `metadata` and numbered files, and of Flink. Iceberg has
a directory `metadata`, and gives no file a bare number for a name."""
_CHECKPOINT = re.compile(CHECKPOINT)


class Verdict(StrEnum):
    """What a listed file is."""

    CANDIDATE = "candidate"  # an orphan, unless the table's metadata names it
    FRESH = "fresh"  # a writer may be about to commit it
    RUNNING = "running"  # of a run of ours that has not ended
    PROTECTED = "protected"  # by its name or place
    METADATA = "metadata"  # a table's metadata file: never an orphan, and it tells of tables
    OTHER_FORMAT = "other-format"  # a table of another kind is here
    CHECKPOINT = "checkpoint"  # of a stream: without it, the stream fails or writes its rows twice
    ORPHAN = "orphan"
    DROPPED = "dropped"  # metadata of another table, of which somebody vouches that it was dropped
    HELD = "held"  # an orphan, but for a version that is not in the table's history
    SHARED = "shared"  # not named by the table, but by another one, or by this one under another path
    IN_USE = "in-use"
    CONFLICT = "conflict"  # named by the table's metadata, but in another store
    STRANGE = "strange"  # a metadata file that is not among the table's own
    MISSING = "missing"  # named by the table's metadata, and not listed


class OrphanRules(Frozen):
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
        if path.endswith("/") or any(_is_hidden(part, self.hidden) for part in parts):
            return Verdict.PROTECTED
        if is_checkpoint("/".join(parts)):
            return Verdict.CHECKPOINT
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


def _is_hidden(part: str, partitions: tuple[str, ...]) -> bool:
    """As Iceberg has it: names that begin so are not its files, unless they are partitions by such a column."""
    return part.startswith(_OURS) or (part.startswith(("_", ".")) and not part.startswith(partitions or ("/",)))


def _is_outside(parts: Iterable[str], partitions: tuple[str, ...]) -> bool:
    """Whether a directory below a table's location, given by its parts, is not for the table's files."""
    return any(_is_hidden(part, partitions) or part in _OTHER_FORMATS for part in parts)


def is_checkpoint(below: str) -> bool:
    """Whether a file, given by its path below the table's location, is named as those in the checkpoint of a stream are."""
    return _CHECKPOINT.search(f"/{below}") is not None


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
        hint="Set orphan-age to 3 days or more. Where no writer is at work, `neve orphans TABLE "
        "--i-know-that-writers-may-be-running` takes them once.",
    )


def places_of(state: TableState) -> tuple[str, ...]:
    """Where a table's files are put: its location, and what its properties say."""
    return (state.location, *(state.properties[key] for key in OWN_PLACES if state.properties.get(key)))


class Neighbour(Frozen):
    """A table of a catalog; `trouble` says why nobody knows where it is. Without a uuid it could not be loaded."""

    name: str
    places: tuple[str, ...] = ()
    trouble: str | None = None
    uuid: str | None = None

    def is_table(self, name: str, uuid: str) -> bool:
        """Whether it is this table: by its name, or by its uuid if it is in two catalogs or a catalog has two names."""
        return self.name == name or (self.uuid is not None and self.uuid.lower() == uuid.lower())


def chosen_root(asked: str | None, state: TableState, spellings: Spellings) -> str:
    """The place to look at, as the table spells it. Raises BadRequestError where that is no place of this table."""
    own = places_of(state)
    root = (asked or state.location).rstrip("/")
    here = spellings.parse(root)
    if here.key.count("/") < 1:
        raise BadRequestError(f"Cannot look for orphans in {root}: that is a whole store", hint="Give the table a location.")
    mine = [spellings.parse(place) for place in own]
    if any(place.key == here.key and place.may_be_home_of(here) for place in mine):
        return root
    around = [here.key[len(place.key) + 1 :].split("/") for place in mine if place.holds(here)]
    shown = hidden_partitions(state.specs)
    if any(not _is_outside(parts, shown) for parts in around):
        return root
    if around:
        raise BadRequestError(
            f"Cannot look for orphans in {root}: Iceberg does not write below names that begin with _ or .",
            hint="Such files belong to others, such as checkpoints of a stream. A search of the whole table leaves them alone.",
        )
    raise BadRequestError(
        f"Cannot look for orphans in {root}: it is not inside a place of the table ({', '.join(own)})",
        hint="Other files there would all be taken for orphans.",
    )


class Judged(Frozen):
    """What became of a listing: files by verdict, and those that need a closer look."""

    files: dict[Verdict, int]
    listed: int = 0
    orphan_bytes: int = 0
    oldest_fresh_ms: int | None = None
    """When the oldest of the files that are too young was written; None if the storage does not say, or if there are none."""
    strange: tuple[str, ...] = ()
    """Metadata files that are not in the table's history."""
    other_formats: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    """Some files of checkpoints of streams."""
    conflicts: tuple[tuple[str, str], ...] = ()
    """Some, each as it is listed and as the table spells it."""
    lost: tuple[str, ...] = ()
    """Some that the table needs and that are not there, looked for one by one."""
    holders: tuple[str, ...] = ()
    """Those of the strange ones that can read what nobody else needs."""
    dropped: tuple[str, ...] = ()
    """Uuids of dropped tables whose metadata is here."""
    users: tuple[str, ...] = ()
    """Tables that need files which are here and which this table does not name so."""

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
        if (shared := self.count(Verdict.SHARED)) and self.users:
            others = f" and {counted(len(self.users) - 1, 'other table')}" if len(self.users) > 1 else ""
            told.append(f"{counted(shared, 'file')} kept: needed by {self.users[0]}{others}")
        return tuple(told)

    def count(self, verdict: Verdict) -> int:
        """Files of this kind."""
        return self.files.get(verdict, 0)

    @property
    def objection(self) -> tuple[str, str] | None:
        """What makes the listing doubtful by itself, and what to do about it."""
        if self.other_formats:
            return f"{self.other_formats[0]} belongs to a table of another format", "Move one of the two tables."
        if self.checkpoints:
            return (
                f"{self.checkpoints[0]} belongs to the checkpoint of a stream",
                "Stop the stream and move its checkpoint out of the table's directory, or below a name that begins with _.",
            )
        if self.conflicts:
            listed, known = self.conflicts[0]
            return (
                f"{listed} is listed and the table names {known}: they may be the same file",
                "If they are, say so: `neve orphans TABLE --equal-scheme a=b --equal-authority c=d`.",
            )
        in_use, missing = self.count(Verdict.IN_USE), self.count(Verdict.MISSING)
        if missing > in_use:
            return (
                f"the listing lacks {missing:,} of {missing + in_use:,} files that the table needs there",
                "It may be old, of another place, or spell paths differently. If files are gone, restore them from a backup.",
            )
        return None


class Untaken(Frozen):
    """Orphans that a search did not record: those that wait in the quarantine already, and those behind symbolic links."""

    waiting: int = 0
    linked: int = 0


def nothing_taken(judged: Judged, untaken: Untaken, older_than_seconds: float) -> str:
    """Why a search recorded nothing, for the end of a sentence."""
    age, fresh, parts = exact_seconds(older_than_seconds), judged.count(Verdict.FRESH), list[str]()
    if untaken.waiting == 1:
        parts.append("the only orphan waits in the quarantine already")
    elif untaken.waiting:
        parts.append(f"all {untaken.waiting:,} orphans wait in the quarantine already")
    if untaken.linked:
        are = "is" if untaken.linked == 1 else "are"
        parts.append(f"{counted(untaken.linked, 'file')} {are} stored elsewhere, behind a symbolic link")
    if fresh:
        young = f"younger than {age}" if judged.oldest_fresh_ms is not None else "of unknown age"
        parts.append(f"{_unneeded(fresh)} {'is' if fresh == 1 else 'are'} {young}")
    return ", and ".join(parts) or "every file is accounted for"


def next_orphans(judged: Judged, untaken: Untaken, older_than_seconds: float) -> tuple[NotDue, ...]:
    """When another search can find more, the soonest first."""
    age, rules = exact_seconds(older_than_seconds), list[NotDue]()
    if untaken.waiting:
        waiting = f"{counted(untaken.waiting, 'orphan')} {'waits' if untaken.waiting == 1 else 'wait'} in the quarantine"
        rules.append(NotDue(rule="waiting", what=waiting, until="`neve quarantine settle TABLE` has moved them"))
    if untaken.linked:
        linked = f"{counted(untaken.linked, 'file')} behind a symbolic link"
        rules.append(NotDue(rule="linked", what=linked, until="no symbolic link leads to them"))
    if fresh := judged.count(Verdict.FRESH):
        rules.append(_when_old_enough(fresh, judged.oldest_fresh_ms, older_than_seconds))
    if not rules:
        until = f"a file without a snapshot is {age} old"
        rules.append(NotDue(rule="orphan-age", what="every file is in use or kept", knob="orphan-age", until=until))
    return nearest(rules)


def _when_old_enough(fresh: int, oldest_ms: int | None, older_than_seconds: float) -> NotDue:
    """The first of the young files is a candidate once it is older than the age (`OrphanRules.judge`)."""
    if oldest_ms is None:
        until = "the storage reports when they were written"
        return NotDue(rule="orphan-age", what=f"{_unneeded(fresh)}, of unknown age", knob="orphan-age", until=until)
    what = f"{_unneeded(fresh)}, younger than {exact_seconds(older_than_seconds)}"
    due_ms = oldest_ms + int(older_than_seconds * 1000) + 1
    return NotDue(rule="orphan-age", what=what, knob="orphan-age", due_ms=due_ms)


def _unneeded(files: int) -> str:
    return f"{counted(files, 'file')} that no snapshot needs"


class OrphanRecord(MaintenanceRecord):
    """One search for orphans, in numbers. `files` are those that would be recorded, in a dry run only."""

    location: str
    older_than_seconds: float
    listed: int = 0
    verdicts: dict[Verdict, int] = {}
    orphan_bytes: int = 0
    taken: int = 0
    """Orphans that went into the quarantine, or would: those that wait there already are not among them."""
    already_recorded: int = 0
    """Orphans that wait in the quarantine already; if `limited`, those that were found before the limit was reached."""
    limited: bool = False
    """Whether there are more than one run may take."""
    files: tuple[Candidate, ...] = ()
    warnings: tuple[str, ...] = ()
    """Files that the table needs and that are gone, rules of the store by which more will be, and what is held."""

    @property
    def orphans(self) -> int:
        """Files that nothing needs, those included that wait in the quarantine."""
        return self.verdicts.get(Verdict.ORPHAN, 0) + self.verdicts.get(Verdict.DROPPED, 0)


def left_by_others(root: str, table: str, owners: Mapping[str, str]) -> InDoubtError:
    """Returns the error for metadata files of other tables, by path with their table uuids: what is there, and the way out."""
    files: dict[str, list[str]] = {}
    for path, uuid in sorted(owners.items()):
        files.setdefault(uuid, []).append(path)
    several = len(files) > 1
    listed = "; ".join(
        f"{uuid}: {counted(len(paths), 'metadata file')}, the newest is {paths[-1]}" for uuid, paths in files.items()
    )
    whose = f"metadata of {len(files)} other tables" if several else "metadata of another table"
    uuids = " --dropped-table ".join(files)
    return InDoubtError(
        f"Cannot tell orphans in {root}: {whose} is there ({listed})",
        hint=f"If {'these tables were' if several else 'that table was'} dropped, `neve orphans {quote(table)} "
        f"--dropped-table {uuids} --dry-run` lists the files left behind, and `neve orphans {quote(table)} --dropped-table "
        f"{uuids}` puts them into the quarantine. If "
        "not, give each table a location of its own.",
    )


def overlapping(
    root: Location, neighbours: Iterable[Neighbour], spellings: Spellings, real: Callable[[str], str] = str
) -> Mapping[str, str]:
    """Returns tables that have a place inside or around this one, by name with that place; `real` resolves links."""
    here = _resolved(root, real)
    return {
        neighbour.name: place
        for neighbour in neighbours
        for place in neighbour.places
        if _overlap(root, here, spellings.parse(place), real)
    }


def _overlap(root: Location, here: Location, place: Location, real: Callable[[str], str]) -> bool:
    there = _resolved(place, real)
    return root.overlaps(place) or here.overlaps(there)


def _resolved(location: Location, real: Callable[[str], str]) -> Location:
    return location._replace(key=real(location.key)) if location.scheme in ("", "file") else location


def interrupted(run_id: str, started_ms: int, *, by: OrphanRecord) -> OrphanRecord:
    """The record of a search that was killed, once another has ended."""
    return OrphanRecord(
        run_id=run_id,
        table=by.table,
        table_uuid=by.table_uuid,
        operation=by.operation,
        outcome=RunOutcome.FAILED,
        reason="it was interrupted; what it had recorded by then waits in the quarantine",
        interrupted=True,
        started_ms=started_ms,
        finished_ms=by.finished_ms,
        location=by.location,
        older_than_seconds=by.older_than_seconds,
    )
