"""One description per catalog, from which the settings of every client (pyiceberg, pyarrow, Spark) are derived elsewhere.

Says what each type needs and what would contradict it; knows no client.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from neve.settings.secrets import Secret, Text
from neve.settings.section import ContradictionError, FreeText, Section
from neve.table.location import address
from neve.table.units import Seconds

CatalogType = Literal["sql", "rest", "glue", "hive", "nessie", "hadoop"]

_NEEDS: dict[str, tuple[str, ...]] = {
    "sql": ("warehouse",),
    "rest": ("uri",),
    "glue": (),
    "hive": ("uri",),
    "nessie": ("uri",),
    "hadoop": ("warehouse",),
}
_ONLY_WITH: dict[str, tuple[str, ...]] = {
    "ref": ("nessie",),
    "lock-manager": ("hadoop",),
    "token": ("rest", "nessie"),
    "credential": ("rest", "nessie"),
    "oauth2-server-uri": ("rest", "nessie"),
    "scope": ("rest", "nessie"),
    "vended-credentials": ("rest", "nessie"),
}


class StorageS3(Section):
    """Amazon S3 and what speaks its language."""

    endpoint: Text | None = Field(None, description="The server's URL; Amazon's own unless set.")
    region: str | None = Field(None, description="The region.")
    access_key_id: Text | None = Field(None, description="The name of the key; the default chain is used unless set.")
    secret_access_key: Secret | None = Field(None, description="The secret of the key.")
    session_token: Secret | None = Field(None, description="The token of temporary keys.")
    path_style_access: bool = Field(False, description="Bucket in the path, as most servers other than Amazon's want it.")
    role_arn: str | None = Field(None, description="A role to assume.")

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> Self:
        if self.access_key_id is not None and self.secret_access_key is None:
            raise ContradictionError("needs secret-access-key beside it", "access-key-id")
        if self.access_key_id is None and self.secret_access_key is not None:
            raise ContradictionError("needs access-key-id beside it", "secret-access-key")
        return self


class StorageGs(Section):
    """Google Cloud Storage."""

    project_id: str | None = Field(None, description="The project that is billed.")
    token: Secret | None = Field(None, description="An OAuth2 token; the default credentials are used unless set.")
    endpoint: Text | None = Field(None, description="The server's URL; Google's own unless set.")


class StorageAbfss(Section):
    """Azure Data Lake Storage."""

    account_name: Text | None = Field(None, description="The storage account.")
    account_key: Secret | None = Field(None, description="The account's key.")
    sas_token: Secret | None = Field(None, description="A shared access signature.")
    tenant_id: Text | None = Field(None, description="The tenant of the client.")
    client_id: Text | None = Field(None, description="The client, where one signs in.")
    client_secret: Secret | None = Field(None, description="The client's secret.")
    endpoint: Text | None = Field(None, description="The server's URL; Azure's own unless set.")

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        ways = [key for key in ("account_key", "sas_token", "client_secret") if getattr(self, key) is not None]
        if len(ways) > 1:
            first, second = (way.replace("_", "-") for way in ways[:2])
            raise ContradictionError(f"cannot be used together with {second}", first, second)
        return self


class StorageHdfs(Section):
    """Hadoop's file system."""

    host: str | None = Field(None, description="The name node.")
    port: int | None = Field(None, description="Its port.", gt=0, lt=65536)
    user: str | None = Field(None, description="The user to act as.")


class StorageSettings(Section):
    """How the files of a catalog's tables are reached; what is not said comes from the environment."""

    s3: StorageS3 = StorageS3()
    gs: StorageGs = StorageGs()
    abfss: StorageAbfss = StorageAbfss()
    hdfs: StorageHdfs = StorageHdfs()


class CatalogSettings(Section):
    """One catalog."""

    type: CatalogType = Field(description="The kind of catalog.")
    uri: Text | None = Field(None, description="Its address: a URL, or for `sql` a database; needed by rest, hive, nessie.")
    warehouse: Text | None = Field(None, description="Where its tables lie; needed by sql and hadoop.")
    ref: str | None = Field(None, description="The branch or tag of a nessie catalog; its default branch unless set.")
    token: Secret | None = Field(None, description="A bearer token.")
    credential: Secret | None = Field(None, description="`id:secret` of an OAuth2 client.")
    oauth2_server_uri: Text | None = Field(None, description="Where tokens are had; the catalog itself unless set.")
    scope: str | None = Field(None, description="The OAuth2 scope asked for.")
    vended_credentials: bool = Field(False, description="Whether the catalog hands out the storage's credentials.")
    lock_manager: str | None = Field(
        None, description="The lock manager's class; without one a hadoop catalog is only read, except on the local disk."
    )
    timeout_seconds: Seconds = Field(
        30,
        alias="timeout",
        description="How long one answer of the catalog or the storage may take before it counts as none.",
        gt=0,
    )
    storage: StorageSettings = StorageSettings()
    properties: dict[str, FreeText] = Field(default={}, description="Further properties, passed on to every client.")

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        for key in _NEEDS[self.type]:
            if self._value(key) is None:
                raise ContradictionError(f"is needed by a catalog of type {self.type}", key)
        for key, types in _ONLY_WITH.items():
            if self.type not in types and self._value(key):
                raise ContradictionError(f"means nothing to a catalog of type {self.type}, only to {' and '.join(types)}", key)
        if self.token is not None and self.credential is not None:
            raise ContradictionError("cannot be used together with credential: one of them decides", "token", "credential")
        return self

    @model_validator(mode="after")
    def _database_is_known(self) -> Self:
        if self.type == "sql" and self.uri is None and address(str(self.warehouse or "")).kind != "file":
            raise ContradictionError("is needed by a catalog of type sql whose warehouse is not a local directory", "uri")
        return self

    def _value(self, key: str) -> object:
        return getattr(self, key.replace("-", "_"))
