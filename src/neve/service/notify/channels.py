"""Channels as the settings describe them, ready to send. References are resolved for each message, so rotated secrets are used.

Called by `notifier`, and by the command that sends a test message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

from neve.service.notify.connection import Network
from neve.service.notify.mail import MailServer, build_mail, mail_text, send_mail
from neve.service.notify.messages import Message
from neve.service.notify.slack import slack_payload
from neve.service.notify.webhook import SIGNATURE, Endpoint, json_body, post, signature
from neve.settings.notifications import ChannelSettings, NotificationSettings
from neve.settings.secrets import Text
from neve.table.frozen import Frozen

FORMAT_VERSION = 1
"""Of a webhook's body."""


class Reported(Frozen):
    """One notice, as a webhook reports it."""

    id: str
    kind: str
    team: str
    created_ms: int
    content: dict[str, Any]


class Delivery(Frozen):
    """A message, and the notices that it is about."""

    id: str
    """The same for each attempt."""
    message: Message
    notices: tuple[Reported, ...] = ()


class Channel(Protocol):
    """A way to people."""

    def send(self, delivery: Delivery, now_ms: int) -> None:
        """Sends the message, or raises a NeveError."""
        ...


def open_channels(
    settings: NotificationSettings, *, network: Network | None = None, environ: Mapping[str, str] | None = None
) -> dict[str, Channel]:
    """Every channel by its name. Nothing is connected to yet."""
    network = Network(allowed=settings.allow_private_addresses) if network is None else network
    kinds: dict[str, Callable[[ChannelSettings, Network, Mapping[str, str] | None], Channel]]
    kinds = {"webhook": WebhookChannel, "slack": SlackChannel, "email": MailChannel}
    return {name: kinds[channel.kind](channel, network, environ) for name, channel in settings.channels.items()}


@dataclass(frozen=True)
class WebhookChannel:
    """Posts messages as JSON."""

    settings: ChannelSettings
    network: Network
    environ: Mapping[str, str] | None = None

    def send(self, delivery: Delivery, now_ms: int) -> None:
        """Posts the message, signed if there is a secret."""
        body = json_body(webhook_payload(delivery))
        headers = _headers() | {"Neve-Delivery": delivery.id}
        if self.settings.secret is not None:
            headers[SIGNATURE] = signature(self.settings.secret.reveal(self.environ), body, now_ms)
        _post(self, body, headers)


@dataclass(frozen=True)
class SlackChannel:
    """Posts messages to an incoming webhook of Slack."""

    settings: ChannelSettings
    network: Network
    environ: Mapping[str, str] | None = None

    def send(self, delivery: Delivery, now_ms: int) -> None:  # noqa: ARG002
        """Posts the message as blocks."""
        _post(self, json_body(slack_payload(delivery.message)), _headers())


@dataclass(frozen=True)
class MailChannel:
    """Sends messages as e-mail."""

    settings: ChannelSettings
    network: Network
    environ: Mapping[str, str] | None = None

    def send(self, delivery: Delivery, now_ms: int) -> None:
        """Sends one mail to all recipients."""
        of = self.settings
        mail = build_mail(delivery.message, sender=of.sender or "", to=of.to, message_id=delivery.id, now_ms=now_ms)
        user, password = (_revealed(text, self.environ) for text in (of.user, of.password))
        server = MailServer(of.host or "", of.smtp_port, of.tls, user, password)
        send_mail(mail, server, network=self.network, seconds=of.timeout_seconds)


def webhook_payload(delivery: Delivery) -> dict[str, Any]:
    """What a webhook gets: the text, and the notices with all their values."""
    return {
        "format_version": FORMAT_VERSION,
        "id": delivery.id,
        "level": delivery.message.level,
        "subject": delivery.message.subject,
        "text": mail_text(delivery.message),
        "notices": [notice.model_dump(mode="json") for notice in delivery.notices],
    }


def _post(channel: WebhookChannel | SlackChannel, body: bytes, headers: Mapping[str, str]) -> None:
    endpoint = Endpoint.parse(_revealed(channel.settings.url, channel.environ), channel.network)
    post(endpoint, body, headers, network=channel.network, seconds=channel.settings.timeout_seconds)


def _headers() -> dict[str, str]:
    return {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"neve/{version('neve')}"}


def _revealed(text: Text | None, environ: Mapping[str, str] | None) -> str:
    return "" if text is None else text.reveal(environ)
