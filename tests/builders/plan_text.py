"""The text of a plan, as a terminal shows it."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def shown(content: RenderableType, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(content)
    return out.getvalue().splitlines()
