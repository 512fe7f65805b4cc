"""Where a hadoop catalog may be committed to, for our own Spark session and a caller's alike."""

from __future__ import annotations

import pytest

from neve.errors import BadRequestError
from neve.table.hadoop_commits import refuse_unlocked

LOCAL = "file:///"


@pytest.mark.parametrize(
    ("location", "default_filesystem", "reason"),
    [
        ("/wh/db/t", LOCAL, None),
        ("file:/wh/db/t", "hdfs://n", None),
        ("s3a://b/t", LOCAL, "an object store cannot rename atomically"),
        ("gs://b/t", LOCAL, "an object store cannot rename atomically"),
        ("abfss://c@a.dfs.core.windows.net/t", LOCAL, "an object store cannot rename atomically"),
        ("hdfs://n/wh/t", LOCAL, "Neve cannot verify that a rename on hdfs:// never overwrites a file"),
        ("viewfs://c/wh/t", LOCAL, "Neve cannot verify that a rename on viewfs:// never overwrites a file"),
        ("/wh/db/t", "hdfs://n:8020", "Neve cannot verify that a rename on hdfs:// never overwrites a file"),
        ("/wh/db/t", "s3a://b", "an object store cannot rename atomically"),
    ],
)
def test_only_the_local_disk_needs_no_lock_manager(location: str, default_filesystem: str, reason: str | None) -> None:
    terms = {"default_filesystem": default_filesystem, "hint": "Set a lock manager."}
    refuse_unlocked("c.db.t", location, lock="org.example.Locks", **terms)
    if reason is None:
        refuse_unlocked("c.db.t", location, lock=None, **terms)
        return
    with pytest.raises(BadRequestError) as refused:
        refuse_unlocked("c.db.t", location, lock=None, **terms)
    assert str(refused.value) == (
        f"Cannot commit to c.db.t: it is in a hadoop catalog without a lock manager, and {reason}. "
        "Writers could lose each other's commits"
    )
    assert refused.value.hint == "Set a lock manager."
