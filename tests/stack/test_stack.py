"""The servers of the stack, each asked for something only the real thing does right."""

# ruff: noqa: S310 - addresses of our own
from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stack.endpoints import (
    AzureEndpoint,
    GcsEndpoint,
    GlueEndpoint,
    HiveEndpoint,
    NessieEndpoint,
    PostgresEndpoint,
    ProxyEndpoint,
    RestEndpoint,
    S3Endpoint,
    SparkEndpoint,
)
from stack.proxy import FaultProxy, answer, cut, drop_answer
from stack.servers.s3 import client

pytestmark = pytest.mark.stack

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})


def unique(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:8]}"


def fill(catalog: Any, namespace: str, **options: str) -> Any:
    """A new table with three rows."""
    catalog.create_namespace((namespace,), options)
    table = catalog.create_table((namespace, "t"), schema=ROWS.schema)
    table.append(ROWS)
    return table


def test_s3_lets_one_of_many_conditional_writes_win(s3: S3Endpoint) -> None:
    from botocore.exceptions import ClientError

    key, start, outcomes = unique("race"), threading.Barrier(16), []

    def write(number: int) -> None:
        storage = client(s3)
        start.wait()
        try:
            storage.put_object(Bucket=s3.bucket, Key=key, Body=str(number).encode(), IfNoneMatch="*")
            outcomes.append((200, number))
        except ClientError as error:
            outcomes.append((error.response["ResponseMetadata"]["HTTPStatusCode"], number))
        finally:
            storage.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [number for status, number in outcomes if status == 200]
    assert len(winners) == 1
    assert {status for status, _ in outcomes} <= {200, 409, 412}
    reader = client(s3)
    assert reader.get_object(Bucket=s3.bucket, Key=key)["Body"].read() == str(winners[0]).encode()
    reader.close()


def test_s3_refuses_a_wrong_secret(s3: S3Endpoint) -> None:
    from botocore.exceptions import ClientError

    storage = client(s3, secret_key="wrongsecret")
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        storage.list_objects_v2(Bucket=s3.bucket)
    storage.close()


def test_s3_serves_signed_requests_through_the_proxy(s3: S3Endpoint, fault_proxy: Callable[[str], FaultProxy]) -> None:
    from pyarrow import fs, parquet

    front = fault_proxy(s3.endpoint)
    storage = fs.S3FileSystem(endpoint_override=front.url, access_key=s3.access_key, secret_key=s3.secret_key, region=s3.region)
    path = f"{s3.bucket}/{unique('proxied')}/a b=c.parquet"
    parquet.write_table(ROWS, path, filesystem=storage)
    assert parquet.read_table(path, filesystem=storage) == ROWS
    assert front.requests.count(kind="data") > 0
    assert {one.fault for one in front.requests.recent()} == {None}


def test_s3_clients_retry_what_the_proxy_breaks(s3: S3Endpoint, fault_proxy: Callable[[str], FaultProxy]) -> None:
    from pyarrow import fs

    front = fault_proxy(s3.endpoint)
    front.faults.add(answer(503, methods="GET", times=2))
    front.faults.add(cut(methods="GET", skip=1, times=1))
    storage = fs.S3FileSystem(endpoint_override=front.url, access_key=s3.access_key, secret_key=s3.secret_key, region=s3.region)
    path = f"{s3.bucket}/{unique('retried')}"
    with storage.open_output_stream(path) as out:
        out.write(b"0123456789" * 1000)
    with storage.open_input_file(path) as file:
        assert file.read() == b"0123456789" * 1000
    assert [one.fault for one in front.requests.recent() if one.method == "GET"][:2] == ["answer", "answer"]


def test_rest_keeps_what_was_committed(rest: RestEndpoint) -> None:
    from pyiceberg.catalog import load_catalog

    namespace = unique("ns")
    table = fill(load_catalog("stack", **rest.properties()), namespace)
    assert table.location() == f"{rest.warehouse}/{namespace}/t"
    again = load_catalog("other", **rest.properties()).load_table((namespace, "t"))
    assert again.scan().to_arrow() == ROWS


def test_rest_on_files_needs_no_s3(rest_on_files: RestEndpoint) -> None:
    from pyiceberg.catalog import load_catalog

    assert rest_on_files.s3 is None
    table = fill(load_catalog("stack", **rest_on_files.properties()), unique("ns"))
    assert table.scan().to_arrow() == ROWS
    assert table.location().startswith("file:/")


