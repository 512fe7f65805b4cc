from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neve import doctor
from neve.doctor import DoctorCheck, Status, check_clock, check_disk, check_python, file_clock, http_clock, run_checks
from neve.errors import CatalogUnreachableError, EnvironmentFaultError, MissingExtraError
from neve.spark.runtime import distribution
from neve.spark.runtime.distribution import Distribution
from neve.spark.runtime.java import Java
from neve.spark.runtime.session import SparkOptions

_GIB = 1 << 30


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """A machine with everything: the environment to run the checks in."""
    jar = tmp_path / "iceberg.jar"
    jar.touch()
    monkeypatch.setattr(distribution, "installed", lambda _environ: Distribution(Path("/spark"), "4.1.4", "4.1.4", "2.13"))
    monkeypatch.setattr(distribution, "pyspark_home", lambda: Path("/spark"))
    monkeypatch.setattr(doctor, "find_java", lambda **_: Java(Path("/jdk"), Path("/jdk/bin/java"), 17, "PATH"))
    return {"NEVE_JARS": str(jar), "NEVE_JARS_CACHE": str(tmp_path)}


def statuses(checks: tuple[DoctorCheck, ...]) -> dict[str, str]:
    return {check.name: check.status.value for check in checks}


def test_a_healthy_machine_is_told_so(healthy: dict[str, str], tmp_path: Path) -> None:
    checks = run_checks(environ=healthy, probes={"catalog": lambda: "3 tables", "state store": None})
    by_name = {check.name: check for check in checks}
    assert by_name["spark"] == DoctorCheck("spark", Status.OK, "PySpark 4.1.4 with Spark 4.1.4, Scala 2.13")
    submit = "For spark-submit and pyspark: export JAVA_HOME=/jdk"
    assert by_name["java"] == DoctorCheck("java", Status.OK, "Java 17 from PATH: /jdk", submit)
    java = run_checks(environ={**healthy, "JAVA_HOME": "/jdk"})[2]
    assert java == DoctorCheck("java", Status.OK, "Java 17 from PATH: /jdk")
    assert by_name["jars"] == DoctorCheck("jars", Status.OK, f"iceberg.jar in {tmp_path}")
    assert by_name["catalog"] == DoctorCheck("catalog", Status.OK, "3 tables")
    assert by_name["state store"] == DoctorCheck("state store", Status.SKIP, "not configured")
    assert by_name["clock"] == DoctorCheck("clock", Status.SKIP, "nothing to compare with")
    assert list(by_name) == [
        *("python", "spark", "java", "jars", "catalog", "state store", "clock", "disk for shuffles", "disk for caches"),
    ]


def test_without_pyspark_there_is_a_warning_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_environ: object) -> None:
        raise MissingExtraError("Cannot start Spark: PySpark is not installed", hint="Run pip install 'neve[spark]'.")

    monkeypatch.setattr(distribution, "installed", missing)
    checks = run_checks(start_spark=True, open_session=None)  # type: ignore[arg-type]
    assert checks[1] == DoctorCheck(
        "spark",
        Status.WARN,
        "PySpark is not installed: looking at tables works, rewriting does not",
        "Run pip install 'neve[spark]'.",
    )
    assert {name: status for name, status in statuses(checks).items() if name in ("java", "jars", "session")} == {
        "java": "skip",
        "jars": "skip",
        "session": "skip",
    }


