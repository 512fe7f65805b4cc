"""The proxy as a process: `python -m stack.proxy --control PORT NAME=PORT=UPSTREAM...`. `stack.servers.proxy` starts it."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from types import FrameType

from stack.proxy.control import Control
from stack.proxy.front import FaultProxy


def main() -> int:
    """Runs until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m stack.proxy")
    parser.add_argument("--control", type=int, default=0, metavar="PORT")
    parser.add_argument("fronts", nargs="+", metavar="NAME=PORT=UPSTREAM")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    with contextlib.ExitStack() as running:
        fronts = {}
        for text in options.fronts:
            name, port, upstream = text.split("=", 2)
            fronts[name] = running.enter_context(FaultProxy(upstream, port=int(port)))
        control = running.enter_context(Control(fronts, port=options.control))
        with contextlib.suppress(KeyboardInterrupt):
            control.serve_forever()
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
