"""The proof that a table's files may be removed. Pure values; made by `operations.quarantine`, demanded by `ports.FileStore`.

Storage moves or deletes a file of a table only for a proof that covers its location, and a proof comes only from asking the
table's newest metadata, over all refs and all snapshots. No other code path can remove a file of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import InitVar, dataclass

from neve.errors import NeveError
from neve.maintenance.quarantine import is_trash

_SEAL = object()


@dataclass(frozen=True)
class Unreachable:
    """Locations that no ref and no snapshot of a table needs, and the metadata file by which that was judged."""

    table_uuid: str | None
    metadata_location: str
    paths: frozenset[str]
    seal: InitVar[object] = None

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("Cannot make a proof by hand: ask the table with Unreachable.judged")

    @classmethod
    def judged(
        cls,
        asked: Collection[str],
        needed: Callable[[Collection[str]], Collection[str]],
        identity: Callable[[], tuple[str | None, str]],
    ) -> Unreachable:
        """Asks which of these locations are needed and proves the others.

        `identity` loads the table and returns its uuid and the location of its metadata; `needed` loads the newest metadata and
        looks at all refs and snapshots. The identity comes first: a change in between makes the proof look old, never new.
        """
        uuid, metadata_location = identity()
        return cls(uuid, metadata_location, frozenset(asked) - set(needed(asked)), _SEAL)

    @classmethod
    def of_nothing(cls) -> Unreachable:
        """A proof that covers no location, for operations that remove nothing."""
        return cls(None, "", frozenset(), _SEAL)


def require(proof: Unreachable, paths: Iterable[str]) -> None:
    """Raises unless the proof covers all of these locations; storage calls this before it touches the first of them."""
    if not isinstance(proof, Unreachable):
        raise TypeError(f"Cannot remove files: a proof is needed that nothing needs them, not {type(proof).__name__}")
    if unproved := sorted(set(paths) - proof.paths):
        raise NeveError(
            f"Cannot remove {unproved[0]}: nobody has checked that no snapshot needs it",
            hint="This is a fault in Neve. No file was touched; please report it.",
        )


def require_trash(paths: Iterable[str]) -> None:
    """Raises unless all of these locations are in a trash directory, out of which files may come back without a proof."""
    if (other := next((path for path in paths if not is_trash(path)), None)) is not None:
        raise NeveError(
            f"Cannot put {other} back: it is in no trash directory",
            hint="This is a fault in Neve. No file was touched; please report it.",
        )
