"""Storage settings, said once by the user, spelled for each client: pyiceberg's FileIO, Iceberg's Java FileIO, Hadoop.

Called by the catalog families. The three speak of the same thing with different words; this is the only dictionary.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from neve.settings.catalog import CatalogSettings
from neve.table.location import address

GCS_TOKEN_MS = 3_600_000
_SERVERS = ("rest", "nessie")
"""Kinds of catalogs that may have names for warehouses."""
FILE_IO = "neve.catalogs.file_io.LiteralFileIO"
"""The class by which PyIceberg reads and writes files."""
TIMEOUT = "neve.timeout-seconds"
"""The property by which our clients of catalogs are told how long an answer may take."""
CONNECT_SECONDS = 5
"""Every wait is bounded: for a connection by this, for an answer by the catalog's `timeout`."""


def scheme(location: str | None) -> str:
    """The kind of storage; `file` for a plain path."""
    return address(location or "").kind


def pyiceberg_storage(settings: CatalogSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Properties for pyiceberg, whose FileIO is pyarrow's."""
    s3, gs, azure, hdfs = settings.storage.s3, settings.storage.gs, settings.storage.abfss, settings.storage.hdfs
    properties: dict[str, Any] = {
        "py-io-impl": FILE_IO,
        "s3.connect-timeout": CONNECT_SECONDS,
        "s3.request-timeout": settings.timeout_seconds,
        "s3.endpoint": s3.endpoint,
        "s3.region": s3.region,
        "s3.access-key-id": s3.access_key_id,
        "s3.secret-access-key": s3.secret_access_key,
        "s3.session-token": s3.session_token,
        "s3.role-arn": s3.role_arn,
        "s3.force-virtual-addressing": False if s3.path_style_access else None,
        "gcs.project-id": gs.project_id,
        "gcs.oauth2.token": gs.token,
        # A token that came by reference does not say when it ends; pyarrow wants to know.
        "gcs.oauth2.token-expires-at": (time.time_ns() // 10**6 + GCS_TOKEN_MS) if gs.token else None,
        "gcs.service.host": gs.endpoint,
        "adls.account-name": azure.account_name,
        "adls.account-key": azure.account_key,
        "adls.sas-token": azure.sas_token,
        "adls.tenant-id": azure.tenant_id,
        "adls.client-id": azure.client_id,
        "adls.client-secret": azure.client_secret,
        **_azure_authority(azure.endpoint),
        "hdfs.host": hdfs.host,
        "hdfs.port": hdfs.port,
        "hdfs.user": hdfs.user,
    }
    return plain(properties, environ)


def spark_storage(settings: CatalogSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Properties of an Iceberg catalog inside Spark."""
    match storage_kind(settings):
        case "s3":
            return plain(_java_s3(settings), environ)
        case "gs":
            gs = settings.storage.gs
            java = {"gcs.project-id": gs.project_id, "gcs.oauth2.token": gs.token, "gcs.service.host": gs.endpoint}
            return plain({"io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO", **java}, environ)
        case "abfss":
            return plain(_java_azure(settings), environ)
    return {}


def spark_hadoop(settings: CatalogSettings) -> dict[str, str]:
    """Session-wide Hadoop settings, which HDFS alone needs."""
    hdfs = settings.storage.hdfs
    return {"spark.hadoop.fs.defaultFS": f"hdfs://{hdfs.host}:{hdfs.port or 8020}"} if hdfs.host else {}


def storage_needs(settings: CatalogSettings) -> set[str]:
    """Jar bundles that Spark needs for this storage."""
    return {"s3": {"aws"}, "gs": {"gcp"}, "abfss": {"azure"}}.get(storage_kind(settings), set())


def plain(properties: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Drops what is unset, opens secrets, and writes values as both clients read them."""
    result = {}
    for key, value in properties.items():
        if value is None:
            continue
        if hasattr(value, "reveal"):
            value = value.reveal(environ)
        result[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return result


def storage_kind(settings: CatalogSettings) -> str:
    """A catalog may know its warehouse by a name, or keep it to itself; then the one storage that was described is meant."""
    place = settings.warehouse
    if place and (settings.type not in _SERVERS or address(place).scheme or place.startswith("/")):
        return scheme(place)
    described = [
        name for name in ("s3", "gs", "abfss", "hdfs") if getattr(settings.storage, name).model_dump(exclude_defaults=True)
    ]
    return described[0] if described else "file"


def _java_s3(settings: CatalogSettings) -> dict[str, Any]:
    s3 = settings.storage.s3
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": s3.endpoint,
        "client.region": s3.region or "us-east-1",  # executors fail without one
        "s3.access-key-id": s3.access_key_id,
        "s3.secret-access-key": s3.secret_access_key,
        "s3.session-token": s3.session_token,
        "s3.path-style-access": s3.path_style_access or None,
        **({"client.factory": _ASSUME_ROLE, "client.assume-role.arn": s3.role_arn} if s3.role_arn else {}),
        **({"client.assume-role.region": s3.region or "us-east-1"} if s3.role_arn else {}),
    }


_ASSUME_ROLE = "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"


def _java_azure(settings: CatalogSettings) -> dict[str, Any]:
    azure = settings.storage.abfss
    return {
        "io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
        "adls.auth.shared-key.account.name": azure.account_name if azure.account_key else None,
        "adls.auth.shared-key.account.key": azure.account_key,
        f"adls.sas-token.{azure.account_name}": azure.sas_token,
        f"adls.connection-string.{azure.account_name}": azure.endpoint,
    }


def _azure_authority(endpoint: str | None) -> dict[str, str | None]:
    if not endpoint:
        return {}
    protocol, _, host = endpoint.partition("://")
    return {
        "adls.blob-storage-authority": host,
        "adls.dfs-storage-authority": host,
        "adls.blob-storage-scheme": protocol,
        "adls.dfs-storage-scheme": protocol,
    }
