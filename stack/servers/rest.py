"""Apache Iceberg's own REST catalog server, on the stack's S3 or on a local directory.

It is Iceberg's test fixture: real commits and real conflicts, no authentication, and it listens on every interface.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from stack import jvm, web
from stack.endpoints import RestEndpoint, S3Endpoint
from stack.ports import free_ports
from stack.server import Launch

# 1.12.0 has no fixtures; Jetty 12.1.14 does not work with those of 1.11.0.
_ICEBERG, _JETTY, _HADOOP = "1.11.0", "12.1.13", "3.4.1"
COORDINATES = (
    f"org.apache.iceberg:iceberg-open-api:{_ICEBERG}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{_ICEBERG}",
    f"org.apache.iceberg:iceberg-core:{_ICEBERG}:tests",
    f"org.apache.iceberg:iceberg-api:{_ICEBERG}",
    # The bundle has Amazon's libraries, iceberg-aws has S3FileIO: both are needed.
    f"org.apache.iceberg:iceberg-aws:{_ICEBERG}",
    f"org.apache.iceberg:iceberg-aws-bundle:{_ICEBERG}",
    f"org.apache.hadoop:hadoop-client-api:{_HADOOP}",
    f"org.apache.hadoop:hadoop-client-runtime:{_HADOOP}",
    f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{_JETTY}",
    f"org.eclipse.jetty.compression:jetty-compression-server:{_JETTY}",
    f"org.eclipse.jetty.compression:jetty-compression-gzip:{_JETTY}",
    "org.xerial:sqlite-jdbc:3.53.4.0",
    "org.slf4j:slf4j-simple:2.0.16",
)


class Rest:
    """The catalog in SQLite, the tables on S3."""

    name = "rest"
    needs: tuple[str, ...] = ("s3",)
    endpoint_type = RestEndpoint
    ready_seconds = 90.0
    stop_signal = signal.SIGTERM

    def install(self, cache: Path) -> None:  # noqa: ARG002 - jars have a cache of their own
        """Fetches some 45 jars, 140 MB, once."""
        jvm.fetch(self.name, COORDINATES)

    def start(self, launch: Launch) -> RestEndpoint:
        """Settings go through CATALOG_* variables: `_` stands for a dot and `__` for a dash."""
        (port,) = free_ports(1)
        s3 = self._storage(launch)
        warehouse = f"s3://{s3.bucket}/{self.name}" if s3 else (launch.data / "warehouse").as_uri()
        launch.spawn(
            [
                jvm.java().executable,
                "-Xmx512m",
                "-cp",
                jvm.class_path(jvm.fetch(self.name, COORDINATES)),
                "org.apache.iceberg.rest.RESTCatalogServer",
            ],
            env={
                "CATALOG_REST_PORT": str(port),
                "CATALOG_WAREHOUSE": warehouse,
                "CATALOG_URI": f"jdbc:sqlite:{launch.data / 'catalog.db'}",
                **(_s3_settings(s3) if s3 else {}),
            },
        )
        return RestEndpoint(f"http://127.0.0.1:{port}", warehouse, s3)

    def check(self, endpoint: RestEndpoint) -> None:
        """Lists the namespaces, which asks the catalog's database."""
        web.fetch_json(f"{endpoint.uri}/v1/namespaces")

    def _storage(self, launch: Launch) -> S3Endpoint | None:
        found: Any = launch.running["s3"]
        return found if isinstance(found, S3Endpoint) else None


class RestOnFiles(Rest):
    """The same server with its tables in a local directory: needs no S3."""

    name = "rest-files"
    needs: tuple[str, ...] = ()

    def _storage(self, launch: Launch) -> S3Endpoint | None:  # noqa: ARG002
        return None


def _s3_settings(s3: S3Endpoint) -> dict[str, str]:
    return {
        "AWS_REGION": s3.region,
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": s3.endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "CATALOG_S3_ACCESS__KEY__ID": s3.access_key,
        "CATALOG_S3_SECRET__ACCESS__KEY": s3.secret_key,
    }
