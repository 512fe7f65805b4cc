"""One call of the command line: what was asked, where results go, and the way to the composition root.

Every command gets one. Settings and `api` are imported here, on first use, so that help stays fast.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from rich.console import Console

from neve.cli.logs import configure
from neve.cli.options import LogFormat, LogLevel, Shared
from neve.render.commands import completed

if TYPE_CHECKING:
    from neve.api import Neve
    from neve.cli.output import Output
    from neve.ports import Progress
    from neve.settings import Loaded


class QuietPipeConsole(Console):
    """A console that leaves a closed pipe to the caller; rich would end the process with exit code 1."""

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles a BrokenPipeError."""
        raise


class Call:
    """What was asked, and the means to answer."""

    def __init__(self, shared: Shared, knobs: Mapping[str, str], typed: Sequence[str] = ()) -> None:
        self.shared = shared
        self.knobs = knobs
        self._typed = typed
        self._begun = time.monotonic()
        self._warehouse: str | None = None
        """The directory that was opened, if it is not the one in the options."""

    def with_knobs(self, knobs: Mapping[str, str]) -> Call:
        """The same call with more knobs set, by their keys."""
        other = Call(self.shared, {**self.knobs, **knobs}, self._typed)
        other._begun = self._begun
        return other

    def retyped(self, *added: str, without: str = "--dry-run") -> str:
        """The same command without a flag and with others. Nothing else that was typed is lost, such as a branch or an age."""
        return shlex.join(["neve", *(word for word in self._typed if word != without), *added])

    @property
    def flags(self) -> dict[str, str]:
        """Settings keys set on the command line; a flag of its own beats `--set`."""
        shared = self.shared
        named = {"default-catalog": shared.catalog, "log.level": shared.log_level, "log.format": shared.log_format}
        said = {key: str(value) for key, value in named.items() if value is not None}
        return {**shared.assignments(), **said, **self.knobs}

    @property
    def wants_json(self) -> bool:
        """Whether the result goes out as JSON."""
        return self.shared.json

    @cached_property
    def stdout(self) -> Console:
        """Where results go."""
        return QuietPipeConsole(highlight=False)

    @cached_property
    def stderr(self) -> Console:
        """Where progress and errors go."""
        return QuietPipeConsole(stderr=True, highlight=False)

    @cached_property
    def output(self) -> Output:
        """The text or the JSON renderer."""
        from neve.cli.output import JsonOutput, TextOutput

        return JsonOutput(sys.stdout) if self.wants_json else TextOutput(self.stdout, lambda: time.monotonic() - self._begun)

    @cached_property
    def loaded(self) -> Loaded:
        """The settings with flags, environment, profile and file applied; from here on, logs follow them too."""
        from neve.settings import load_settings

        shared = self.shared
        loaded = load_settings(file=shared.config, profile=shared.profile, flags=self.flags, environ=os.environ)
        configure(LogLevel(loaded.settings.log.level), LogFormat(loaded.settings.log.format), debug=shared.debug)
        return loaded

    @contextmanager
    def neve(self, *, warehouse: str | None = None, create_warehouse: bool = False) -> Iterator[Neve]:
        """The composition root, closed at the end."""
        from neve.api import Neve

        place = self._warehouse = warehouse or self.shared.warehouse
        with Neve.open(self.loaded, warehouse=place, create_warehouse=create_warehouse) as neve:
            yield neve

    @property
    def connection(self) -> list[str]:
        """The options that lead to the place that this call opened."""
        return replace(self.shared, warehouse=self._warehouse or self.shared.warehouse).connection

    def again(self, *arguments: str) -> str:
        """Another command for the place that this call opened, ready to be typed."""
        return shlex.join(["neve", *arguments, *self.connection])

    def tell(self, line: str) -> None:
        """A line about what is going on, on stderr; beside JSON only if a person is watching."""
        if self.stderr.is_terminal or not self.wants_json:
            self.stderr.print(completed(line), markup=False, soft_wrap=True)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Draws on a terminal, tells in single lines elsewhere, and is silent beside JSON."""
        from neve.cli.progress import follow

        with follow(self.stderr, quiet=self.wants_json) as progress:
            yield progress
