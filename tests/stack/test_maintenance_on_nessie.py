"""Tables in a real Nessie, whose branches no table's metadata tells of: they are looked at, and nothing of them is touched."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from stack import web
from stack.endpoints import NessieEndpoint
from tests.builders.s3_contents import objects
from tests.builders.spark_driver import Driver, write_settings

pytestmark = pytest.mark.stack

NO_HISTORY = "Cannot work on .*: Nessie hands out no history of a table, so that nobody could tell what a commit met$"
KEPT = "Cannot look for orphans of .*: its property gc.enabled is false$"
SCHEMA = pa.schema([("id", pa.int64())])


def test_nothing_is_done_to_a_table_that_has_files_on_another_branch(nessie: NessieEndpoint, tmp_path: Path) -> None:
    name, branch = f"kept_{uuid4().hex[:8]}.t", f"dev_{uuid4().hex[:8]}"
    main = at(nessie, "main")
    main.create_namespace(name.partition(".")[0])
    table = main.create_table(name, SCHEMA)
    append(main, name, range(5))
    make_branch(nessie, branch)
    append(at(nessie, branch), name, range(5, 10))
    append(main, name, range(10, 12))
    before = objects(nessie.s3, table.location())

    described = {"type": "nessie", "uri": nessie.uri, "warehouse": "warehouse"}
    with Driver(write_settings(tmp_path, described, nessie.s3), nessie.s3) as driver:

        def refused(reason: str, what: str, **words: Any) -> None:
            answer = driver.ask(what, table=name, **words)
            assert re.match(f"BadRequestError: {reason}", answer["error"]), answer

        assert driver.sql(f"SELECT count(*) AS n FROM lake.{name}") == [{"n": 7}]
        refused(NO_HISTORY, "compact")
        refused(KEPT, "maintain", operation="orphans", days=10, dry_run=True, no_other_table_is_here=True)
        for operation in ("orphans", "expire", "manifests", "stats"):
            refused(NO_HISTORY, "maintain", operation=operation, days=10)
        assert driver.ask("quarantined", table=name) == {}

    assert objects(nessie.s3, table.location()) == before
    assert ids(main, name) == [*range(5), 10, 11]
    assert ids(at(nessie, branch), name) == list(range(10))


def at(nessie: NessieEndpoint, ref: str) -> Catalog:
    return load_catalog(ref, type="rest", uri=f"{nessie.iceberg_uri}/{ref}", **nessie.s3.properties())


def append(catalog: Catalog, name: str, ids: range) -> None:
    """Each id in a file of its own."""
    for i in ids:
        catalog.load_table(name).append(pa.table({"id": [i]}, SCHEMA))


def ids(catalog: Catalog, name: str) -> list[int]:
    return sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist())


def make_branch(nessie: NessieEndpoint, name: str) -> None:
    """Where main is now."""
    main = web.fetch_json(f"{nessie.uri}/trees/main")["reference"]
    asked = Request(f"{nessie.uri}/trees?name={name}&type=BRANCH", json.dumps(main).encode(), method="POST")  # noqa: S310 - ours
    asked.add_header("Content-Type", "application/json")
    with urlopen(asked, timeout=30) as answer:  # noqa: S310
        assert answer.status == 200
