"""What a run writes down of its groups, and of their files that nothing needs, which must follow it.

Used by `operations.rewrite_run`. A result that the journal does not take must not be committed, and a file goes into the
quarantine only after the journal knows that its group has ended: a resume commits what it takes for written. Nothing here
raises but RunTakenOverError: then the journal belongs to another process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set

from neve.commit.access import RunContext
from neve.commit.failure import Failure
from neve.commit.unused_files import set_aside
from neve.errors import RunTakenOverError
from neve.ports import Engine
from neve.rewrite.record import GroupState
from neve.rewrite.work_order import WorkResult

log = logging.getLogger(__name__)

JOT_MS = 500
"""How long a result may wait to be noted in the journal; it is always noted before its commit."""


def files_may_be_set_aside(journal_failure: Failure | None) -> bool:
    """Whether the files of groups that ended may go: not while the journal calls them written, since a resume commits them."""
    return journal_failure is None


class GroupJournal:
    """The journal of one run, which there may be none of, and the files of its groups."""

    def __init__(self, run_id: str, table_uuid: str, context: RunContext, engine: Engine) -> None:
        self._table_uuid, self._engine = table_uuid, engine
        self._run_id, self._context, self._journal = run_id, context, context.journal
        self._jotted: list[WorkResult] = []
        self._jotted_ms = context.clock.now_ms()
        self._unsettled: dict[int, tuple[GroupState, Sequence[str]]] = {}
        self.is_lost = False
        """Whether the journal belongs to another process by now."""
        self.refused: dict[int, Failure] = {}
        """Groups whose result the journal did not take: a resume would not know of them, so they are not committed."""

    def jot(self, result: WorkResult) -> None:
        """Notes a result, together with others that finish at about the same time: each note is a write to disk."""
        self._jotted.append(result)
        if self._context.clock.now_ms() - self._jotted_ms >= JOT_MS:
            self.write_down()

    def write_down(self) -> None:
        """Writes results that wait for it; one by one where the journal does not take them together."""
        jotted, self._jotted, self._jotted_ms = self._jotted, [], self._context.clock.now_ms()
        if not self._takes(jotted) and len(jotted) > 1:
            for result in jotted:
                self._takes([result])

    def _takes(self, results: Sequence[WorkResult]) -> bool:
        try:
            if self._journal and results:
                self._journal.written(self._run_id, results)
        except RunTakenOverError:
            self.is_lost = True
            raise
        except Exception as error:
            log.warning("%s results could not be written to the journal", len(results), exc_info=error)
            if len(results) == 1:
                self.refused[results[0].group_id] = Failure.of(error)
            return False
        return True

    def settle(self, ended: Mapping[int, GroupState], unused: Mapping[int, Sequence[str]]) -> Failure | None:
        """Writes down how groups ended, then records the files that each leaves; gives back why that was not possible."""
        self.write_down()  # a note that came late would call a group written again
        failure = self._refused_end(ended)
        if failure is not None:
            self._unsettled |= {group_id: (state, unused.get(group_id, ())) for group_id, state in ended.items()}
        if files_may_be_set_aside(failure):
            for group_id, state in ended.items():
                why = "its group failed" if state is GroupState.FAILED else f"its group was {state}"
                self.set_aside(unused.get(group_id, ()), why)
        return failure

    def _refused_end(self, ended: Mapping[int, GroupState]) -> Failure | None:
        """Writes down how groups ended. Returns why the journal did not take it, None if it did."""
        try:
            if self._journal and ended:
                self._journal.settled(self._run_id, ended)
        except RunTakenOverError:
            self.is_lost = True
            raise
        except Exception as error:
            log.warning("the end of %s groups could not be written to the journal", len(ended), exc_info=error)
            return Failure.of(error)
        return None

    def settle_the_rest(self) -> None:
        """Tries once more to write down what the journal did not take, one by one; files of what it still refuses stay."""
        open_, self._unsettled = self._unsettled, {}
        for group_id, (state, paths) in open_.items():
            self.settle({group_id: state}, {group_id: paths})

    def set_aside(self, paths: Iterable[str], why: str) -> None:
        """Records files in the quarantine that this run wrote and never committed."""
        set_aside(paths, why, self._context, table_uuid=self._table_uuid, run_id=self._run_id)

    def set_leftovers_aside(self, prefixes: Sequence[str], live: Set[str] = frozenset()) -> None:
        """Records files whose names begin so: what an order that never reported may have written."""
        self.set_aside((path for path in self._leftovers(prefixes) if path not in live), "left by an interrupted run")

    def late_deletes(self, outputs: Iterable[str]) -> list[str]:
        """Deletes beside these outputs that an attempt wrote before it raised, so that nobody knows their names."""
        return self._leftovers([f"{path.removesuffix('.parquet')}-deletes-" for path in outputs])

    def _leftovers(self, prefixes: Sequence[str]) -> list[str]:
        try:
            return sorted(set(self._engine.leftovers(prefixes)))
        except Exception as error:
            log.warning("files are left behind for orphan removal", exc_info=error)
            return []