def test_without_java_the_jars_are_not_looked_at(healthy: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def none_fits(**_: object) -> None:
        raise EnvironmentFaultError("Cannot start Spark 4.1.4: it needs Java 17 or 21", hint="Install Java 21.")

    monkeypatch.setattr(doctor, "find_java", none_fits)
    _, _, java, jars, *_ = run_checks(environ=healthy)
    assert java == DoctorCheck("java", Status.FAIL, "Cannot start Spark 4.1.4: it needs Java 17 or 21", "Install Java 21.")
    assert jars == DoctorCheck("jars", Status.SKIP, "not looked at, since java is not usable")


def test_a_missing_jar_says_where_it_was_named(healthy: dict[str, str]) -> None:
    checks = {check.name: check for check in run_checks(environ={**healthy, "NEVE_JARS": "/nowhere.jar"})}
    assert checks["jars"] == DoctorCheck(
        "jars",
        Status.FAIL,
        "Cannot use jar /nowhere.jar: there is no such file",
        "It is named in NEVE_JARS; correct or remove it.",
    )


def test_every_exception_of_a_probe_becomes_a_failed_check(healthy: dict[str, str]) -> None:
    def unreachable() -> str:
        raise CatalogUnreachableError("Cannot reach http://c: refused", hint="Start it.")

    def broken() -> str:
        raise KeyError("x")

    checks = {check.name: check for check in run_checks(environ=healthy, probes={"catalog": unreachable, "warehouse": broken})}
    assert checks["catalog"] == DoctorCheck("catalog", Status.FAIL, "Cannot reach http://c: refused", "Start it.")
    assert checks["warehouse"] == DoctorCheck(
        "warehouse", Status.FAIL, "KeyError: 'x'", "Run again with --debug to see where it comes from."
    )


def test_spark_is_started_only_on_request_and_with_the_given_settings(healthy: dict[str, str]) -> None:
    opened: list[Any] = []

    @contextmanager
    def fake(options: SparkOptions, **more: object) -> Iterator[Any]:
        opened.append((options, more))
        rdd = SimpleNamespace(map=lambda work: SimpleNamespace(collect=lambda: [work(42)]))
        yield SimpleNamespace(
            version="4.1.4",
            sql=lambda _: SimpleNamespace(collect=lambda: [{"answer": 42}]),
            sparkContext=SimpleNamespace(parallelize=lambda *_: rdd),
        )

    assert "session" not in statuses(run_checks(environ=healthy, open_session=fake))
    assert opened == []
    options = SparkOptions(master="local[1]")
    checks = run_checks(
        environ=healthy, open_session=fake, options=options, start_spark=True, catalog_conf={"k": "v"}, needs=["aws"]
    )
    assert opened == [(options, {"catalog_conf": {"k": "v"}, "needs": ["aws"]})]
    (session,) = [check for check in checks if check.name == "session"]
    assert session.status == Status.OK
    assert session.detail.startswith("Spark 4.1.4 ran SQL and Python 3.")


def test_an_old_python_is_refused() -> None:
    assert check_python((3, 11, 0)).status == Status.OK
    assert check_python((3, 10, 9)) == DoctorCheck(
        "python", Status.FAIL, "3.10.9 is too old", "Install Python 3.11 or newer and make a new environment."
    )


@pytest.mark.parametrize(
    ("remote", "status", "detail"),
    [
        (1000.0, "ok", "0.0 s behind the catalog or storage"),
        (1004.0, "ok", "4.0 s behind the catalog or storage"),
        (970.0, "warn", "30.0 s ahead of the catalog or storage"),
        (1061.0, "fail", "61.0 s behind the catalog or storage"),
    ],
)
def test_clocks_are_compared(remote: float, status: str, detail: str) -> None:
    check = check_clock(lambda: remote, local_clock=lambda: 1000.0)
    assert (check.status, check.detail) == (status, detail)
    assert (check.fix is None) == (status == "ok")


def test_a_clock_that_cannot_be_read_is_skipped() -> None:
    def gone() -> float:
        raise OSError("refused")

    assert check_clock(gone) == DoctorCheck("clock", Status.SKIP, "the other clock cannot be read: refused")


def test_reads_the_clock_of_a_web_server_even_from_an_error() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(404)
            self.send_header("Date", "Thu, 01 Jan 2015 00:00:00 GMT")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert http_clock(f"http://127.0.0.1:{server.server_port}/")() == 1_420_070_400
        thread.join()
    with pytest.raises(ValueError, match=r"^Cannot ask file:///etc/passwd for the time: not a web address$"):
        http_clock("file:///etc/passwd")()


def test_reads_the_clock_of_a_file_system(tmp_path: Path) -> None:
    assert check_clock(file_clock(tmp_path)).status == Status.OK
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("gib", "status"), [(50, "ok"), (5, "ok"), (2, "warn"), (0, "fail")])
def test_disk_space_is_judged(tmp_path: Path, gib: int, status: str) -> None:
    check = check_disk("disk for caches", tmp_path / "not" / "there", free=lambda _: gib * _GIB)
    assert (check.status, check.detail) == (status, f"{gib:.1f} GiB free in {tmp_path}/not/there")
    fix = None if status == "ok" else "Free some space, or point NEVE_JARS_CACHE or XDG_CACHE_HOME to a larger disk."
    assert check.fix == fix
