"""An actor that says what it is told, for tests of actors."""

from __future__ import annotations

import os
import socket
from typing import Any

from tests.histories.serving import serve, take_host_name


def main() -> None:
    take_host_name()

    def echo(word: str) -> dict[str, Any]:
        return {"word": word, "host": socket.gethostname(), "pid": os.getpid()}

    def fail(word: str) -> None:
        raise ValueError(word)

    serve(lambda tell: ({"echo": echo, "fail": fail, "report": lambda answer: tell(answer)}, ["beside"]))


if __name__ == "__main__":
    main()
