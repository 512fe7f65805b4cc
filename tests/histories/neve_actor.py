"""One Neve on its own host: `python -m tests.histories.neve_actor SETTINGS TABLE SKEW_FILE GO_FILE`.

Leases are short, so that a pause outlives them. Every order opens a new Neve on the same Spark. The clock is off by the seconds
that the file has at that moment. An order may stop at a stage until GO_FILE exists.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.histories.schedule import LEASE_SECONDS, ORPHAN_AGE_SECONDS
from tests.histories.serving import Tell, failure, serve, take_host_name
from tests.histories.stages import Stages

_SHORT = {
    "LEASE_MS": round(LEASE_SECONDS * 1000),
    "MARKER_MS": round(LEASE_SECONDS * 2000),
    "RENEW_SECONDS": LEASE_SECONDS / 4,
}


class SkewedClock:
    """The machine's clock, off by what a file says."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + round(float(self._file.read_text() or 0) * 1000)


def shorten_leases() -> None:
    """Sets the durations of leases in every module that names them; fails if one of them is called otherwise now."""
    import neve.commit.lease_terms
    import neve.operations.rewrite_run
    import neve.state.store  # noqa: F401 - the modules that may hold a copy

    changed = set[str]()
    for name, module in list(sys.modules.items()):
        if name.startswith("neve."):
            for constant in _SHORT.keys() & vars(module).keys():
                setattr(module, constant, _SHORT[constant])
                changed.add(constant)
    assert changed == _SHORT.keys(), f"the durations of leases have other names now: {_SHORT.keys() - changed}"


class Actor:
    """Carries out orders on one table."""

    def __init__(self, settings: Path, table: str, skew: Path) -> None:
        from neve.api import Neve
        from neve.settings import load_settings

        shorten_leases()
        self._loaded, self._table, self._clock = load_settings(file=settings), table, SkewedClock(skew)
        self._lasting = Neve.open(self._loaded)
        self._lasting.spark.sql("SELECT 1").collect()

    def _neve(self) -> Any:
        from neve.api import Neve

        neve = Neve.open(self._loaded, clock=self._clock)
        neve.connection.session = self._lasting.spark
        return neve

    def run(self, operation: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        with self._neve() as neve:
            return outcome(getattr(neve, operation)(self._table, *arguments, **options))

    def compact(self, kernel: str | None, tier: str | None) -> dict[str, Any]:
        from neve.rewrite.group import Kernel, Tier
        from neve.rewrite.planner import Request

        request = Request(force=True, kernel=Kernel(kernel) if kernel else None, tier=Tier(tier) if tier else None)
        return self.run("compact", request=request)

    def resume(self, run: str = "") -> dict[str, Any]:
        """As `neve resume [RUN]` does it: a run that is at work elsewhere is left alone."""
        resumed = dict[str, Any]()
        with self._neve() as neve:
            for found in [found for found in neve.unfinished() if found.run_id.startswith(run)]:
                try:
                    neve.require_resumable(found)
                    resumed[found.run_id[:8]] = outcome(neve.resume(found.run_id))
                except Exception as error:
                    resumed[found.run_id[:8]] = failure(error)
        return {"outcome": "done" if resumed else "nothing-to-do", "runs": resumed}

    def unfinished(self) -> list[str]:
        with self._neve() as neve:
            return [run.run_id[:8] for run in neve.unfinished()]

    def roll_back(self, run: str) -> dict[str, Any]:
        with self._neve() as neve:
            return outcome(neve.roll_back(run)) | {"outcome": "done"}

    def orphans(self) -> dict[str, Any]:
        from neve.operations.requests import OrphansRequest

        return self.run("orphans", OrphansRequest(older_than=ORPHAN_AGE_SECONDS, writers_may_be_running=True))


def outcome(record: Any) -> dict[str, Any]:
    """The parts of a record that a log should show."""
    document = record.model_dump(mode="json")
    groups = [
        (one["state"], one.get("reason")) for one in document.get("groups") or () if isinstance(one, dict) and "state" in one
    ]
    found = {key: document[key] for key in ("run_id", "outcome", "taken", "files", "snapshot_after") if document.get(key)}
    if groups:
        found["groups"] = {state: sum(1 for one, _ in groups if one == state) for state, _ in groups}
        found["reasons"] = sorted({reason[:300] for state, reason in groups if reason and state != "committed"})
    return found | ({"expired": len(document["expired"])} if document.get("expired") else {})


def main() -> None:
    take_host_name()

    def start(tell: Tell) -> Any:
        stages = Stages(tell, Path(sys.argv[4]))
        stages.install()
        actor = Actor(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
        calls = {
            "compact": actor.compact,
            "resume": actor.resume,
            "unfinished": actor.unfinished,
            "orphans": actor.orphans,
            "roll-back": actor.roll_back,
            "deletes": lambda operation: actor.run("deletes", operation),
            **{name: partial(actor.run, name) for name in ("expire", "settle", "purge", "maintain", "manifests")},
        }

        def staged(call: Any, stop: list[str] | None = None, **options: Any) -> Any:
            return call(**options) if stop is None else stages.carry_out(stop, partial(call, **options))

        return {name: partial(staged, call) for name, call in calls.items()}, []

    serve(start)


if __name__ == "__main__":
    main()
