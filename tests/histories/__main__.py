"""The command line: `python -m tests.histories --seed N --minutes M` repeats a history; `--schedule` only prints it."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.histories import schedule
from tests.histories.history import History, HistoryFailedError, servers_of_the_session


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description="Two Neves, three writers, many faults.")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--schedule", action="store_true", help="print the schedule and stop")
    parser.add_argument("--keep", type=Path, help="keep logs of the processes in this directory")
    parser.add_argument("--scenes", nargs="+", choices=schedule.SCENES, default=schedule.SCENES, help="only these kinds")
    options = parser.parse_args()
    if options.schedule:
        print(*schedule.draw(options.seed, options.minutes, options.scenes), sep="\n")
        return 0
    print(f"seed {options.seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as temporary, servers_of_the_session() as servers:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            print(History(options.seed, options.minutes, servers, directory, scenes=options.scenes).run())
        except HistoryFailedError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
