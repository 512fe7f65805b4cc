"""Where the console script enters. Nothing is imported before Ctrl-C is looked after."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs one command and leaves with its exit code; Ctrl-C leaves with 130, even while modules are loading."""
    try:
        from neve.cli.app import app

        app(prog_name="neve")
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted\n")
        raise SystemExit(130) from None
