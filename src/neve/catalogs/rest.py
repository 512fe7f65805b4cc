"""pyiceberg's REST catalog with a bounded wait.

pyiceberg sends its requests without a time limit: a server that accepts and never answers would hang a command for ever. Every
request here ends in time, and a read that met an outage is tried again a few times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog.rest import RestCatalog, StorageCredential
from pyiceberg.io import FileIO
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from neve.catalogs.documents import understandable
from neve.catalogs.storage import CONNECT_SECONDS
from neve.table.document import Document

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
        response = super().send(request, **options)
        return _understandable(response) if request.method == "GET" and response.ok else response


def _understandable(response: Response) -> Response:
    """The answer, in which a table's metadata has no types that PyIceberg does not know."""
    if "/tables/" not in response.url:
        return response
    try:
        answer = response.json()
    except ValueError:
        return response
    if isinstance(answer, dict) and isinstance(answer.get("metadata"), dict):
        known = understandable(answer["metadata"], str(answer.get("metadata-location")), answer)
        if known != answer["metadata"]:
            response._content = json.dumps(answer | {"metadata": known}).encode()
            response.encoding = "utf-8"
    return response


class BoundedRestCatalog(RestCatalog):  # type: ignore[misc]
    """A `RestCatalog` whose every request is bounded, the first one and the token's included."""

    def files_of(self, answer: Document, properties: Mapping[str, str], location: str) -> FileIO:
        """What opens the files of a table by the server's answer for it, as `load_table` makes it."""
        granted = [StorageCredential.model_validate(one) for one in answer.get("storage-credentials") or ()]
        of_place = self._resolve_storage_credentials(granted, location)
        return self._load_file_io({**properties, **(answer.get("config") or {}), **of_place}, location)

    def _config_headers(self, session: Session) -> None:
        for prefix in ("http://", "https://"):
            session.mount(prefix, _BoundedAdapter(float(self.properties["neve.timeout-seconds"])))
        super()._config_headers(session)
