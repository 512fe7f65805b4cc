from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest

from neve.state import StateStore
from tests.builders.state_databases import POSTGRES


@pytest.fixture(params=["sqlite", "memory", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind that is supported."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'deep' / 'er' / 'state.db'}"
    elif request.param == "memory":
        yield "sqlite://"
    else:
        yield from _postgres_schema(request.getfixturevalue("postgres").url)


@pytest.fixture
def store(url: str) -> Iterator[StateStore]:
    with StateStore.open(url) as store:
        yield store


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


def _postgres_schema(url: str) -> Iterator[str]:
    """A schema of its own, so that tests do not see each other's tables."""
    from sqlalchemy import create_engine, text

    name = f"neve_{uuid4().hex}"
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    yield f"{url.replace('+psycopg2', '')}?options={quote(f'-csearch_path={name}')}"
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
    engine.dispose()
