"""The history of tables: a chart of health, runs with what they did, gained and cost, and totals. Called by `cli.history`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.render.bars import Bar, Tidy
from neve.render.phrases import band, count, moment, printable
from neve.render.record_text import arrow
from neve.render.run import SHORT_ID
from neve.render.runs import RunRow, run_result, run_took
from neve.render.text import INDENT
from neve.table.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from neve.state.fleet import HealthEntry
    from neve.state.history import History, RunTotals, TableHistory

_BAR = 24
_ROWS = 14
"""Lines of the chart. A longer history has as many moments, evenly spread, the first and the last among them."""
_MINUTE, _DAY = 16, 10
"""Characters of a moment."""


def history_text(history: History, *, wanted: str, days: int) -> RenderableType:
    """All of it; one table in full, several in a line each."""
    span = f"the last {counted(days, 'day')}"
    if not history.tables:
        hint = "`neve runs` lists runs of any age, and health is recorded by `neve serve`."
        return Tidy(Text(f"Nothing is recorded for {printable(wanted)} in {span}. {printable(hint)}"))
    return Tidy(Group(*_sections(history, span, wanted)))


def _sections(history: History, span: str, wanted: str) -> Iterator[RenderableType]:
    single = history.tables[0] if len(history.tables) == 1 else None
    name = single.table if single is not None else f"{counted(len(history.tables), 'table')} that match {wanted}"
    yield Text(printable(name), style="bold").append(f", {span}", style="not bold dim")
    if single is None:
        yield _titled("Tables", _tables(history.tables))
    elif single.health:
        yield _titled("Health", _chart(single.health))
    if history.runs:
        yield _titled("Runs", _runs(history.runs, with_tables=single is None))
    yield _titled("Totals", _totals([one.totals for one in history.tables], history.runs))


def _titled(title: str, body: RenderableType) -> RenderableType:
    return Group(Text(), Text(title, style="bold"), Padding(body, INDENT))


def chart_entries(entries: Sequence[HealthEntry]) -> list[HealthEntry]:
    """The last entry of each day; of more than fit, some that are evenly spread. With one day, every entry counts."""
    by_day = {moment(entry.inspected_ms)[:_DAY]: entry for entry in entries}
    chosen = list(by_day.values()) if len(by_day) > 1 else list(entries)
    if len(chosen) <= _ROWS:
        return chosen
    return [chosen[round(row * (len(chosen) - 1) / (_ROWS - 1))] for row in range(_ROWS)]


def _chart(entries: Sequence[HealthEntry]) -> RenderableType:
    chosen = chart_entries(entries)
    is_one_day = len({moment(entry.inspected_ms)[:_DAY] for entry in entries}) == 1
    table = _table("when (UTC)")
    table.add_column("", max_width=_BAR)
    table.add_column("health", justify="right", no_wrap=True)
    for name in ("files", "small", "delete files"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    for entry in chosen:
        style = band(entry.health).style
        table.add_row(
            moment(entry.inspected_ms)[: _MINUTE if is_one_day else _DAY],
            Bar(entry.health / 100, style, most=_BAR, track=True),
            Text(str(entry.health), style=f"bold {style}"),
            *(count(number) for number in (entry.data_files, entry.small_files, entry.delete_files)),
            format_bytes(entry.data_bytes),
        )
    return table


def _tables(tables: Sequence[TableHistory]) -> RenderableType:
    shown = _table()
    shown.add_column("table", overflow="fold", min_width=12)
    shown.add_column("health", no_wrap=True)
    for name in ("runs", "failed", "cost"):
        shown.add_column(name, justify="right", no_wrap=True)
    for one in tables:
        totals = one.totals
        failed = Text(count(totals.failed), style="red" if totals.failed else "")
        shown.add_row(Text(printable(one.table)), _change(one.health), count(totals.runs), failed, _short(totals.money))
    return shown


def _change(entries: Sequence[HealthEntry]) -> Text:
    """`42 → 97`, one number if it was inspected once, empty if never."""
    scores = [entry.health for entry in (entries if len(entries) == 1 else entries[:1] + entries[-1:])]  # type: ignore[operator]
    return _scores(*scores)


def _scores(*scores: int | None) -> Text:
    text = Text()
    for score in scores:
        if score is not None:
            text.append(" → " if text else "")
            text.append(str(score), style=band(score).style)
    return text


def _runs(runs: Sequence[RunRow], *, with_tables: bool) -> RenderableType:
    shown = _table("run", "started (UTC)", "what")
    if with_tables:
        shown.add_column("table", overflow="fold", min_width=12)
    shown.add_column("result", overflow="fold", min_width=13)
    shown.add_column("health", no_wrap=True)
    shown.add_column("took", justify="right", no_wrap=True)
    shown.add_column("cost", justify="right", no_wrap=True)
    for run in runs:
        figures = run_figures(run)
        shown.add_row(
            run.run_id[:SHORT_ID],
            moment(run.started_ms)[:_MINUTE],
            run.kind,
            *([Text(printable(run.table_name))] if with_tables else []),
            run_result(run),
            _scores(figures["health_before"], figures["health_after"]),
            run_took(run),
            _cost(figures["money"], is_part=figures["part_of_another"]),
        )
    return shown


def _cost(money: float | None, *, is_part: bool) -> Text:
    """In brackets where the cost of another run includes it."""
    if money is None:
        return Text()
    return Text(f"({_amount(money)})", style="dim") if is_part else Text(_amount(money))


def run_figures(run: RunRow) -> dict[str, Any]:
    """A run in numbers, by its record; None for what that does not tell."""
    record, used = run.record, _part(run.record, "used")
    cpu = [used.get("cpu_seconds", {}).get(process) for process in ("python", "jvm", "workers")]
    figures = {name: getattr(run, name) for name in ("run_id", "table_name", "kind", "started_ms", "finished_ms", "outcome")}
    figures |= {name: record.get(name) for name in ("files_compacted", "files_written", "bytes_read", "bytes_written")}
    for when in ("before", "after"):
        figures[f"health_{when}"] = _part(record, when).get("health", record.get(f"health_{when}"))
    figures |= {name: record.get(name) for name in ("elapsed_seconds", "session_start_seconds")}
    return figures | {
        "cpu_seconds": None if None in cpu else sum(cpu),
        "money": used.get("money"),
        "predicted_money": used.get("predicted_money"),
        "prices": used.get("prices"),
        "part_of_another": bool(used.get("part_of_another")),
    }


def _part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = record.get(name)
    return found if isinstance(found, Mapping) else {}


def _totals(totals: Sequence[RunTotals], listed: Sequence[RunRow]) -> RenderableType:
    def total(name: str) -> int:
        return sum(getattr(one, name) for one in totals)

    runs, failed = total("runs"), total("failed")
    if not runs:
        return Text("no run has ended" if listed else "no runs")
    with_steps = any(run_figures(run)["part_of_another"] for run in listed)
    lines = [f"{counted(runs, 'run')}{', without steps of other runs' if with_steps else ''}; {count(failed)} failed"]
    if compacted := total("files_compacted"):
        lines.append(f"{arrow(compacted, total('files_written'), 'file')}")
        lines.append(f"{format_bytes(total('bytes_read'))} read, {format_bytes(total('bytes_written'))} written")
    if cpu := sum(one.cpu_seconds for one in totals):
        lines.append(f"{format_seconds(cpu)} of CPU time")
    money = Counter[str]()
    for one in totals:
        money.update(one.money)
    unknown = total("runs_without_money")
    cost = [_money(money)] if money else []
    cost += [f"cost unknown for {counted(unknown, 'run')}"] if unknown else []
    return Text("\n".join([*lines, "; ".join(cost)]))


def _money(money: Mapping[str, float]) -> str:
    """`0.021`, or `0.021 by prices 2026-07, 0.4 by prices 2026-10`; empty where nothing is known."""
    return ", ".join(_amount(amount) + (f" by prices {prices}" if prices else "") for prices, amount in sorted(money.items()))


def _short(money: Mapping[str, float]) -> str:
    """Without the price sheet where there is one."""
    return _money(money) if len(money) > 1 else "".join(map(_amount, money.values()))


def _amount(money: float) -> str:
    return f"{money:.4g}" if money >= 0.0001 or not money else "<0.0001"


def _table(*fixed: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in fixed:
        table.add_column(name, no_wrap=True)
    return table
