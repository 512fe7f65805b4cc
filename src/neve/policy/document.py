"""Policy documents: which tables, what is done there, when, how, and within which limits. Pure values.

Read from YAML by `settings.policy_files`, kept by `state.policies`; `policy.effective` works out what holds for one table.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from neve.table.units import Bytes, Seconds


def kebab(name: str) -> str:
    """The key that people write for an attribute."""
    return name.replace("_", "-")


class DocumentPart(BaseModel):
    """A part of a document: unknown keys are refused, and keys are written with hyphens."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=kebab, populate_by_name=True, allow_inf_nan=False)


class OperationChoice(DocumentPart):
    """An operation of the registry and its options, such as `compact` with `tier: minor`."""

    name: str
    options: dict[str, Any] = {}


class Schedule(DocumentPart):
    """When work may begin. Times are those of `time_zone`, daylight saving included; `policy.calendar` answers questions."""

    time_zone: str = "UTC"
    cron: tuple[str, ...] = ()
    """Five fields each. The operation is due at each of these times."""
    windows: tuple[str, ...] = ()
    """Work begins only in these: `mon-fri 22:00-06:00`, `sat-sun`, `01:00-05:00`. Always, if there are none."""
    blackouts: tuple[str, ...] = ()
    """Work never begins in these: windows as above, or dates `2026-12-24/2026-12-27`, both included."""


class Triggers(DocumentPart):
    """States of a table that make an operation due: one is enough. `quiet_for` and `at_most_every` hold it back."""

    small_files: int | None = Field(None, ge=1)
    """So many files below small-file-threshold."""
    average_file_size_below: Bytes | None = Field(None, gt=0)
    delete_files: int | None = Field(None, ge=1)
    delete_ratio: float | None = Field(None, gt=0)
    """Delete files per data file."""
    health_below: int | None = Field(None, ge=1, le=100)
    bytes_added: Bytes | None = Field(None, gt=0)
    """By others, since the operation last ran."""
    commits: int | None = Field(None, ge=1)
    """Of others, since the operation last ran."""
    since_last_run: Seconds | None = Field(None, gt=0)
    hint: bool = False
    """A writer asked for it."""
    quiet_for: Seconds | None = Field(None, gt=0)
    """Not before nobody has written to the table for so long."""
    at_most_every: Seconds | None = Field(None, gt=0)
    """Not before so long has passed since it last ran."""

    @property
    def makes_due(self) -> bool:
        """Whether any trigger is set that makes an operation due."""
        held_back = {"quiet_for", "at_most_every"}
        return any(getattr(self, name) not in (None, False) for name in type(self).model_fields if name not in held_back)


class Amounts(DocumentPart):
    """How much may be used; None is no limit. Money is in the currency of the settings' prices."""

    bytes: Bytes | None = Field(None, gt=0)
    """Read and written anew."""
    core_seconds: Seconds | None = Field(None, gt=0)
    money: float | None = Field(None, gt=0)


class Limits(DocumentPart):
    """Bounds of what one run and one day of the policy's or the team's tables may use."""

    per_run: Amounts = Amounts()
    per_day: Amounts = Amounts()


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
"""One text or a list of them."""

TargetName = str
"""`auto`, or the name of a target that the settings describe; `local` is always there."""


class PolicyDocument(DocumentPart):
    """One policy. `tables` are globs over `catalog.namespace.table`; `table_properties` must match too, as globs of values."""

    kind: Literal["policy"] = "policy"
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")
    description: str = ""
    owner: str = ""
    """The team that the tables belong to."""
    enabled: bool = True
    tables: Texts = Field(min_length=1)
    except_tables: Texts = Field((), alias="except")
    table_properties: dict[str, str] = {}
    operations: tuple[OperationChoice, ...] = ()
    preset: str | None = None
    """One of `policy.workload_presets`: triggers, schedule and knobs for a kind of table; what is written here goes before."""
    schedule: Schedule = Schedule()
    triggers: Triggers = Triggers()
    partitions: Texts = ()
    """Only partitions like these, for operations that can be told."""
    where: str | None = None
    """Only files that may hold rows like this, in Spark SQL, for operations that can be told. Dates may be relative."""
    knobs: dict[str, Any] = Field({}, alias="set")
    limits: Limits = Limits()
    target: TargetName = "auto"
    priority: int = Field(0, ge=-100, le=100)


class TeamDocument(DocumentPart):
    """A team: limits that all runs on its tables share, and who is told."""

    kind: Literal["team"] = "team"
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")
    description: str = ""
    limits: Limits = Limits()
    time_zone: str = "UTC"
    """Where its day begins."""
    concurrency: int | None = Field(None, ge=1)
    """The most runs at a time."""
    notify: Texts = ()
    """Names of channels that the settings describe."""


Document = PolicyDocument | TeamDocument
