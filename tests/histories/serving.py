"""The far side of an actor: answers orders that come as lines of JSON, each lane one after another, lanes at the same time.

Orders of a lane that has no thread of its own are carried out by the main thread, where Spark's session is the active one.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

HOST, UNSHARED = "HISTORY_HOST", "HISTORY_UNSHARED"
Calls = Mapping[str, Callable[..., Any]]
Tell = Callable[[Mapping[str, Any]], None]


def take_host_name() -> None:
    """Gives this process the host name of its actor: a real one in a namespace of its own, else as Python tells it."""
    name = os.environ[HOST]
    if os.environ.get(UNSHARED) == "1":
        socket.sethostname(name)
    else:
        socket.gethostname = lambda: name


def serve(start: Callable[[Tell], tuple[Calls, list[str]]]) -> None:
    """Starts, reports that, and answers until the input ends. `start` gets the function that sends a message by itself."""
    # Whatever prints to stdout in this process must not meet the answers.
    answers, lock = os.fdopen(os.dup(1), "w"), threading.Lock()
    os.dup2(2, 1)

    def tell(answer: Mapping[str, Any]) -> None:
        with lock:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()

    calls, names = start(tell)
    lanes = {name: queue.SimpleQueue[dict[str, Any] | None]() for name in names}
    for lane in lanes.values():
        threading.Thread(target=_work, args=(lane, calls, tell), daemon=True).start()
    tell({"id": 0, "answer": {"pid": os.getpid(), "host": socket.gethostname()}})
    for line in sys.stdin:
        order = json.loads(line)
        name = order.pop("lane")
        if name in lanes:
            lanes[name].put(order)
        else:
            _answer(order, calls, tell)


def _work(lane: queue.SimpleQueue[dict[str, Any] | None], calls: Calls, tell: Tell) -> None:
    while order := lane.get():
        _answer(order, calls, tell)


def _answer(order: dict[str, Any], calls: Calls, tell: Tell) -> None:
    number, what = order.pop("id"), order.pop("do")
    try:
        answer = calls[what](**order)
    except Exception as error:
        answer = failure(error)
    tell({"id": number, "answer": answer})


def failure(error: Exception) -> dict[str, Any]:
    """An exception as an answer; `ours` is whether the code under test raised it on purpose."""
    import traceback

    names = [kind.__name__ for kind in type(error).__mro__]
    java = getattr(error, "java_exception", None)
    text = str(java or error)
    ours = "NeveError" in names
    return {
        "error": type(error).__name__,
        "message": text[:1500],
        "ours": ours,
        "trace": "" if ours else "".join(traceback.format_exception(error))[-4000:],
    }
