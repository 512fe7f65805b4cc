"""A table whose entry in its catalog is under test, changed by others through PyIceberg."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from neve.errors import CommitUnknownError
from neve.ports import TableEntry
from neve.table.state import TableName

ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


@dataclass
class EntrySite:
    """A table with ten rows. `sender` is the class and the method of the adapter that sends a change."""

    name: TableName
    client: Any
    open: Callable[[], TableEntry]
    sender: tuple[Any, str]
    is_exclusive: bool = True
    """Whether the catalog refuses a change if the same property was changed since the table was loaded."""
    strikes: list[str] = field(default_factory=list)

    def create(self) -> None:
        self.client.create_table(self.name.identifier, schema=ROWS.schema).append(ROWS)

    def load(self, name: str | None = None) -> Any:
        return self.client.load_table((*self.name.namespace, name or self.name.name))

    def set(self, **properties: str) -> None:
        with self.load().transaction() as change:
            change.set_properties(**properties)

    def properties(self, name: str | None = None) -> dict[str, str]:
        """As another client reads them, without what that one sets by itself."""
        return {key: value for key, value in self.load(name).properties.items() if not key.startswith("write.")}

    def rename(self) -> str:
        new = f"{self.name.name}_moved"
        self.client.rename_table(self.name.identifier, (*self.name.namespace, new))
        return new

    def drop(self) -> None:
        self.client.drop_table(self.name.identifier)

    def replace(self) -> None:
        self.drop()
        self.create()

    @contextmanager
    def struck(self, before: Callable[[], object] | None = None, *, lost: int = 0, lands: bool = True) -> Iterator[list[bool]]:
        """Something happens before the first change is sent; of so many changes the answer is lost, whether they land or not.

        Gives what was sent.
        """
        owner, method = self.sender
        real, sent = getattr(owner, method), list[bool]()

        def sending(*args: Any) -> Any:
            sent.append(True)
            if len(sent) == 1 and before is not None:
                before()
            answer = real(*args) if lands or len(sent) > lost else None
            if len(sent) <= lost:
                raise CommitUnknownError("Cannot tell whether the commit landed: silence")
            return answer

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(owner, method, sending)
            yield sent
