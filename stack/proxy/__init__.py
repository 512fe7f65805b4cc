"""A proxy of ours between a client and an HTTP server, which counts what passes and breaks what it is told to break.

    with FaultProxy(s3.endpoint) as proxy:
        proxy.faults.add(answer(503, methods="PUT", times=2))

Tests run it in their own process; `python -m stack up proxy` runs it as a server, steered over HTTP (`control`).
"""

from stack.proxy.faults import Fault, Faults, answer, cut, cut_upload, delay, drop, drop_answer
from stack.proxy.front import FaultProxy
from stack.proxy.requests import Request, Requests

__all__ = [
    "Fault",
    "FaultProxy",
    "Faults",
    "Request",
    "Requests",
    "answer",
    "cut",
    "cut_upload",
    "delay",
    "drop",
    "drop_answer",
]
