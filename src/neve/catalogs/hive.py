"""pyiceberg's Hive catalog with a bounded wait.

pyiceberg opens the metastore's socket without a time limit: a server that accepts and never answers would hang a command for
ever. Here connecting and every answer end in time.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlparse

from pyiceberg.catalog import hive

from neve.catalogs.storage import TIMEOUT


class _BoundedClient(hive._HiveClient):  # type: ignore[misc]
    def __init__(self, *given: Any, seconds: float) -> None:
        self._seconds = seconds
        super().__init__(*given)

    def _init_thrift_transport(self) -> Any:
        parts = urlparse(self._uri)
        socket = hive.TSocket.TSocket(parts.hostname, parts.port)
        socket.setTimeout(self._seconds * 1000)
        if not self._kerberos_auth:
            return hive.TTransport.TBufferedTransport(socket)
        return hive.TTransport.TSaslClientTransport(socket, host=parts.hostname, service=self._kerberos_service_name)


class BoundedHiveCatalog(hive.HiveCatalog):  # type: ignore[misc]
    """A `HiveCatalog` whose every call to the metastore is bounded."""

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _BoundedClient:
        made = hive.HiveCatalog._create_hive_client(properties)
        given = (made._uri, ":".join(made._ugi) if made._ugi else None, made._kerberos_auth, made._kerberos_service_name)
        return _BoundedClient(*given, seconds=float(properties[TIMEOUT]))
