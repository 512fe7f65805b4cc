"""Messages as e-mail: plain text and HTML, sent by SMTP over TLS with a checked certificate.

Subjects have no line breaks, so that no name of a table can add a header. Errors name the host and the server's code, never its
text, the user or the password.
"""

from __future__ import annotations

import html
import logging
import re
import smtplib
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from hashlib import sha256

from neve.errors import NotificationError
from neve.service.notify.connection import Network, deadline, reason_of
from neve.service.notify.messages import Message, MessagePart

log = logging.getLogger(__name__)

_CODE = re.compile(r"`([^`]+)`")
_COLORS = {"problem": "#b3261e", "good": "#1e7b34", "info": "#345"}
_STYLE = "font:14px/1.5 system-ui,sans-serif;color:#222;max-width:46em"


@dataclass(frozen=True)
class MailServer:
    """An SMTP server and how to log in. `tls` is `starttls`, `tls` or `none`."""

    host: str
    port: int
    tls: str = "starttls"
    user: str = ""
    password: str = ""


def mail_text(message: Message) -> str:
    """The plain text."""
    return "\n\n".join("\n".join(_text_lines(part)) for part in message.parts) + "\n"


def mail_html(message: Message) -> str:
    """The page: no image, no script, no link."""
    title = f'<h2 style="font-size:18px;color:{_COLORS[message.level]}">{html.escape(message.subject)}</h2>'
    return f'<html><body style="{_STYLE}">{title}{"".join(map(_html_part, message.parts))}</body></html>'


def build_mail(message: Message, *, sender: str, to: Sequence[str], message_id: str, now_ms: int) -> EmailMessage:
    """The mail with its headers. `message_id` is the same for each attempt, so that a second copy can be recognized."""
    # ASCII alone, since not every server takes 8 bits.
    mail = EmailMessage(policy=SMTP.clone(cte_type="7bit"))
    mail["Subject"] = message.subject
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Date"] = format_datetime(datetime.fromtimestamp(now_ms / 1000, tz=UTC))
    mail["Message-ID"] = f"<{sha256(message_id.encode()).hexdigest()[:32]}@{parseaddr(sender)[1].rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(mail_text(message))
    mail.add_alternative(mail_html(message), subtype="html")
    return mail


def send_mail(mail: EmailMessage, server: MailServer, *, network: Network, seconds: float) -> None:
    """Hands the mail to the server. Raises NotificationError if the server takes it for no recipient."""
    connection = network.connect(server.host, server.port, seconds=seconds)
    try:
        with connection, deadline(connection, seconds):
            refused = _deliver(mail, server, connection, network)
    except (OSError, ValueError, smtplib.SMTPException) as error:
        is_refused = isinstance(error, smtplib.SMTPDataError) and error.smtp_code >= 500
        raise NotificationError(f"Cannot send mail by {server.host}: {_trouble(error)}", only_this_message=is_refused) from None
    if refused:
        # The others have it: a second attempt would reach them again.
        log.warning("%s refused %s of the recipients of a notification", server.host, refused)


class _PinnedSmtp(smtplib.SMTP):
    """Uses a connection that was made before, and checks certificates against the host's name."""

    def __init__(self, host: str, connection: socket.socket) -> None:
        self._connection = connection
        # Without a name of its own, smtplib asks the resolver for one.
        super().__init__(local_hostname=_own_name())
        self._host = host

    def _get_socket(self, *_: object) -> socket.socket:
        return self._connection


def _deliver(mail: EmailMessage, server: MailServer, connection: socket.socket, network: Network) -> int:
    first = network.encrypt(connection, server.host) if server.tls == "tls" else connection
    smtp = _PinnedSmtp(server.host, first)
    try:
        code, _ = smtp.connect(server.host, server.port)
        if code != 220:
            raise smtplib.SMTPResponseException(code, b"")
        if server.tls == "starttls":
            smtp.starttls(context=network.tls())
        if server.user:
            smtp.login(server.user, server.password)
        return len(smtp.send_message(mail))
    finally:
        with suppress(OSError, smtplib.SMTPException):
            smtp.quit()
        smtp.close()


def _trouble(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"it refused the login (code {error.smtp_code})"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "it refused all recipients"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"it answered with code {error.smtp_code}"
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return "it does not support what the settings ask for: STARTTLS, or a login"
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return "it ended the connection"
    if isinstance(error, ValueError) and not isinstance(error, OSError):  # certificates that are not valid are both
        return "the user, the password or an address has characters that cannot be sent"
    return reason_of(error)


def _own_name() -> str:
    name = socket.gethostname()
    return name if re.fullmatch(r"[A-Za-z0-9.-]+", name) else "localhost"


def _text_lines(part: MessagePart) -> list[str]:
    return [part.title, *(f"  {line}" for line in part.lines)] if part.title else list(part.lines)


def _html_part(part: MessagePart) -> str:
    title = f'<h3 style="font-size:15px;margin-bottom:0">{html.escape(part.title)}</h3>' if part.title else ""
    return f"{title}<p>{'<br>'.join(map(_html_line, part.lines))}</p>"


def _html_line(line: str) -> str:
    return _CODE.sub(r"<code>\1</code>", html.escape(line))
