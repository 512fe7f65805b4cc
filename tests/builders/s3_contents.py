"""Objects and uploads on S3, and the files that a table's snapshots refer to, read without the code under test."""

from __future__ import annotations

from contextlib import closing

from pyiceberg.table import Table

from stack.endpoints import S3Endpoint
from stack.servers.s3 import client


def objects(s3: S3Endpoint, location: str) -> set[str]:
    """The files under a location. Empty objects that stand for directories are no files: pyarrow makes one when it deletes."""
    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    with closing(client(s3)) as asked:
        pages = asked.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix.rstrip("/") + "/")
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
    return {f"s3://{bucket}/{key}" for key in keys if not key.endswith("/")}


def uploads(s3: S3Endpoint, location: str) -> set[str]:
    """Files under a location whose upload in parts was begun, and neither ended nor given up."""
    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    with closing(client(s3)) as asked:
        found = asked.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", [])
    return {f"s3://{bucket}/{upload['Key']}" for upload in found}


def referenced(table: Table) -> set[str]:
    """Every data and delete file of every snapshot."""
    table.refresh()
    manifests = {m.manifest_path: m for snapshot in table.snapshots() for m in snapshot.manifests(table.io)}
    entries = (e for m in manifests.values() for e in m.fetch_manifest_entry(table.io, discard_deleted=False))
    return {entry.data_file.file_path for entry in entries}
