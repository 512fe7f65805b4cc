"""Where a value came from. The kinds are in order of precedence, highest first; a preset ranks just below whoever chose it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OriginKind(StrEnum):
    """The places that can say something."""

    FLAG = "flag"
    VARIABLE = "variable"
    POLICY = "policy"
    PROFILE = "profile"
    FILE = "file"
    TABLE_PROPERTY = "table property"
    PRESET = "preset"
    DEFAULT = "default"


@dataclass(frozen=True)
class Origin:
    """One place, printed as people would say it: `flag --target-file-size`, `file neve.yaml`, `default`."""

    kind: OriginKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


DEFAULT = Origin(OriginKind.DEFAULT)
