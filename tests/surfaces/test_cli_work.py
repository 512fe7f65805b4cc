"""`neve work`: an order in, a result or an error out, and nothing left behind by a failure."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import docs_check
import duckdb
import jsonschema
import pytest
from typer.testing import CliRunner

from neve.rewrite.group import Kernel
from neve.rewrite.work_order import WorkResult
from tests.builders.parquet_files import sample_table
from tests.builders.shown_commands import shell_lines
from tests.builders.work_orders import make_order

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
ORDER_SCHEMA = json.loads((REFERENCE / "work-order.schema.json").read_text(encoding="utf-8"))
RESULT_SCHEMA = json.loads((REFERENCE / "work-result.schema.json").read_text(encoding="utf-8"))

REMOTE = {"path": "s3://b/a.parquet", "size_bytes": 100, "records": 1}

Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Writes an order over two files to order.json, with these fields changed."""

    def write(**changes: Any) -> Path:
        order = make_order(tmp_path, [sample_table(100), sample_table(50, start=100)])
        place = tmp_path / "order.json"
        place.write_text(json.dumps({**order.model_dump(mode="json"), **changes}))
        return place

    return write


class Store(ThreadingHTTPServer):
    """An object store that lets nobody in, after a while if it is told to wait; remembers who asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusing)
        self.credentials: list[str] = []
        self.asked, self.answering = Event(), Event()
        self.answering.set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Refusing(BaseHTTPRequestHandler):
    server: Store

    def do_HEAD(self) -> None:
        self.server.credentials.append(self.headers["Authorization"])
        self.server.asked.set()
        self.server.answering.wait(timeout=60)
        self.send_response(403)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.answering.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def settings(store: Store, fresh_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two catalogs in the working directory, each with its own key to the store."""

    def described(name: str) -> dict[str, Any]:
        s3 = {"endpoint": store.endpoint, "region": "x", "access-key-id": f"of-{name}", "secret-access-key": "${env:SECRET}"}
        return {"type": "rest", "uri": "http://127.0.0.1:1", "storage": {"s3": s3}}

    (fresh_machine / "neve.json").write_text(json.dumps({"catalogs": {name: described(name) for name in ("lake", "other")}}))
    monkeypatch.setenv("SECRET", "hidden")


def left_behind(directory: Path) -> list[str]:
    """Everything but the order, its inputs and the machine's own directories."""
    known = {directory / name for name in ("order.json", "in", "home", "work", "out")}
    return sorted(
        str(p.relative_to(directory)) for p in directory.rglob("*") if not known & {p, *p.parents} or p.match("out/*")
    )


def error_of(result: Any) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(result.stdout)["error"]
    return error


def test_a_result_is_written_to_the_file_and_names_files_that_hold_every_row(neve: Any, written: Write, tmp_path: Path) -> None:
    done = neve("work", str(written()), "--out", str(tmp_path / "result.json"))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    result = WorkResult.model_validate_json((tmp_path / "result.json").read_text())
    assert (result.order_id, result.group_id, result.kernel, result.rows_read) == ("o", 7, Kernel.COPY, 150)
    paths = [output.path for output in result.outputs]
    assert duckdb.sql(f"SELECT count(*), sum(id) FROM read_parquet({paths})").fetchall() == [(150, sum(range(150)))]
    assert left_behind(tmp_path) == sorted([*(f"out/{Path(path).name}" for path in paths), "result.json"])


