"""A table in memory with many manifests, and the run that rewrites them."""

from __future__ import annotations

from neve.operations.requests import ManifestsRequest
from neve.operations.rewrite_manifests import rewrite_manifests
from neve.policy.model import Policy
from tests.builders.fake_maintenance_tables import FakeTable

POLICY, REQUEST = Policy.model_validate({"manifest-min-count": 3}), ManifestsRequest()


def many_manifests(version: int = 2, commits: int = 5) -> FakeTable:
    """Returns a table with one manifest per commit."""
    table = FakeTable(format_version=version)
    for _ in range(commits):
        table.append()
    return table


def rewrite(table: FakeTable) -> object:
    """Rewrites the manifests with a policy that does so from 3 of them."""
    return rewrite_manifests(table.context(POLICY), table, REQUEST)
