"""Where every sample gets its randomness: one generator per purpose, so that a draw more in one place moves nothing else."""

from __future__ import annotations

import random


def seeded(seed: int, purpose: str) -> random.Random:
    """A generator of its own for each seed and purpose, the same on every machine."""
    return random.Random(f"{purpose} {seed}")  # noqa: S311 - made-up data, not secrets
