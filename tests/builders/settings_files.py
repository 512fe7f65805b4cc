"""The type of the fixture that loads a settings file."""

from __future__ import annotations

from collections.abc import Callable

from neve.settings import Loaded

Load = Callable[..., Loaded]
