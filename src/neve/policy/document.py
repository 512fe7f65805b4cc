"""Policy documents: which tables, what is done there, when, how, and within which limits. Pure values.

Read from YAML by `settings.policy_files`, kept by `state.policies`; `policy.effective` works out what holds for one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from neve.policy.schedule_text import parse_blackout, parse_cron, parse_window, parse_zone
from neve.table.units import Bytes, Seconds, exact_bytes, exact_seconds


def kebab(name: str) -> str:
    """The key that people write for an attribute."""
    return name.replace("_", "-")


class DocumentPart(BaseModel):
    """A part of a document: unknown keys are refused, and keys are written with hyphens."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=kebab, populate_by_name=True, allow_inf_nan=False)


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str | date) else value


def _as_date(value: object) -> object:
    """YAML reads a plain date as such."""
    return value.isoformat() if type(value) is date else value


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"should be a number, not {str(value).lower()}")
    return value


def _as_text(value: object) -> object:
    """YAML's numbers and booleans as the texts that table properties hold."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _zone(name: str) -> str:
    parse_zone(name)
    return name


def _window(text: str) -> str:
    parse_window(text)
    return " ".join(text.split())


def _blackout(text: str) -> str:
    parse_blackout(text)
    return " ".join(text.split())


def _preset(name: str) -> str:
    from neve.policy.workload_presets import parse_workload_preset  # it is made of parts of documents

    return parse_workload_preset(name)


FilledText = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[FilledText, ...], BeforeValidator(_as_tuple)]
"""One text or a list of them."""

CronTexts = Annotated[tuple[Annotated[str, AfterValidator(parse_cron)], ...], BeforeValidator(_as_tuple)]
WindowTexts = Annotated[tuple[Annotated[str, AfterValidator(_window)], ...], BeforeValidator(_as_tuple)]
BlackoutText = Annotated[str, BeforeValidator(_as_date), AfterValidator(_blackout)]
BlackoutTexts = Annotated[tuple[BlackoutText, ...], BeforeValidator(_as_tuple)]
ZoneName = Annotated[str, AfterValidator(_zone)]
WorkloadPresetName = Annotated[str, AfterValidator(_preset)]
PropertyGlob = Annotated[str, BeforeValidator(_as_text)]

Count = Annotated[int, BeforeValidator(_no_truth)]
Number = Annotated[float, BeforeValidator(_no_truth)]
Duration = Annotated[Seconds, Field(ge=0.001, le=1e12)]
"""Bounded, so that a number of seconds is never written with an exponent, which people and `parse_seconds` cannot read."""


def _as_choice(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


class OperationChoice(DocumentPart):
    """An operation of the registry and its options, such as `compact` with `tier: minor`. Its name alone is enough."""

    name: str
    options: dict[str, Any] = {}


Operations = Annotated[tuple[Annotated[OperationChoice, BeforeValidator(_as_choice)], ...], BeforeValidator(_as_tuple)]


class Schedule(DocumentPart):
    """When work may begin. Times are those of `time_zone`, with daylight saving; `policy.schedule_times` answers questions."""

    time_zone: ZoneName = "UTC"
    cron: CronTexts = ()
    """Five fields each. The operation is due at each of these times."""
    windows: WindowTexts = ()
    """Work begins only in these: `mon-fri 22:00-06:00`, `sat-sun`, `01:00-05:00`. Always, if there are none. Days are those on
    which a window begins, so that `fri 22:00-06:00` ends on Saturday."""
    blackouts: BlackoutTexts = ()
    """Work never begins in these: windows as above, or dates `2026-12-24/2026-12-27`, both included."""


class Triggers(DocumentPart):
    """States of a table that make an operation due: one is enough. `quiet_for` and `at_most_every` hold it back."""

    small_files: Count | None = Field(None, ge=1)
    """So many files below small-file-threshold."""
    average_file_size_below: Bytes | None = Field(None, gt=0)
    delete_files: Count | None = Field(None, ge=1)
    delete_ratio: Number | None = Field(None, gt=0)
    """Delete files per data file."""
    health_below: Count | None = Field(None, ge=1, le=100)
    bytes_added: Bytes | None = Field(None, gt=0)
    """By others, since the operation last ran."""
    commits: Count | None = Field(None, ge=1)
    """Of others, since the operation last ran."""
    since_last_run: Duration | None = None
    hint: bool = False
    """A writer asked for it."""
    quiet_for: Duration | None = None
    """Not before nobody has written to the table for so long."""
    at_most_every: Duration | None = None
    """Not before so long has passed since it last ran."""

    @property
    def makes_due(self) -> bool:
        """Whether any trigger is set that makes an operation due."""
        held_back = {"quiet_for", "at_most_every"}
        return any(getattr(self, name) not in (None, False) for name in type(self).model_fields if name not in held_back)


class Amounts(DocumentPart):
    """How much may be used; None is no limit. Money is in the currency of the settings' prices."""

    bytes: Bytes | None = Field(None, gt=0)
    """Read by runs, and so written again."""
    core_seconds: Duration | None = None
    money: Number | None = Field(None, gt=0)


class Limits(DocumentPart):
    """Bounds of what one run and one day of the policy's or the team's tables may use."""

    per_run: Amounts = Amounts()
    per_day: Amounts = Amounts()


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
    table_properties: dict[str, PropertyGlob] = {}
    operations: Operations = ()
    preset: WorkloadPresetName | None = None
    """One of `policy.workload_presets`: triggers, schedule and knobs for a kind of table; what is written here goes before."""
    schedule: Schedule = Schedule()
    triggers: Triggers = Triggers()
    partitions: Texts = ()
    """Only partitions that match, for operations that take partitions."""
    where: str | None = None
    """Only files that may hold rows that match, in Spark SQL, for operations that take a filter. Dates may be relative."""
    knobs: dict[str, Any] = Field({}, alias="set")
    limits: Limits = Limits()
    target: TargetName = "auto"
    priority: Count = Field(0, ge=-100, le=100)


class TeamDocument(DocumentPart):
    """A team: limits that all runs on its tables share, and who is notified."""

    kind: Literal["team"] = "team"
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")
    description: str = ""
    limits: Limits = Limits()
    time_zone: ZoneName = "UTC"
    """Where its day begins."""
    concurrency: Count | None = Field(None, ge=1)
    """The most runs at a time."""
    notify: Texts = ()
    """Names of channels that the settings describe."""


Document = PolicyDocument | TeamDocument

_UNITS: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(("average-file-size-below", "bytes-added", "bytes"), exact_bytes),
    **dict.fromkeys(("since-last-run", "quiet-for", "at-most-every", "core-seconds"), exact_seconds),
}
"""Keys whose numbers people write with a unit. None of them is the name of a knob."""


def as_written(document: Document) -> dict[str, Any]:
    """Returns the document as people write it: without what equals its default, and with units. Reading it gives the same."""
    content = document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    parts = {key: _with_units(value) if key in ("triggers", "limits") else value for key, value in content.items()}
    if "operations" in parts:
        parts["operations"] = [one["name"] if list(one) == ["name"] else one for one in parts["operations"]]
    return {"kind": document.kind, **parts}


def _with_units(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return {key: _UNITS[key](value) if key in _UNITS else _with_units(value) for key, value in part.items()}


def written_triggers(triggers: Triggers) -> dict[str, Any]:
    """Returns triggers as people write them."""
    written: dict[str, Any] = _with_units(triggers.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    return written


def written_amounts(amounts: Amounts) -> dict[str, Any]:
    """Returns amounts as people write them."""
    written: dict[str, Any] = _with_units(amounts.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    return written
