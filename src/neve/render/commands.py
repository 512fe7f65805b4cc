"""Commands inside messages and reports, completed so that they can be copied and run.

Whoever writes a message does not know how the user reached the tables. Commands are written in backquotes, such as
`neve runs`; the command line states its options once, and everything that is shown repeats them in every command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_COMMAND = re.compile(r"`(neve [^`]+)`")
_options: ContextVar[Callable[[], Sequence[str]]] = ContextVar("options", default=tuple)


@contextmanager
def repeating(options: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Within the block, these options, names and values in turn, are added to every command that is shown."""
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)


def completed(text: str) -> str:
    """Returns the text with the options in every command that does not have them."""
    return _COMMAND.sub(lambda found: f"`{_complete(found[1])}`", text)


def _complete(command: str) -> str:
    given, options = {word.partition("=")[0] for word in command.split()}, _options.get()()
    pairs = zip(options[::2], options[1::2], strict=True)
    return " ".join(
        [command, *(f"{name} {shlex.quote(value)}" for name, value in pairs if name == "--set" or name not in given)]
    )
