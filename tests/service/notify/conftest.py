"""What the tests of notifications share: a certificate."""

from __future__ import annotations

import pytest

from tests.builders.loopback_servers import Certificate, make_certificate


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """For hooks.test."""
    return make_certificate(tmp_path_factory.mktemp("tls") / "hooks.pem", "hooks.test")
