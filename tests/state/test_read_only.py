"""A store where nothing can be written says so in one line: which store, why, and what to do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from neve.errors import StateError
from neve.state import Run, StateStore, admin

NOBODY = 65534


@contextmanager
def as_a_user() -> Iterator[None]:
    """Root may write anywhere: where root runs the tests, it is another user for a while."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that every user can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


@pytest.fixture
def store_file(directory: Path) -> Path:
    """A store whose file can only be read."""
    file = directory / "state.db"
    StateStore.open(f"sqlite:///{file}").close()
    file.chmod(0o444)
    return file


def refusal(act: Callable[[str], object], file: Path) -> tuple[str, str | None]:
    with as_a_user(), pytest.raises(StateError) as caught:
        act(f"sqlite:///{file}")
    assert "\n" not in str(caught.value)
    return str(caught.value), caught.value.hint


def test_a_store_cannot_be_made_in_a_read_only_directory(directory: Path) -> None:
    directory.chmod(0o555)
    assert refusal(StateStore.open, directory / "state.db") == (
        f"Cannot open state store {directory}/state.db: Permission denied",
        "Make its directory writable, or set state.url.",
    )
    assert refusal(StateStore.open, directory / "deep" / "state.db") == (
        f"Cannot create state store directory {directory}/deep: Permission denied",
        "Make its parent writable, or set state.url.",
    )
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("act", [StateStore.open, admin.upgrade])
def test_a_store_in_a_read_only_directory_cannot_be_written(store_file: Path, act: Callable[[str], object]) -> None:
    store_file.with_name("state.db.lock").chmod(0o444)
    store_file.parent.chmod(0o555)
    message = f"Cannot open state store {store_file}: Permission denied"
    assert refusal(act, store_file) == (message, "Make its directory writable, or set state.url.")


@pytest.mark.parametrize("act", [StateStore.open_existing, admin.describe, admin.backup, lambda url: admin.prune(url, 1)])
def test_a_store_in_a_read_only_directory_cannot_be_read_either(store_file: Path, act: Callable[[str], object]) -> None:
    store_file.parent.chmod(0o555)
    message = f"Cannot read state store sqlite:///{store_file}: its file or its directory is read-only"
    assert refusal(act, store_file) == (message, "Make both writable, or set state.url.")


def test_a_read_only_file_in_a_writable_directory_refuses_the_first_write(store_file: Path) -> None:
    store_file.parent.chmod(0o777)
    store_file.with_name("state.db.lock").chmod(0o666)

    def write(url: str) -> None:
        with StateStore.open(url) as store:
            store.start_run(Run("r1", "t", "db.t", "compact", 1))

    message = f"Cannot write to state store sqlite:///{store_file}: its file or its directory is read-only"
    assert refusal(write, store_file) == (message, "Make both writable, or set state.url.")
