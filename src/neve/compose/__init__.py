"""The composition root: the one place that names concrete adapters and wires them to the flow.

`place` opens adapters, `operations` calls the flow with them. Every surface opens a `Neve` and asks it.
"""

from neve.compose.operations import Neve, SystemClock

__all__ = ["Neve", "SystemClock"]
