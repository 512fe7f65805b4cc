"""Options that shape output files, and the kernels that cannot apply them. Called by `rewrite.planner`, `rewrite.run_summary`
and `operations.compact`.

An explicit option makes such a kernel decline. One from a settings file, a table property or a preset is reported as not
applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from neve.policy.model import Policy
from neve.rewrite.group import Kernel
from neve.table.frozen import Frozen

OPTIONS = ("compression-codec", "row-group-rows")
"""Knobs that at least one kernel cannot apply. Sizes, layouts and limits are the planner's, and hold for every kernel."""

_FORMAT = "write.format.default"
_BLOOM = "write.parquet.bloom-filter-enabled.column."
_KEEPS_CODEC = "copy keeps the codec of its input files"
_KEEPS_ROW_GROUPS = "copy keeps the row groups of its input files"
_ROW_GROUPS_BY_BYTES = "Iceberg's writer limits row groups by bytes, not by rows"


class RewriteOption(Frozen):
    """An option that someone set. `explicit` means that the command or the call itself named it; `unsupported` gives the reason
    for each kernel that cannot apply it."""

    option: str
    value: str
    origin: str
    explicit: bool = False
    unsupported: dict[Kernel, str] = {}


class NotApplied(Frozen):
    """A configured option that a kernel did not apply to its groups."""

    option: str
    value: str
    origin: str
    kernel: Kernel
    groups: int
    reason: str


def unsupported(policy: Policy, option: str, properties: Mapping[str, str]) -> dict[Kernel, str]:
    """Why kernels cannot apply this option to a table with these properties."""
    if option == "row-group-rows":
        return {Kernel.COPY: _KEEPS_ROW_GROUPS, Kernel.SPARK: _ROW_GROUPS_BY_BYTES}
    reasons = {Kernel.COPY: _KEEPS_CODEC}
    if policy.compression_codec == "lzo":
        reasons[Kernel.ARROW] = "pyarrow does not write lzo"
    if (written := properties.get(_FORMAT, "parquet").lower()) != "parquet":
        reasons[Kernel.SPARK] = f"the table writes {written}, and this option sets the codec of Parquet files"
    return reasons


def wants_bloom_filters(properties: Mapping[str, str]) -> bool:
    """Whether the table asks for bloom filters. They survive a copy, but only Iceberg's writer makes new ones."""
    return any(key.startswith(_BLOOM) and value.lower() == "true" for key, value in properties.items())


def declines(options: Iterable[RewriteOption]) -> dict[Kernel, str]:
    """Kernels that decline, with the reason, because they cannot apply an explicit option."""
    found: dict[Kernel, str] = {}
    for option in options:
        for kernel, reason in option.unsupported.items() if option.explicit else ():
            found.setdefault(kernel, f"{option.option} {option.value} was given, and {reason}")
    return found


def not_applied(options: Iterable[RewriteOption], groups: Mapping[Kernel, int]) -> tuple[NotApplied, ...]:
    """Options that the kernels of these groups do not apply; `groups` counts them by kernel."""
    return tuple(
        NotApplied(
            option=option.option,
            value=option.value,
            origin=option.origin,
            kernel=kernel,
            groups=groups[kernel],
            reason=reason,
        )
        for option in options
        for kernel, reason in option.unsupported.items()
        if groups.get(kernel)
    )
