"""Neve with its own Spark session in another process; tests send it calls as lines of JSON.

A process can have only one Spark session, and the tests already have one. `Driver` is the client, `main` the other process. A
call that fails returns the error; a process that dies unexpectedly fails the test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from stack.endpoints import RestEndpoint, S3Endpoint


def write_settings(directory: Path, catalog: dict[str, str], s3: S3Endpoint, *, storage_url: str | None = None) -> Path:
    """A neve.yaml with this catalog as `lake`, its storage reached at another address if one is given."""
    keys = {"access-key-id": s3.access_key, "secret-access-key": "${env:TEST_SECRET}"}
    storage = {"s3": {"endpoint": storage_url or s3.endpoint, "region": s3.region, "path-style-access": True, **keys}}
    lake = {**catalog, "storage": storage}
    state = {"url": f"sqlite:///{directory / 'state.db'}"}
    spark = {"master": "local[2]", "driver-memory": "1 GB"}
    file = directory / "neve.yaml"
    file.write_text(yaml.safe_dump({"catalogs": {"lake": lake}, "spark": spark, "state": state, "cache": {"enabled": False}}))
    return file


def at_rest(rest: RestEndpoint, url: str | None = None) -> dict[str, str]:
    """The REST catalog, for such a file."""
    return {"type": "rest", "uri": url or rest.uri, "warehouse": rest.warehouse}


class DriverDiedError(Exception):
    """The other process has ended."""


class Driver:
    """The near side: one call at a time."""

    def __init__(self, settings: Path, s3: S3Endpoint) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in ("NEVE_STATE__URL", "NEVE_CACHE__DIRECTORY")}
        environ = {**kept, "TEST_SECRET": s3.secret_key}
        command = [sys.executable, "-m", "tests.builders.spark_driver", str(settings)]
        self._log = settings.with_name("driver.log").open("a+b")
        self._process = subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets the process end, with its JVM."""
        if self._process.poll() is None:
            self._process.communicate()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                pipe.close()

    def ask(self, what: str, **more: Any) -> Any:
        """The answer to one call; `{"error": ...}` where it failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise DriverDiedError(f"exit code {self._process.wait()}: {self.log()[-3000:]}")
        return json.loads(line)

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Rows of a statement."""
        answer = self.ask("sql", statement=statement)
        assert isinstance(answer, list), answer
        return answer

    def compact_and_die(self, at: str, **more: Any) -> None:
        """A compaction whose process is killed before or after it first calls this function, such as `rewrite:after`."""
        self.ask("die", at=at)
        with pytest.raises(DriverDiedError, match=f"exit code -{signal.SIGKILL.value}"):
            self.ask("compact", **more)

    def log(self) -> str:
        """What the process wrote to stderr so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")


def main(settings: Path) -> None:
    """Answers calls until stdin ends; each call is a fresh start, but for Spark, which would take longest."""
    from neve.api import Neve
    from neve.settings import load_settings

    # Whatever prints to stdout in this process must not meet the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    loaded = load_settings(file=settings)
    with Neve.open(loaded) as lasting:
        for line in sys.stdin:
            call = json.loads(line)
            try:
                with Neve.open(loaded) as neve:
                    neve.connection.session = lasting.spark
                    answer = _CALLS[call.pop("do")](neve, **call)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}", "retryable": getattr(error, "retryable", None)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def _sql(neve: Any, statement: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in neve.spark.sql(statement).collect()]


def _compact(neve: Any, table: str, kernel: str | None = None) -> Any:
    from neve.rewrite.group import Kernel
    from neve.rewrite.planner import Request

    return neve.compact(table, request=Request(force=True, kernel=Kernel(kernel) if kernel else None)).model_dump(mode="json")


def _resume(neve: Any) -> Any:
    return [neve.resume(run.run_id).model_dump(mode="json") for run in neve.unfinished()]


def _runs(neve: Any, table: str) -> Any:
    return [run.record for run in neve.runs(table)]


def _maintain(neve: Any, operation: str, table: str, days: float = 0, **words: Any) -> Any:
    """Any operation besides compaction, by a clock that is so many days ahead; `strike` is a statement that another writer
    gets in before the first commit of an expiry."""
    from neve.operations.requests import OrphansRequest
    from neve.spark.maintenance.expiry import SparkSnapshotRemoval
    from tests.builders.killed_operations import Ahead

    neve.connection.clock = Ahead(days)
    real, strikes = SparkSnapshotRemoval.expire, [words.pop("strike")] if "strike" in words else []

    def struck(*args: Any, **more: Any) -> bool:
        while strikes:
            neve.spark.sql(strikes.pop())
        return real(*args, **more)

    SparkSnapshotRemoval.expire = struck  # type: ignore[method-assign]
    try:
        asked = [OrphansRequest(**words)] if operation == "orphans" else []
        return getattr(neve, operation)(table, *asked, **({} if asked else words)).model_dump(mode="json")
    finally:
        SparkSnapshotRemoval.expire = real  # type: ignore[method-assign]


def _restore(neve: Any, run: str) -> Any:
    return neve.restore(run).model_dump(mode="json")


def _quarantined(neve: Any, table: str) -> Any:
    return {file.path: file.fate.value for file in neve.quarantined(table)}


def _die(neve: Any, at: str) -> None:  # noqa: ARG001 - one shape for all
    from neve.spark.table.bridge import TableBridge
    from neve.state import StateStore

    name, _, moment = at.partition(":")
    owner = next(owner for owner in (StateStore, TableBridge) if hasattr(owner, name))
    real = getattr(owner, name)

    def dying(*args: Any, **options: Any) -> None:
        if moment == "after":
            real(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, dying)


_CALLS: dict[str, Callable[..., Any]] = {"sql": _sql, "compact": _compact, "resume": _resume, "runs": _runs, "die": _die}
_CALLS |= {"maintain": _maintain, "restore": _restore, "quarantined": _quarantined}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
