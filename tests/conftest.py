"""What every test folder shares: real servers (`stack`), and a home that is never the developer's own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest_plugins = ["stack.pytest_plugin"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and every process that a test interrupts would be as deaf.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State, cache and settings of whoever runs the tests stay out of them; downloaded jars are shared."""
    for variable in [
        name for name in os.environ if name.startswith("NEVE_") and not name.startswith(("NEVE_JARS", "NEVE_REQ"))
    ]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("NEVE_STATE__URL", f"sqlite:///{tmp_path / 'state.db'}")
    monkeypatch.setenv("NEVE_CACHE__DIRECTORY", str(tmp_path / "metadata-cache"))
