"""Fixtures that hand out real servers: `pytest_plugins = ["stack.pytest_plugin"]` in the top conftest makes them known.

A server of a running stack (`make stack`) is used as it is; otherwise the session starts what it needs and stops it. What
cannot be had skips the test with the reason, or fails it if NEVE_REQUIRE_STACK=1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stack.endpoints import (
    AzureEndpoint,
    GcsEndpoint,
    GlueEndpoint,
    HiveEndpoint,
    NessieEndpoint,
    PostgresEndpoint,
    RestEndpoint,
    S3Endpoint,
    SparkEndpoint,
)
from stack.errors import UnavailableError
from stack.proxy import FaultProxy
from stack.session import Session

REQUIRE = "NEVE_REQUIRE_STACK"


@pytest.fixture(scope="session")
def stack_session() -> Iterator[Session]:
    """The session's servers; the other fixtures ask it."""
    session = Session()
    try:
        yield session
    finally:
        session.close()


@pytest.fixture(scope="session")
def stack_server(stack_session: Session) -> Callable[[str], Any]:
    """Any server by name, for suites that take the name as a parameter: `stack_server("nessie")`."""

    def ask(name: str) -> Any:
        try:
            return stack_session.server(name)
        except UnavailableError as error:
            reason = f"{error}{f' ({error.hint})' if error.hint else ''}"
            if os.environ.get(REQUIRE) == "1":
                pytest.fail(f"{REQUIRE}=1, but: {reason}", pytrace=False)
            pytest.skip(reason)

    return ask


@pytest.fixture(scope="session")
def s3(stack_server: Callable[[str], Any]) -> S3Endpoint:
    """An S3 server with a bucket."""
    endpoint: S3Endpoint = stack_server("s3")
    return endpoint


@pytest.fixture(scope="session")
def rest(stack_server: Callable[[str], Any]) -> RestEndpoint:
    """Iceberg's REST catalog with its tables on `s3`."""
    endpoint: RestEndpoint = stack_server("rest")
    return endpoint


@pytest.fixture(scope="session")
def rest_on_files(stack_server: Callable[[str], Any]) -> RestEndpoint:
    """Iceberg's REST catalog with its tables in a local directory."""
    endpoint: RestEndpoint = stack_server("rest-files")
    return endpoint


@pytest.fixture(scope="session")
def nessie(stack_server: Callable[[str], Any]) -> NessieEndpoint:
    """Nessie with its tables on `s3`."""
    endpoint: NessieEndpoint = stack_server("nessie")
    return endpoint


@pytest.fixture(scope="session")
def postgres(stack_server: Callable[[str], Any]) -> PostgresEndpoint:
    """A PostgreSQL server with an empty database."""
    endpoint: PostgresEndpoint = stack_server("postgres")
    return endpoint


@pytest.fixture(scope="session")
def spark_cluster(stack_server: Callable[[str], Any]) -> SparkEndpoint:
    """A Spark master with two workers."""
    endpoint: SparkEndpoint = stack_server("spark")
    return endpoint


@pytest.fixture(scope="session")
def glue(stack_server: Callable[[str], Any]) -> GlueEndpoint:
    """Glue's API on moto, with tables on `s3`."""
    endpoint: GlueEndpoint = stack_server("glue")
    return endpoint


@pytest.fixture(scope="session")
def hive(stack_server: Callable[[str], Any]) -> HiveEndpoint:
    """A Hive metastore with its tables in a local directory."""
    endpoint: HiveEndpoint = stack_server("hive")
    return endpoint


@pytest.fixture(scope="session")
def gcs(stack_server: Callable[[str], Any]) -> GcsEndpoint:
    """A stand-in for Google Cloud Storage with a bucket."""
    endpoint: GcsEndpoint = stack_server("gcs")
    return endpoint


@pytest.fixture(scope="session")
def azure(stack_server: Callable[[str], Any]) -> AzureEndpoint:
    """A stand-in for Azure Blob Storage with a container."""
    endpoint: AzureEndpoint = stack_server("azure")
    return endpoint


@pytest.fixture
def fault_proxy() -> Iterator[Callable[[str], FaultProxy]]:
    """Makes proxies in front of the addresses it is given; they end with the test."""
    made: list[FaultProxy] = []

    def front(upstream: str) -> FaultProxy:
        proxy = FaultProxy(upstream).start()
        made.append(proxy)
        return proxy

    yield front
    for proxy in made:
        proxy.close()
