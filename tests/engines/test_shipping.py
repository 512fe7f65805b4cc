"""What goes to executors: our code as a zip, a look at their Python, and what is said where it will not do. No Spark runs."""

from __future__ import annotations

import io
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyspark
import pytest

import neve
from neve.spark.runtime import executor_python
from neve.spark.runtime.java import Java
from neve.spark.runtime.job_failure import reason_of
from neve.spark.runtime.session import SparkOptions, jvm_environment
from neve.spark.runtime.task_python import task_context
from neve.spark.tasks import shipping

GOOD: dict[str, str | None] = {"numpy": "2.1.0", "pyarrow": "19.0.1", "pydantic": "2.12.0"}
ROOT = Path(neve.__file__).parents[2]


@dataclass
class Context:
    """A Spark context whose executors give these answers."""

    answers: list[dict[str, str | None]] | Exception
    master: str = "spark://host:7077"
    applicationId: str = "app-1"  # noqa: N815 - Spark's name
    defaultParallelism: int = 2  # noqa: N815 - Spark's name
    pythonExec: str = sys.executable  # noqa: N815 - Spark's name
    jobs: int = 0
    listFiles: list[str] = field(default_factory=list)  # noqa: N815 - Spark's name

    def parallelize(self, items: range, slices: int) -> Context:
        assert len(items) == slices == 3 * self.defaultParallelism
        return self

    def map(self, look: Callable[[int], object]) -> Context:
        assert look(0).keys() == GOOD.keys()  # type: ignore[attr-defined]
        return self

    def collect(self) -> list[dict[str, str | None]]:
        self.jobs += 1
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers

    def addPyFile(self, path: str) -> None:  # noqa: N802 - Spark's name
        sys.path.insert(1, path)
        self.listFiles.append(f"file:{path}")


@pytest.fixture(autouse=True)
def fresh_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shipping, "_prepared", {})
    monkeypatch.setattr(pyspark.SparkFiles, "getRootDirectory", lambda: str(tmp_path))


def prepare(context: Context) -> str | None:
    given: Any = context
    return shipping.prepare(given)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
def test_a_local_master_is_sent_nothing(master: str) -> None:
    context = Context([], master=master)
    assert prepare(context) is None
    assert (context.jobs, context.listFiles) == (0, [])


@pytest.mark.parametrize("python", ["python3", "/somewhere/python3.9"])
def test_a_local_session_of_the_callers_own_is_sent_nothing_whatever_python_it_starts(python: str) -> None:
    context = Context([], master="local[2]", pythonExec=python)
    assert prepare(context) is None
    assert (context.jobs, context.listFiles) == (0, [])


def test_a_program_that_embeds_python_is_never_started_as_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/sbin/uwsgi")
    context = Context([GOOD], master="local[2]", pythonExec="python3")
    assert prepare(context) is None
    assert (context.jobs, len(context.listFiles)) == (1, 1)
    given: Any = context
    assert task_context(given) is given


def test_tasks_get_this_interpreter_and_its_import_path_and_the_context_stays_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", ["", "/libraries"])
    context: Any = Context([GOOD], master="local[2]", pythonExec="python3")
    context.environment = {"TZ": "UTC"}
    ours = task_context(context)
    assert ours.pythonExec == sys.executable
    assert ours.environment == {"TZ": "UTC", "PYTHONPATH": f"{Path.cwd()}:/libraries"}
    assert (ours.master, ours.defaultParallelism) == ("local[2]", 2)
    assert ours.parallelize(range(6), 6) is ours  # so that what is made of it has the interpreter too
    assert (context.pythonExec, context.environment) == ("python3", {"TZ": "UTC"})


@pytest.mark.parametrize("changes", [{"pythonExec": sys.executable}, {"master": "spark://host:7077"}])
def test_a_context_whose_python_is_right_or_elsewhere_is_used_as_it_is(changes: dict[str, str]) -> None:
    plain: dict[str, Any] = {"master": "local[2]", "pythonExec": "python3"}
    context: Any = Context([GOOD], **plain | changes)
    assert task_context(context) is context


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"])
def test_a_cluster_is_looked_at_once_and_sent_the_package_once(master: str, tmp_path: Path) -> None:
    context, path = Context([GOOD], master=master), list(sys.path)
    assert [prepare(context), prepare(context)] == [None, None]
    name, content = shipping.package_zip()
    assert (context.jobs, context.listFiles) == (1, [f"file:{tmp_path}/neve/{name}"])
    assert (tmp_path / "neve" / name).read_bytes() == content
    assert sys.path == path


def test_another_session_is_looked_at_anew() -> None:
    assert prepare(Context([GOOD | {"pyarrow": None}])) is not None
    assert prepare(Context([GOOD], applicationId="app-2")) is None


def test_executors_that_will_not_do_are_warned_of_once_and_sent_nothing(caplog: pytest.LogCaptureFixture) -> None:
    context = Context([GOOD, GOOD | {"pyarrow": None}])
    cure = "set PYSPARK_PYTHON to an interpreter that has it, or send it along"
    reason = f"executors have Python without pyarrow; {cure} (docs/guide/cluster.md)"
    assert [prepare(context), prepare(context)] == [reason, reason]
    assert caplog.messages == [f"the kernels copy and arrow are not used: {reason}"]
    assert (context.jobs, context.listFiles) == (1, [])


