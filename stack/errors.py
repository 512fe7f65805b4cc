"""The two ways in which a server is not there: it cannot be had on this machine, or it was had and did not come up."""

from __future__ import annotations

from neve.errors import EnvironmentFaultError


class UnavailableError(EnvironmentFaultError):
    """This machine cannot have the server: a download, a tool or a platform is missing. Tests skip on it."""

    code = "stack-unavailable"


class StartFailedError(EnvironmentFaultError):
    """The server was there and did not become ready in time, or died. Tests fail on it."""

    code = "stack-start-failed"
    retryable = True


class NotReadyError(Exception):
    """Raised by a check that may pass a moment later; the supervisor asks again until its time is up."""
