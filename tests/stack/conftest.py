"""What the tests of the stack itself share; the servers come from `stack.pytest_plugin`."""

from __future__ import annotations

import pytest

from stack.ports import free_ports


@pytest.fixture
def unused_port() -> int:
    (port,) = free_ports(1)
    return port