MISMATCH = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure:
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.7 than
that in driver: 3.11, PySpark cannot run with different minor versions."""


SEND = "set PYSPARK_PYTHON to an interpreter that has it, or send it along"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            MISMATCH,
            "executors have Python 3.7, the driver has {driver}; set PYSPARK_PYTHON to a Python {driver} on the executors",
        ),
        (
            'java.io.IOException: Cannot run program "python3": error=2',
            "executors have no python3; set PYSPARK_PYTHON to an interpreter that the executors have",
        ),
        ("ModuleNotFoundError: No module named 'pydantic'", f"executors have Python without pydantic; {SEND}"),
        ("ModuleNotFoundError: No module named 'neve.table'", f"executors have Python without neve; {SEND}"),
        ("Error from python worker: No module named pyspark", f"executors have Python without pyspark; {SEND}"),
        (
            "Error from python worker:\n  Traceback:\n  SyntaxError: invalid syntax\nPYTHONPATH was:\n  /here\n\tat o.a.Spark",
            (
                "executors have a Python that does not start: SyntaxError: invalid syntax; "
                "set PYSPARK_PYTHON to another interpreter"
            ),
        ),
        ("SparkContext was\nshut down", "executors run no Python tasks: RuntimeError: SparkContext was shut down"),
    ],
)
def test_a_look_that_fails_says_why(text: str, reason: str) -> None:
    driver = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert prepare(Context(RuntimeError(text))) == f"{reason.format(driver=driver)} (docs/guide/cluster.md)"


def test_a_job_that_failed_for_another_reason_is_no_trouble_with_python() -> None:
    assert executor_python.python_trouble(RuntimeError("Python worker exited unexpectedly (crashed)")) is None


ABORTED = "An error occurred while calling z:o.a.collect.\n: o.a.SparkException: Job aborted: Task 1 failed 4 times, "
LOST = "most recent failure: Lost task 1.3 in stage 0.0 (TID 9) (127.0.0.1 executor 1): "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"{ABORTED}{LOST}o.a.SparkException: Python worker crashed.\n\tat o.a.Spark",
            "o.a.SparkException: Python worker crashed.",
        ),
        (f"{ABORTED}{LOST}PythonException: Traceback:\n  File\nKeyError: 'x'\n\n\tat o.a.Spark\n\tat o", "KeyError: 'x'"),
        (
            f"{ABORTED}{LOST}PythonException: Traceback (most recent call last):\n  File\nKeyError: 'x'\n\n\tat o.a.Spark",
            "KeyError: 'x'",
        ),
        (
            f"{ABORTED}{LOST}InvalidRecordException: n not found in message m {{\n  optional int64 id;\n}}\n\n\tat o.a.Spark",
            "InvalidRecordException: n not found in message m {",
        ),
        (
            "An error occurred while calling o7.count.\n: o.a.SparkException: stopped\nby (x)\n\tat o.a",
            "o.a.SparkException: stopped",
        ),
        (
            f"{ABORTED}{LOST}java.lang.ClassCastException: no decimal\n\nDriver stacktrace:\n\tat o.a.Spark",
            "java.lang.ClassCastException: no decimal",
        ),
        ("two\nlines", "RuntimeError: two lines"),
    ],
)
def test_a_failed_job_is_told_in_the_words_of_its_last_task(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason


NEWER = "set PYSPARK_PYTHON to an interpreter that has it newer, or send it along"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({}, None),
        ({"pyarrow": "26.0.0", "pydantic": "3.0"}, None),
        ({"pyarrow": "18.9.9"}, f"executors have pyarrow 18.9.9, older than 19; {NEWER}"),
        ({"pydantic": "2.9.2"}, f"executors have pydantic 2.9.2, older than 2.12; {NEWER}"),
        (
            {"numpy": None, "pydantic": None},
            (
                "executors have Python without numpy and pydantic; "
                "set PYSPARK_PYTHON to an interpreter that has them, or send them along"
            ),
        ),
    ],
)
def test_what_executors_lack_is_named(found: dict[str, str | None], reason: str | None) -> None:
    assert executor_python.lacking([GOOD, GOOD | found]) == (reason and f"{reason} (docs/guide/cluster.md)")


def test_tasks_need_the_versions_that_the_package_asks_for() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {f"{name}>={least}" for name, least in executor_python.NEEDS.items()} <= set(asked)


IMPORTS = """
import sys
before = set(sys.modules)
from neve.spark.tasks.order_task import run_task
import neve.storage.files, neve.kernels.orders, neve.kernels.parquet.copying, neve.kernels.arrow
print(neve.__file__)
files = {name.partition(".")[0]: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
print(*sorted(name for name, file in files.items() if "site-packages" in file and name not in before))
"""


def test_the_zip_is_all_that_tasks_need_besides_three_libraries(tmp_path: Path) -> None:
    name, content = shipping.package_zip()
    (tmp_path / name).write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], cwd=tmp_path, env={"PYTHONPATH": name}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    file, libraries = done.stdout.splitlines()
    assert file.startswith(f"{tmp_path}/{name}/")
    with_their_own = {"annotated_types", "pydantic_core", "typing_extensions", "typing_inspection"}
    assert set(libraries.split()) - with_their_own == set(executor_python.NEEDS)


def test_the_zip_holds_the_package_without_surfaces_and_its_name_tells_its_content() -> None:
    name, content = shipping.package_zip()
    with ZipFile(io.BytesIO(content)) as file:
        assert file.read("neve/storage/files.py") == (ROOT / "src" / "neve" / "storage/files.py").read_bytes()
        assert not [entry for entry in file.namelist() if entry.startswith(("neve/cli/", "neve/service/"))]
    shipping.package_zip.cache_clear()
    assert shipping.package_zip()[0] == name
    assert len(content) < 1_000_000


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_the_interpreter_of_the_settings_is_the_one_that_workers_get(master: str) -> None:
    options = SparkOptions(master=master, conf={"spark.pyspark.python": "./env/bin/python"})
    java = Java(Path("/java"), Path("/java/bin/java"), 17, "test")
    assert jvm_environment(options, java)["PYSPARK_PYTHON"] == "./env/bin/python"
