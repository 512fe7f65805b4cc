"""The fault proxy as a server, in front of S3 and the REST catalog, steered over HTTP. Tests may rather use the class."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from stack import web
from stack.endpoints import ProxyEndpoint
from stack.places import REPOSITORY
from stack.ports import free_ports
from stack.server import Launch


class Proxy:
    """One process with two fronts and a control address."""

    name = "proxy"
    needs: tuple[str, ...] = ("s3", "rest")
    endpoint_type = ProxyEndpoint
    ready_seconds = 30.0
    stop_signal = signal.SIGTERM

    def install(self, cache: Path) -> None:
        """Nothing to do: it is ours."""

    def start(self, launch: Launch) -> ProxyEndpoint:
        """Passes the addresses of the servers behind it on the command line."""
        s3, rest, control = free_ports(3)
        fronts = [f"s3={s3}={launch.running['s3'].endpoint}", f"rest={rest}={launch.running['rest'].uri}"]
        launch.spawn(
            [sys.executable, "-m", "stack.proxy", "--control", str(control), *fronts],
            env={"PYTHONPATH": str(REPOSITORY)},
        )
        return ProxyEndpoint(*(f"http://127.0.0.1:{port}" for port in (s3, rest, control)))

    def check(self, endpoint: ProxyEndpoint) -> None:
        """The control answers, and the catalog answers through its front."""
        web.fetch_json(f"{endpoint.control}/")
        web.fetch_json(f"{endpoint.rest}/v1/config")
