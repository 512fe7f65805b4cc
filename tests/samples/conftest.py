"""Two warehouses with every sample that needs no Spark, built once from one seed; a third place for odd requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from pyiceberg.table import Table

from neve.samples import SAMPLES, Target
from tests.builders.warehouses import Build, open_catalog

SEED = 7
SCALE = 0.2


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    """An empty warehouse."""
    with closing(open_catalog(tmp_path)) as catalog:
        yield Target(catalog)


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    """Builds a sample in a warehouse of a given name, once."""
    built: dict[tuple[str, str, int], Table] = {}
    targets: dict[str, Target] = {}
    with ExitStack() as stack:

        def build(name: str, *, place: str = "first", seed: int = SEED) -> Table:
            if place not in targets:
                catalog = stack.enter_context(closing(open_catalog(tmp_path_factory.mktemp(place))))
                targets[place] = Target(catalog)
            key = (name, place, seed)
            if key not in built:
                built[key] = SAMPLES[name].build(targets[place], seed=seed, scale=SCALE)
            return built[key]

        yield build
