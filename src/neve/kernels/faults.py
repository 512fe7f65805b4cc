"""What can be wrong with the files that a kernel is given.

Raised by the modules of this folder. A corrupt file is nobody's to rewrite; a refused copy is for another kernel, which is
why the reason is a sentence: the run record quotes it.
"""

from __future__ import annotations

from typing import ClassVar

from neve.errors import NeveError

_DAMAGED = "The file is damaged. Read it with another engine; if that fails too, restore it or roll the table back."
_NOTHING = "Nothing was committed and the inputs are untouched. Try the spark kernel, and report this with the inputs' footers."
_ANOTHER = "Files that cannot be copied can be re-encoded: use the arrow or the spark kernel."


class CorruptFileError(NeveError):
    """A data file contradicts itself or the Parquet specification."""

    code: ClassVar[str] = "corrupt-file"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"Cannot read {path}: {reason}", hint=_DAMAGED)
        self.reason = reason


class MisreadFileError(NeveError):
    """A file is right, and Iceberg's reader in Spark would take its values for others."""

    code: ClassVar[str] = "misread-file"

    def __init__(self, path: str, reason: str) -> None:
        hint = "The arrow kernel reads timestamps of any unit. Compact such files first: `neve compact TABLE --kernel arrow`."
        super().__init__(f"Cannot read {path} with Spark: {reason}", hint=hint)


class CopyRefusedError(NeveError):
    """These files are right, but row groups cannot be copied from them into one file."""

    code: ClassVar[str] = "copy-refused"

    def __init__(self, reason: str) -> None:
        super().__init__(f"Cannot copy row groups: {reason}", hint=_ANOTHER)
        self.reason = reason


class UnreadableOutputError(NeveError):
    """A file that was just written does not open, or not as what was written."""

    code: ClassVar[str] = "unreadable-output"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"Cannot use the new file {path}: {reason}", hint=_NOTHING)


class Objection(Exception):  # noqa: N818 - not an error: the file is right, only copying it would be wrong
    """Why one file cannot be moved by copying bytes; it never leaves this folder."""