def test_a_result_replaces_an_older_one(neve: Any, written: Write, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    out.write_text("an older result")
    assert neve("work", str(written()), "--out", str(out)).exit_code == 0
    assert WorkResult.model_validate_json(out.read_text()).rows_read == 150


def test_order_and_result_go_through_standard_input_and_output(spawn: Any, written: Write) -> None:
    with written().open() as order:
        stdout, stderr = spawn("work", "-", stdin=order).communicate(timeout=60)
    assert stderr == ""
    assert WorkResult.model_validate_json(stdout).rows_read == 150


def test_orders_and_results_are_as_their_schemas_say(neve: Any, written: Write) -> None:
    order = written()
    jsonschema.validate(json.loads(order.read_text()), ORDER_SCHEMA)
    result = json.loads(neve("work", str(order)).stdout)
    jsonschema.validate(result, RESULT_SCHEMA)
    for document, schema in ((json.loads(order.read_text()), ORDER_SCHEMA), (result, RESULT_SCHEMA)):
        with pytest.raises(jsonschema.ValidationError, match="4 was expected"):
            jsonschema.validate({**document, "format_version": 5}, schema)


def test_an_order_that_every_kernel_refuses_fails_with_the_reasons(neve: Any, written: Write, tmp_path: Path) -> None:
    settings = {"min_chunk_bytes": 10**9}
    done = neve("work", str(written(kernels=["copy", "spark"], write=settings)), "--out", str(tmp_path / "result.json"))
    assert done.exit_code == 1
    error = error_of(done)
    assert error["code"] == "order-failed"
    assert error["message"].startswith("Cannot rewrite group 7: copy: ")
    assert error["message"].endswith("; spark: it needs a Spark session, and an order runs without one")
    assert done.stderr.startswith(f"Error: {error['message']}\n")
    assert left_behind(tmp_path) == []


def test_a_failure_leaves_an_older_result_alone(neve: Any, written: Write, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("an older result")
    assert neve("work", str(written(kernels=["spark"])), "--out", str(tmp_path / "result.json")).exit_code == 1
    assert (tmp_path / "result.json").read_text() == "an older result"
    assert left_behind(tmp_path) == ["result.json"]


def test_an_input_that_is_gone_fails_and_leaves_nothing(neve: Any, written: Write, tmp_path: Path) -> None:
    order = written()
    (tmp_path / "in" / "1.parquet").unlink()
    done = neve("work", str(order), "--out", str(tmp_path / "result.json"))
    assert (done.exit_code, error_of(done)["code"], error_of(done)["retryable"]) == (1, "missing-file", False)
    assert error_of(done)["message"] == f"Cannot open {tmp_path}/in/1.parquet: No such file or directory"
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "reason", "hint"),
    [
        (
            {"format_version": 5, "unheard_of": 1},
            "its format version 5 is newer than 4",
            "Run it with the release that made it.",
        ),
        (
            {"unheard_of": 1},
            "unheard_of: Extra inputs are not permitted",
            "docs/reference/work-order.schema.json says what an order looks like.",
        ),
        (
            {"inputs": [{"path": "a"}], "group_id": "x"},
            "group_id: Input should be a valid integer, unable to parse string as an integer (and 3 more)",
            "docs/reference/work-order.schema.json says what an order looks like.",
        ),
    ],
)
def test_what_is_no_order_of_ours_is_a_bad_request(
    neve: Any, written: Write, tmp_path: Path, changes: dict[str, Any], reason: str, hint: str
) -> None:
    order = written(**changes)
    done = neve("work", str(order), "--out", str(tmp_path / "result.json"))
    assert done.exit_code == 2
    message = f"Cannot read order {order}: {reason}"
    assert error_of(done) == {"code": "bad-request", "message": message, "hint": hint, "retryable": False}
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"order_id": ', "it is no JSON (Expecting value: line 1 column 14 (char 13))"),
        (b"\xff\xfe\xfd", "it is no JSON ('utf-16-le' codec can't decode byte 0xfd in position 2: truncated data)"),
        (b"[1, 2]", "Input should be a valid dictionary or instance of WorkOrder"),
    ],
)
def test_what_is_no_json_object_is_a_bad_request(content: bytes, reason: str) -> None:
    from neve.cli.app import app

    done = CliRunner().invoke(app, ["work", "-"], input=content, prog_name="neve")
    assert (done.exit_code, error_of(done)["message"]) == (2, f"Cannot read order -: {reason}")


def test_a_file_that_is_not_there_is_a_bad_request(neve: Any) -> None:
    done = neve("work", "nowhere.json")
    assert (done.exit_code, error_of(done)["message"]) == (2, "Cannot read order nowhere.json: No such file or directory")


@pytest.mark.parametrize(("out", "reason"), [("missing/result.json", "No such file or directory"), ("in", "it is a directory")])
def test_a_place_that_cannot_take_the_result_is_refused_before_any_work(
    neve: Any, written: Write, tmp_path: Path, out: str, reason: str
) -> None:
    done = neve("work", str(written()), "--out", str(tmp_path / out))
    assert (done.exit_code, error_of(done)["message"]) == (2, f"Cannot write result {tmp_path / out}: {reason}")
    assert left_behind(tmp_path) == []


