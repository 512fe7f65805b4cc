"""Policy documents in the store: applied all or none, versioned and audited, and never over somebody else's change."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import insert, update

from neve.errors import BadRequestError
from neve.policy.document import Document, PolicyDocument, TeamDocument
from neve.state import StateStore, schema
from neve.state.policies import DocumentVersion, PolicyChange, PolicyConflictError, StoredDocument
from tests.builders.jobs import NOW
from tests.builders.state_databases import POSTGRES


def policy(name: str = "hot", **values: Any) -> PolicyDocument:
    return PolicyDocument.model_validate({"name": name, "tables": "lake.*", "operations": ["compact"], **values})


def change(document: Document, expected_version: int = 0) -> PolicyChange:
    return PolicyChange(kind=document.kind, name=document.name, document=document, expected_version=expected_version)


def deletion(name: str = "hot", expected_version: int = 1) -> PolicyChange:
    return PolicyChange(kind="policy", name=name, expected_version=expected_version)


def apply(store: StateStore, *changes: PolicyChange, by: str = "anna", now_ms: int = NOW) -> tuple[StoredDocument, ...]:
    return store.policies.apply(changes, by=by, now_ms=now_ms, source="policies.yaml")


def test_documents_come_back_as_they_were_by_kind_and_name(store: StateStore) -> None:
    whole = policy(
        tables=["lake.a.*", "lake.b"],
        preset="cdc",
        schedule={"cron": "0 2 * * *", "windows": ["mon-fri 22:00-06:00"], "time-zone": "Europe/Berlin"},
        triggers={"small-files": 3, "since-last-run": "1 day"},
        limits={"per-day": {"bytes": "1 TB", "money": 3.5}},
        set={"target-file-size": "auto"},
        operations=["compact", {"name": "expire", "options": {"keep": 3}}],
        except_tables=["lake.a.x"],
    )
    team = TeamDocument(name="sales", concurrency=2, notify=("mail",))
    assert apply(store, change(team), change(whole), change(policy("cold"))) == store.policies.documents()
    assert [(one.kind, one.name, one.version, one.changed_ms, one.document) for one in store.policies.documents()] == [
        ("policy", "cold", 1, NOW, policy("cold")),
        ("policy", "hot", 1, NOW, whole),
        ("team", "sales", 1, NOW, team),
    ]


def test_defaults_are_not_stored_so_that_an_older_release_can_read_the_document(store: StateStore) -> None:
    apply(store, change(policy()))
    with store._engine.connect() as connection:
        stored = connection.execute(schema.policies.select()).one().document
    assert set(stored) == {"kind", "name", "tables", "operations"}


def test_each_change_is_a_version_with_who_made_it_and_an_unchanged_document_is_none(store: StateStore) -> None:
    apply(store, change(policy()), change(policy("cold")))
    assert apply(store, change(policy(), 1), change(policy("cold", priority=1), 1), by="bert", now_ms=NOW + 1) == (
        StoredDocument(kind="policy", name="cold", version=2, changed_ms=NOW + 1, document=policy("cold", priority=1)),
    )
    assert apply(store, change(policy(), 1), change(policy("cold", priority=1), 2), now_ms=NOW + 2) == ()
    assert [(one.name, one.version, one.changed_by, one.changed_ms, one.source) for one in store.policies.history()] == [
        ("cold", 2, "bert", NOW + 1, "policies.yaml"),
        ("cold", 1, "anna", NOW, "policies.yaml"),
        ("hot", 1, "anna", NOW, "policies.yaml"),
    ]
    assert [one.version for one in store.policies.history("policy", "cold", limit=1)] == [2]
    assert store.policies.history("team") == ()


def test_a_deletion_is_a_version_too_and_numbers_go_on_after_it(store: StateStore) -> None:
    apply(store, change(policy()))
    assert [(one.version, one.document) for one in apply(store, deletion(), by="bert", now_ms=NOW + 1)] == [(2, None)]
    assert store.policies.documents() == ()
    assert apply(store, deletion(expected_version=0)) == ()
    apply(store, change(policy(priority=3)), now_ms=NOW + 2)
    assert [(one.version, one.document) for one in store.policies.history()] == [
        (3, policy(priority=3)),
        (2, None),
        (1, policy()),
    ]
    assert store.policies.history()[1] == DocumentVersion(
        kind="policy", name="hot", version=2, changed_ms=NOW + 1, changed_by="bert", source="policies.yaml"
    )


def test_a_change_that_was_worked_out_on_an_older_version_is_refused_and_nothing_is_applied(store: StateStore) -> None:
    apply(store, change(policy()))
    apply(store, change(policy(priority=1), 1))
    message = (
        r"^Cannot apply policies: somebody else has changed them since \(policy gone is at version 0, not 1; "
        r"policy hot is at version 2, not 1\)$"
    )
    with pytest.raises(PolicyConflictError, match=message):
        apply(store, change(policy("new")), change(policy(priority=9), 1), deletion("gone"))
    assert [(one.name, one.version) for one in store.policies.documents()] == [("hot", 2)]
    assert len(store.policies.history()) == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ((change(policy()), change(policy())), "it is changed twice"),
        (
            (PolicyChange(kind="policy", name="warm", document=policy()),),
            "its document is that of policy hot",
        ),
    ],
)
def test_contradictions_are_refused(store: StateStore, changes: tuple[PolicyChange, ...], reason: str) -> None:
    with pytest.raises(BadRequestError, match=rf"^Cannot apply policy \w+: {reason}$"):
        apply(store, *changes)
    assert store.policies.documents() == ()


def test_a_document_of_a_newer_release_is_listed_with_the_reason_why_it_cannot_be_read(store: StateStore) -> None:
    apply(store, change(policy()), change(policy("cold")))
    with store._engine.begin() as connection:
        for table in (schema.policies, schema.policy_versions):
            newer = {"kind": "policy", "name": "hot", "tables": ["x"], "moon-phase": "full"}
            connection.execute(update(table).where(table.c.name == "hot").values(document=newer))
        row = {"kind": "moon", "name": "m", "version": 1, "document": {}, "changed_ms": NOW}
        connection.execute(insert(schema.policies).values(**row))
    moon, cold, hot = store.policies.documents()
    assert (moon.document, moon.trouble) == (None, "this release does not know the kind moon")
    assert (cold.document, cold.trouble) == (policy("cold"), None)
    assert hot.trouble == "this release cannot read it (moon-phase: Extra inputs are not permitted)"
    [version] = [one for one in store.policies.history() if one.name == "hot"]
    assert (version.document, version.trouble) == (None, hot.trouble)
    assert [one.version for one in apply(store, change(policy(), 1))] == [2]


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_of_many_who_apply_together_one_wins_each_version(store: StateStore) -> None:
    def attempt(number: int) -> bool:
        try:
            return bool(apply(store, change(policy(priority=number + 1)), by=str(number)))
        except PolicyConflictError:
            return False

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(attempt, range(8)))
    assert answers.count(True) == 1
    (winner,) = store.policies.history()
    assert winner.changed_by == str(answers.index(True))
