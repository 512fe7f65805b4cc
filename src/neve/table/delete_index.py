"""Which delete applies to which data file, exactly as the specification says, from metadata alone. Pure, over columns.

Called by `rewrite.planner`, and by whoever applies, converts or drops deletes. Files are known by their row in `FileColumns`.
No list of deletes is kept per file, which would be as long as files times deletes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import CorruptMetadataError
from neve.table.files import DATA, EQUALITY_DELETES, POSITION_DELETES, FileColumns
from neve.table.state import PartitionSpec

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

_NOWHERE = -1


class DeleteSums(NamedTuple):
    """By group: deletes that apply to any of its files, each counted once. A vector counts as a file."""

    files: Rows
    bytes: Rows
    equality_bytes: Rows


class PositionCounts(NamedTuple):
    """By file, how many deletes by position apply to it: vectors, delete files of its own, and such as others may share."""

    vectors: Rows
    named: Rows
    shared: Rows

    @property
    def total(self) -> Rows:
        """All of them."""
        return self.vectors + self.named + self.shared


def unpartitioned(specs: Iterable[PartitionSpec]) -> set[int]:
    """The specs whose equality deletes are global. A field that was dropped from a v1 spec stays in it as void."""
    return {spec.spec_id for spec in specs if all(field.transform == "void" for field in spec.fields)}


def may_have_deletes(files: FileColumns, *, unpartitioned_specs: Collection[int], ours: Collection[str]) -> Mask:
    """Data files that a delete may apply to; `ours` as in `DeleteIndex.of`."""
    return DeleteIndex.of(files, unpartitioned_specs=unpartitioned_specs, ours=ours).has_deletes()


@dataclass(frozen=True)
class DeleteIndex:
    """Every delete of a table and what it applies to. Wherever files are asked for, one row or several will do."""

    files: FileColumns
    vectors: _Reach
    named: _Reach
    shared: _Reach
    equality: _Reach
    everywhere: _Reach
    identity: Rows
    """By row, a number that the entries of one delete share; `_NOWHERE` for data files."""

    @classmethod
    def of(cls, files: FileColumns, *, unpartitioned_specs: Collection[int], ours: Collection[str] = ()) -> Self:
        """Deletes of positions apply to files as old as themselves, of equal rows to older ones; in their partition and spec.

        One that names a file applies to that file alone, an equality delete of an unpartitioned spec to the whole table, and a
        vector makes the other position deletes of its file void. `ours` are files that we wrote: these have the number of the
        snapshot they were made from, when nobody knew their names, so that only newer deletes or such as name them can apply.
        """
        content, partition, number = (files.column(name) for name in ("content", "partition", "sequence_number"))
        identity = _identities(files)
        entries = _newest_entries(identity, partition, number)
        is_data, by_position, by_equality = content == DATA, content == POSITION_DELETES, content == EQUALITY_DELETES
        names_one = by_position & np.asarray(pc.not_equal(files.table.column("referenced"), "").to_numpy())
        is_global = np.isin([home.spec_id for home in files.partitions], list(unpartitioned_specs))[partition]
        names = _names(files, names_one)

        def reach(chosen: Mask, scopes: Rows, concerned: Mask, least: Rows) -> _Reach:
            rows = np.flatnonzero(chosen & entries)
            return _Reach.of(rows, scopes, number, concerned, least) if len(rows) else _Reach.nothing(len(files))

        vectors = reach(names_one & files.is_vector, names, is_data, number)
        without_vector = is_data & ~vectors.applies
        shared = by_position & ~names_one
        known = _among(files, ours) if shared.any() else 0
        return cls(
            files=files,
            identity=identity,
            vectors=vectors,
            named=reach(names_one & ~files.is_vector, names, without_vector, number),
            shared=reach(shared, partition, without_vector, number + known),
            equality=reach(by_equality & ~is_global, partition, is_data, number + 1),
            everywhere=reach(by_equality & is_global, np.zeros_like(number), is_data, number + 1),
        )

    @property
    def _kinds(self) -> tuple[_Reach, ...]:
        return (self.vectors, self.named, self.shared, self.equality, self.everywhere)

    def has_deletes(self) -> Mask:
        """Data files that something applies to."""
        return _any(kind.applies for kind in self._kinds)

    def position_counts(self) -> PositionCounts:
        """How many deletes by position each file has."""
        return PositionCounts(*(kind.counts for kind in (self.vectors, self.named, self.shared)))

    def vector_of(self, file: int) -> int | None:
        """A file's deletion vector."""
        found = self.vectors.for_any(file).tolist()
        if len(found) > 1:
            path = self.files.table.column("path")[file].as_py()
            raise CorruptMetadataError(
                f"Cannot apply deletes to {path}: it has {len(found)} deletion vectors",
                hint="The specification allows one; a writer has broken the table, and other engines refuse to read it too.",
            )
        return found[0] if found else None

    def positions_for(self, files: int | Rows) -> Rows:
        """Position delete files, oldest first; none where there is a vector."""
        return self._oldest_first(self.named, self.shared, files)

    def equality_for(self, files: int | Rows) -> Rows:
        """Equality deletes, oldest first."""
        return self._oldest_first(self.equality, self.everywhere, files)

    def _oldest_first(self, some: _Reach, others: _Reach, files: int | Rows) -> Rows:
        rows = np.concatenate([some.for_any(files), others.for_any(files)])
        ordered: Rows = rows[np.lexsort((rows, self.files.column("sequence_number")[rows]))]
        return ordered

    def sums(self, files: Rows, groups: Rows, count: int) -> DeleteSums:
        """What applies to each of `count` groups; `groups` says of each file which one it is in."""
        size = self.files.column("size_bytes")

        def total(kinds: Iterable[_Reach], weights: Rows) -> Rows:
            return sum((kind.sums(files, groups, count, weights) for kind in kinds), np.zeros(count, dtype=np.int64))

        by_equality = (self.equality, self.everywhere)
        return DeleteSums(total(self._kinds, np.ones_like(size)), total(self._kinds, size), total(by_equality, size))

    def dangling(self, without: Mask | None = None) -> Mask:
        """Deletes that apply to no live data file, or to none but those `without` which the table is to be."""
        used = np.zeros(len(self.files), dtype=bool)
        for kind in self._kinds:
            used[self.identity[kind.rows[kind.used(without)]]] = True
        mask: Mask = self.identity != _NOWHERE
        mask[mask] = ~used[self.identity[mask]]
        return mask

    def applies_to(self, deletes: Mask) -> Mask:
        """Data files that any of these deletes applies to."""
        return _any(kind.meets(deletes) for kind in self._kinds)


