from __future__ import annotations

import os
from pathlib import Path

import pytest

from neve.settings import Loaded, load_settings
from tests.builders.settings_files import Load


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no NEVE_ variable of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("NEVE_")]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def load(place: Path) -> Load:
    """Loads the text as neve.yaml (or another name), with the variables and flags given."""

    def load(
        text: str | None = None,
        *,
        name: str = "neve.yaml",
        environ: dict[str, str] | None = None,
        flags: dict[str, object] | None = None,
        profile: str | None = None,
    ) -> Loaded:
        if text is not None:
            (place / name).write_text(text)
        file = Path(name) if text is not None else None
        return load_settings(file=file, profile=profile, flags=flags or {}, environ=environ or {})

    return load
