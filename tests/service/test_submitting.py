"""What a submit target hands to spark-submit, and that its program ends with the worker that waits for it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from neve.api import Neve
from neve.service.parent_watch import interrupted_without, is_running
from neve.settings import load_settings

SETTINGS = """
catalogs:
  lake:
    type: sql
    uri: sqlite:///lake.db
    warehouse: lake
service:
  targets:
    cluster:
      kind: submit
      master: local[1]
      conf:
        spark.secret: ${env:SECRET}
        spark.plain: 2
"""


def test_references_in_the_properties_of_a_target_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "neve.yaml").write_text(SETTINGS, encoding="utf-8")
    given: dict[str, str] = {}

    def note(options: Any, **_: Any) -> None:
        given.update(options.conf)

    monkeypatch.setattr("neve.spark.runtime.submission.submission", note)
    environ = {"SECRET": "hush"}
    with Neve.open(load_settings(file=tmp_path / "neve.yaml", environ=environ), environ=environ) as neve:
        target = neve.connection.settings.service.targets["cluster"]
        neve.connection.submission(tmp_path / "program.py", target, tmp_path)
    assert (given["spark.secret"], given["spark.plain"]) == ("hush", "2")


def sleeping(seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"])


def _wait_and_go_on(worker: subprocess.Popen[bytes]) -> None:
    worker.wait()
    time.sleep(30)


def test_a_program_is_interrupted_when_its_worker_has_ended() -> None:
    worker = sleeping(60)
    end = threading.Timer(0.1, worker.kill)
    end.start()
    with pytest.raises(KeyboardInterrupt), interrupted_without(worker.pid, look_seconds=0.05):
        _wait_and_go_on(worker)
    assert not is_running(worker.pid)


def test_a_program_whose_worker_waits_is_left_alone() -> None:
    worker = sleeping(60)
    try:
        with interrupted_without(worker.pid, look_seconds=0.01), interrupted_without(None):
            time.sleep(0.2)
    finally:
        worker.kill()
        worker.wait()


def test_a_worker_that_ends_after_its_program_interrupts_nothing() -> None:
    worker = sleeping(60)
    with interrupted_without(worker.pid, look_seconds=0.05):
        pass
    worker.kill()
    worker.wait()
    time.sleep(0.2)  # time for an interrupt to arrive here, where it would end the test
