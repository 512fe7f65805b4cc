"""Azure Blob Storage as Azurite answers it, from its npm package. It has no hierarchical namespace (abfss calls vary)."""

from __future__ import annotations

import base64
import shutil
import signal
from pathlib import Path
from typing import Any

from stack import toolchain, web
from stack.endpoints import AzureEndpoint
from stack.errors import NotReadyError
from stack.ports import free_ports
from stack.server import Launch

_VERSION = "3.35.0"
_ACCOUNT, _CONTAINER = "nevestack", "warehouse"
_KEY = base64.b64encode(b"a key for tests, known to everybody").decode()


class Azure:
    """One Node process, blobs only."""

    name = "azure"
    needs: tuple[str, ...] = ()
    endpoint_type = AzureEndpoint
    ready_seconds = 60.0
    stop_signal = signal.SIGTERM

    def install(self, cache: Path) -> None:
        """Installs the package and what it depends on, 190 MB, on first use."""
        _program(cache)

    def start(self, launch: Launch) -> AzureEndpoint:
        """An account of our own instead of the one that every Azurite has."""
        (port,) = free_ports(1)
        node = shutil.which("node") or "node"
        where = ["--location", str(launch.data), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
        launch.spawn(
            [node, _program(launch.places.cache), *where, "--skipApiVersionCheck", "--disableTelemetry"],
            env={"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"},
        )
        return AzureEndpoint(f"127.0.0.1:{port}", _ACCOUNT, _KEY, _CONTAINER)

    def check(self, endpoint: AzureEndpoint) -> None:
        """Makes the container if need be."""
        web.require_listener(endpoint.authority)
        try:
            filesystem(endpoint).create_dir(endpoint.container)
        except OSError as error:
            raise NotReadyError(str(error)) from error


def filesystem(endpoint: AzureEndpoint) -> Any:
    """A pyarrow file system on it."""
    from pyarrow import fs

    return fs.AzureFileSystem(
        endpoint.account,
        account_key=endpoint.key,
        blob_storage_authority=endpoint.authority,
        dfs_storage_authority=endpoint.authority,
        blob_storage_scheme="http",
        dfs_storage_scheme="http",
    )


def _program(cache: Path) -> Path:
    directory = toolchain.make(
        "azure",
        cache / f"azurite-{_VERSION}",
        ["npm", "install", "--no-audit", "--no-fund", "--prefix", ".", f"azurite@{_VERSION}"],
        env={"npm_config_update_notifier": "false"},
        seconds=600,
    )
    return directory / "node_modules" / ".bin" / "azurite-blob"
