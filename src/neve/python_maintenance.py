"""What `import neve` offers of maintenance: one call for each operation on a table. A surface like `python_api`, whose words it
takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neve.python_api import connect, said, table

if TYPE_CHECKING:
    from neve.maintenance.expiry import ExpiryRecord
    from neve.maintenance.manifests import ManifestsRecord
    from neve.maintenance.orphans import OrphanRecord
    from neve.maintenance.prevention import PreventionRecord
    from neve.maintenance.quarantine import QuarantinedRun, QuarantineRecord
    from neve.maintenance.statistics import StatisticsRecord
    from neve.maintenance.steps import MaintainRecord
    from neve.maintenance.tags import TagsRecord
    from neve.maintenance.ttl import TtlRecord


def expire(
    name: str,
    *,
    older_than: str | None = None,
    keep: int | None = None,
    snapshot_ids: Sequence[int] = (),
    metadata_only: bool = False,
    dry_run: bool = False,
    **words: Any,
) -> ExpiryRecord:
    """Expires snapshots by age and count, or by their ids; `words` are those of `table`.

    No file is deleted: what nothing needs any more goes to the quarantine, unless it is `metadata_only`.
    """
    asked = {"older_than": older_than, "keep": keep, "snapshot_ids": tuple(snapshot_ids)}
    return table(name, **words).expire(**asked, metadata_only=metadata_only, dry_run=dry_run)


def quarantine(name: str, **words: Any) -> tuple[QuarantinedRun, ...]:
    """What is in a table's quarantine: files of each run, by reason and fate; `words` are those of `table`."""
    return table(name, **words).quarantine()


def settle(
    name: str,
    *,
    run: str | None = None,
    limit: int | None = None,
    at_once: bool = False,
    delete: bool = False,
    dry_run: bool = False,
    **words: Any,
) -> QuarantineRecord:
    """Looks again at files that were recorded for removal: what the table needs stays, the rest goes to the trash.

    `at_once` does not wait for `quarantine-grace`, `delete` deletes where buckets keep versions; `words` are those of `table`.
    """
    return table(name, **words).settle(run=run, limit=limit, at_once=at_once, delete=delete, dry_run=dry_run)


def purge(name: str, *, limit: int | None = None, dry_run: bool = False, **words: Any) -> QuarantineRecord:
    """Removes files for good that have been in the trash for `trash-keep`; `words` are those of `table`."""
    return table(name, **words).purge(limit=limit, dry_run=dry_run)


def restore(run: str, *, table: str | None = None, dry_run: bool = False, **words: Any) -> QuarantineRecord:
    """Puts the files back that a run put into the quarantine, unless they are purged; `words` are those of `connect`.

    Restores files only: snapshots that were expired stay expired.
    """
    with connect(**words) as neve:
        return neve.restore(run, table=table, dry_run=dry_run)


def orphans(
    name: str,
    *,
    older_than: str | float | None = None,
    location: str | None = None,
    inventory: str | None = None,
    equal_schemes: Sequence[str] = (),
    equal_authorities: Sequence[str] = (),
    limit: int = 100_000,
    dry_run: bool = False,
    writers_may_be_running: bool = False,
    no_other_table_is_here: bool = False,
    ignore_tables: Sequence[str] = (),
    dropped_tables: Sequence[str] = (),
    **words: Any,
) -> OrphanRecord:
    """Finds files at a table's location that no snapshot needs, for the quarantine; `words` are those of `table`.

    No file is moved or deleted by this. Files younger than `older_than` (`orphan-age` unless given) are left alone; less than
    3 days needs `writers_may_be_running` as well. Any doubt whose files are there raises InDoubtError.
    """
    return table(name, **words).orphans(
        older_than=older_than,
        location=location,
        inventory=inventory,
        equal_schemes=equal_schemes,
        equal_authorities=equal_authorities,
        limit=limit,
        dry_run=dry_run,
        writers_may_be_running=writers_may_be_running,
        no_other_table_is_here=no_other_table_is_here,
        ignore_tables=ignore_tables,
        dropped_tables=dropped_tables,
    )


def manifests(name: str, *, by: Sequence[str] = (), dry_run: bool = False, **words: Any) -> ManifestsRecord:
    """Rewrites a table's manifests where queries gain by it; `words` are those of `table`."""
    return table(name, **words).manifests(by=by, dry_run=dry_run)


def stats(
    name: str, *, columns: Sequence[str] = (), force: bool = False, dry_run: bool = False, **words: Any
) -> StatisticsRecord:
    """Keeps the statistics of a table's columns and partitions fresh; `words` are those of `table`."""
    return table(name, **words).stats(columns=columns, force=force, dry_run=dry_run)


def tags(name: str, *, dry_run: bool = False, **words: Any) -> TagsRecord:
    """Keeps tags of ends of days, weeks and months; `words` are those of `table`, such as `auto_tags`."""
    return table(name, **words).tags(dry_run=dry_run)


def ttl(
    name: str,
    keep: object = None,
    *,
    column: str | None = None,
    enforce: bool = False,
    dry_run: bool = False,
    branch: str | None = None,
    **words: Any,
) -> TtlRecord:
    """Counts the rows of a table that are past their time, or removes them; `words` are those of `table`.

    The first enforcement of a limit has to be previewed: call it without `enforce` and look at `counts`.
    """
    asked = said(table(name, **words), {"ttl": keep, "ttl_column": column, "branch": branch}, (), force=False)
    return asked._ttl(enforce=enforce, dry_run=dry_run)


def maintain(
    name: str, *, only: Sequence[str] = (), skip: Sequence[str] = (), dry_run: bool = False, **words: Any
) -> MaintainRecord:
    """Does all that a table needs, in the safe order, as far as it is due; `words` are those of `table`.

    `only` and `skip` name steps: tags, expire, ttl, compact, deletes, manifests, stats, orphans, settle, purge.
    """
    return table(name, **words).maintain(only=only, skip=skip, dry_run=dry_run)


def prevent(name: str, *, apply: bool = False, undo: bool = False, **words: Any) -> PreventionRecord:
    """What would keep a table's files from becoming bad; set, or taken back, where asked. `words` are those of `table`."""
    return table(name, **words).prevent(apply=apply, undo=undo)