def test_rest_refuses_a_commit_on_an_old_state_with_409(rest: RestEndpoint) -> None:
    from pyiceberg.catalog import load_catalog

    namespace = unique("ns")
    fill(load_catalog("stack", **rest.properties()), namespace)
    stale = {
        "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}],
        "updates": [{"action": "set-properties", "updates": {"late": "yes"}}],
    }
    request = urllib.request.Request(
        f"{rest.uri}/v1/namespaces/{namespace}/tables/t",
        data=json.dumps(stale).encode(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)
    with caught.value as refusal:
        assert refusal.code == 409
        assert json.load(refusal)["error"]["type"] == "CommitFailedException"


def test_rest_commits_although_the_answer_is_lost(rest: RestEndpoint, fault_proxy: Callable[[str], FaultProxy]) -> None:
    from pyiceberg.catalog import load_catalog
    from requests import ConnectionError as Lost

    front, namespace = fault_proxy(rest.uri), unique("ns")
    fill(load_catalog("stack", **rest.properties()), namespace)
    table = load_catalog("proxied", **{**rest.properties(), "uri": front.url}).load_table((namespace, "t"))
    front.faults.add(drop_answer(methods="POST", path="/tables/t$"))
    with pytest.raises(Lost):
        table.append(ROWS)
    landed = load_catalog("direct", **rest.properties()).load_table((namespace, "t"))
    assert landed.scan().to_arrow().num_rows == 2 * ROWS.num_rows
    assert [(one.status, one.fault) for one in front.requests.recent() if one.method == "POST"] == [(None, "drop-answer")]


def test_nessie_serves_iceberg_tables(nessie: NessieEndpoint) -> None:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("nessie", type="rest", uri=nessie.iceberg_uri, **nessie.s3.properties())
    namespace = unique("ns")
    table = fill(catalog, namespace)
    assert table.location().startswith(f"{nessie.warehouse}/{namespace}/t")
    assert catalog.load_table((namespace, "t")).scan().to_arrow() == ROWS


def test_postgres_answers_over_tcp_and_wants_the_password(postgres: PostgresEndpoint) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(postgres.url)
    with engine.connect() as connection:
        assert connection.scalar(sqlalchemy.text("SELECT current_database()")) == postgres.database
        assert connection.scalar(sqlalchemy.text("SELECT host(inet_server_addr())")) == "127.0.0.1"
    engine.dispose()
    wrong = sqlalchemy.create_engine(postgres.url.replace(postgres.password, "wrong"))
    with pytest.raises(sqlalchemy.exc.OperationalError, match="password authentication failed"):
        wrong.connect()


JOB = """
import os, sys, time
from pyspark.sql import SparkSession
session = (
    SparkSession.builder.master(sys.argv[1])
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.executor.memory", "512m").config("spark.ui.enabled", "false")
    .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "90s")
    .getOrCreate()
)
def where(number):
    time.sleep(0.5)
    return os.getcwd().split(os.sep)[-3]
print("RAN", sorted(set(session.sparkContext.parallelize(range(6), 6).map(where).collect())))
session.stop()
"""


@pytest.mark.spark
def test_the_spark_cluster_runs_python_tasks_on_both_workers(spark_cluster: SparkEndpoint, tmp_path: Any) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    job = subprocess.run(
        [sys.executable, str(script), spark_cluster.master],
        env={
            "JAVA_HOME": spark_cluster.java_home,
            "PATH": "/usr/bin:/bin",
            "PYSPARK_PYTHON": sys.executable,
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "RAN ['work1', 'work2']" in job.stdout, job.stderr[-3000:]


def test_glue_serves_iceberg_tables(glue: GlueEndpoint) -> None:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("glue", **glue.properties())
    namespace = unique("ns")
    fill(catalog, namespace)
    assert catalog.load_table((namespace, "t")).scan().to_arrow() == ROWS
    assert catalog.list_tables(namespace) == [(namespace, "t")]


def test_hive_serves_iceberg_tables_and_locks(hive: HiveEndpoint) -> None:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("hive", **hive.properties())
    namespace = unique("ns")
    table = fill(catalog, namespace)
    table.append(ROWS)
    assert catalog.load_table((namespace, "t")).scan().to_arrow().num_rows == 2 * ROWS.num_rows
    assert list(catalog.list_tables(namespace)) == [(namespace, "t")]


def test_gcs_keeps_a_parquet_file(gcs: GcsEndpoint) -> None:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = PyArrowFileIO(gcs.properties())
    place = f"gs://{gcs.bucket}/{unique('t')}/a.parquet"
    with io.new_output(place).create() as out:
        pq.write_table(ROWS, out)
    with io.new_input(place).open() as file:
        assert pq.read_table(file) == ROWS


def test_azure_keeps_a_parquet_file_and_refuses_a_wrong_key(azure: AzureEndpoint) -> None:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = PyArrowFileIO(azure.properties())
    # The full form, container@account, is taken for the container's name by pyiceberg 0.12.
    place = f"abfss://{azure.container}/{unique('t')}/a.parquet"
    with io.new_output(place).create() as out:
        pq.write_table(ROWS, out)
    with io.new_input(place).open() as file:
        assert pq.read_table(file) == ROWS
    wrong = PyArrowFileIO({**azure.properties(), "adls.account-key": "d3Jvbmc="})
    with pytest.raises(OSError, match="403"):
        wrong.new_input(place).open()


def test_the_proxy_server_breaks_what_it_is_told_to(stack_server: Callable[[str], Any]) -> None:
    proxy: ProxyEndpoint = stack_server("proxy")
    fault = json.dumps({"kind": "answer", "status": 503, "path": "/v1/config$", "times": 1}).encode()
    with urllib.request.urlopen(f"{proxy.control}/rest/faults", data=fault, timeout=10) as added:
        assert added.status == 201
    with pytest.raises(urllib.error.HTTPError, match="503") as caught:
        urllib.request.urlopen(f"{proxy.rest}/v1/config", timeout=10)
    caught.value.close()
    with urllib.request.urlopen(f"{proxy.rest}/v1/config", timeout=10) as config:
        assert "endpoints" in json.load(config)
