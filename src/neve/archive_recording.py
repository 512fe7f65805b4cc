"""Records a class-data archive: a process of its own, since its JVM writes the archive when it ends.

Started by `class_archives` as `python -m neve.archive_recording`. It prints nothing but its reason to fail, and ends
itself after some minutes; in the background it runs at the lowest priority.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from neve.context.class_archives import Recording, wanted_for
from neve.errors import EnvironmentFaultError, NeveError

LIMIT_SECONDS = 900
"""A recording takes half a minute on an idle machine; at the lowest priority on a busy one it may take many."""
FAILED = 4
"""The exit code of a recording that failed."""
_TABLE = "jobs.db.t"
_STATEMENTS = (
    f"CREATE TABLE {_TABLE} (id bigint, text string, day date) USING iceberg PARTITIONED BY (day)",
    *[f"INSERT INTO {_TABLE} SELECT id, CAST(id AS string), DATE '2025-01-17' FROM range(0, 9)"] * 3,  # noqa: S608
)
_QUERY = f"SELECT count(*), max(text) FROM {_TABLE} WHERE id > 1"  # noqa: S608


def main(text: str) -> int:
    """The recording process."""
    recording = Recording.parse(text)
    if recording.background:
        _yield_to_everybody()
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(LIMIT_SECONDS)
    try:
        _make(recording)
    except (NeveError, OSError, TimeoutError) as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    return 0


def _yield_to_everybody() -> None:
    with contextlib.suppress(OSError):
        os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _give_up(*_: object) -> None:
    raise TimeoutError(f"Cannot make a class archive: it took more than {LIMIT_SECONDS} s")


def _make(recording: Recording) -> None:
    """Records under the lock; a process that waited for it finds the archive of the other."""
    from neve.spark.runtime import archive_store
    from neve.spark.runtime.class_archive import default_root
    from neve.spark.runtime.session import SparkOptions

    options = SparkOptions(conf=recording.conf, jars=recording.jars, java_home=recording.java_home)
    wanted, _ = wanted_for(options, ())
    root = default_root()
    with archive_store.locked(root, wait=not recording.background) as is_ours:
        if not is_ours or archive_store.is_made(root, wanted):
            return
        try:
            with archive_store.staging(root) as directory:
                run_job(recording, archive_store.recording_options(root, wanted, directory))
                archive_store.publish(root, wanted, directory)
        except Exception as error:
            archive_store.note_failure(root, wanted, str(error))
            raise EnvironmentFaultError(f"Cannot make a class archive: {error}") from error


def run_job(recording: Recording, java_options: Collection[str]) -> None:
    """What a run does, on a table of its own in a temporary directory, so that its classes are loaded."""
    from neve.api import Neve
    from neve.rewrite.group import Kernel
    from neve.rewrite.planner import Request
    from neve.settings import load_settings

    with tempfile.TemporaryDirectory(prefix="neve-archive-", ignore_cleanup_errors=True) as scratch:
        Path(scratch, "warehouse").mkdir()
        file = Path(scratch, "neve.json")
        file.write_text(json.dumps(_settings(recording, java_options, scratch)), encoding="utf-8")
        with Neve.open(load_settings(file=file, environ={}), environ={}) as neve:
            for statement in _STATEMENTS:
                neve.spark.sql(statement)
            neve.compact(_TABLE, request=Request(force=True))
            neve.compact(_TABLE, request=Request(force=True, kernel=Kernel.SPARK))
            neve.maintain(_TABLE)
            neve.spark.sql(_QUERY).collect()


def _settings(recording: Recording, java_options: Collection[str], scratch: str) -> Mapping[str, object]:
    sqlite = any(Path(jar).name.startswith("sqlite-jdbc") for jar in recording.jars)
    options = " ".join([*java_options, "-XX:TieredStopAtLevel=1"])  # the job runs once: compiling it well would take longer
    conf = {**recording.conf, "spark.driver.extraJavaOptions": options}
    return {
        "catalogs": {"jobs": {"type": "sql" if sqlite else "hadoop", "warehouse": f"{scratch}/warehouse"}},
        "state": {"url": f"sqlite:///{scratch}/state.db"},
        "cache": {"directory": f"{scratch}/cache"},
        "spark": {
            "master": "local[1]",
            "driver-memory": "1 GB",
            "jars": list(recording.jars),
            "class-archive": "off",
            "conf": conf,
            **({"java-home": recording.java_home} if recording.java_home else {}),
        },
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
