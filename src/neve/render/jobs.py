"""Jobs of the service as a list, and one job in full. Called by `cli.jobs`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from neve.render.bars import Tidy
from neve.render.phrases import moment, printable
from neve.render.run import SHORT_ID
from neve.scheduling.job import Job, JobState, Spent
from neve.table.units import counted, format_bytes, format_seconds

_STYLES = {JobState.DONE: "green", JobState.FAILED: "red", JobState.CLAIMED: "cyan"}
_WORDS = {JobState.CLAIMED: "running"}


def jobs_text(jobs: Sequence[Job]) -> RenderableType:
    """Two lines per job: what it is, then why it is wanted or what came of it."""
    if not jobs:
        return Text("No jobs.")
    operations, tables = (max(map(len, names)) for names in ([j.operation for j in jobs], [printable(j.table) for j in jobs]))
    blocks: list[RenderableType] = []
    for job in jobs:
        line = Text(f"{job.job_id[:SHORT_ID]}  {moment(job.created_ms)[:16]}  {job.operation:<{operations}}  ")
        line.append(f"{printable(job.table):<{tables}}  ").append(state_word(job), style=_STYLES.get(job.state, ""))
        told = job.message if job.message and job.state is not JobState.CLAIMED else job.reason
        blocks += [line, Padding(Text(printable(told), style="dim"), (0, 0, 0, SHORT_ID + 2))]
    return Tidy(Group(*blocks))


def job_text(job: Job) -> RenderableType:
    """One job: the decision, who worked on it, and how it ended."""
    lines = Text(f"{job.operation} on {printable(job.table)}", style="bold")
    for name, value in _facts(job):
        lines.append(f"\n{name:<12}{printable(value)}", style="not bold")
    return Tidy(lines)


def state_word(job: Job) -> str:
    """`waiting`, `running`, `done`, and the outcome where it says more."""
    word = _WORDS.get(job.state, job.state.value)
    if job.state is JobState.CLAIMED and job.cancel_requested_ms is not None:
        return f"{word}, to be interrupted"
    outcome = (job.outcome or word).replace("-", " ")
    return word if outcome == word else f"{word}, {outcome}"


def _facts(job: Job) -> list[tuple[str, str]]:
    facts = [("job", job.job_id), ("state", state_word(job)), ("reason", job.reason)]
    facts += [("policy", job.policy)] if job.policy else []
    facts += [("owner", job.owner)] if job.owner else []
    facts += [("target", f"{job.target} ({job.target_reason})" if job.target_reason else job.target)]
    facts += [("options", ", ".join(f"{name}={value}" for name, value in job.options.items()))] if job.options else []
    facts += [("created", moment(job.created_ms))]
    if job.not_after_ms is not None and job.state is JobState.WAITING:
        facts.append(("not after", f"{moment(job.not_after_ms)}, when its window closes"))
    facts += [("started", f"{moment(job.started_ms)} by {job.claimed_by}")] if job.started_ms is not None else []
    facts += [("attempts", _attempts(job))] if job.attempts > 1 else []
    facts += [("ended", moment(job.finished_ms))] if job.finished_ms is not None else []
    facts += [("predicted", spent_words(job.predicted))] if spent_words(job.predicted) else []
    facts += [("used", spent_words(job.actual))] if job.actual is not None and spent_words(job.actual) else []
    facts += [("result", job.message)] if job.message else []
    return facts + ([("run", f"{job.run_id} (`neve runs show {job.run_id[:SHORT_ID]}`)")] if job.run_id else [])


def _attempts(job: Job) -> str:
    return f"{job.attempts}" + (f"; {counted(job.deaths, 'worker')} died" if job.deaths else "")


def spent_words(spent: Spent) -> str:
    """`1.2 GB, 34 s on one core, 0.0005`; what is unknown is left out."""
    parts = [format_bytes(spent.bytes)] if spent.bytes is not None else []
    parts += [f"{format_seconds(spent.core_seconds)} on one core"] if spent.core_seconds is not None else []
    prices = f" by prices {spent.prices}" if spent.prices else ""
    parts += [f"{_money(spent.money)}{prices}"] if spent.money is not None else []
    return ", ".join(parts)


def _money(amount: float) -> str:
    return f"{amount:.4g}" if amount >= 0.0001 or amount == 0 else "less than 0.0001"
