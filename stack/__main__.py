"""The command line: `python -m stack up|down|status|logs|env [NAME...]`. The Makefile calls it."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from neve.errors import NeveError
from stack import supervisor
from stack.places import Places
from stack.registry import DEFAULT, SERVERS, find


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb; returns the exit code."""
    options = _parser().parse_args(arguments)
    places = Places(home=options.home.resolve()) if options.home else Places()
    # `make` and CI end programs with SIGTERM: the same clean-up as for Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _VERBS[options.verb](places, options.names)
    except NeveError as error:
        print(f"{error}\n{error.hint}" if error.hint else error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: what had been started is stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stack", description="Real servers for tests, as plain processes.")
    parser.add_argument("verb", choices=sorted(_VERBS))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SERVERS)}; up: {', '.join(DEFAULT)}")
    parser.add_argument("--home", type=Path, help="where state, logs and data are kept (.stack in the repository)")
    return parser


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, flush=True)


def _up(places: Places, names: list[str]) -> int:
    supervisor.up(places, names, say=_say)
    return 0


def _down(places: Places, names: list[str]) -> int:
    if not supervisor.down(places, names, say=_say):
        _say("nothing was running")
    return 0


def _status(places: Places, names: list[str]) -> int:
    found = [one for one in supervisor.status(places) if not names or one.name in names]
    for one in found:
        _say(f"{one.name:<10} {one.state:<14} pids {' '.join(map(str, one.pids)) or '-'}")
    if not found:
        _say("nothing is running")
    return 0 if found and all(one.state == "up" for one in found) else 1


def _logs(places: Places, names: list[str]) -> int:
    wanted = [find(name).name for name in names]
    for log in sorted(places.logs.glob("*.log")):
        if not wanted or log.stem.split("-")[0] in wanted:
            _say(f"==> {log.name} <==\n{log.read_text(errors='replace').rstrip()}")
    return 0


def _env(places: Places, names: list[str]) -> int:
    for one in supervisor.status(places):
        if one.state == "up" and (not names or one.name in names):
            for key, value in one.endpoint.environment().items():
                _say(f"export {key}={shlex.quote(value)}")
    return 0


_VERBS: dict[str, Callable[[Places, list[str]], int]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "logs": _logs,
    "env": _env,
}

if __name__ == "__main__":
    sys.exit(main())