def test_a_result_that_cannot_be_completed_is_not_there(
    neve: Any, written: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    done = neve("work", str(written()), "--out", str(tmp_path / "result.json"))
    assert (done.exit_code, error_of(done)["code"]) == (1, "storage-failed")
    assert error_of(done)["message"] == f"Cannot write result {tmp_path}/result.json: No space left on device"
    assert [path for path in left_behind(tmp_path) if not path.startswith("out/")] == []


def test_what_a_killed_process_of_the_same_id_left_is_in_nobodys_way(neve: Any, written: Write, tmp_path: Path) -> None:
    """In a container the process id is the same each time."""
    (tmp_path / f".result.json.{os.getpid()}.partial").touch()
    assert neve("work", str(written()), "--out", str(tmp_path / "result.json")).exit_code == 0


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("settings")
def test_an_order_that_is_stopped_leaves_nothing(
    spawn: Any, written: Write, tmp_path: Path, store: Store, stop: signal.Signals
) -> None:
    store.answering.clear()
    process = spawn("work", str(written(table="lake.db.t", inputs=[REMOTE])), "--out", str(tmp_path / "result.json"))
    assert store.asked.wait(timeout=60)
    assert [path.split(".")[-1] for path in left_behind(tmp_path)] == ["partial", "partial"]
    process.send_signal(stop)
    store.answering.set()
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (130, "", "Interrupted\n")
    assert left_behind(tmp_path) == []


def test_an_order_runs_where_there_is_neither_spark_nor_a_catalog_client(spawn: Any, written: Write, tmp_path: Path) -> None:
    blocked = tmp_path / "work" / "sitecustomize.py"
    blocked.write_text(
        "import sys\nfor name in ('pyspark', 'py4j', 'pyiceberg', 'sqlalchemy'):\n    sys.modules[name] = None\n"
    )
    process = spawn("work", str(written()), env={**os.environ, "PYTHONPATH": str(blocked.parent)})
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    assert WorkResult.model_validate_json(stdout).rows_read == 150


def test_an_order_of_a_catalog_that_is_not_described_here_uses_what_the_machine_grants(neve: Any, written: Write) -> None:
    done = neve("work", str(written(table="elsewhere.db.events")))
    assert done.exit_code == 0, done.stderr
    assert WorkResult.model_validate_json(done.stdout).rows_read == 150


@pytest.mark.parametrize(
    ("table", "more", "key"),
    [
        ("lake.db.t", [], "of-lake"),
        ("lake.db.t", ["--catalog", "other"], "of-lake"),
        ("x.t", ["--catalog", "other"], "of-other"),
    ],
)
@pytest.mark.usefixtures("settings")
def test_storage_is_opened_as_the_catalog_of_the_order_says_or_else_the_default_one(
    spawn: Any, written: Write, store: Store, table: str, more: list[str], key: str
) -> None:
    process = spawn("work", str(written(table=table, inputs=[REMOTE])), *more)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, json.loads(stdout)["error"]["code"]) == (2, "access-denied")
    assert "hidden" not in stdout + stderr
    assert store.credentials
    assert all(f"Credential={key}/" in asked for asked in store.credentials)


GUIDE = REFERENCE.parent / "guide" / "work-orders.md"
[SHELL] = [block for block in docs_check.split_page(GUIDE.read_text(encoding="utf-8"))[1] if block.language == "console"]


@pytest.mark.parametrize("line", shell_lines(SHELL))
def test_a_line_of_the_guide_runs_in_a_shell(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pipes and xargs as they are, over two orders in the working directory."""
    for name in ("neve-1f0c", "neve-2b7d"):
        (tmp_path / name).mkdir()
        order = make_order(tmp_path / name, [sample_table(100), sample_table(50, start=100)])
        Path(f"{name}.order.json").write_text(order.model_dump_json(), encoding="utf-8")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    subprocess.run(["bash", "-o", "pipefail", "-c", line], check=True, capture_output=True, timeout=120)
    done = sorted(Path().glob("*.result.json"))
    assert len(done) == (2 if "xargs" in line else 1)
    for file in done:
        jsonschema.validate(json.loads(file.read_text(encoding="utf-8")), RESULT_SCHEMA)
