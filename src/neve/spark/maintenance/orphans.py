"""Finds orphans on Spark (implements `index_ports.OrphanSearch`): a listing, judged in tasks and joined with what is needed.

Neither a listing nor what is known is ever on the driver: it gets counts, a few examples, and the orphans one by one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from neve.errors import BadRequestError, InDoubtError
from neve.maintenance.orphans import Judged, OrphanRules, Verdict, is_metadata
from neve.maintenance.quarantine import Candidate
from neve.spark.maintenance.judging import is_below, located
from neve.spark.maintenance.listing import OLDEST_MS, list_files, list_metadata, read_inventory, require_tasks, with_hash
from neve.spark.maintenance.reachable import known_files
from neve.spark.runtime.task_python import task_context
from neve.spark.table.bridge import TableBridge
from neve.table.calendar import iso_moment
from neve.table.location import home_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXAMPLES = 10
_HINT = "/version-hint.text"
_FEW = 10_000
"""Files that one task can well look at."""
_MOST_STRANGE = 10_000
_MOST_LOOKED_FOR = 100
_MOST_CHUNKS = 1_000
_CONCURRENT_READS = 8
_HOME = "xxhash64(scheme, authority) AS home"
_HOMES = "xxhash64(scheme, authority), xxhash64('', authority), xxhash64(scheme, ''), xxhash64('', '')"
"""Where a listed file may be said to be: what is not said can be anything. Numbers, since texts would have to be sorted."""
_VERDICT = f"""CASE
    WHEN verdict IS NULL THEN '{Verdict.MISSING}'
    WHEN one_home IS NULL AND verdict = '{Verdict.METADATA}' THEN '{Verdict.STRANGE}'
    WHEN one_home IS NULL AND verdict = '{Verdict.CANDIDATE}' THEN '{Verdict.ORPHAN}'
    WHEN one_home IS NULL THEN verdict
    WHEN one_home IN ({_HOMES}) OR other_home IN ({_HOMES}) THEN '{Verdict.IN_USE}'
    ELSE '{Verdict.CONFLICT}' END"""
_DETAILS = ("path", "size_bytes")
_REASONS = {Verdict.DROPPED: "metadata of a dropped table", Verdict.ORPHAN: "orphan: in no snapshot"}


class SparkOrphanSearch:
    """One search over one table, which `bridge` has loaded. `history` gives the paths of the table's own metadata files."""

    def __init__(
        self,
        spark: SparkSession,
        bridge: TableBridge,
        storage: Callable[[], Mapping[str, str]],
        history: Callable[[], Iterable[str]],
    ) -> None:
        self._spark, self._bridge, self._storage, self._history = spark, bridge, storage, history
        self._rules: Any = None
        self._listed: Any = None
        self._known = 0
        self._judged = Judged(files={})
        self._rest: Any = None
        self._inventory: str | None = None
        self._usual = ""

    def list_files(self, root: str, rules: OrphanRules, inventory: str | None = None) -> None:
        """Lists everything below a place, or reads a list of it."""
        self._rules, self._inventory = rules, inventory
        self._usual = home_of(root)
        if inventory is not None:
            self._listed = read_inventory(self._spark, inventory, rules, self._usual)
        else:
            self._listed = with_hash(list_files(self._spark, root, rules, storage=self._storage, bridge=self._bridge))

    def judge(self) -> Judged:
        """Compares what was listed with what the table needs, as the bridge has it now."""
        from pyspark.sql.functions import col

        with known_files(self._spark, self._bridge) as paths:
            # Only tables of a directory have the hint, though every table's metadata could: it is no file to miss.
            known = self._inside(paths).where(~col("key").endswith(_HINT)).selectExpr("xxhash64(key) AS hash", _HOME)
            # A key that the table has in three stores is known of two: in doubt it is a conflict.
            homes = known.groupBy("hash").agg(*_aggregates("min(home) AS one_home", "max(home) AS other_home"))
            # In this order, since the session of the first has as many partitions as there is work for.
            joined = homes.join(self._listed, "hash", "full_outer").selectExpr(
                f"{_VERDICT} AS verdict", "hash", "modified_ms", *_DETAILS
            )
            # Of most files only the number is asked for.
            kept = [f"if(verdict = '{Verdict.IN_USE}', NULL, {name}) AS {name}" for name in _DETAILS]
            judged = joined.selectExpr("verdict", "hash", "modified_ms", *kept).localCheckpoint()
        return self._told(judged)

    def _inside(self, paths: DataFrame) -> DataFrame:
        from pyspark.sql.functions import col

        return located(paths, self._rules.spellings, self._usual).where(is_below(col("key"), self._rules.root))

    def _told(self, judged: DataFrame) -> Judged:
        in_use = f"verdict = '{Verdict.IN_USE}'"
        parts = judged.groupBy(*_aggregates(f"{in_use} AS in_use")).agg(*_aggregates("count(1)", "min(modified_ms)")).collect()
        if self._inventory is not None and any(oldest is not None and oldest < OLDEST_MS for _, _, oldest in parts):
            hint = "Write timestamps, or milliseconds since 1970."
            reason = "it has files from before the year 2000"
            raise BadRequestError(f"Cannot use the inventory {self._inventory}: {reason}", hint=hint)
        self._known = sum(number for is_known, number, _ in parts if is_known)
        rest = judged.where(f"NOT {in_use}")
        if sum(number for is_known, number, _ in parts if not is_known) <= _FEW:
            rest = rest.coalesce(1)  # no more is to be dealt out
        self._rest = _newest(rest).localCheckpoint()
        counts = self._counts()
        files = counts["files"]
        self._judged = Judged(
            **counts,
            listed=sum(files.values()) - files.get(Verdict.MISSING, 0),
            strange=tuple(self._strange(files.get(Verdict.STRANGE, 0))),
            other_formats=tuple(row.path for row in self._some(files, Verdict.OTHER_FORMAT)),
            checkpoints=tuple(row.path for row in self._some(files, Verdict.CHECKPOINT)),
            conflicts=tuple((row.path, spelled) for row, spelled in self._spelled(self._some(files, Verdict.CONFLICT))),
            lost=tuple(self._absent(self._some(files, Verdict.MISSING, _MOST_LOOKED_FOR))),
        )
        return self._judged

    def _counts(self) -> dict[str, Any]:
        """Files by verdict, how large the orphans are, and when the oldest young file was written, as fields of `Judged`."""
        facts = _aggregates(
            "count(1) AS files", "sum(size_bytes) AS bytes", "min(if(modified_ms > 0, modified_ms, NULL)) AS oldest_ms"
        )
        counts = self._rest.groupBy("verdict").agg(*facts).collect()
        files = {Verdict(row.verdict): int(row.files) for row in counts}
        return {
            "files": files | ({Verdict.IN_USE: self._known} if self._known else {}),
            "orphan_bytes": sum(row.bytes or 0 for row in counts if row.verdict in (Verdict.DROPPED, Verdict.ORPHAN)),
            "oldest_fresh_ms": next((row.oldest_ms for row in counts if row.verdict == Verdict.FRESH), None),
        }

    def _strange(self, listed: int) -> list[str]:
        """Metadata files that were never the table's, as far back as its history can be followed."""
        found = (row.path for row in self._of(Verdict.STRANGE).toLocalIterator()) if listed else iter(())
        place = self._unlisted_metadata()
        paths = chain(found, list_metadata(self._spark, place, self._rules, self._bridge) if place else ())
        first = next(paths, None)
        if first is None:
            return []
        key = self._rules.spellings.parse
        own = {key(path).key for path in self._history()}
        strange = {key(path).key: path for path in chain([first], paths) if key(path).key not in own}
        if len(strange) > _MOST_STRANGE:
            raise InDoubtError(
                f"Cannot tell whose files these are: over {_MOST_STRANGE:,} metadata files are not the table's",
                hint="Remove old metadata files first.",
            )
        return list(strange.values())

    def _unlisted_metadata(self) -> str | None:
        """Where the table has its metadata, if that was not listed just now, but by others, or not at all."""
        place = str(self._bridge.table.operations().current().metadataFileLocation()).rpartition("/")[0]
        here = self._rules.spellings.parse(place)
        is_listed = self._inventory is None and (self._rules.root.holds(here) or self._rules.root.key == here.key)
        return None if is_listed else place

    def _spelled(self, rows: list[Any]) -> Iterator[tuple[Any, str]]:
        """Each with how the table spells it."""
        from pyspark.sql.functions import col

        if not rows:
            return
        with known_files(self._spark, self._bridge) as paths:
            named = self._inside(paths).selectExpr("path", "xxhash64(key) AS hash")
            same = named.where(col("hash").isin([row.hash for row in rows])).groupBy("hash").agg({"path": "min"})
            known = dict(same.collect())
        yield from ((row, known[row.hash]) for row in rows)

    def _absent(self, rows: list[Any]) -> Iterator[str]:
        """Those that are not there. What was committed after the listing is, and what cannot be looked for may be."""
        wanted = [spelled for _, spelled in self._spelled(rows)]
        with ThreadPoolExecutor(_CONCURRENT_READS) as threads:
            yield from (path for path, gone in zip(wanted, threads.map(self._is_absent, wanted), strict=True) if gone)

    def _is_absent(self, path: str) -> bool:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            return not self._bridge.table.io().newInputFile(path).exists()
        except (Py4JJavaError, PySparkException):
            return False

    def _some(self, files: Mapping[Verdict, int], verdict: Verdict, limit: int = _EXAMPLES) -> list[Any]:
        """Examples, without a job where there are none."""
        return list(self._of(verdict).limit(limit).collect()) if files.get(verdict) else []

    def _of(self, verdict: Verdict) -> DataFrame:
        frame: DataFrame = self._rest.where(f"verdict = '{verdict}'").sort("path", "hash")
        return frame

    def share(self, paths: Iterable[str]) -> Judged:
        """Judges anew: these are needed by other tables, or by this one under another path. Their metadata is not strange."""
        self._rename(Verdict.SHARED, paths, Verdict.ORPHAN, Verdict.FRESH, Verdict.STRANGE)
        known = {row.path for row in self._of(Verdict.SHARED).toLocalIterator() if is_metadata(row.path)}
        strange = tuple(path for path in self._judged.strange if path not in known)
        self._judged = self._judged.model_copy(update={"strange": strange})
        return self._judged

    def drop(self, metadata_files: Iterable[str]) -> Judged:
        """Counts metadata files of dropped tables as such, among those that were listed."""
        self._rename(Verdict.DROPPED, metadata_files, Verdict.STRANGE)
        return self._judged

    def _as_frame(self, paths: Iterable[str]) -> DataFrame:
        """Few as they are, many in chunks that tasks unpack."""
        batches = iter(paths)
        first = list(islice(batches, _FEW))
        if len(first) < _FEW:
            return self._spark.createDataFrame([(path,) for path in first], "path string")
        require_tasks(self._spark, "the files of other tables")
        chunks = [_packed(first)]
        while some := list(islice(batches, _FEW)):
            chunks.append(_packed(some))
        context = task_context(self._spark.sparkContext)
        dealt = context.parallelize(chunks, min(len(chunks), _MOST_CHUNKS)).flatMap(_unpacked)
        return self._spark.createDataFrame(dealt, "path string", verifySchema=False)

    def orphans(self) -> Iterator[Candidate]:
        """Those that were found, by path, a part of them at a time; metadata of dropped tables comes first.

        A run that stops at its limit must not leave such metadata for the next one, which would not know what it is.
        """
        for verdict, what in _REASONS.items():
            for row in self._of(verdict).toLocalIterator():
                when = f", written {_moment(row.modified_ms)} UTC" if row.modified_ms else ""
                facts = {"size_bytes": row.size_bytes, "modified_ms": row.modified_ms}
                yield Candidate(path=row.path, reason=f"{what}{when}", **facts)

    def hold(self, paths: Iterable[str]) -> Judged:
        """Judges again: these are needed by versions of the table that its history does not have."""
        self._rename(Verdict.HELD, paths, Verdict.ORPHAN)
        return self._judged

    def _rename(self, verdict: Verdict, paths: Iterable[str], *given: Verdict) -> None:
        """Changes the verdict of these files where it is one of those given."""
        named = located(self._as_frame(paths), self._rules.spellings, self._usual)
        old = ", ".join(f"'{one}'" for one in given)
        changed = f"if(is_named AND verdict IN ({old}), '{verdict}', verdict) AS verdict"
        self._rest = (
            self._rest.join(named.selectExpr("xxhash64(key) AS hash", "true AS is_named").distinct(), "hash", "left")
            .selectExpr(changed, "hash", "modified_ms", *_DETAILS)
            .localCheckpoint()
        )
        self._judged = self._judged.model_copy(update=self._counts())


def _moment(milliseconds: int) -> str:
    return iso_moment(milliseconds // 1000).replace("T", " ")[:-3]


def _packed(paths: list[str]) -> bytes:
    """Small, since all of them are on the driver at a time."""
    return zlib.compress(json.dumps(paths).encode(), 1)


def _unpacked(chunk: bytes) -> list[tuple[str]]:
    return [(path,) for path in json.loads(zlib.decompress(chunk))]


def _newest(rest: DataFrame) -> DataFrame:
    """A list may name a file twice: the younger counts, and most of all one of unknown age, by which none is condemned."""
    facts = _aggregates(
        f"max_by(verdict, coalesce(modified_ms, {2**63 - 1})) AS verdict",
        *(f"max({name}) AS {name}" for name in ("modified_ms", "size_bytes")),
    )
    return rest.groupBy("hash", "path").agg(*facts)


def _aggregates(*expressions: str) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(expression) for expression in expressions]
