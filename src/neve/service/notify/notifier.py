"""Sends notices that are due to the channels of their team: merges notices of one kind, retries with back-off, and gives up.

Called in a thread of its own by each process of the service; the store gives a notice to one of them at a time. If a process
dies after it sent a notice, the notice arrives a second time, with the same id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from neve.errors import NeveError, NotificationError
from neve.scheduling.notice import CONTENT, JobFailure, NoticeContent, TablePause, TableRecovery
from neve.service.notify.channels import Channel, Delivery, Reported
from neve.service.notify.messages import Message, is_single, message_about, summary_message, unreadable_message
from neve.settings.notifications import NotificationSettings

log = logging.getLogger(__name__)

AT_A_TIME = 500
"""Notices that one round takes."""
MERGED = (JobFailure, TablePause, TableRecovery)
"""What is sent as one message if there are several."""
FIRST_WAIT_MS = 60_000
LONGEST_WAIT_MS = 3_600_000


@dataclass(frozen=True)
class _Trouble:
    """Why a message was not sent."""

    reason: str
    wait_seconds: float = 0.0
    only_this_message: bool = False


class DueNotice(Protocol):
    """A notice in the store. `attempts` counts those that failed."""

    @property
    def notice_id(self) -> str:
        """Unique."""
        ...

    @property
    def kind(self) -> str:
        """One of `NoticeKind`."""
        ...

    @property
    def created_ms(self) -> int:
        """When it happened."""
        ...

    @property
    def owner(self) -> str:
        """The team; empty for none."""
        ...

    @property
    def content(self) -> Mapping[str, Any]:
        """The values of its kind."""
        ...

    @property
    def attempts(self) -> int:
        """How often it could not be sent."""
        ...


class DueNotices(Protocol):
    """The notices that are not sent yet."""

    def due(self, now_ms: int, limit: int) -> Sequence[Any]:
        """Those whose time has come, the oldest first; each is a `DueNotice`."""
        ...

    def sent(self, notice: Any) -> None:
        """Marks a notice as sent."""
        ...

    def failed(self, notice: Any, reason: str, next_ms: int | None) -> None:
        """Counts an attempt. `next_ms` is when to try again; None means never."""
        ...


class Notifier:
    """Sends what is due to the channels of each team."""

    def __init__(
        self,
        notices: DueNotices,
        channels: Mapping[str, Channel],
        settings: NotificationSettings,
        *,
        routes: Callable[[], Mapping[str, Sequence[str]]],
    ) -> None:
        """`routes` returns the names of each team's channels, as the teams' documents have them."""
        self._notices = notices
        self._channels = channels
        self._settings = settings
        self._routes = routes
        self._last_ms: dict[tuple[str, str, bool], int] = {}
        """When a channel last got a message of a kind, by whether it was a retry: neither holds back the other."""
        self._resting_ms: dict[str, int] = {}
        """Until when a channel has asked to be left alone."""
        self._arrived: dict[str, set[str]] = {}
        """Channels that have a notice which others do not have yet."""
        self._missing: set[tuple[str, str]] = set()
        """Channels that teams name and the settings lack, reported once."""

    def send_due(self, now_ms: int) -> int:
        """Sends what is due and returns how many notices have reached all their channels. Raises only what the store raises."""
        due: Sequence[DueNotice] = self._notices.due(now_ms, AT_A_TIME)
        routes = self._routes() if due else {}
        names = {notice.notice_id: self._names(notice.owner, routes) for notice in due}
        troubles: dict[str, _Trouble] = {}
        for channel in sorted({name for found in names.values() for name in found}):
            mine = [notice for notice in due if channel in names[notice.notice_id] and not self._has(notice, channel)]
            troubles |= self._send_by(channel, mine, now_ms)
        return sum(self._settle(notice, names[notice.notice_id], troubles, now_ms) for notice in due)

    def _names(self, owner: str, routes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        wanted = tuple(routes.get(owner, ())) or self._settings.default
        known = tuple(dict.fromkeys(name for name in wanted if name in self._channels))
        for name in wanted:
            if name not in self._channels and (owner, name) not in self._missing:
                self._missing.add((owner, name))
                log.warning("team %s names channel %s, which the settings do not have", owner or "(none)", name)
        return known or tuple(name for name in self._settings.default if name in self._channels)

    def _send_by(self, channel: str, notices: Sequence[DueNotice], now_ms: int) -> dict[str, _Trouble]:
        """Sends by one channel; returns what failed, by notice. After a failure of the channel, nothing more is tried."""
        broken: _Trouble | None = None
        troubles: dict[str, _Trouble] = {}
        for (is_retry, kind), group in [] if self._is_resting(channel, now_ms) else _groups(notices):
            if self._is_too_early((channel, kind, is_retry), now_ms):
                continue
            for delivery in _deliveries(group):
                trouble = broken or self._try(channel, delivery, now_ms)
                if trouble is None:
                    self._last_ms[channel, kind, is_retry] = now_ms
                    continue
                if trouble is not broken:
                    log.warning("a message was not sent: %s", trouble.reason)
                broken = None if trouble.only_this_message else trouble
                troubles |= {notice.id: trouble for notice in delivery.notices}
        return troubles

    def _try(self, channel: str, delivery: Delivery, now_ms: int) -> _Trouble | None:
        try:
            self._channels[channel].send(delivery, now_ms)
        except NotificationError as error:
            self._resting_ms[channel] = now_ms + int(error.wait_seconds * 1000)
            return _Trouble(f"{channel}: {error}", error.wait_seconds, error.only_this_message)
        except NeveError as error:
            return _Trouble(f"{channel}: {error}")
        except Exception as error:
            # One channel must not stop the others. The error's own text may hold a secret.
            return _Trouble(f"{channel}: {type(error).__name__}")
        log.info("notified %s: %s", channel, delivery.message.subject)
        for reported in delivery.notices:
            self._arrived.setdefault(reported.id, set()).add(channel)
        return None

    def _settle(self, notice: DueNotice, names: Sequence[str], troubles: Mapping[str, _Trouble], now_ms: int) -> bool:
        """Marks a notice as sent or failed; leaves it where a channel waits. A notice without a channel counts as sent."""
        if all(self._has(notice, name) for name in names):
            self._arrived.pop(notice.notice_id, None)
            self._notices.sent(notice)
            return True
        if (trouble := troubles.get(notice.notice_id)) is not None:
            self._fail(notice, trouble, now_ms)
        return False

    def _fail(self, notice: DueNotice, trouble: _Trouble, now_ms: int) -> None:
        attempts = notice.attempts + 1
        if attempts >= self._settings.attempts:
            log.error("gave up notice %s (%s) after %s attempts: %s", notice.notice_id, notice.kind, attempts, trouble.reason)
            self._arrived.pop(notice.notice_id, None)
            self._notices.failed(notice, trouble.reason, None)
            return
        wait_ms = max(wait_before(attempts), int(trouble.wait_seconds * 1000))
        self._notices.failed(notice, trouble.reason, now_ms + wait_ms)

    def _is_resting(self, channel: str, now_ms: int) -> bool:
        # A moment further away than the longest wait was written before the clock was set back.
        return 0 < self._resting_ms.get(channel, 0) - now_ms <= LONGEST_WAIT_MS

    def _is_too_early(self, about: tuple[str, str, bool], now_ms: int) -> bool:
        last_ms = self._last_ms.get(about)
        if last_ms is None or is_single(about[1]):
            return False
        # A clock that was set back must not hold messages until it catches up.
        return 0 <= now_ms - last_ms < self._settings.at_most_every_seconds * 1000

    def _has(self, notice: DueNotice, channel: str) -> bool:
        return channel in self._arrived.get(notice.notice_id, ())


def wait_before(attempts: int) -> int:
    """How long to wait after so many failed attempts: 1 minute, 2, 4, and at most 1 hour."""
    return min(FIRST_WAIT_MS << min(attempts - 1, 10), LONGEST_WAIT_MS)


def _groups(notices: Iterable[DueNotice]) -> list[tuple[tuple[bool, str], list[DueNotice]]]:
    """What may be merged: notices of one kind. Retries are apart, so that one bad notice does not hold back new ones."""
    groups: dict[tuple[bool, str], list[DueNotice]] = {}
    for notice in notices:
        groups.setdefault((notice.attempts > 0, notice.kind), []).append(notice)
    return sorted(groups.items(), key=lambda item: item[0])


def _deliveries(group: Sequence[DueNotice]) -> list[Delivery]:
    """The messages about notices of one kind: one about all that can be merged, and one about each of the others."""
    contents = [(notice, _content(notice)) for notice in group]
    merged = [(notice, content) for notice, content in contents if isinstance(content, MERGED)]
    if len(merged) < 2:
        return [_delivery(_message(notice, content), [notice]) for notice, content in contents]
    rest = [_delivery(_message(notice, content), [notice]) for notice, content in contents if not isinstance(content, MERGED)]
    return [_delivery(summary_message([content for _, content in merged]), [notice for notice, _ in merged]), *rest]


def _content(notice: DueNotice) -> NoticeContent | None:
    """The values of a notice; None if another release wrote it."""
    try:
        return CONTENT[notice.kind].model_validate(notice.content)
    except (KeyError, ValidationError):
        return None


def _message(notice: DueNotice, content: NoticeContent | None) -> Message:
    return unreadable_message(notice.kind, notice.notice_id) if content is None else message_about(content)


def _delivery(message: Message, notices: Sequence[DueNotice]) -> Delivery:
    first = notices[0].notice_id
    reported = tuple(
        Reported(
            id=notice.notice_id, kind=notice.kind, team=notice.owner, created_ms=notice.created_ms, content=dict(notice.content)
        )
        for notice in notices
    )
    return Delivery(id=first if len(notices) == 1 else f"{first}-and-{len(notices) - 1}", message=message, notices=reported)
