"""The right to work on one table, as the state store hands it out and the flow renews it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lease:
    """Who may work on a table, and until when. `token` grows with each take, so that an earlier holder can be told apart."""

    run_id: str
    owner: str
    token: int
    until_ms: int
