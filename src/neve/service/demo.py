"""The warehouse of `neve serve --demo`: a directory with settings, policies and a state store of its own, and its writers.

Called by `cli.serve`. Nothing outside the directory is read or changed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from neve.errors import BadRequestError

if TYPE_CHECKING:
    from neve.context.connection import Connection

NAMESPACE = "shop"
_STOP_SECONDS = 20

SETTINGS = """# Made by `neve serve --demo`.
default-catalog: demo
catalogs:
  demo:
    type: sql
    warehouse: {directory}
state:
  url: sqlite:///{directory}/state.db
service:
  tick: 5 s
  inspections: 100
policy:
  cool-down: 0 s
  minor-file-count: 5
  minor-interval: 1 min
  row-change-interval: 1 min
spark:
  driver-memory: 1 GB
log:
  level: info
"""

POLICIES = """# What the demo keeps in order, and when. `neve policy explain shop.clicks` shows what holds for a table.
kind: policy
name: streams
description: Streams leave many small files; merge them as they come.
tables: demo.shop.clicks
operations:
  - name: compact
triggers:
  small-files: 50
  at-most-every: 30 s
set:
  target-file-size: 64 MB
---
kind: policy
name: cdc
description: Updates and deletes leave delete files; apply them before readers suffer.
tables: demo.shop.accounts
operations:
  - name: compact
triggers:
  delete-files: 10
  at-most-every: 30 s
set:
  target-file-size: 64 MB
  delete-ratio: 0.01
---
kind: policy
name: quiet-tables
description: A table with few writes is merged once its files are small on average.
tables: demo.shop.sensors
operations:
  - name: compact
triggers:
  small-files: 6
  at-most-every: 60 s
---
kind: policy
name: history
description: Expires old snapshots of every table. Files go through the quarantine.
tables: demo.shop.*
operations:
  - name: expire
triggers:
  since-last-run: 3 min
set:
  snapshot-keep: 2 min
  snapshot-min-count: 5
"""


def prepare(directory: Path) -> Path:
    """Writes settings and policies into a directory that is empty or has them; returns the settings file."""
    place = directory.resolve()
    settings, policies = place / "neve.yaml", policies_of(directory)
    if place.exists() and any(place.iterdir()) and not (settings.exists() and policies.exists()):
        raise BadRequestError(
            f"Cannot serve a demo in {directory}: it has other files",
            hint="Give --warehouse a new directory, or remove this one.",
        )
    policies.parent.mkdir(parents=True, exist_ok=True)
    for file, text in ((settings, SETTINGS.format(directory=place)), (policies, POLICIES)):
        if not file.exists():
            file.write_text(text, encoding="utf-8")
    return settings


def create_namespace(connection: Connection) -> None:
    """Makes the catalog and its namespace, so that the first round of the service finds them."""
    connection.catalog(connection.default_name()).client.create_namespace_if_not_exists(NAMESPACE)


def policies_of(directory: Path) -> Path:
    """The demo's policies."""
    return directory.resolve() / "policies" / "demo.yaml"


@contextmanager
def writers(settings: Path, *, seed: int = 1) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the writers for the length of a block."""
    command = [sys.executable, "-m", "neve.service.demo_writers", "--config", str(settings), "--seed", str(seed)]
    # A group of its own: Ctrl-C at the terminal stops the service first, which then stops the writers.
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
