"""Settings of a Spark session that send reads and writes of a table to another branch than the one that is asked for.

Called before a statement is sent by name (`ttl`, `probe`, `statistics`). Commits through Iceberg's own API name their branch
and are not affected, nor are reads of staged scan tasks (`staging`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from neve.errors import BadRequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAP_ENABLED = "write.wap.enabled"
WAP_SETTINGS = ("spark.wap.branch", "spark.wap.id")


def refuse_redirects(spark: SparkSession, properties: Mapping[str, str], table: str) -> None:
    """Raises BadRequestError if a statement on this table would not go to the branch that it names.

    The settings are not changed for the moment of the statement: other threads of the caller may be writing by them.
    """
    if properties.get(WAP_ENABLED, "false").strip().lower() != "true":
        return
    for key in WAP_SETTINGS:
        if value := spark.conf.get(key, None):
            raise BadRequestError(
                f"Cannot work on {table} in this Spark session: {key}={value} sends its reads and writes elsewhere, "
                f"since the table has {WAP_ENABLED}=true",
                hint=f'Unset it first with `spark.conf.unset("{key}")`, or pass another session.',
            )
