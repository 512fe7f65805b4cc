"""The queue as a state machine: workers die, come back with old tokens, and clocks jump.

Whatever happens in whatever order: no table has two claimed jobs, no job is lost, each job ends once and stays as it ended, and
an old token changes nothing. In the end, every job can still be carried out.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import delete

from neve.scheduling.job import ENDED_STATES, Job, JobState
from neve.state import StateStore, schema
from neve.state.job_reading import JobFilter
from tests.builders.jobs import DAY, HOUR, MINUTE, NOW, decision

STORE = StateStore.open("sqlite://")
TABLES, OPERATIONS = "abc", ("compact", "expire")

pairs = st.tuples(st.sampled_from(TABLES), st.sampled_from(OPERATIONS))
places = st.integers(0, 99)


class QueueLife(RuleBasedStateMachine):
    """`held` are all claims that workers ever had; `ended` is how every job was when it ended."""

    def __init__(self) -> None:
        super().__init__()
        with STORE._engine.begin() as connection:
            for table in (schema.jobs, schema.table_operations):
                connection.execute(delete(table))
        self.now_ms = NOW
        self.held: list[Job] = []
        self.ended: dict[str, Job] = {}
        self.known: set[str] = set()
        self.failures: Counter[tuple[str, str]] = Counter()

    @rule(wanted=st.lists(pairs, min_size=1, max_size=4), rank=st.integers(0, 3), wait_ms=st.sampled_from([0, 0, HOUR]))
    def enqueue(self, wanted: list[tuple[str, str]], rank: int, wait_ms: int) -> None:
        decisions = [decision(*pair, rank=rank, not_before_ms=self.now_ms + wait_ms) for pair in wanted]
        jobs = STORE.jobs.enqueue(decisions, self.now_ms)
        assert {(job.table_uuid, job.operation) for job in jobs} == {(one.table_uuid, one.operation) for one in decisions}
        self.known |= {job.job_id for job in jobs}

    @rule(worker=st.sampled_from(["w1", "w2", "w3"]), claim_ms=st.sampled_from([1_000, MINUTE]))
    def claim(self, worker: str, claim_ms: int) -> None:
        before = self._jobs()
        job = STORE.jobs.claim(worker, now_ms=self.now_ms, claim_ms=claim_ms)
        may_begin = {one.job_id for one in before.values() if self._may_begin(one, before)}
        if job is None:
            assert not may_begin
            return
        assert job.job_id in may_begin
        assert (job.token, job.claimed_by) == (before[job.job_id].token + 1, worker)
        self.held.append(job)

    def _may_begin(self, job: Job, jobs: dict[str, Job]) -> bool:
        if job.state is JobState.CLAIMED:
            return (job.until_ms or 0) <= self.now_ms and job.cancel_requested_ms is None
        ending = {one.job_id for one in jobs.values() if self._ends_unseen(one)}
        claimed = {one.table_uuid for one in jobs.values() if one.state is JobState.CLAIMED and one.job_id not in ending}
        return job.state is JobState.WAITING and job.not_before_ms <= self.now_ms and job.table_uuid not in claimed

    def _ends_unseen(self, job: Job) -> bool:
        """Whether the next claim ends a job whose worker died before it saw that it was cancelled."""
        is_over = job.state is JobState.CLAIMED and (job.until_ms or 0) <= self.now_ms
        return is_over and job.cancel_requested_ms is not None

    @precondition(lambda self: self.held)
    @rule(place=places)
    def beat(self, place: int) -> None:
        job = self._some(place)
        found = STORE.jobs.beat(job, now_ms=self.now_ms, claim_ms=MINUTE)
        assert (found is not None) is self._is_valid(job)

    @precondition(lambda self: self.held)
    @rule(place=places)
    def start(self, place: int) -> None:
        job = self._some(place)
        assert STORE.jobs.start(job, now_ms=self.now_ms) is self._is_valid(job)

    @precondition(lambda self: self.held)
    @rule(place=places, state=st.sampled_from(sorted(ENDED_STATES)))
    def finish(self, place: int, state: JobState) -> None:
        job = self._some(place)
        is_valid, has_started = self._is_valid(job), self._jobs()[job.job_id].started_ms is not None
        assert self._finish(job, state) is is_valid
        key = job.table_uuid, job.operation
        if is_valid and state is JobState.FAILED:
            self.failures[key] += 1
        elif is_valid and state is JobState.DONE:
            self.failures[key] = 0
        elif is_valid and has_started:
            self.failures[key] += 0

    def _finish(self, job: Job, state: JobState) -> bool:
        return STORE.jobs.finish(job, state=state, outcome=state.value, message="", now_ms=self.now_ms)

    @precondition(lambda self: self.held)
    @rule(place=places, wait_ms=st.sampled_from([0, HOUR]))
    def release(self, place: int, wait_ms: int) -> None:
        job = self._some(place)
        is_valid = self._is_valid(job)
        assert STORE.jobs.release(job, now_ms=self.now_ms, wait_ms=wait_ms) is is_valid

    @precondition(lambda self: self.known)
    @rule(place=places)
    def cancel(self, place: int) -> None:
        assert STORE.jobs.cancel(self._known(place), now_ms=self.now_ms) is not None

    @precondition(lambda self: self.known)
    @rule(place=places)
    def withdraw(self, place: int) -> None:
        job_id = self._known(place)
        waited = self._jobs()[job_id].state is JobState.WAITING
        assert STORE.jobs.withdraw([job_id], message="", now_ms=self.now_ms) == int(waited)

    @rule(later_ms=st.sampled_from([500, 30_000, 2 * MINUTE, 2 * HOUR]))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms

    @rule(jump_ms=st.sampled_from([-365 * DAY, -HOUR, 365 * DAY]))
    def the_clock_jumps(self, jump_ms: int) -> None:
        self.now_ms = max(1, self.now_ms + jump_ms)

    @invariant()
    def no_job_is_lost_and_those_that_ended_stay_as_they_are(self) -> None:
        jobs = self._jobs()
        assert set(jobs) == self.known
        self.ended |= {job_id: job for job_id, job in jobs.items() if job.state in ENDED_STATES and job_id not in self.ended}
        assert {job_id: jobs[job_id] for job_id in self.ended} == self.ended

    @invariant()
    def no_table_has_two_claimed_jobs_and_no_operation_waits_twice(self) -> None:
        jobs = self._jobs().values()
        claims = Counter(job.table_uuid for job in jobs if job.state is JobState.CLAIMED)
        waits = Counter((job.table_uuid, job.operation) for job in jobs if job.state is JobState.WAITING)
        assert all(number == 1 for number in (*claims.values(), *waits.values()))

    @invariant()
    def only_the_newest_token_of_a_claimed_job_is_valid(self) -> None:
        claimed = [job for job in self._jobs().values() if job.state is JobState.CLAIMED]
        assert all(len([one for one in self.held if self._is_same(one, job)]) == 1 for job in claimed)

    @invariant()
    def failures_in_a_row_are_counted(self) -> None:
        found = {(table, name): one.failures for table, by in STORE.jobs.last_runs().items() for name, one in by.items()}
        assert found == dict(self.failures)

    def teardown(self) -> None:
        """Every worker dies; then all that is left is carried out, however wrong clocks were."""
        waiting = [job for job in self._jobs().values() if job.state is JobState.WAITING]
        STORE.jobs.enqueue([decision(job.table[-1], job.operation) for job in waiting], self.now_ms)
        for _ in range(2):  # claims that wrong clocks wrote get an end that comes
            while (job := STORE.jobs.claim("last", now_ms=self.now_ms, claim_ms=MINUTE)) is not None:
                assert self._finish(job, JobState.DONE)
            self.now_ms += DAY
        while (job := STORE.jobs.claim("last", now_ms=self.now_ms, claim_ms=MINUTE)) is not None:
            assert self._finish(job, JobState.DONE)
        assert {job.state for job in self._jobs().values()} <= ENDED_STATES
        self.no_job_is_lost_and_those_that_ended_stay_as_they_are()

    def _jobs(self) -> dict[str, Job]:
        return {job.job_id: job for job in STORE.jobs.jobs(JobFilter(), limit=10_000)}

    def _some(self, place: int) -> Job:
        """One of the claims that workers have or had, more often a late one."""
        return self.held[-1 - place % len(self.held)]

    def _known(self, place: int) -> str:
        return sorted(self.known)[place % len(self.known)]

    def _is_valid(self, job: Job) -> bool:
        return self._is_same(self._jobs()[job.job_id], job)

    @staticmethod
    def _is_same(found: Job, job: Job) -> bool:
        return (found.job_id, found.token) == (job.job_id, job.token) and found.state is JobState.CLAIMED


QueueLife.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueLife = QueueLife.TestCase
