"""How to reach each server: small frozen values, kept in the state file and handed to tests by the fixtures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

REGION = "us-east-1"
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class S3Endpoint:
    """An S3 server with one bucket and one identity."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str
    region: str = REGION

    def environment(self) -> dict[str, str]:
        """What `python -m stack env` exports."""
        return {
            "NEVE_STACK_S3_ENDPOINT": self.endpoint,
            "NEVE_STACK_S3_BUCKET": self.bucket,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
        }

    def properties(self) -> dict[str, str]:
        """The same as pyiceberg FileIO properties (Iceberg's Java S3FileIO shares these names)."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": self.region,
            "s3.path-style-access": "true",
        }


@dataclass(frozen=True)
class RestEndpoint:
    """An Iceberg REST catalog; `s3` is None when its warehouse is a local directory."""

    uri: str
    warehouse: str
    s3: S3Endpoint | None = None

    def environment(self) -> dict[str, str]:
        """What `python -m stack env` exports."""
        name = "NEVE_STACK_REST" if self.s3 else "NEVE_STACK_REST_FILES"
        return {f"{name}_URI": self.uri, f"{name}_WAREHOUSE": self.warehouse}

    def properties(self) -> dict[str, str]:
        """Properties for `pyiceberg.catalog.load_catalog`."""
        return {"type": "rest", "uri": self.uri, **(self.s3.properties() if self.s3 else {})}


@dataclass(frozen=True)
class NessieEndpoint:
    """Nessie: its own API and its Iceberg REST face, on the stack's S3."""

    uri: str
    iceberg_uri: str
    warehouse: str
    s3: S3Endpoint

    def environment(self) -> dict[str, str]:
        """What `python -m stack env` exports."""
        return {"NEVE_STACK_NESSIE_URI": self.uri, "NEVE_STACK_NESSIE_ICEBERG_URI": self.iceberg_uri}


@dataclass(frozen=True)
class PostgresEndpoint:
    """A PostgreSQL server with one superuser and one empty database."""

    host: str
    port: int
    user: str
    password: str
    database: str

    @property
    def url(self) -> str:
        """For SQLAlchemy with psycopg2."""
        return f"postgresql+psycopg2://{self.user}:{self.password}@{self.host}:{self.port}/{self.database}"

    @property
    def jdbc_url(self) -> str:
        """For Spark's JDBC catalog; user and password go beside it."""
        return f"jdbc:postgresql://{self.host}:{self.port}/{self.database}"

    def environment(self) -> dict[str, str]:
        """What `python -m stack env` exports."""
        return {"NEVE_STACK_POSTGRES_URL": self.url}


@dataclass(frozen=True)
class SparkEndpoint:
    """A standalone Spark cluster. Drivers must run with the same Java (`java_home`)."""

    master: str
    ui: str
    workers: int
    java_home: str

    def environment(self) -> dict[str, str]:
        """What `python -m stack env` exports."""
        return {"NEVE_STACK_SPARK_MASTER": self.master, "NEVE_STACK_SPARK_UI": self.ui}


@dataclass(frozen=True)
class ProxyEndpoint:
    """The fault proxy as a process: one address in front of each server, one to steer it."""

    s3: str
    rest: str
    control: str

    def environment(self) -> dict[str, str]:
        """What `python -m stack env` exports."""
        return {
            "NEVE_STACK_PROXY_S3": self.s3,
            "NEVE_STACK_PROXY_REST": self.rest,
            "NEVE_STACK_PROXY_CONTROL": self.control,
        }


@dataclass(frozen=True)
class GlueEndpoint:
    """AWS Glue's API as moto answers it; tables live on the stack's S3. It checks no credentials."""

    endpoint: str
    s3: S3Endpoint
    region: str = REGION

    def environment(self) -> dict[str, str]:
        """What `python -m stack env` exports."""
        return {"NEVE_STACK_GLUE_ENDPOINT": self.endpoint}

    def properties(self, namespace_location: str | None = None) -> dict[str, str]:
        """Properties for `pyiceberg.catalog.load_catalog`."""
        return {
            "type": "glue",
            "glue.endpoint": self.endpoint,
            "glue.region": self.region,
            "glue.access-key-id": self.s3.access_key,
            "glue.secret-access-key": self.s3.secret_key,
            "warehouse": namespace_location or f"s3://{self.s3.bucket}/glue",
            **self.s3.properties(),
        }


@dataclass(frozen=True)
class HiveEndpoint:
    """A Hive metastore whose tables live in a local directory."""

    uri: str
    warehouse: str

    def environment(self) -> dict[str, str]:
        """What `python -m stack env` exports."""
        return {"NEVE_STACK_HIVE_URI": self.uri, "NEVE_STACK_HIVE_WAREHOUSE": self.warehouse}

    def properties(self) -> dict[str, str]:
        """Properties for `pyiceberg.catalog.load_catalog`."""
        return {"type": "hive", "uri": self.uri, "warehouse": self.warehouse}


@dataclass(frozen=True)
class GcsEndpoint:
    """Google Cloud Storage as fake-gcs-server answers it, with one bucket. It checks no token."""

    endpoint: str
    bucket: str

    def environment(self) -> dict[str, str]:
        """What `python -m stack env` exports."""
        return {"NEVE_STACK_GCS_ENDPOINT": self.endpoint, "NEVE_STACK_GCS_BUCKET": self.bucket}

    def properties(self) -> dict[str, str]:
        """pyiceberg FileIO properties; some token must be given, or a real one is looked for."""
        far_future_ms = "4102444800000"
        return {
            "gcs.service.host": self.endpoint,
            "gcs.oauth2.token": "any",
            "gcs.oauth2.token-expires-at": far_future_ms,
        }


@dataclass(frozen=True)
class AzureEndpoint:
    """Azure Blob Storage as Azurite answers it, with one account and one container."""

    authority: str
    account: str
    key: str
    container: str

    def environment(self) -> dict[str, str]:
        """What `python -m stack env` exports."""
        return {"NEVE_STACK_AZURE_AUTHORITY": self.authority, "NEVE_STACK_AZURE_ACCOUNT": self.account}

    def properties(self) -> dict[str, str]:
        """pyiceberg FileIO properties."""
        return {
            "adls.account-name": self.account,
            "adls.account-key": self.key,
            "adls.blob-storage-authority": self.authority,
            "adls.dfs-storage-authority": self.authority,
            "adls.blob-storage-scheme": "http",
            "adls.dfs-storage-scheme": "http",
        }


def restore(kind: type[_Kind], raw: dict[str, Any]) -> _Kind:
    """An endpoint from its JSON form (`dataclasses.asdict`)."""
    values = dict(raw)
    if isinstance(values.get("s3"), dict):
        values["s3"] = S3Endpoint(**values["s3"])
    return kind(**values)
