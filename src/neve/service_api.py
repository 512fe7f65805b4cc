"""The service from Python: policies, jobs and rounds on an open connection, and a hint for pipelines.

Exported by the package. Importing it loads nothing heavy.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from neve.python_api import connect

if TYPE_CHECKING:
    from neve.api import Neve
    from neve.scheduling.explanation import TableExplanation
    from neve.service.jobs import Jobs
    from neve.service.policies import Policies

log = logging.getLogger(__name__)


class Service:
    """What the service does, on a connection: `neve.Service(neve.connect())`."""

    def __init__(self, opened: Neve) -> None:
        self._neve = opened

    @property
    def jobs(self) -> Jobs:
        """What the service wants to do, does and did; cancelling, pausing, and asking for work."""
        from neve.service.jobs import Jobs

        connection = self._neve.connection
        return Jobs(connection.state_url, connection.clock, connection.default)

    @property
    def policies(self) -> Policies:
        """The policies in force, and applying others."""
        from neve.service.policies import Policies

        return Policies(self._neve.connection)

    def explain(self, table: str) -> TableExplanation:
        """What the policies say of a table: which operations are due, why or why not, and where each value comes from."""
        from neve.service.policy_tables import PolicyTables

        return PolicyTables(self._neve.connection).explain(table)

    def serve_once(self) -> bool:
        """One round: observes all tables, decides what is due by policies, and carries it out in this process.

        Returns whether all went well.
        """
        from neve.service.assembly import serve_once

        return serve_once(self._neve)


def hint(name: str, *, raise_errors: bool = False, **words: Any) -> bool:
    """Tells the service that a table was just written and wants to be looked at soon. Made to be called after each write.

    `words` are those of `connect`. Returns whether the service knows the table. A failure is logged, and raised only if asked.
    """
    try:
        with connect(**words) as opened:
            Service(opened).jobs.hint(str(opened.connection.name(name)))
    except Exception as error:
        # Somebody else's pipeline has just written its data: our trouble must not undo that.
        if raise_errors:
            raise
        log.warning("hint %s: %s", name, error)
        return False
    return True
