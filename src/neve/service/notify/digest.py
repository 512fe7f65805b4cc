"""The daily digest: which period is due, and what happened in it. Pure, except for `DigestWriter`.

The notice's id names team and day, so that several processes write one digest. A period that is over stays due until the next
one ends: a service that was down in the morning writes the digest when it starts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from typing import Protocol
from zoneinfo import ZoneInfo

from neve.scheduling.job import Job, JobState, Spent
from neve.scheduling.notice import DayDigest, NoticeKind, OperationTotal, TableLine
from neve.service.notify.messages import LISTED
from neve.settings.notifications import NotificationSettings
from neve.table.frozen import Frozen
from neve.table.units import counted


class DigestPeriod(Frozen):
    """The last 24 hours before a digest time; 23 or 25 where clocks were changed."""

    day: str
    from_ms: int
    until_ms: int

    def notice_id(self, owner: str) -> str:
        """The same in every process, and for names of any length."""
        return f"digest-{self.day}-{sha256(owner.encode()).hexdigest()[:32]}"


class Gain(Frozen):
    """What a run gained; negative where there is more than before."""

    files_fewer: int = 0
    """Data and delete files that readers no longer have to open."""
    bytes_freed: int = 0
    """Of files that were deleted from storage."""


@dataclass
class DayTally:
    """What happened to the tables of one team in a period, counted job by job. Failures come the newest first."""

    runs: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The table of each run that succeeded, by operation."""
    gains: list[Gain] = field(default_factory=list)
    spent: list[Spent] = field(default_factory=list)
    unmeasured: int = 0
    failed: dict[tuple[str, str], Job] = field(default_factory=dict)
    """The last failure, by table and operation."""
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    paused: list[TableLine] = field(default_factory=list)
    waiting: list[TableLine] = field(default_factory=list)
    waiting_count: int = 0

    def add_ended(self, job: Job, gain: Gain | None) -> None:
        """Counts a job that ended. One that was cancelled counts only with what it had used."""
        if job.actual is not None:
            self.spent.append(job.actual)
        elif job.state is not JobState.CANCELLED:
            self.unmeasured += 1
        if job.state is JobState.DONE:
            self.runs[job.operation].append(job.table_uuid)
            self.gains += [gain] if gain is not None else []
        elif job.state is JobState.FAILED:
            self.failed.setdefault((job.table_uuid, job.operation), job)
            self.failures[job.table_uuid, job.operation] += 1

    def add_paused(self, line: TableLine) -> None:
        """Counts an operation that is paused on a table."""
        self.paused.append(line)

    def add_waiting(self, job: Job) -> None:
        """Counts a job that waits; the first to run comes first."""
        self.waiting_count += 1
        if len(self.waiting) < LISTED:
            self.waiting.append(_line(job, job.reason, at_ms=job.not_before_ms or None))

    def digest(self, owner: str, period: DigestPeriod) -> DayDigest:
        """What is reported."""
        return DayDigest(
            owner=owner,
            day=period.day,
            from_ms=period.from_ms,
            until_ms=period.until_ms,
            done=tuple(
                OperationTotal(operation=name, runs=len(tables), tables=len(set(tables)))
                for name, tables in sorted(self.runs.items())
            ),
            files_fewer=_sum(gain.files_fewer for gain in self.gains),
            bytes_freed=_sum(gain.bytes_freed for gain in self.gains),
            bytes_used=_sum(spent.bytes for spent in self.spent),
            core_seconds=_sum(spent.core_seconds for spent in self.spent),
            money=_sum(spent.money for spent in self.spent),
            unmeasured=self.unmeasured,
            failed=tuple(self._failed_line(key) for key in list(self.failed)[:LISTED]),
            failed_count=len(self.failed),
            paused=tuple(self.paused[:LISTED]),
            paused_count=len(self.paused),
            waiting=tuple(self.waiting),
            waiting_count=self.waiting_count,
        )

    def _failed_line(self, key: tuple[str, str]) -> TableLine:
        job, failures = self.failed[key], self.failures[key]
        often = f"{counted(failures, 'time')}, last: " if failures > 1 else ""
        return _line(job, often + (job.message or job.outcome or ""))


class DigestSource(Protocol):
    """Where digests get what happened."""

    def day_tallies(self, period: DigestPeriod) -> Mapping[str, DayTally]:
        """What happened in the period, by team; under an empty name what happened to tables without a team."""
        ...


class NoticeWriter(Protocol):
    """Where notices are written."""

    def add(self, notice_id: str, *, kind: str, owner: str, content: Mapping[str, object], now_ms: int) -> bool:
        """Writes a notice; False if there is one with this id."""
        ...


def due_period(settings: NotificationSettings, now_ms: int) -> DigestPeriod:
    """The period that ended last."""
    zone = ZoneInfo(settings.time_zone)
    at = time.fromisoformat(settings.digest_time)
    today = datetime.fromtimestamp(now_ms / 1000, tz=zone).date()
    end = today if _moment(today, at, zone) <= now_ms else today - timedelta(days=1)
    return DigestPeriod(
        day=end.isoformat(), from_ms=_moment(end - timedelta(days=1), at, zone), until_ms=_moment(end, at, zone)
    )


class DigestWriter:
    """Writes each team's digest once a day. A team without runs, pauses and waiting jobs gets none."""

    def __init__(self, source: DigestSource, notices: NoticeWriter, settings: NotificationSettings) -> None:
        self._source = source
        self._notices = notices
        self._settings = settings
        self._written = ""
        """The day whose digests this process has written."""

    def write_due(self, now_ms: int) -> int:
        """Writes what is due and returns how many digests were new. Reads nothing if this process has written them before."""
        if not self._settings.digest or not self._settings.channels:
            return 0
        period = due_period(self._settings, now_ms)
        if period.day == self._written:
            return 0
        tallies = self._source.day_tallies(period)
        new = sum(self._write(tally.digest(owner, period), period, now_ms) for owner, tally in sorted(tallies.items()))
        self._written = period.day
        return new

    def _write(self, digest: DayDigest, period: DigestPeriod, now_ms: int) -> bool:
        return not digest.is_empty and self._notices.add(
            period.notice_id(digest.owner),
            kind=NoticeKind.DIGEST.value,
            owner=digest.owner,
            content=digest.model_dump(mode="json"),
            now_ms=now_ms,
        )


def _moment(day: date, at: time, zone: ZoneInfo) -> int:
    # By UTC, as the difference of two times of one zone leaves out changes of clocks.
    return int(datetime.combine(day, at, tzinfo=zone).astimezone(UTC).timestamp() * 1000)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _line(job: Job, text: str, *, at_ms: int | None = None) -> TableLine:
    return TableLine(table=job.table, operation=job.operation, text=text, at_ms=at_ms)
