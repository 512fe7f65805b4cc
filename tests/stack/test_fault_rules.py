"""The proxy's rules without a connection: which requests are hit, what is refused, what counts as what."""

from __future__ import annotations

import pytest

from neve.errors import BadRequestError
from stack.errors import StartFailedError
from stack.proxy import Fault, FaultProxy, Faults, drop
from stack.proxy.requests import kind_of


def test_a_share_is_a_share_and_the_same_every_time() -> None:
    drawn = []
    for _ in range(2):
        faults = Faults(seed=7)
        faults.add(drop(share=0.25))
        drawn.append([bool(faults.draw("GET", "/")) for _ in range(1000)])
    assert drawn[0] == drawn[1]
    assert 200 < sum(drawn[0]) < 300


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "explode"}, "kind 'explode' is none of drop, drop-answer, delay, answer, cut, cut-upload"),
        ({"kind": "drop", "share": 2}, "share 2 is not between 0 and 1"),
        ({"kind": "drop", "times": 0}, "times 0 would never strike"),
        ({"kind": "answer", "status": 200}, "status 200 is no error"),
        ({"kind": "drop", "path": "("}, r"path '\(' is no regular expression"),
        ({"kind": "delay", "seconds": -1}, "seconds and skip cannot be negative"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(BadRequestError, match=f"Cannot make a fault: {message}"):
        Fault(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/", "root"),
        ("/warehouse", "bucket"),
        ("/warehouse/?list-type=2&prefix=db%2F", "list"),
        ("/warehouse/?delete", "delete-batch"),
        ("/warehouse/db/t/data/x.parquet?uploads", "multipart"),
        ("/warehouse/db/t/data/x.parquet?partNumber=1&uploadId=7", "multipart"),
        ("/warehouse/db/t/data/d%3D1/x.parquet", "data"),
        ("/warehouse/db/t/data/x.avro", "data"),
        ("/warehouse/db/t/metadata/snap-1-0-u.avro", "manifest-list"),
        ("/warehouse/db/t/metadata/u-m0.avro", "manifest"),
        ("/warehouse/db/t/metadata/00001-u.metadata.json", "metadata"),
        ("/warehouse/db/t/metadata/1.stats", "statistics"),
        ("/warehouse/anything/else", "object"),
        ("/v1/config?warehouse=w", "config"),
        ("/v1/oauth/tokens", "token"),
        ("/v1/namespaces", "namespaces"),
        ("/v1/namespaces/db", "namespace"),
        ("/v1/prefix/namespaces/db/tables", "tables"),
        ("/iceberg/v1/main/namespaces/db/tables/t", "table"),
        ("/v1/transactions/commit", "transaction"),
    ],
)
def test_kinds_are_told_apart(target: str, kind: str) -> None:
    assert kind_of(target) == kind


def test_an_address_without_http_is_refused() -> None:
    with pytest.raises(StartFailedError, match="Cannot start a proxy: 's3://bucket' is no http address"):
        FaultProxy("s3://bucket")
