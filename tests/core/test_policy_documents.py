"""Policy documents, which tables they name, and what holds for one table."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from neve.policy.changes import ChangeKind, InForce, PolicyPlan, plan_changes
from neve.policy.document import Amounts, Document, Limits, PolicyDocument, TeamDocument, as_written
from neve.policy.effective import (
    EffectivePolicy,
    KnobValue,
    PolicyResolver,
    effective_policy,
    knobs_in_force,
    tightest,
    with_automatic_target,
)
from neve.policy.selector import literal, matches, specificity
from neve.policy.workload_presets import WORKLOAD_PRESETS, automatic_target, with_workload_preset
from neve.table.units import GIB, MIB, TIB

OPTIONS = {"compact": frozenset({"partitions", "where", "tier"}), "expire": frozenset({"keep"})}


def policy(name: str = "p", tables: Any = "prod.*", **keys: Any) -> PolicyDocument:
    named = {"except" if key == "except_tables" else key.replace("_", "-"): value for key, value in keys.items()}
    return PolicyDocument.model_validate({"name": name, "tables": tables} | named)


def team(name: str, **keys: Any) -> TeamDocument:
    return TeamDocument.model_validate({"name": name} | {key.replace("_", "-"): value for key, value in keys.items()})


def resolved(*documents: Document, table: str = "prod.db.t", properties: dict[str, str] | None = None) -> EffectivePolicy:
    return effective_policy(table, properties or {}, documents, operations=OPTIONS)


@pytest.mark.parametrize(
    "keys",
    [
        {"oops": 1},
        {"triggers": {"small_filse": 1}},
        {"schedule": {"cron": "0 2 * *"}},
        {"schedule": {"cron": "61 2 * * *"}},
        {"schedule": {"cron": "0 0 30 2 *"}},
        {"schedule": {"windows": ["22:00-22:00"]}},
        {"schedule": {"windows": "22:00-25:00"}},
        {"schedule": {"windows": "22:00-06:00 mon"}},
        {"schedule": {"windows": ""}},
        {"schedule": {"blackouts": "2026-12-27/2026-12-24"}},
        {"schedule": {"blackouts": "2026-02-30"}},
        {"schedule": {"time-zone": "Berlin"}},
        {"triggers": {"commits": 0}},
        {"triggers": {"commits": True}},
        {"triggers": {"since-last-run": "0 s"}},
        {"triggers": {"average-file-size-below": "64 XB"}},
        {"triggers": {"delete-ratio": float("nan")}},
        {"limits": {"per-day": {"money": -1}}},
        {"operations": [{"name": "compact", "optoins": {}}]},
        {"preset": "huuge"},
        {"priority": 101},
        {"tables": []},
        {"tables": ""},
        {"name": "Upper"},
    ],
    ids=str,
)
def test_a_document_that_cannot_be_meant_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PolicyDocument.model_validate({"name": "p", "tables": "prod.*"} | keys)


def test_short_forms_mean_the_same_as_long_ones() -> None:
    short = policy(
        operations="compact", schedule={"cron": "0  2 * * *", "windows": "mon-fri  22:00-06:00"}, table_properties={"a": 1}
    )
    long = policy(
        tables=["prod.*"],
        operations=[{"name": "compact", "options": {}}],
        schedule={"cron": ["0 2 * * *"], "windows": ["mon-fri 22:00-06:00"]},
        table_properties={"a": "1"},
    )
    assert short == long


def test_a_document_is_written_without_defaults_and_with_units() -> None:
    found = policy(
        operations=["expire", {"name": "compact", "options": {"tier": "minor"}}],
        triggers={"average-file-size-below": 64 * MIB, "at-most-every": 3600, "small-files": 10},
        limits={"per-day": {"bytes": 2 * TIB, "core-seconds": 90.5, "money": 3.5}},
        set={"bytes": 7, "target-file-size": "auto"},
        except_tables=["prod.tmp.*"],
    )
    assert as_written(found) == {
        "kind": "policy",
        "name": "p",
        "tables": ["prod.*"],
        "except": ["prod.tmp.*"],
        "operations": ["expire", {"name": "compact", "options": {"tier": "minor"}}],
        "triggers": {"small-files": 10, "average-file-size-below": "64 MB", "at-most-every": "60 min"},
        "limits": {"per-day": {"bytes": "2 TB", "core-seconds": "90.5 s", "money": 3.5}},
        "set": {"bytes": 7, "target-file-size": "auto"},
    }
    assert PolicyDocument.model_validate(as_written(found)) == found


@pytest.mark.parametrize(
    ("keys", "table", "properties", "does_match"),
    [
        ({"tables": "prod.*"}, "prod.db.t", {}, True),
        ({"tables": "prod.*"}, "prod.a.b.t", {}, True),
        ({"tables": "prod.*"}, "PROD.db.t", {}, False),
        ({"tables": "prod.*"}, "prod2.db.t", {}, False),
        ({"tables": "*.db.t?"}, "prod.db.t1", {}, True),
        ({"tables": "prod.db.t"}, "prod.db.t2", {}, False),
        ({"tables": ["a.*", "*.events"]}, "prod.db.events", {}, True),
        ({"tables": "prod.db.[*]"}, "prod.db.*", {}, True),
        ({"tables": "prod.db.[*]"}, "prod.db.t", {}, False),
        ({"tables": "prod.*", "except": "*.tmp_*"}, "prod.db.tmp_1", {}, False),
        ({"tables": "prod.*", "except": "*.tmp_*"}, "prod.db.t", {}, True),
        ({"tables": "*", "table-properties": {"tier": "gold*"}}, "prod.db.t", {"tier": "gold-1"}, True),
        ({"tables": "*", "table-properties": {"tier": "gold*"}}, "prod.db.t", {"tier": "iron"}, False),
        ({"tables": "*", "table-properties": {"tier": "*"}}, "prod.db.t", {}, False),
        ({"tables": "*", "table-properties": {"cdc": True}}, "prod.db.t", {"cdc": "true"}, True),
    ],
)
def test_a_policy_names_tables_by_globs_exceptions_and_properties(
    keys: dict[str, Any], table: str, properties: dict[str, str], *, does_match: bool
) -> None:
    assert matches(PolicyDocument.model_validate({"name": "p"} | keys), table, properties) is does_match


def test_the_more_specific_policy_has_more_parts_then_properties_then_a_longer_pattern_then_the_later_name() -> None:
    ordered = [
        policy("z", "*"),
        policy("a", "prod.*"),
        policy("b", "prod.*"),
        policy("a", "prod.d*"),
        policy("a", "prod.*", table_properties={"x": "1"}),
        policy("a", "prod.db.*"),
        policy("a", "prod.db.t"),
    ]
    keys = [specificity(one, "prod.db.t") for one in ordered]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


def test_only_the_patterns_that_match_a_table_count_for_how_specific_a_policy_is_there() -> None:
    both = policy("a", ["prod.*", "dev.db.t"])
    assert specificity(both, "prod.db.t") == specificity(policy("a", "prod.*"), "prod.db.t")
    assert specificity(both) == specificity(both, "dev.db.t")


def test_a_literal_pattern_matches_its_text_only() -> None:
    name = "prod.db.a*[x]?"
    assert matches(policy(tables=literal(name)), name, {})
    assert not matches(policy(tables=literal(name)), "prod.db.abx1", {})
    assert specificity(policy(tables=literal(name)))[0] == 3


def test_the_most_specific_policy_that_names_an_operation_decides_about_it_alone() -> None:
    wide = policy("wide", "*", operations=["compact", "expire"], triggers={"commits": 5}, target="big", priority=3)
    narrow = policy("narrow", "prod.db.*", operations="compact", triggers={"small-files": 9})
    rules = {rule.operation: rule for rule in resolved(wide, narrow).rules}
    assert {name: rule.policy for name, rule in rules.items()} == {"compact": "narrow", "expire": "wide"}
    assert rules["compact"].triggers == narrow.triggers
    assert (rules["compact"].target, rules["expire"].target, rules["expire"].priority) == ("auto", "big", 3)


def test_a_policy_that_is_not_enabled_switches_its_operations_off_and_gives_nothing_else() -> None:
    wide = policy("wide", "*", operations=["compact", "expire"], set={"max-files": 1})
    off = policy(
        "off", "prod.db.*", operations="compact", enabled=False, set={"max-files": 2}, limits={"per-run": {"bytes": 1}}
    )
    found = resolved(wide, off)
    assert [rule.operation for rule in found.rules] == ["expire"]
    assert found.switched_off == {"compact": "off"}
    assert found.knobs == {"max-files": KnobValue(value=1, policy="wide")}
    assert found.rules[0].per_run == Amounts()


def test_an_operation_that_this_release_lacks_is_named_and_not_run() -> None:
    found = resolved(policy("new", operations=["compact", "teleport"]))
    assert [rule.operation for rule in found.rules] == ["compact"]
    assert found.unknown_operations == {"teleport": "new"}


def test_knobs_are_merged_with_the_most_specific_policy_last() -> None:
    wide = policy("wide", "*", set={"max-files": 1, "fragment-ratio": 4})
    narrow = policy("narrow", "prod.db.*", set={"max-files": 2})
    expected = {"max-files": KnobValue(value=2, policy="narrow"), "fragment-ratio": KnobValue(value=4, policy="wide")}
    assert resolved(wide, narrow).knobs == expected
    assert knobs_in_force("prod.db.t", {}, [narrow, wide]) == expected
    assert knobs_in_force("dev.db.t", {}, [narrow]) == {}


def test_the_filter_of_a_policy_reaches_operations_that_take_one_unless_their_options_have_it() -> None:
    found = resolved(policy(operations=["compact", "expire"], partitions="day=2026-*", where="day >= current_date()"))
    options = {rule.operation: rule.options for rule in found.rules}
    assert options == {"compact": {"partitions": ["day=2026-*"], "where": "day >= current_date()"}, "expire": {}}
    own = {"name": "compact", "options": {"where": "id = 1", "tier": "minor"}}
    assert resolved(policy(operations=[own], where="id = 2")).rules[0].options == {"where": "id = 1", "tier": "minor"}


def test_limits_of_every_matching_policy_and_of_the_owner_apply() -> None:
    documents: list[Document] = [
        policy("wide", "*", operations="compact", owner="sales", limits={"per-run": {"bytes": 10, "money": 2}}),
        policy(
            "narrow",
            "prod.*",
            limits={"per-run": {"bytes": 20}, "per-day": {"bytes": 100}},
            schedule={"time-zone": "Asia/Tokyo"},
        ),
        team("sales", limits={"per-run": {"money": 1}, "per-day": {"money": 9}}, time_zone="Europe/Berlin", concurrency=2),
        team("others", limits={"per-run": {"money": 0.1}}),
    ]
    found = resolved(*documents)
    assert (found.owner, found.concurrency, found.policies) == ("sales", 2, ("narrow", "wide"))
    assert found.rules[0].per_run == Amounts(bytes=10, money=1)
    assert [(one.scope, one.amounts, one.time_zone) for one in found.per_day] == [
        ("policy narrow", Amounts(bytes=100), "Asia/Tokyo"),
        ("team sales", Amounts(money=9), "Europe/Berlin"),
    ]


def test_the_owner_is_that_of_the_most_specific_policy_that_names_one() -> None:
    assert resolved(policy("wide", "*", owner="a"), policy("narrow", "prod.db.*")).owner == "a"
    assert resolved(policy("wide", "*", owner="a"), policy("narrow", "prod.db.*", owner="b")).owner == "b"
    assert resolved(policy("wide", "*", owner="a", enabled=False)).owner == ""


def test_the_tightest_of_no_limits_is_no_limit() -> None:
    assert tightest([]) == Amounts()
    assert tightest([Amounts(bytes=3), Amounts(bytes=2, money=1), Amounts()]) == Amounts(bytes=2, money=1)


def test_tables_that_the_same_policies_match_share_an_answer_under_their_own_names() -> None:
    resolver = PolicyResolver([policy(operations="compact")], operations=OPTIONS)
    first, second = resolver.effective("prod.db.a", {}), resolver.effective("prod.db.b", {})
    assert (first.table, second.table) == ("prod.db.a", "prod.db.b")
    assert first.rules is second.rules


def test_every_workload_preset_makes_something_due() -> None:
    for name, preset in WORKLOAD_PRESETS.items():
        found = with_workload_preset(policy(preset=name, operations="compact"))
        assert found.triggers.makes_due or found.schedule.cron, name
        assert found.knobs == preset.knobs


def test_what_a_document_says_itself_goes_before_its_preset() -> None:
    own = policy(preset="small", triggers={"small-files": 7}, schedule={"cron": "0 1 * * *"}, set={"target-file-size": "auto"})
    found = with_workload_preset(own)
    assert found.triggers.small_files == 7
    assert found.triggers.delete_ratio == WORKLOAD_PRESETS["small"].triggers.delete_ratio
    assert found.schedule.cron == ("0 1 * * *",)
    assert found.knobs == {"target-file-size": "auto"}
    assert resolved(own).knobs["target-file-size"] == KnobValue(value="auto", policy="p")


@pytest.mark.parametrize(
    ("size", "rows", "current", "target"),
    [
        (0, None, None, 64 * MIB),
        (8 * GIB - 1, None, None, 64 * MIB),
        (8 * GIB, None, None, 128 * MIB),
        (512 * GIB, None, None, 256 * MIB),
        (2 * TIB, None, None, 512 * MIB),
        (8 * TIB, None, None, GIB),
        (100 * GIB, 10**9, None, GIB),
        (99 * GIB, 10**9, None, 128 * MIB),
        (9 * GIB, None, 64 * MIB, 64 * MIB),
        (13 * GIB, None, 64 * MIB, 128 * MIB),
        (7 * GIB, None, 128 * MIB, 128 * MIB),
        (5 * GIB, None, 128 * MIB, 64 * MIB),
        (GIB, None, 512 * MIB, 64 * MIB),
        (None, None, 512 * MIB, 512 * MIB),
        (None, 10**10, None, None),
    ],
)
def test_an_automatic_target_grows_with_the_table_and_does_not_flap(
    size: int | None, rows: int | None, current: int | None, target: int | None
) -> None:
    assert automatic_target(size, rows=rows, current=current) == target


def test_only_a_target_of_auto_is_replaced() -> None:
    auto, fixed = KnobValue(value="auto", policy="p"), KnobValue(value="1 GB", policy="p")
    other = KnobValue(value=3, policy="q")
    knobs = {"target-file-size": auto, "max-files": other}
    assert with_automatic_target(knobs, 0) == {"target-file-size": KnobValue(value=64 * MIB, policy="p"), "max-files": other}
    assert with_automatic_target(knobs, None) == {"max-files": other}
    assert with_automatic_target({"target-file-size": fixed}, 0) == {"target-file-size": fixed}


def planned(*wanted: Document, prune: bool = False) -> PolicyPlan:
    in_force = {
        ("policy", "same"): InForce(version=1, document=policy("same")),
        ("policy", "other"): InForce(version=4, document=policy("other")),
        ("policy", "unreadable"): InForce(version=2, document=None),
        ("team", "same"): InForce(version=3, document=team("same")),
    }
    return plan_changes(in_force, wanted, prune=prune)


def test_only_documents_that_differ_change() -> None:
    plan = planned(policy("same"), policy("other", priority=1), policy("new"), policy("unreadable"))
    assert [(one.name, one.change, one.version) for one in plan.changes] == [
        ("new", ChangeKind.ADDED, 0),
        ("other", ChangeKind.CHANGED, 4),
        ("unreadable", ChangeKind.CHANGED, 2),
    ]
    assert (plan.unchanged, plan.only_in_force) == (1, ("team same",))
    assert plan.count(ChangeKind.CHANGED) == 2


def test_what_is_in_force_alone_is_removed_only_if_asked() -> None:
    plan = planned(policy("same"), prune=True)
    assert [(one.kind, one.name, one.change, one.after) for one in plan.changes] == [
        ("policy", "other", ChangeKind.REMOVED, None),
        ("policy", "unreadable", ChangeKind.REMOVED, None),
        ("team", "same", ChangeKind.REMOVED, None),
    ]
    assert plan.only_in_force == ()


def test_limits_are_kept_as_numbers() -> None:
    assert team("a", limits={"per-day": {"bytes": "1 KB", "core-seconds": "1 h"}}).limits == Limits(
        per_day=Amounts(bytes=1024, core_seconds=3600)
    )
