"""`neve notify`: whether messages reach people.

Needs the settings and the channel's server alone: no state store, catalog or Spark.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command, examples
from neve.cli.options import Commands
from neve.errors import BadRequestError

if TYPE_CHECKING:
    from neve.settings.notifications import NotificationSettings

app = Commands(no_args_is_help=True, help="Check that notifications arrive.", epilog=examples("neve notify test ops"))


@app.command(epilog=examples("neve notify test ops", "neve notify test ops --json | jq .sent"))
@command
def test(
    call: Call,
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="A channel in `notifications.channels` of the settings.")],
) -> None:
    """Send a test message to a channel. Exits 0 if its server took the message.

    Whether people can see it, only they can tell: a mail may still end up among spam.
    """
    from uuid import uuid4

    from neve.service.notify.channels import Delivery, open_channels
    from neve.service.notify.messages import trial_message

    settings = call.loaded.settings.notifications
    _require(channel, settings)
    delivery = Delivery(id=f"test-{uuid4().hex}", message=trial_message(channel))
    open_channels(settings)[channel].send(delivery, _now_ms())
    kind = settings.channels[channel].kind
    if call.wants_json:
        document = {"schema_version": 1, "channel": channel, "kind": kind, "sent": True, "id": delivery.id}
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        call.stdout.print(f"Sent a test message to {channel} ({kind}).", markup=False)


def _require(channel: str, settings: NotificationSettings) -> None:
    from neve.settings.section import nearest

    if channel in settings.channels:
        return
    if not settings.channels:
        raise BadRequestError(
            f"Cannot find channel {channel!r}: the settings have no channels",
            hint="Describe one under `notifications.channels` in neve.yaml.",
        )
    known = nearest(channel, settings.channels) or f", there are {', '.join(sorted(settings.channels))}"
    raise BadRequestError(f"Cannot find channel {channel!r} in the settings{known}")


def _now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000
