"""The two ways in which a result leaves: text for people, JSON for programs. Commands call one interface and know neither."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rich.console import Console
from rich.text import Text

from neve.render.phrases import printable

if TYPE_CHECKING:
    from neve.core.inspection import Inspection
    from neve.core.model import TableName
    from neve.render.listings import CheckRow, SettingRow

SCHEMA_VERSION = 1


class Output(Protocol):
    """What commands can show."""

    def inspection(self, inspection: Inspection, *, partitions: int) -> None:
        """A look at one table; the text shows at most so many partitions."""
        ...

    def tables(self, names: Iterable[TableName]) -> None:
        """Names of tables, as they come in."""
        ...

    def settings(self, rows: Sequence[SettingRow]) -> None:
        """Settings in effect, with origins."""
        ...

    def valid(self, message: str) -> None:
        """Settings that are all right."""
        ...

    def checks(self, checks: Sequence[CheckRow]) -> None:
        """Checks of the machine."""
        ...

    def demo(
        self, warehouse: str, inspections: Sequence[Inspection], failures: Sequence[str], *, next_steps: Sequence[str]
    ) -> None:
        """The sample tables, the sickest in full."""
        ...


class TextOutput:
    """Rich text, plain where nobody sees colours."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def inspection(self, inspection: Inspection, *, partitions: int) -> None:
        """The whole page."""
        from neve.render.text import inspection_text

        self._console.print(inspection_text(inspection, partitions=partitions))

    def tables(self, names: Iterable[TableName]) -> None:
        """One name per line, never wrapped: the lines are for pipes."""
        for name in names:
            self._line(printable(str(name)))

    def settings(self, rows: Sequence[SettingRow]) -> None:
        """Key, value, origin."""
        from neve.render.listings import settings_text

        self._console.print(settings_text(rows))

    def valid(self, message: str) -> None:
        """One line."""
        self._line(message)

    def checks(self, checks: Sequence[CheckRow]) -> None:
        """Signs and cures."""
        from neve.render.listings import checks_text

        self._console.print(checks_text(checks))

    def demo(
        self, warehouse: str, inspections: Sequence[Inspection], failures: Sequence[str], *, next_steps: Sequence[str]
    ) -> None:
        """The sickest table in full, then all of them ranked, then what to type next."""
        from neve.render.listings import ranking_text

        if inspections:
            self.inspection(min(inspections, key=lambda i: (i.health.score, i.table)), partitions=5)
            self._console.print(Text(f"\nAll sample tables in {printable(warehouse)}, the sickest first", style="bold"))
            self._console.print(ranking_text(inspections))
        for failure in failures:
            self._console.print(Text(printable(failure), style="red"))
        self._console.print(Text("\nTry next", style="bold"))
        for step in next_steps:
            self._line(f"  {step}")

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


class JsonOutput:
    """One JSON document per command, with a schema version."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def inspection(self, inspection: Inspection, *, partitions: int) -> None:  # noqa: ARG002 - a program gets them all
        """The value itself."""
        self._stream.write(inspection.model_dump_json(indent=2) + "\n")

    def tables(self, names: Iterable[TableName]) -> None:
        """Full names, with their parts."""
        parts = [{"table": str(n), "catalog": n.catalog, "namespace": list(n.namespace), "name": n.name} for n in names]
        self._document(tables=parts)

    def settings(self, rows: Sequence[SettingRow]) -> None:
        """Key, value, origin."""
        self._document(settings=[{"key": r.key, "value": r.value, "origin": str(r.origin)} for r in rows])

    def valid(self, message: str) -> None:
        """Whether, and what of."""
        self._document(valid=True, message=message)

    def checks(self, checks: Sequence[CheckRow]) -> None:
        """Every check, passed or not."""
        told = [{"name": c.name, "status": str(c.status), "detail": c.detail, "fix": c.fix} for c in checks]
        self._document(ok=all(c["status"] != "fail" for c in told), checks=told)

    def demo(
        self, warehouse: str, inspections: Sequence[Inspection], failures: Sequence[str], *, next_steps: Sequence[str]
    ) -> None:
        """Every look that was taken."""
        looks = [inspection.model_dump(mode="json") for inspection in inspections]
        self._document(warehouse=warehouse, inspections=looks, failures=list(failures), next_steps=list(next_steps))

    def _document(self, **content: Any) -> None:
        self._stream.write(json.dumps({"schema_version": SCHEMA_VERSION, **content}, indent=2, default=str) + "\n")
