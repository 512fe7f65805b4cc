"""Names of jars: Maven coordinates, and which of them Spark needs for which catalog and storage. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from neve.errors import BadRequestError, EnvironmentFaultError

ICEBERG_VERSION = "1.12.0"
SPARK_SCALA = {(4, 1): "2.13", (3, 5): "2.12"}
"""The Spark versions that Iceberg publishes a runtime for, and the Scala version it is published for."""

BUNDLES = {
    "aws": f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG_VERSION}",
    "gcp": f"org.apache.iceberg:iceberg-gcp-bundle:{ICEBERG_VERSION}",
    "azure": f"org.apache.iceberg:iceberg-azure-bundle:{ICEBERG_VERSION}",
    "sqlite": "org.xerial:sqlite-jdbc:3.53.4.0",
    "postgres": "org.postgresql:postgresql:42.7.4",
}
"""What a catalog or a storage may need besides the Iceberg runtime; each is one self-contained jar."""

_PART = re.compile(r"[A-Za-z0-9_.\-]+")


@dataclass(frozen=True, order=True)
class Coordinate:
    """`group:artifact:version[:classifier]`."""

    group: str
    artifact: str
    version: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a coordinate; anything else than three or four plain parts is refused."""
        parts = text.split(":")
        if len(parts) not in (3, 4) or not all(_PART.fullmatch(part) for part in parts):
            raise BadRequestError(
                f"Cannot read Maven coordinate {text!r}: not group:artifact:version[:classifier]",
                hint="Write it such as org.postgresql:postgresql:42.7.4.",
            )
        return cls(*parts)

    def __str__(self) -> str:
        return ":".join(part for part in (self.group, self.artifact, self.version, self.classifier) if part)

    @property
    def file_name(self) -> str:
        """The jar's name in every Maven repository."""
        return "-".join(part for part in (self.artifact, self.version, self.classifier) if part) + ".jar"


def spark_coordinates(spark_version: str, *, scala: str, needs: Collection[str] = ()) -> tuple[str, ...]:
    """The jars for this Spark: the Iceberg runtime, then one bundle per need, each once and in a fixed order."""
    unknown = sorted(set(needs) - set(BUNDLES))
    if unknown:
        raise BadRequestError(
            f"Cannot choose jars: nothing is known to serve {', '.join(unknown)}", hint=f"Known are {', '.join(BUNDLES)}."
        )
    major, minor = (int(part) for part in re.findall(r"\d+", spark_version)[:2])
    wanted = SPARK_SCALA.get((major, minor))
    if wanted != scala:
        known = ", ".join(f"{a}.{b} with Scala {s}" for (a, b), s in SPARK_SCALA.items())
        raise EnvironmentFaultError(
            f"Cannot choose an Iceberg runtime: there is none for Spark {major}.{minor} with Scala {scala}",
            hint=f"Use Spark {known}; the pyspark wheels have the right Scala.",
        )
    runtime = f"org.apache.iceberg:iceberg-spark-runtime-{major}.{minor}_{scala}:{ICEBERG_VERSION}"
    return (runtime, *(BUNDLES[need] for need in BUNDLES if need in needs))