@dataclass(frozen=True)
class _Reach:
    """Deletes of one kind in the order of scope and sequence number.

    What is new enough for a file of the same scope applies to it: one stretch of the rows, from `begin` to the scope's `end`.
    """

    rows: Rows
    begin: Rows
    end: Rows

    @classmethod
    def of(cls, rows: Rows, scopes: Rows, numbers: Rows, concerned: Mask, least: Rows) -> Self:
        """`scopes` and `numbers` are of deletes and files; `least` is the number from which on a delete applies to a file."""
        rows = rows[np.lexsort((numbers[rows], scopes[rows]))]
        ranks = np.unique(numbers[rows])
        width = len(ranks) + 1  # scope and rank in one integer, so that both are searched at once
        keys = scopes[rows].astype(np.int64) * width + np.searchsorted(ranks, numbers[rows])
        first = np.where(concerned, scopes, _NOWHERE).astype(np.int64) * width
        return cls(rows, np.searchsorted(keys, first + np.searchsorted(ranks, least)), np.searchsorted(keys, first + width))

    @classmethod
    def nothing(cls, files: int) -> Self:
        """No deletes of this kind."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(files, dtype=np.int64), np.zeros(files, dtype=np.int64))

    @property
    def applies(self) -> Mask:
        """Files that something applies to."""
        mask: Mask = self.begin < self.end
        return mask

    @property
    def counts(self) -> Rows:
        """By file, how many apply to it."""
        found: Rows = np.maximum(self.end - self.begin, 0)
        return found

    def for_any(self, files: int | Rows) -> Rows:
        """What applies to any of the files, each once."""
        begin, end, _ = self._stretches(np.atleast_1d(np.asarray(files)))
        return np.concatenate([self.rows[:0], *(self.rows[a:b] for a, b in zip(begin, end, strict=True))])

    def sums(self, files: Rows, groups: Rows, count: int, weights: Rows) -> Rows:
        """The weights of what applies to any file of a group, by group."""
        begin, end, group = self._stretches(files, groups)
        before = self._before(weights)
        total = np.zeros(count, dtype=np.int64)
        np.add.at(total, group, before[end] - before[begin])
        return total

    def used(self, without: Mask | None) -> Mask:
        """By place in `rows`: what applies to any file that is not `without`."""
        begin, end, _ = self._stretches(np.arange(len(self.begin)) if without is None else np.flatnonzero(~without))
        steps = np.bincount(begin, minlength=len(self.rows) + 1) - np.bincount(end, minlength=len(self.rows) + 1)
        mask: Mask = np.cumsum(steps)[:-1] > 0
        return mask

    def meets(self, deletes: Mask) -> Mask:
        """Files that any of the deletes applies to."""
        before = self._before(deletes)
        mask: Mask = before[self.end] > before[self.begin]
        return mask

    def _before(self, weights: npt.NDArray[Any]) -> Rows:
        return np.concatenate([[0], np.cumsum(weights[self.rows], dtype=np.int64)])

    def _stretches(self, files: Rows, groups: Rows | None = None) -> tuple[Rows, Rows, Rows]:
        """The stretches of each group, one per scope: those of a scope end together, so that the longest holds the others."""
        groups = np.zeros_like(files) if groups is None else groups
        some = np.flatnonzero(self.applies[files])
        begin, end, group = self.begin[files[some]], self.end[files[some]], groups[some]
        order = np.lexsort((begin, end, group))
        begin, end, group = begin[order], end[order], group[order]
        first = _starts(group, end)
        return begin[first], end[first], group[first]


def _identities(files: FileColumns) -> Rows:
    """The same number for all entries of a delete: a vector is known by its place in a file, anything else by its file."""
    numbers = np.full(len(files), _NOWHERE)
    rows = np.flatnonzero(files.column("content") != DATA)
    paths = files.table.column("path").take(pa.array(rows)).combine_chunks().dictionary_encode().indices.to_numpy()
    offsets, rank = np.unique(files.column("content_offset")[rows], return_inverse=True)
    numbers[rows] = np.unique(paths.astype(np.int64) * len(offsets) + rank, return_inverse=True)[1]
    return numbers


def _newest_entries(identity: Rows, partition: Rows, number: Rows) -> Mask:
    """All entries of deletes but those that say again what a newer one of the same delete says."""
    rows = np.flatnonzero(identity != _NOWHERE)
    rows = rows[np.lexsort((-number[rows], partition[rows], identity[rows]))]
    mask = np.zeros(len(identity), dtype=bool)
    mask[rows[_starts(identity[rows], partition[rows])]] = True
    return mask


def _starts(*sorted_keys: Rows) -> Mask:
    """Where, in rows sorted by these keys, a combination of them first stands."""
    return _any(np.diff(key, prepend=-1) != 0 for key in sorted_keys)


def _any(masks: Iterable[Mask]) -> Mask:
    return reduce(np.logical_or, masks)


def _names(files: FileColumns, names_one: Mask) -> Rows:
    """The same number for a data file and the deletes that name it; NOWHERE for all others."""
    if not names_one.any():
        return np.full(len(files), _NOWHERE)
    referenced, path = files.table.column("referenced"), files.table.column("path")
    named = pc.unique(referenced.filter(pa.array(names_one)))
    told = pc.if_else(pa.chunked_array([names_one]), referenced, path)
    return np.asarray(pc.fill_null(pc.index_in(told, value_set=named), _NOWHERE).to_numpy()).astype(np.int64)


def _among(files: FileColumns, ours: Collection[str]) -> npt.NDArray[Any]:
    return np.asarray(pc.is_in(files.table.column("path"), value_set=pa.array(sorted(ours), pa.string())).to_numpy())
