"""Two hosts that share a state store, as real processes: one of them in namespaces of its own, where the machine allows it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from neve.errors import LeaseHeldError
from tests.accidents.unguarded import accident
from tests.builders.cleanup_tables import Site
from tests.builders.other_host import OtherHost, everywhere

ANYBODY_S = {
    "neve.commit.lease:is_over": "True",
    "neve.commit.process:is_certainly_gone": "True",
    "neve.commit.lease:Held.assert_held": "None",
    "neve.state.journal:require_owner": "None",
}


@accident(
    "A run that is paused in another container is resumed here, and removes what is committed here when it goes on",
    evidence="a trial of this project: 120 rows unreadable",
    guard="A run is resumed only when its heartbeat has ended or its process certainly has; whoever lost it writes, commits "
    "and removes nothing more.",
    without=everywhere(ANYBODY_S),
    sees="lost files",
)
def test_a_run_is_not_resumed_while_its_process_is_paused_in_another_container(
    site: Site, warehouse: Path, tmp_path: Path
) -> None:
    other = OtherHost(warehouse, tmp_path / "quarantine.db", site.name, "refresh")
    try:
        other.stop()
        (found,) = site.neve.unfinished()
        with suppress(LeaseHeldError):
            site.neve.resume(found.run_id)
        said = other.go_on()
    finally:
        other.kill()
    site.sweep()
    site.assert_whole(main=range(30))
    assert said == "ended done"
    assert site.neve.run(found.run_id).outcome == "done"
