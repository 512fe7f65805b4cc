"""Rules of a real bucket by which it deletes files are told, and a bucket without any is no fault."""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

import pytest

from neve.storage.rules import deleting_rules
from stack.endpoints import S3Endpoint
from stack.servers.s3 import client

pytestmark = pytest.mark.stack


def test_a_rule_of_a_bucket_is_told(s3: S3Endpoint) -> None:
    bucket = f"rules-{uuid4().hex[:8]}"
    properties = {
        "s3.endpoint": s3.endpoint,
        "s3.region": s3.region,
        "s3.access-key-id": s3.access_key,
        "s3.secret-access-key": s3.secret_key,
    }
    with closing(client(s3)) as plain:
        plain.create_bucket(Bucket=bucket)
        assert deleting_rules(properties, f"s3://{bucket}/db/t") == ()
        rule = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "db/"}, "Expiration": {"Days": 30}}
        plain.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
        assert deleting_rules(properties, f"s3://{bucket}/db/t") == (
            f"rule old of bucket {bucket} deletes files under db/ after 30 days, those included that are in use",
        )
        assert deleting_rules(properties, f"s3://{bucket}/other/t") == ()
