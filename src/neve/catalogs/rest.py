"""pyiceberg's REST catalog with a bounded wait.

pyiceberg sends its requests without a time limit: a server that accepts and never answers would hang a command for ever. Every
request here ends in time, and a read that met an outage is tried again a few times.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from neve.catalogs.storage import CONNECT_SECONDS

_RETRIES = Retry(
    total=3,
    read=1,  # a server that took a request and fell silent is not asked for ever
    backoff_factor=0.2,
    status_forcelist=(429, 502, 503, 504),
    allowed_methods=("GET", "HEAD"),  # a POST may be a commit, whose fate only the caller can settle
    raise_on_status=False,
)


class _BoundedAdapter(HTTPAdapter):
    def __init__(self, seconds: float) -> None:
        super().__init__(max_retries=_RETRIES)
        self._seconds = seconds

    def send(self, request: PreparedRequest, **options: Any) -> Response:  # type: ignore[override]
        options["timeout"] = options.get("timeout") or (CONNECT_SECONDS, self._seconds)
        return super().send(request, **options)


class BoundedRestCatalog(RestCatalog):  # type: ignore[misc]
    """A `RestCatalog` whose every request is bounded, the first one and the token's included."""

    def _config_headers(self, session: Session) -> None:
        for prefix in ("http://", "https://"):
            session.mount(prefix, _BoundedAdapter(float(self.properties["neve.timeout-seconds"])))
        super()._config_headers(session)
