"""What goes to executors: a look at their Python, our code, and the task that carries out one order there. Called by `rewrite`.

On a local master tasks run on our own interpreter (`task_python`), so nothing is sent. Elsewhere the package travels as a zip,
and what it needs besides (`NEEDS`) must be there already: where it is not, the reason is known before any task of ours starts.
"""

from __future__ import annotations

import gc
import io
import logging
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile
from zipimport import zipimporter

from neve.commit.failure import Failure
from neve.errors import AccessDeniedError, NeveError
from neve.rewrite.work_order import FailedOrder, WorkOrder
from neve.spark.runtime.limits import keep_within_limit
from neve.spark.runtime.task_python import runs_on_our_python

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

NEEDS = {"numpy": "1.26", "pyarrow": "19", "pydantic": "2.10"}
"""What tasks import besides our own code, and from which version on."""

TASK_ATTEMPTS = 4
DONE, REFUSED, DENIED, FAILED, CRASHED = "done", "refused", "denied", "failed", "crashed"
Answer = tuple[str, str, int]
"""What a task says: one of these words, the result or the reason, and how many attempts there were before it. Who crashed says
more: a `FailedOrder` with its traceback."""

_GUIDE = "docs/guide/cluster.md"
_MOST_PROBES = 200
_LONGEST = 500
_TROUBLES = (
    (
        r"PYTHON_VERSION_MISMATCH.*?(\d+\.\d+)",
        "executors have Python {0}, the driver has {driver}",
        "set PYSPARK_PYTHON to a Python {driver} on the executors",
    ),
    (
        r"No module named '?(\w+)",
        "executors have Python without {0}",
        "set PYSPARK_PYTHON to an interpreter that has it, or send it along",
    ),
    (
        r'Cannot run program "([^"]+)"',
        "executors have no {0}",
        "set PYSPARK_PYTHON to an interpreter that the executors have",
    ),
    (
        r"Error from python worker:.*?(\w+Error: [^\n]+)",
        "executors have a Python that does not start: {0}",
        "set PYSPARK_PYTHON to another interpreter",
    ),
)
"""How a failure looks, what it means, and what to do about it."""
_prepared: dict[str, str | None] = {}


def prepare(context: SparkContext) -> str | None:
    """Looks at the executors' Python and sends our code, once per session. Returns why they cannot run our tasks, if so."""
    if runs_on_our_python(context):
        return None
    session = str(context.applicationId)
    if session not in _prepared:
        _prepared[session] = reason = _look(context)
        if reason is None:
            _ship(context)
        else:
            log.warning("the kernels copy and arrow are not used: %s", reason)
    return _prepared[session]


def python_trouble(error: Exception) -> str | None:
    """What is wrong with the executors' Python, if a job failed because of that."""
    text = str(error)
    driver = ".".join(map(str, sys.version_info[:2]))
    for pattern, trouble, cure in _TROUBLES:
        if found := re.search(pattern, text, re.DOTALL):
            return f"{trouble.format(found[1], driver=driver)}; {cure.format(driver=driver)} ({_GUIDE})"
    return None


def _look(context: SparkContext) -> str | None:
    """A few tasks for each core, because nobody can say which executor gets which."""
    tasks = min(_MOST_PROBES, 3 * context.defaultParallelism)
    try:
        seen = context.parallelize(range(tasks), tasks).map(_probe(tuple(NEEDS))).collect()
    except Exception as error:  # Spark's failures come as many types
        return python_trouble(error) or f"executors run no Python tasks: {reason_of(error)} ({_GUIDE})"
    return lacking(seen)


def lacking(seen: Iterable[Mapping[str, str | None]]) -> str | None:
    """What some executor lacks of what tasks need; `seen` are the versions that each probe found."""
    seen = list(seen)
    missing = [name for name in NEEDS if any(versions[name] is None for versions in seen)]
    if missing:
        them = "them" if len(missing) > 1 else "it"
        cure = f"set PYSPARK_PYTHON to an interpreter that has {them}, or send {them} along"
        return f"executors have Python without {' and '.join(missing)}; {cure} ({_GUIDE})"
    for name, least in NEEDS.items():
        for version in sorted({str(versions[name]) for versions in seen}):
            if _numbers(version) < _numbers(least):
                cure = "set PYSPARK_PYTHON to an interpreter that has it newer, or send it along"
                return f"executors have {name} {version}, older than {least}; {cure} ({_GUIDE})"
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _probe(names: tuple[str, ...]) -> Callable[[int], dict[str, str | None]]:
    # A function within a function is sent as it is: the executor need not import this module, which it may not have.
    def versions(_: int) -> dict[str, str | None]:
        from importlib import import_module

        found: dict[str, str | None] = {}
        for name in names:
            try:
                found[name] = str(import_module(name).__version__)
            except Exception:  # a library that is there and does not load, such as for another NumPy, is of no use either
                found[name] = None
        return found

    return versions


