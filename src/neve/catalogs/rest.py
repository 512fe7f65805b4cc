"""pyiceberg's REST catalog with a bounded wait.

pyiceberg sends its requests without a time limit: a server that accepts and never answers would hang a command for ever. Every
request here ends in time, and a read that met an outage is tried again a few times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Self

from pyiceberg.catalog.rest import (
    _RETRY_ARGS,
    Capability,
    Endpoints,
    RestCatalog,
    StorageCredential,
    _handle_non_200_response,
)
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    OAuthError,
    UnauthorizedError,
)
from pyiceberg.io import FileIO
from requests import HTTPError, PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from tenacity import retry
from urllib3.util.retry import Retry

from neve.catalogs.documents import seen
from neve.catalogs.storage import CONNECT_SECONDS, TIMEOUT
from neve.kernels.request_counts import count
from neve.table.document import Document


class _CountedRetries(Retry):
    """A few repetitions of reads, each of which is counted."""

    repeated: Callable[[], None] | None = None

    @classmethod
    def counting(cls, repeated: Callable[[], None]) -> Self:
        """Calls `repeated` before each repetition."""
        retries = cls(
            total=3,
            read=1,  # a server that took a request and fell silent is not asked for ever
            backoff_factor=0.2,
            status_forcelist=(429, 502, 503, 504),
            allowed_methods=("GET", "HEAD"),  # a POST may be a commit, whose fate only the caller can settle
            raise_on_status=False,
        )
        retries.repeated = repeated
        return retries

    def new(self, **changed: Any) -> Self:
        """As urllib3 makes what is left after a try."""
        following = super().new(**changed)
        following.repeated = self.repeated
        return following

    def increment(self, *args: Any, **options: Any) -> Self:
        """As urllib3 does after each try that failed."""
        following = super().increment(*args, **options)  # raises where there is no further try
        if self.repeated is not None:
            self.repeated()
        return following


_COMMIT_ERRORS: dict[int, type[Exception]] = {
    404: NoSuchTableError,
    409: CommitFailedException,
    **dict.fromkeys((500, 502, 503, 504), CommitStateUnknownException),
}
"""As Iceberg's Java reads the answers to a commit."""
REFUSALS = (AuthorizationExpiredError, BadRequestError, ForbiddenError, NotImplementedError, OAuthError, UnauthorizedError)
"""Answers to a commit that certainly did not land, and would not at another try."""


class _WatchedAdapter(HTTPAdapter):
    def send(self, request: PreparedRequest, **options: Any) -> Response:  # type: ignore[override]
        response = super().send(request, **options)
        if request.method == "GET" and response.ok:
            _note_table(response)
        return response


def _note_table(response: Response) -> None:
    """Lets whoever watches have a table's metadata as the server sent it."""
    if "/tables/" not in response.url:
        return
    try:
        answer = response.json()
    except ValueError:
        return
    if isinstance(answer, dict) and isinstance(answer.get("metadata"), dict):
        seen(answer["metadata"], str(answer.get("metadata-location")), answer)


def _answered(response: Response) -> Document:
    try:
        response.raise_for_status()
    except HTTPError as error:
        _handle_non_200_response(error, _COMMIT_ERRORS)
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


class BoundedRestCatalog(RestCatalog):  # type: ignore[misc]
    """A `RestCatalog` whose every request is bounded, the first one and the token's included."""

    requests_sent = 0
    """Requests so far, each repetition included."""

    def files_of(self, answer: Document, properties: Mapping[str, str], location: str) -> FileIO:
        """What opens the files of a table by the server's answer for it, as `load_table` makes it."""
        granted = [StorageCredential.model_validate(one) for one in answer.get("storage-credentials") or ()]
        of_place = self._resolve_storage_credentials(granted, location)
        return self._load_file_io({**properties, **(answer.get("config") or {}), **of_place}, location)

    @retry(**_RETRY_ARGS)  # type: ignore[untyped-decorator]
    def change_properties(self, identifier: Sequence[str], uuid: str, values: Mapping[str, str | None]) -> Document:
        """Sets and removes properties of the table that has this uuid, in one commit, which Iceberg's Java sends alike.

        Returns the server's answer, empty if it cannot be read. Raises PyIceberg's exceptions.
        """
        self._check_endpoint(Capability.V1_UPDATE_TABLE)
        *namespace, name = identifier
        changed = {key: value for key, value in values.items() if value is not None}
        removed = [key for key in values if key not in changed]
        request = {
            "identifier": {"namespace": namespace, "name": name},
            "requirements": [{"type": "assert-table-uuid", "uuid": uuid}],
            "updates": [
                *([{"action": "set-properties", "updates": changed}] if changed else ()),
                *([{"action": "remove-properties", "removals": removed}] if removed else ()),
            ],
        }
        place = self._split_identifier_for_path(tuple(identifier))
        response = self._session.post(self.url(Endpoints.update_table, prefixed=True, **place), data=json.dumps(request))
        return _answered(response)

    def _config_headers(self, session: Session) -> None:
        counting = Lock()

        def sent() -> None:
            count("catalog")
            with counting:
                self.requests_sent += 1

        for prefix in ("http://", "https://"):
            session.mount(prefix, _WatchedAdapter(max_retries=_CountedRetries.counting(sent)))
        send, wait = session.send, (CONNECT_SECONDS, float(self.properties[TIMEOUT]))

        def send_bounded(request: PreparedRequest, **options: Any) -> Response:
            sent()
            return send(request, **{**options, "timeout": options.get("timeout") or wait})

        # Not by the adapter: pyiceberg mounts one of its own where requests are signed.
        session.send = send_bounded  # type: ignore[method-assign]
        super()._config_headers(session)
