"""What a knob is: a field of the policy with its key, unit, reason, and the table properties that also set it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


@dataclass(frozen=True)
class Knob:
    """What a person needs to know of a knob besides its default; `unset` says what happens where it has none.

    Where `table_first`, a table's property is a promise that the table's owner made: only a flag comes before it.
    """

    unit: str
    why: str
    properties: tuple[str, ...] = ()
    unset: str = ""
    table_first: bool = False


def knob(
    default: Any,
    key: str,
    *,
    unit: str,
    why: str,
    properties: tuple[str, ...] = (),
    unset: str = "",
    table_first: bool = False,
    **limits: Any,
) -> Any:
    """Declares a field; its own table property `neve.<key>` comes before the foreign ones."""
    meta = Knob(unit=unit, why=why, properties=(f"neve.{key}", *properties), unset=unset, table_first=table_first)
    return Field(default, alias=key, description=why, json_schema_extra={"knob": asdict(meta)}, **limits)


class Knobs(BaseModel):
    """Knobs of one part of the product."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, validate_default=True, allow_inf_nan=False)
