"""unused: files that a run wrote and never committed go into the quarantine. Called by `operations.rewrite_run` and
`operations.delete_files`.

Nothing is deleted here. Whether anything needs a file is judged later, after the grace time and over all refs and snapshots, so
that neither an old journal nor a race with another run can cost a file. This never raises for a store that is down: the files
stay in place then, and orphan removal finds them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import chain
from typing import Protocol

from neve.commit.failure import Failure
from neve.errors import NeveError
from neve.maintenance.quarantine import Candidate
from neve.ports import Clock, Quarantine

log = logging.getLogger(__name__)


class QuarantineAccess(Protocol):
    """What records files, such as a `TableContext`."""

    @property
    def quarantine(self) -> Quarantine | None:
        """Without one, files are left to orphan removal."""
        ...

    @property
    def clock(self) -> Clock:
        """When they were recorded."""
        ...


def set_aside(paths: Iterable[str], why: str, context: QuarantineAccess, *, table_uuid: str, run_id: str) -> None:
    """Records files of a run in the quarantine, streamed; `why` is part of the reason that people see."""
    reason = f"written and never committed: {why}"
    try:
        files = iter(paths)
        first = next(files, None)
        if first is None:
            return
        if context.quarantine is None:
            log.info("run %s: files such as %s are left to orphan removal (%s)", run_id, first, reason)
            return
        doomed = (Candidate(path=path, reason=reason) for path in chain([first], files))
        new = context.quarantine.record_candidates(table_uuid, run_id, doomed, context.clock.now_ms())
        log.info("run %s: %s files are in the quarantine (%s)", run_id, new, reason)
    except Exception as error:  # whatever it is, it must not cost the run: the files are where they were
        trace = None if isinstance(error, NeveError) else error
        said = Failure.of(error).reason
        log.warning("run %s: files are left to orphan removal (%s): %s", run_id, reason, said, exc_info=trace)
