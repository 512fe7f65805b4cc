"""What commands suggest to type next, and how names in an option are told apart."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neve.cli.call import Call
    from neve.cli.options import Shared
    from neve.maintenance.record import OperationRecord


def names(said: list[str] | None) -> list[str]:
    """What a repeatable option says, with commas between names."""
    return [name.strip() for part in said or () for name in part.split(",") if name.strip()]


def steps_after(call: Call, record: OperationRecord, otherwise: str) -> list[str]:
    """What to type next: nothing if there was nothing to do, the same without --dry-run or once more, else another command."""
    if record.outcome.value == "nothing-to-do":
        return []
    return [call.retyped() if record.dry_run or record.outcome.value == "failed" else otherwise]


def on_branch(branch: str) -> tuple[str, ...]:
    """The option that names a branch; nothing for main."""
    return () if branch == "main" else ("--branch", branch)


def again(shared: Shared, *words: str) -> str:
    """Another command for the same place, ready to be typed. The command's name is written as literals: a test runs each."""
    return shlex.join(["neve", *words, *shared.connection])
