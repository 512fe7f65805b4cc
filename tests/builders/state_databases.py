"""Databases for the state store."""

from __future__ import annotations

import pytest

POSTGRES = pytest.param("postgres", marks=pytest.mark.stack)
