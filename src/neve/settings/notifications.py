"""Settings of notifications: channels by name, which of them is the default, and when the daily digest is written.

`service.notify` opens the channels. Checks here need no network; addresses are checked each time a message is sent.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from neve.settings.secrets import REFERENCE, Secret, Text
from neve.settings.section import ContradictionError, Section, nearest
from neve.table.units import Seconds

ChannelKind = Literal["webhook", "slack", "email"]

_NEEDS: dict[str, tuple[str, ...]] = {"webhook": ("url",), "slack": ("url",), "email": ("host", "from", "to")}
_ONLY_WITH: dict[str, tuple[str, ...]] = {
    "url": ("webhook", "slack"),
    "secret": ("webhook",),
    "host": ("email",),
    "port": ("email",),
    "user": ("email",),
    "password": ("email",),
    "from": ("email",),
    "to": ("email",),
}
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_ADDRESS = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9.-]+"
_MAILBOX = re.compile(rf"{_ADDRESS}|[^<>@,;:\"\\]+<{_ADDRESS}>")
_MINUTES_OF_A_DAY = 24 * 60


def _clock_time(value: object) -> object:
    # YAML 1.1 reads an unquoted 18:30 as a number of base 60: 18 * 60 + 30.
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MINUTES_OF_A_DAY:
        value = f"{value // 60:02d}:{value % 60:02d}"
    found = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if not found:
        raise ValueError(f"{value!r} is not a time of day; write HH:MM, such as 08:00")
    return f"{int(found[1]):02d}:{found[2]}"


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, OSError, ValueError):
        raise ValueError(f"{value!r} is not a time zone; write a name such as Europe/Berlin") from None
    return value


def _mailbox(value: str) -> str:
    if not value.isprintable() or not _MAILBOX.fullmatch(value):
        raise ValueError(f"{value!r} is not an e-mail address; write name@example.com or Name <name@example.com>")
    return value


def _host_name(value: str) -> str:
    if not re.fullmatch(r"[^\s/@?#\[\]]+", value):
        raise ValueError(f"{value!r} is not a host; write a name or an address, without scheme and port")
    return value


ClockTime = Annotated[str, BeforeValidator(_clock_time)]
ZoneName = Annotated[str, AfterValidator(_zone)]
Mailbox = Annotated[str, AfterValidator(_mailbox)]
HostName = Annotated[str, AfterValidator(_host_name)]


class ChannelSettings(Section):
    """One channel."""

    kind: ChannelKind = Field(description="The kind of channel.")
    url: Text | None = Field(
        None,
        description="Where messages are posted; needed by webhook and slack. A Slack URL is a secret and must be a reference.",
    )
    secret: Secret | None = Field(None, description="The key that a webhook's messages are signed with; unsigned unless set.")
    host: HostName | None = Field(None, description="The SMTP server; needed by email.")
    port: int | None = Field(None, description="Its port; 587, or 465 with `tls`, or 25 with `none`.", gt=0, lt=65536)
    tls: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="How the connection to the SMTP server is encrypted. Its certificate is always checked."
    )
    user: Text | None = Field(None, description="The user to log in as; no login unless set.")
    password: Secret | None = Field(None, description="The password of the user.")
    sender: Mailbox | None = Field(None, alias="from", description="The address that messages come from; needed by email.")
    to: tuple[Mailbox, ...] = Field((), description="The addresses that messages go to; needed by email.")
    timeout_seconds: Seconds = Field(
        10, alias="timeout", description="How long connecting may take, and how long sending one message.", gt=0, le=60
    )

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        for key in _NEEDS[self.kind]:
            if not self._value(key):
                raise ContradictionError(f"is needed by a channel of kind {self.kind}", key)
        for key, kinds in _ONLY_WITH.items():
            if self.kind not in kinds and self._value(key):
                raise ContradictionError(f"means nothing to a channel of kind {self.kind}, only to {' and '.join(kinds)}", key)
        if self.kind == "slack" and not REFERENCE.search(str(self.url)):
            raise ContradictionError(
                "of a channel of kind slack is a secret; write a reference, ${env:NAME} or ${file:PATH}", "url"
            )
        return self

    @model_validator(mode="after")
    def _logs_in_safely(self) -> Self:
        if (self.user is None) != (self.password is None):
            given, lacking = ("user", "password") if self.password is None else ("password", "user")
            raise ContradictionError(f"needs {lacking} beside it", given)
        if self.password is not None and self.tls == "none":
            raise ContradictionError("cannot be sent over a connection without encryption; set tls", "password", "tls")
        return self

    def _value(self, key: str) -> object:
        return getattr(self, "sender" if key == "from" else key)

    @property
    def smtp_port(self) -> int:
        """The port in effect."""
        return self.port or {"starttls": 587, "tls": 465, "none": 25}[self.tls]


class NotificationSettings(Section):
    """Who is notified of failures, pauses and recoveries, and gets the daily digest."""

    channels: dict[str, ChannelSettings] = Field(default={}, description="Channels by the name that teams call them.")
    default: tuple[str, ...] = Field((), description="Channels for tables without a team, and for teams that name none.")
    digest: bool = Field(True, description="Whether a daily digest is sent.")
    digest_time: ClockTime = Field("08:00", description="When the digest of the last 24 hours is written.")
    time_zone: ZoneName = Field("UTC", description="The time zone of `digest-time`.")
    at_most_every_seconds: Seconds = Field(
        300,
        alias="at-most-every",
        description="The shortest time between messages about failures, pauses or recoveries on a channel, for each kind. What "
        "happens in between is sent as one message.",
        ge=0,
    )
    attempts: int = Field(
        8, description="How often a message is tried before it is given up; 8 attempts take 2 hours.", ge=1, le=100
    )
    allow_private_addresses: tuple[HostName, ...] = Field(
        (),
        description="Hosts in private networks or on this machine that messages may be sent to, also by plain `http`. All "
        "others must have public addresses.",
    )

    @model_validator(mode="after")
    def _default_channels_exist(self) -> Self:
        for name in self.default:
            if name not in self.channels:
                raise ContradictionError(
                    f"names no channel of these settings{nearest(name, self.channels) or f': {name}'}", "default"
                )
        return self
