"""Hive's standalone metastore 3.1.3 on Derby, with tables in a local directory.

Not 4.x: it dropped a call that pyiceberg's client makes. The tables for locks come with Hive's distribution, not with its jar,
but the server makes them itself in test mode; so it runs in test mode once, and then as it should.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from urllib.parse import urlsplit

from stack import jvm, web
from stack.endpoints import HiveEndpoint
from stack.errors import NotReadyError, StartFailedError, UnavailableError
from stack.ports import free_ports
from stack.processes import Child
from stack.server import Launch

_METASTORE = ("org.apache.hive:hive-standalone-metastore:3.1.3",)
# Hadoop comes as its two self-contained jars instead, and logging as one simple one.
_EXCLUDED = ("org.apache.hadoop", "org.apache.logging.log4j", "ch.qos.logback", "org.slf4j:slf4j-log4j12")
_BESIDE = (
    "org.apache.hadoop:hadoop-client-api:3.3.6",
    "org.apache.hadoop:hadoop-client-runtime:3.3.6",
    "org.apache.hadoop:hadoop-hdfs:3.3.6",
    "commons-cli:commons-cli:1.5.0",
    "commons-collections:commons-collections:3.2.2",
    "commons-lang:commons-lang:2.6",
    "commons-logging:commons-logging:1.2",
    "org.apache.logging.log4j:log4j-api:2.24.3",
    "org.apache.logging.log4j:log4j-core:2.24.3",
    "org.slf4j:slf4j-api:1.7.36",
    "org.slf4j:slf4j-simple:1.7.36",
)
_OPENED = ("java.lang", "java.net", "java.util")
_PREPARE_SECONDS = 90.0


class Hive:
    """One process, after a first one that prepared its database."""

    name = "hive"
    needs: tuple[str, ...] = ()
    endpoint_type = HiveEndpoint
    ready_seconds = 90.0
    stop_signal = signal.SIGTERM

    def install(self, cache: Path) -> None:  # noqa: ARG002 - jars have a cache of their own
        """Fetches some 50 jars, once."""
        _class_path()
        try:
            import hive_metastore  # type: ignore[import-untyped]  # noqa: F401
        except ImportError as error:
            raise UnavailableError(
                "Cannot start hive: its client is not installed", hint="pip install 'neve[hive]' brings it."
            ) from error

    def start(self, launch: Launch) -> HiveEndpoint:
        """The database lies on disk, so that what the first process made is there for the second."""
        (port,) = free_ports(1)
        warehouse = launch.data / "warehouse"
        warehouse.mkdir()
        endpoint = HiveEndpoint(f"thrift://127.0.0.1:{port}", warehouse.as_uri())
        preparing = _spawn(launch, endpoint, port, part="prepare")
        self._await_locks(endpoint, preparing)
        launch.end(preparing)
        _spawn(launch, endpoint, port)
        return endpoint

    def check(self, endpoint: HiveEndpoint) -> None:
        """Asks for the locks, which needs the tables that Derby does not have by itself."""
        from hive_metastore.ThriftHiveMetastore import Client  # type: ignore[import-untyped]
        from hive_metastore.ttypes import ShowLocksRequest  # type: ignore[import-untyped]
        from thrift.protocol import TBinaryProtocol  # type: ignore[import-untyped]
        from thrift.Thrift import TException  # type: ignore[import-untyped]
        from thrift.transport import TSocket, TTransport  # type: ignore[import-untyped]

        where = urlsplit(endpoint.uri)
        web.require_listener(where.netloc)
        socket = TSocket.TSocket(where.hostname, where.port)
        socket.setTimeout(10_000)
        transport = TTransport.TBufferedTransport(socket)
        try:
            transport.open()
            Client(TBinaryProtocol.TBinaryProtocol(transport)).show_locks(ShowLocksRequest())
        except (TException, OSError) as error:
            raise NotReadyError(str(error)) from error
        finally:
            transport.close()

    def _await_locks(self, endpoint: HiveEndpoint, preparing: Child) -> None:
        deadline = time.monotonic() + _PREPARE_SECONDS
        while True:
            try:
                return self.check(endpoint)
            except NotReadyError as error:
                if time.monotonic() > deadline or not preparing.is_alive():
                    raise StartFailedError(f"Cannot start hive: its database was not made ({error})") from error
            time.sleep(0.2)


def _class_path() -> str:
    jars = jvm.fetch("hive", _METASTORE, exclusions=_EXCLUDED) + jvm.fetch("hive", _BESIDE, transitive=False)
    return jvm.class_path(jars)


def _spawn(launch: Launch, endpoint: HiveEndpoint, port: int, *, part: str = "") -> Child:
    config = launch.data / (part or "run")
    config.mkdir()
    (config / "metastore-site.xml").write_text(_site(launch, endpoint, test_mode=bool(part)))
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    where = f"{config}:{_class_path()}"
    command = [str(jvm.java().executable), "-Xmx512m", *opened, "-cp", where]
    return launch.spawn([*command, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)], part=part)


def _site(launch: Launch, endpoint: HiveEndpoint, *, test_mode: bool) -> str:
    package = "org.apache.hadoop.hive.metastore"
    settings = {
        "metastore.thrift.uris": endpoint.uri,
        "metastore.thrift.bind.host": "127.0.0.1",
        "metastore.warehouse.dir": endpoint.warehouse,
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{launch.data / 'derby'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "metastore.schema.verification": "false",
        "metastore.in.test": str(test_mode).lower(),
        "hive.in.test": str(test_mode).lower(),
        "metastore.client.capability.check": "false",
        # The defaults of these two name classes of Hive itself, which is not there.
        "metastore.expression.proxy": f"{package}.DefaultPartitionExpressionProxy",
        "metastore.task.threads.always": f"{package}.events.EventCleanerTask",
    }
    lines = (f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    return f"<configuration>{''.join(lines)}</configuration>"
