"""Samples of unusual columns: very many of them, every type there is, floats that are not numbers; and format version 1.

Registered in `neve.samples.registry`. Each stresses one thing that a rewrite must carry over unchanged.
"""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from neve.samples.seeding import seeded
from neve.samples.target import Target, append

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import StructType

WIDE_COLUMNS = 200
WIDE_COMMITS = 10
NESTED_COMMITS = 6
FLOAT_COMMITS = 5
V1_COMMITS = 12
ROWS = 50

ODD_FLOATS = (math.nan, math.inf, -math.inf, -0.0, 0.0)


def write_wide(target: Target, name: str, *, seed: int, scale: float) -> None:
    """200 columns in ten small files: footers weigh more than pages."""
    table = target.create(name, _wide_schema())
    for commit in range(WIDE_COMMITS):
        rng = seeded(seed, f"wide {commit}")
        append(table, [_wide_row(rng, commit * 1_000_000 + n) for n in range(_rows(scale))])


def _wide_schema() -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import DoubleType, LongType, NestedField, StringType

    kinds = (LongType(), DoubleType(), StringType(), LongType())
    columns = (NestedField(n + 1, f"c{n:03d}", kinds[n % 4], required=False) for n in range(1, WIDE_COLUMNS))
    return Schema(NestedField(1, "id", LongType(), required=True), *columns)


def _wide_row(rng: random.Random, row_id: int) -> dict[str, Any]:
    row: dict[str, Any] = {"id": row_id}
    for n in range(1, WIDE_COLUMNS):
        draw = rng.getrandbits(32)
        row[f"c{n:03d}"] = None if draw % 10 == 0 else (draw, draw / 7, f"v{draw % 100}", n)[n % 4]
    return row


def write_nested(target: Target, name: str, *, seed: int, scale: float) -> None:
    """Every type: struct, list, map, decimal, both timestamps, uuid, binary, fixed, date, time; nulls at each level.

    Only a list of structs is never null itself: pyiceberg 0.12 writes such a null as an empty list.
    """
    table = target.create(name, _nested_schema())
    for commit in range(NESTED_COMMITS):
        rng = seeded(seed, f"nested {commit}")
        append(table, [_nested_row(rng, commit * 1_000_000 + n) for n in range(_rows(scale))])


def _nested_schema() -> Schema:
    from pyiceberg import types as t
    from pyiceberg.schema import Schema

    kinds = {
        "person": _person(20),
        "tags": t.ListType(element_id=22, element_type=t.StringType(), element_required=False),
        "people": t.ListType(element_id=23, element_type=_person(24), element_required=False),
        "scores": t.MapType(key_id=26, key_type=t.StringType(), value_id=27, value_type=t.LongType(), value_required=False),
        "small": t.DecimalType(9, 2),
        "big": t.DecimalType(38, 10),
        "local_ts": t.TimestampType(),
        "utc_ts": t.TimestamptzType(),
        "key": t.UUIDType(),
        "payload": t.BinaryType(),
        "digest": t.FixedType(4),
        "day": t.DateType(),
        "clock": t.TimeType(),
        "flag": t.BooleanType(),
    }
    columns = (t.NestedField(i, column, kind, required=False) for i, (column, kind) in enumerate(kinds.items(), start=2))
    return Schema(t.NestedField(1, "id", t.LongType(), required=True), *columns)


def _person(first_id: int) -> StructType:
    from pyiceberg.types import IntegerType, NestedField, StringType, StructType

    return StructType(
        NestedField(first_id, "name", StringType(), required=False),
        NestedField(first_id + 1, "age", IntegerType(), required=False),
    )


def _nested_row(rng: random.Random, row_id: int) -> dict[str, Any]:
    """Every column but the id is null in its turn and now and then, and so is what is inside it."""
    micros = rng.randrange(86_400_000_000)
    moment = datetime(2025, 1, 17) + timedelta(microseconds=micros)  # noqa: DTZ001 - a timestamp without zone is the point
    values: dict[str, Any] = {
        "person": _nested_person(rng),
        "tags": [rng.choice(("red", "green", None)) for _ in range(rng.randrange(4))],
        "people": [_nested_person(rng) for _ in range(rng.randrange(3))],
        "scores": [(key, rng.choice((None, rng.getrandbits(40)))) for key in ("a", "b", "c")[: rng.randrange(4)]],
        "small": Decimal(rng.randint(-(10**9) + 1, 10**9 - 1)).scaleb(-2),
        "big": Decimal(rng.randint(-(10**27), 10**27)).scaleb(-10),
        "local_ts": moment,
        "utc_ts": moment.replace(tzinfo=UTC),
        "key": rng.randbytes(16),
        "payload": rng.randbytes(rng.randrange(12)),
        "digest": rng.randbytes(4),
        "day": date(2025, 1, 17) - timedelta(days=rng.randrange(1000)),
        "clock": moment.time(),
        "flag": rng.random() < 0.5,
    }
    absent = {column for n, column in enumerate(values) if rng.random() < 0.1 or row_id % len(values) == n}
    return {"id": row_id, **{column: None if column in absent else value for column, value in values.items()}}


def _nested_person(rng: random.Random) -> dict[str, Any] | None:
    if rng.random() < 0.2:
        return None
    return {"name": rng.choice(("Ada", "Grace", None)), "age": rng.choice((None, rng.randrange(100)))}


def write_floats(target: Target, name: str, *, seed: int, scale: float) -> None:
    """NaN, infinities and negative zero, in float and in double; one file is all NaN, one has none."""
    table = target.create(name, _floats_schema())
    for commit in range(FLOAT_COMMITS):
        rng = seeded(seed, f"floats {commit}")
        share = commit / (FLOAT_COMMITS - 1)  # of odd values: none in the first file, all in the last
        odd = (math.nan,) if share == 1 else ODD_FLOATS
        append(table, [_float_row(rng, commit * 1_000_000 + n, share=share, odd=odd) for n in range(_rows(scale))])


def _floats_schema() -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import DoubleType, FloatType, LongType, NestedField

    return Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "f", FloatType(), required=False),
        NestedField(3, "d", DoubleType(), required=False),
    )


def _float_row(rng: random.Random, row_id: int, *, share: float, odd: tuple[float, ...]) -> dict[str, Any]:
    def draw() -> float:
        return rng.choice(odd) if rng.random() < share else rng.randrange(-1000, 1000) / 8  # exact in a float too

    return {"id": row_id, "f": draw(), "d": draw()}


def write_v1(target: Target, name: str, *, seed: int, scale: float) -> None:
    """Format version 1, partitioned by country, as an old pipeline left it."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    by_country = PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="country")
    table = target.create(name, _v1_schema(), spec=PartitionSpec(by_country), properties={"format-version": "1"})
    for commit in range(V1_COMMITS):
        rng = seeded(seed, f"v1 {commit}")
        rows = [_v1_row(rng, commit * 1_000_000 + n) for n in range(_rows(scale))]
        append(table, rows)


def _v1_schema() -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType

    return Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "country", StringType(), required=False),
        NestedField(3, "amount", LongType(), required=False),
    )


def _v1_row(rng: random.Random, row_id: int) -> dict[str, Any]:
    # The first rows of a commit visit every country, so that the number of files does not hang on luck.
    countries = ("de", "fr", None)
    country = countries[row_id % 1_000_000] if row_id % 1_000_000 < len(countries) else rng.choice(countries)
    return {"id": row_id, "country": country, "amount": rng.randrange(1000)}


def _rows(scale: float) -> int:
    return max(3, round(ROWS * scale))
