"""Puts the service together from an open connection: the scheduler, the notifier, the supervisor, and a worker.

Called by `cli.serve` and `cli.worker`; everything else in this package gets its collaborators handed in.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from neve.errors import BadRequestError, EnvironmentFaultError
from neve.policy.document import TeamDocument
from neve.scheduling.job import JobState
from neve.service.carrying_out import carry_out
from neve.service.process_health import is_spark_dead, reason_to_leave
from neve.service.reporting import Concurrency, Reporter
from neve.service.scheduler import Scheduler
from neve.service.serving import Serving
from neve.service.submitting import Submitter
from neve.service.supervisor import Supervisor
from neve.service.worker import Worker
from neve.table.units import counted

if TYPE_CHECKING:
    from neve.api import Neve
    from neve.settings import ServiceSettings, TargetSettings
    from neve.state import StateStore


log = logging.getLogger(__name__)

_LEAST_PATIENCE_SECONDS = 60.0


def process_name() -> str:
    """A name for this process that no other one has, on any host."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"


@contextmanager
def open_serving(neve: Neve, worker_command: Sequence[str]) -> Iterator[Serving]:
    """The service of this process. Workers are started by the command, with their name, target and its settings added."""
    connection, name = neve.connection, process_name()
    settings = connection.settings.service
    with connection.store() as store, connection.store() as senders_store:
        scheduler = Scheduler(connection, store, holder=name)
        supervisor = Supervisor(
            worker_commands(settings, worker_command, process=name),
            grace_seconds=settings.shutdown_grace_seconds,
            patience_seconds=max(_LEAST_PATIENCE_SECONDS, settings.claim_seconds),
            # Ctrl-C at a terminal reaches this process alone, which then stops its workers.
            spawn=lambda command: subprocess.Popen(command, start_new_session=True),
        )
        try:
            yield Serving(
                scheduler.tick,
                _sender(neve, senders_store),
                lambda: {one.worker for one in senders_store.roles.live_workers(connection.clock.now_ms())},
                supervisor,
                settings.tick_seconds,
            )
        finally:
            scheduler.release()


def worker_commands(settings: ServiceSettings, command: Sequence[str], *, process: str) -> dict[str, list[str]]:
    """The command of each worker of a process, by its name."""
    common = [*command, "--parent", str(os.getpid())]
    return {
        (name := f"{process}-{target}-{number}"): [*common, "--name", name, "--target", target, *_target_flags(described)]
        for target, described in settings.all_targets().items()
        for number in range(1, described.max_concurrency + 1)
    }


def _target_flags(target: TargetSettings) -> list[str]:
    """The settings by which a worker's session is that of its target."""
    if target.kind == "submit":
        return []
    master = {} if target.master is None else {"spark.master": target.master}
    values = master | {f"spark.conf.{key}": str(value) for key, value in target.conf.items()}
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


@contextmanager
def open_worker(
    neve: Neve, *, name: str, target: str, connection_flags: Sequence[str] = (), parent: int | None = None
) -> Iterator[Worker]:
    """One worker, which leaves the list of workers at the end. `connection_flags` are repeated to what it submits."""
    settings = neve.connection.settings.service
    described = settings.all_targets().get(target)
    if described is None:
        raise BadRequestError(f"Cannot work for target {target}: the settings do not describe it")
    submits = described.kind == "submit"
    carried = Submitter(neve.connection, described, connection_flags).carry_out if submits else partial(carry_out, neve)
    with neve.connection.store() as store:
        reporter = Reporter(store, name, target, neve.connection.clock, _concurrency(store, settings))
        try:
            yield Worker(carried, reporter, settings, should_leave=partial(reason_to_leave, settings), parent=parent)
        finally:
            reporter.leave()


def serve_once(neve: Neve, connection_flags: Sequence[str] = ()) -> bool:
    """Observes, decides, and carries out in this process what is due: all but the jobs of targets of kind `spark`.

    Returns whether all went well: every catalog and table could be read, and no job failed.
    """
    from neve.state.job_reading import JobFilter

    connection, name = neve.connection, process_name()
    targets = connection.settings.service.all_targets().items()
    with connection.store() as store:
        scheduler, begun_ms = Scheduler(connection, store, holder=name), store.clock_ms(connection.clock.now_ms())
        try:
            scheduler.tick()
            for target in (target for target, described in targets if described.kind != "spark"):
                with open_worker(neve, name=f"{name}-{target}", target=target, connection_flags=connection_flags) as worker:
                    _work_once(worker)
        finally:
            scheduler.release()
        _sender(neve, store)()
        if left := store.jobs.counts()[JobState.WAITING]:
            log.info("%s, for their time or for another worker", counted(left, "job waits", "jobs wait"))
        ended = store.jobs.jobs(JobFilter(states=frozenset({JobState.FAILED}), finished_since_ms=begun_ms))
        failed = [job for job in ended if (job.claimed_by or "").startswith(name)]
        return not failed and not (scheduler.observed is not None and scheduler.observed.troubles)


def _work_once(worker: Worker) -> None:
    """Carries out what may begin now."""
    while worker.run_next() is not None:
        if worker.stop.is_set():
            raise KeyboardInterrupt
        if is_spark_dead():
            raise EnvironmentFaultError(
                "Cannot go on: Spark has ended", hint="What is left waits. Run `neve serve --once` again."
            )


def _concurrency(store: StateStore, settings: ServiceSettings) -> Callable[[], Concurrency]:
    # A local target is bounded by its workers in each process; the bound of others holds for all processes together.
    targets = settings.all_targets().items()
    per_target: Mapping[str, int] = {name: target.max_concurrency for name, target in targets if target.kind != "local"}

    def bounds() -> Concurrency:
        teams = (found.document for found in store.policies.documents() if isinstance(found.document, TeamDocument))
        return Concurrency({team.name: team.concurrency for team in teams if team.concurrency is not None}, per_target)

    return bounds


def _sender(neve: Neve, store: StateStore) -> Callable[[], None]:
    from neve.service.notify.channels import open_channels
    from neve.service.notify.notifier import Notifier

    connection = neve.connection
    settings = connection.settings.notifications
    channels = open_channels(settings, environ=connection.environ)

    def routes() -> Mapping[str, Sequence[str]]:
        teams = (found.document for found in store.policies.documents() if isinstance(found.document, TeamDocument))
        return {team.name: team.notify for team in teams}

    notifier = Notifier(store.notices, channels, settings, routes=routes)

    def send() -> None:
        notifier.send_due(connection.clock.now_ms())

    return send
