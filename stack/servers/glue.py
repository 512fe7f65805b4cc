"""AWS Glue's API as moto answers it. It checks no credentials; the tables live on the stack's own S3."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path

from stack import web
from stack.endpoints import GlueEndpoint
from stack.errors import UnavailableError
from stack.ports import free_ports
from stack.server import Launch


class Glue:
    """One moto_server process."""

    name = "glue"
    needs: tuple[str, ...] = ("s3",)
    endpoint_type = GlueEndpoint
    ready_seconds = 60.0
    stop_signal = signal.SIGTERM

    def install(self, cache: Path) -> None:  # noqa: ARG002 - it comes as a wheel
        """Looks for moto with its server."""
        if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
            raise UnavailableError(
                "Cannot start glue: moto[server] is not installed", hint="It is in the dev dependency group."
            )

    def start(self, launch: Launch) -> GlueEndpoint:
        """Credentials are given so that moto looks for no others."""
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        launch.spawn(command, env={"AWS_ACCESS_KEY_ID": "admin", "AWS_SECRET_ACCESS_KEY": "adminsecret"})
        return GlueEndpoint(f"http://127.0.0.1:{port}", launch.running["s3"])

    def check(self, endpoint: GlueEndpoint) -> None:
        """Its own status page."""
        web.fetch(f"{endpoint.endpoint}/moto-api/data.json")
