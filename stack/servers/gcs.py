"""Google Cloud Storage as fake-gcs-server answers it, in memory. Built once with Go, which takes minutes."""

from __future__ import annotations

import json
import signal
import urllib.error
from pathlib import Path

from stack import toolchain, web
from stack.endpoints import GcsEndpoint
from stack.errors import NotReadyError
from stack.ports import free_ports
from stack.server import Launch

_VERSION = "v1.52.3"
_BUCKET = "warehouse"


class Gcs:
    """One Go process."""

    name = "gcs"
    needs: tuple[str, ...] = ()
    endpoint_type = GcsEndpoint
    ready_seconds = 30.0
    stop_signal = signal.SIGTERM

    def install(self, cache: Path) -> None:
        """Builds it on first use, on one core: it is not worth a busy machine."""
        _program(cache)

    def start(self, launch: Launch) -> GcsEndpoint:
        """The public host must be the real one: clients are sent there for the bodies of uploads."""
        (port,) = free_ports(1)
        where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
        launch.spawn([_program(launch.places.cache), *where, "-backend", "memory"])
        return GcsEndpoint(f"http://127.0.0.1:{port}", _BUCKET)

    def check(self, endpoint: GcsEndpoint) -> None:
        """Makes the bucket if need be."""
        buckets = f"{endpoint.endpoint}/storage/v1/b"
        try:
            web.fetch(f"{buckets}/{endpoint.bucket}")
        except NotReadyError as error:
            if not isinstance(error.__cause__, urllib.error.HTTPError):
                raise
            error.__cause__.close()
            web.fetch(f"{buckets}?project=stack", method="POST", body=json.dumps({"name": endpoint.bucket}).encode())


def _program(cache: Path) -> Path:
    directory = toolchain.make(
        "gcs",
        cache / f"fake-gcs-server-{_VERSION}",
        ["go", "install", "-p", "1", f"github.com/fsouza/fake-gcs-server@{_VERSION}"],
        env={"GOBIN": "{here}"},
        seconds=900,
    )
    return directory / "fake-gcs-server"
