"""Sends our code to executors, once their Python has been checked. Called before any task of ours is sent.

On a local master tasks run on our own interpreter (`task_python`), so nothing is sent. Elsewhere the package travels as a zip,
and the libraries that it needs must be there already (`executor_python`).
"""

from __future__ import annotations

import io
import logging
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile

from neve.spark.runtime.executor_python import trouble_with_executors
from neve.spark.runtime.task_python import runs_on_our_python

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

_prepared: dict[str, str | None] = {}
_SURFACES = frozenset({"cli", "render", "samples", "service"})
"""Packages that no task imports: the contracts in pyproject.toml place them above `spark`."""


def prepare(context: SparkContext) -> str | None:
    """Checks the executors' Python and sends our code, once per session. Returns why they cannot run our tasks, if so."""
    if runs_on_our_python(context):
        return None
    session = str(context.applicationId)
    if session not in _prepared:
        _prepared[session] = reason = trouble_with_executors(context)
        if reason is None:
            _ship(context)
        else:
            log.warning("the kernels copy and arrow are not used: %s", reason)
    return _prepared[session]


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
    """The package without surfaces, named by a hash of its content; empty if it runs from a zip, which Spark already has."""
    root = Path(__file__).parents[2]
    digest, output = sha256(), io.BytesIO()
    with ZipFile(output, "w", ZIP_DEFLATED) as file:
        for path in sorted(root.rglob("*.py")):
            if path.relative_to(root).parts[0] in _SURFACES:
                continue
            name, source = path.relative_to(root.parent).as_posix(), path.read_bytes()
            file.writestr(name, source)
            digest.update(name.encode() + b"\0" + source)
    return f"neve-{digest.hexdigest()[:16]}.zip", output.getvalue() if file.filelist else b""
