"""Servers that are built or installed by another language's own tool, once, into the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from stack.errors import UnavailableError


def make(server: str, target: Path, command: Sequence[str], *, env: Mapping[str, str], seconds: float) -> Path:
    """Runs the tool in an empty directory and keeps that directory as `target`; what is there already stays.

    `{here}` in the values of `env` stands for the directory.
    """
    if target.is_dir():
        return target
    if shutil.which(command[0]) is None:
        raise UnavailableError(f"Cannot start {server}: {command[0]} is not on the PATH")
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=".new-"))
    try:
        here = {key: value.replace("{here}", str(staging)) for key, value in env.items()}
        _run(server, command, staging, {**os.environ, **here}, seconds)
        if not target.is_dir():
            staging.replace(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _run(server: str, command: Sequence[str], where: Path, env: Mapping[str, str], seconds: float) -> None:
    try:
        done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"Cannot start {server}: {command[0]} took more than {seconds:.0f} s") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise UnavailableError(f"Cannot start {server}: {command[0]} failed", hint=" / ".join(last) or None)
