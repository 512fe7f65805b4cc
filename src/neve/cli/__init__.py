"""The command line. `main` is the console script; everything heavy is imported by the command that needs it."""

from neve.cli.entry import main

__all__ = ["main"]
