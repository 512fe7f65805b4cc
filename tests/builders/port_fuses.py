"""Stops a maintenance operation at a given call of a port: the process dies there, or a concurrent change is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from neve.catalogs.entries import PlainEntry
from neve.operations.reachable import Reachable
from neve.spark.maintenance.expiry import SparkSnapshotRemoval
from neve.spark.maintenance.manifests import SparkManifests
from neve.spark.maintenance.orphans import SparkOrphanSearch
from neve.spark.maintenance.statistics import SparkStatistics
from neve.spark.maintenance.tags import SparkTags
from neve.spark.maintenance.ttl import SparkPastRows
from neve.spark.table.bridge import TableBridge
from neve.spark.tasks.rewrite import SparkEngine
from neve.state import StateStore
from neve.storage import moves as storage_moves

PORTS: dict[Any, tuple[str, ...]] = {
    StateStore: (
        *("record_candidates", "settle_candidates", "quarantined", "take_lease", "release_lease"),
        *("start_run", "finish_run", "begin", "written", "settled", "keep_run", "unfinished", "take_over", "redone", "pause"),
    ),
    storage_moves.StoredFiles: ("stat", "move", "put_back", "delete"),
    storage_moves: ("_rename", "_unlink"),
    SparkSnapshotRemoval: ("history", "expire"),
    Reachable: ("lost_since", "needed"),
    SparkOrphanSearch: ("list_files", "judge", "orphans"),
    SparkManifests: ("write", "commit"),
    SparkStatistics: ("write", "publish"),
    SparkTags: ("change_tags",),
    SparkPastRows: ("drop", "tallies", "delete"),
    SparkEngine: ("run", "unused"),
    TableBridge: ("refresh", "rewrite", "swap_properties", "swap_property"),
    PlainEntry: ("refresh", "swap_properties", "swap_property"),
}


CALLS = sorted({when + name for names in PORTS.values() for name in names for when in ("", "after ")})


class DeadError(BaseException):
    """What a process that was killed does instead of a call."""


class Fuse:
    """Counts calls and, for iterators, items. What was killed stays dead: nothing it does afterwards comes through."""

    def __init__(self) -> None:
        self.left: int | tuple[str, ...] = ()
        self.strike: Callable[[], object] | None = None
        self.is_dead = False
        self.where = ""
        self.failure: BaseException | None = None

    @contextmanager
    def lit(self, at: int | tuple[str, ...], strike: Callable[[], object] | None = None) -> Iterator[None]:
        """Inside, the call of this number or the first by one of these names finds the process dead, or comes after the strike.

        What fails in a strike is raised here, whatever the operation made of it.
        """
        self.left, self.strike, self.is_dead, self.where, self.failure = at, strike, False, "", None
        try:
            yield
        except DeadError:
            pass
        finally:
            self.left, self.is_dead = (), False
            if self.failure is not None:
                raise self.failure

    def burn(self, name: str) -> None:
        if self.is_dead:
            raise DeadError(name)
        if isinstance(self.left, int):
            self.left -= 1
        if self.left != 0 and not (isinstance(self.left, tuple) and name in self.left):
            return
        self.left, self.where = (), name
        if self.strike is None:
            self.is_dead = True
            raise DeadError(name)
        try:
            self.strike()
        except BaseException as error:
            self.failure = error
            raise

    def put_into(self, patch: pytest.MonkeyPatch) -> None:
        for owner, names in PORTS.items():
            for name in names:
                patch.setattr(owner, name, self._fused(getattr(owner, name), name))

    def _fused(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(real)
        def fused(*args: Any, **words: Any) -> Any:
            self.burn(name)
            found = real(*args, **words)
            self.burn(f"after {name}")
            return self._each(found, name) if isinstance(found, Iterator) else found

        return fused

    def _each(self, items: Iterator[Any], name: str) -> Iterator[Any]:
        for item in items:
            self.burn(f"an item of {name}")
            yield item