def _ship(context: SparkContext) -> None:
    """Spark hands the file to executors that come later, too, so it lies where it goes away with the session."""
    from pyspark import SparkFiles

    name, content = package_zip()
    if not content or any(path.endswith(f"/{name}") for path in context.listFiles):
        return
    directory = Path(SparkFiles.getRootDirectory(), "neve")
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(content)
    before = list(sys.path)
    context.addPyFile(str(directory / name))
    sys.path[:] = before  # the driver has the package already, and its process may be the caller's


@cache
def package_zip() -> tuple[str, bytes]:
    """The package, under a name that tells its content; empty where it runs from a zip itself, which Spark was given then."""
    root = Path(__file__).parents[2]
    digest, output = sha256(), io.BytesIO()
    with ZipFile(output, "w", ZIP_DEFLATED) as file:
        for path in sorted(root.rglob("*.py")):
            name, source = path.relative_to(root.parent).as_posix(), path.read_bytes()
            file.writestr(name, source)
            digest.update(name.encode() + b"\0" + source)
    return f"neve-{digest.hexdigest()[:16]}.zip", output.getvalue() if file.filelist else b""


def run_task(payload: tuple[str, Mapping[str, str]]) -> Answer:
    """In a Python worker: carries out one order, given as JSON beside the storage's properties."""
    from pyspark import TaskContext

    keep_within_limit()
    try:
        word, text = _carry_out(*payload)
    finally:
        _ease_next_task()
    context = TaskContext.get()
    return word, text, context.attemptNumber() if context else 0


def _carry_out(text: str, properties: Mapping[str, str]) -> tuple[str, str]:
    """What may pass is tried again here: a task that raises until Spark gives up takes its whole wave along."""
    from neve.kernels.orders import OrderFailedError, run_order
    from neve.storage.files import Storage

    order, storage = WorkOrder.model_validate_json(text), Storage(properties)
    for attempt in range(TASK_ATTEMPTS):
        try:
            return DONE, run_order(order, storage).model_dump_json()
        except (OrderFailedError, ImportError) as error:
            return REFUSED, str(error)
        except AccessDeniedError as error:
            return DENIED, str(error)
        except NeveError as error:
            if not error.retryable or attempt + 1 == TASK_ATTEMPTS:
                return FAILED, str(error)
            time.sleep(2**attempt * random.uniform(0.5, 1.5))  # noqa: S311 - spreads retries, guards nothing
        except Exception as error:
            return CRASHED, crashed(order.group_id, error).model_dump_json()
    raise AssertionError("unreachable")


def crashed(group_id: int, error: BaseException) -> FailedOrder:
    """An order that an unexpected exception ended."""
    failure = Failure.of(error)
    return FailedOrder(group_id=group_id, reason=failure.reason, traceback=failure.traceback)


def _ease_next_task() -> None:
    """Leaves Spark's worker little to do between tasks. Before each it drops import caches, which reads the directory of
    pyspark.zip anew for every package imported from it; after each it collects garbage. Measured: 0.15 s of CPU a task, where
    copying a small group takes less. Finders come back when something is imported."""
    finders = sys.path_importer_cache
    for path in [path for path, finder in finders.items() if isinstance(finder, zipimporter)]:
        finders.pop(path, None)
    _freeze_modules()


@cache
def _freeze_modules() -> None:
    """Once in each worker, when the kernels are imported: what stays for good need not be walked again."""
    gc.collect()
    gc.freeze()


def reason_of(error: Exception) -> str:
    """A failure in one line: of a job's, what the last task said before the JVM's stack."""
    told, is_from_jvm, _ = str(error).partition("\n\tat ")
    if is_from_jvm:
        lines = [line.strip() for line in told.splitlines() if line.strip() and line.strip() != "Driver stacktrace:"]
        return re.sub(r"^.*\(\S+ executor \S+\): ", "", lines[-1] if lines else type(error).__name__)[:_LONGEST]
    return " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
