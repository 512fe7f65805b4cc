"""Named sets of knobs, as other tools that compact Iceberg tables come with them. Data only, in the words of `policy.model`.

`Policy.preset` checks a name here; `neve.settings.presets` lays the set under what was said beside it. Parameters of such tools
that are no knobs of ours are in docs/guide/presets.md, with the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Preset:
    """Whose numbers these are, and the knobs by key; None takes back what lower layers say."""

    of: str
    knobs: Mapping[str, str | int | float | bool | None]


PRESETS: Mapping[str, Preset] = {
    "serverless-db": Preset(
        "a database in a cloud function that checks its tables as it writes",
        {
            "target-file-size": "128 MB",
            "small-file-threshold": "64 MB",
            "min-input-files": 3,
            "max-files": 100,
            "check-interval": 5,
            "advise": True,
            "compression-codec": "zstd",
            "row-group-rows": 8192,
            # Rows decide where row groups end, so none is too small; else its own output would be rewritten for ever.
            "row-group-min-size": "1 B",
            "snapshot-keep": "168 h",
        },
    ),
    "notebook": Preset(
        "a nightly rewrite_data_files from a notebook or a scheduled job",
        {"target-file-size": "128 MB", "small-file-threshold": "10 MB", "min-input-files": 2},
    ),
    "nimtable": Preset(
        "Nimtable's iceberg-compaction",
        {
            "target-file-size": "1 GB",
            "small-file-threshold": "32 MB",
            "max-group-size": "50 GB",
            "compression-codec": "snappy",
        },
    ),
    "amoro": Preset(
        "Apache Amoro's self-optimizing",
        {
            "target-file-size": "128 MB",
            "fragment-ratio": 8,
            "max-files": 10_000,
            "minor-file-count": 12,
            "minor-interval": "1 h",
            "delete-ratio": 0.1,
            "full-interval": None,
            "snapshot-keep": "720 min",
        },
    ),
    "distributed": Preset(
        "a planner with workers of its own",
        {"target-file-size": "1 GB", "small-file-threshold": "32 MB", "max-parallelism": 16, "inline-deletes": "10 MB"},
    ),
}


def parse_preset(value: object) -> str:
    """The name of a preset; ValueError names the nearest one."""
    if isinstance(value, str) and value in PRESETS:
        return value
    close = get_close_matches(str(value).lower(), PRESETS, n=1)
    advice = f", did you mean {close[0]}?" if close else f"; write one of {', '.join(PRESETS)}"
    raise ValueError(f"there is no preset {value!r}{advice}")
