"""A quarantine in memory, for tests of the operations that fill it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from neve.maintenance.quarantine import Candidate, Fate, FateChange, Quarantined


class ListedQuarantine:
    """Keeps records by path, in the order in which they were recorded (implements `ports.Quarantine`)."""

    def __init__(self) -> None:
        self.files: dict[str, Quarantined] = {}

    def record_candidates(self, table_uuid: str, run_id: str, files: Iterable[Candidate], now_ms: int) -> int:  # noqa: ARG002
        new = 0
        for file in list(files):  # reads all of them before it records one, as the store does
            if file.path not in self.files:
                self.files[file.path] = Quarantined(
                    **file.model_dump(), run_id=run_id, fate=Fate.RECORDED, recorded_ms=now_ms, changed_ms=now_ms
                )
                new += 1
        return new

    def quarantined(
        self,
        table_uuid: str,  # noqa: ARG002
        *,
        fates: Collection[Fate] | None = None,
        run_id: str | None = None,
        changed_before_ms: int | None = None,
    ) -> Iterator[Quarantined]:
        for row in list(self.files.values()):
            wanted = (fates is None or row.fate in fates) and (run_id is None or row.run_id == run_id)
            if wanted and (changed_before_ms is None or row.changed_ms < changed_before_ms):
                yield row

    def settle_candidates(self, table_uuid: str, changes: Iterable[FateChange], now_ms: int) -> None:  # noqa: ARG002
        for path, fate, trash, size in changes:
            row = self.files[path]
            update = {"fate": fate, "trash_path": trash, "changed_ms": now_ms, "size_bytes": size or row.size_bytes}
            self.files[path] = row.model_copy(update=update)

    @property
    def recorded(self) -> set[str]:
        return {path for path, row in self.files.items() if row.fate is Fate.RECORDED}
