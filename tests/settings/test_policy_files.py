"""Policy documents in YAML files: read, checked as a whole, and written."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from neve.errors import SettingsError
from neve.maintenance.delete_files import Upkeep
from neve.operations.policy_options import operation_problems, option_names
from neve.operations.registry import OPERATIONS
from neve.operations.requests import UPKEEP
from neve.policy.document import Document, OperationChoice, PolicyDocument
from neve.settings.policy_files import Vocabulary, policy_yaml, read_policies

Read = Callable[..., tuple[Document, ...]]


@pytest.fixture
def read(place: Path) -> Read:
    """Writes the texts as a.yaml, b.yaml and so on, and reads the file or the directory."""

    def read(*texts: str, teams: tuple[str, ...] = ()) -> tuple[Document, ...]:
        directory = place / "policies"
        directory.mkdir(exist_ok=True)
        for name, text in zip("abcd", texts, strict=False):
            (directory / f"{name}.yaml").write_text(dedent(text))
        path = "policies" if len(texts) > 1 else "policies/a.yaml"
        return read_policies(path, Vocabulary(operation_problems, ["local", "cluster"], ["ops"], teams, option_names()))

    return read


def problems(read: Read, *texts: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(*texts)
    assert caught.value.hint is not None
    assert "policies.md" in caught.value.hint
    first, *rest = str(caught.value).replace("policies/", "").split("\n  ")
    if not rest:
        return [first.removeprefix("Cannot use these policies: ")]
    assert first == f"Cannot use these policies: {len(rest)} problems"
    return rest


def test_several_documents_of_a_file_and_several_files_are_one_set(read: Read) -> None:
    found = read(
        """
        kind: policy
        name: b
        tables: prod.*
        owner: sales
        ---
        # nothing but a comment
        ---
        kind: team
        name: sales
        notify: ops
        """,
        "{kind: policy, name: a, tables: [dev.*], target: cluster}",
    )
    assert [(one.kind, one.name) for one in found] == [("policy", "a"), ("policy", "b"), ("team", "sales")]


def test_only_yaml_files_that_are_not_hidden_count_at_any_depth(place: Path, read: Read) -> None:
    for name in ("policies/x/y/deep.yml", "policies/.git/no.yaml", "policies/.no.yaml", "policies/no.txt"):
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"kind: policy\nname: {file.stem.strip('.')}\ntables: '*'\n")
    assert [one.name for one in read("", "")] == ["deep"]


def test_standard_input_is_read_by_a_hyphen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("kind: policy\nname: a\ntables: 1\n"))
    with pytest.raises(SettingsError, match="standard input, line 3: tables: should be a list, not 1"):
        read_policies("-", Vocabulary(operation_problems, [], []))


def test_dates_windows_and_property_values_need_no_quotes(read: Read) -> None:
    [found] = read(
        """
        kind: policy
        name: a
        tables: prod.*
        table-properties: {cdc: true, level: 3}
        schedule: {blackouts: 2026-12-24, windows: 22:00-06:00}
        """
    )
    assert isinstance(found, PolicyDocument)
    assert found.schedule.blackouts == ("2026-12-24",)
    assert found.schedule.windows == ("22:00-06:00",)
    assert found.table_properties == {"cdc": "true", "level": "3"}


def test_every_problem_of_every_file_is_named_at_once_with_its_line(read: Read) -> None:
    found = problems(
        read,
        """
        kind: policy
        name: a
        tables: prod.*
        owner: nobody
        target: clutser
        operations:
          - compactt
          - name: compact
            options:
              teir: minor
              tier: minr
              force: 1
              where: 3
          - rollback
          - name: manifests
            options: {limit: 1, by: day, dry-run: true}
          - deletes
        triggers:
          small-filse: 3
        schedule:
          windows: [mon, xyz]
        set:
          max-filse: 3
          target-file-size: 1 XB
        """,
        """
        kind: team
        name: t
        notify: [ops, slak]
        limits: {per-day: {bites: 3}}
        """,
    )
    assert found == [
        "a.yaml, line 5: owner: there is no team 'nobody' (known: t)",
        "a.yaml, line 6: target: there is no target 'clutser', did you mean cluster?",
        "a.yaml, line 8: operations[0].name: there is no operation 'compactt', did you mean compact?",
        "a.yaml, line 11: operations[1].options.teir: unknown option, did you mean tier?",
        "a.yaml, line 12: operations[1].options.tier: there is no 'minr'; write one of minor, major, full",
        "a.yaml, line 13: operations[1].options.force: should be a valid boolean, not 1",
        "a.yaml, line 14: operations[1].options.where: should be a valid string, not 3",
        "a.yaml, line 15: operations[2].name: rollback works on a run and not on a table, so that no policy can ask for it",
        "a.yaml, line 17: operations[3].options.limit: should be at least 2, not 1",
        "a.yaml, line 17: operations[3].options.by: should be a list, not 'day'",
        (
            "a.yaml, line 17: operations[3].options.dry-run: no policy can ask for a dry run; `neve policy test` shows what "
            "would be done"
        ),
        "a.yaml, line 18: operations[4].options: operation is needed",
        "a.yaml, line 20: triggers.small-filse: unknown key, did you mean small-files?",
        (
            "a.yaml, line 22: schedule.windows[1]: 'xyz' is not a window: 'xyz' is not a day; write mon, tue, wed, thu, fri, "
            "sat, sun"
        ),
        "a.yaml, line 24: set.max-filse: unknown key, did you mean max-files?",
        (
            "a.yaml, line 25: set.target-file-size: unknown unit 'xb' in size '1 XB'; write B, KB, MB, GB or TB (1024-based), "
            "such as 128 MB"
        ),
        "b.yaml, line 4: notify[1]: there is no channel 'slak' (known: ops)",
        "b.yaml, line 5: limits.per-day.bites: unknown key, did you mean bytes?",
    ]


def test_a_name_is_used_once_for_each_kind_in_all_files(read: Read) -> None:
    text = "kind: policy\nname: a\ntables: prod.*\n"
    assert problems(read, text, text) == ["b.yaml, line 2: name: policy a is also in a.yaml, line 2"]
    assert len(read(text, "kind: team\nname: a\n")) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: a\n", "line 1: kind: is needed: policy or team"),
        ("kind: polcy\n", "line 1: kind: there is no kind 'polcy', did you mean policy?"),
        ("- a\n", "line 1: should be a section with keys such as kind, name and tables"),
        (
            "kind: team\nname: Sales\n",
            ("line 2: name: 'Sales' is not a name: write lower-case letters, digits, dots, hyphens and underscores"),
        ),
        ("kind: policy\nname: a\n", "line 1: tables: is needed"),
        ("kind: policy\nname: a\ntables: []\n", "line 3: tables: should not be empty"),
        ("kind: policy\nname: a\ntables: x\nname: b\n", "line 4: key 'name' is given twice"),
        ("kind: policy\nname: [\n", "line 3: expected the node content, but found '<stream end>'"),
        (
            "kind: policy\nname: a\ntables: x\npreset: smal\n",
            "line 4: preset: there is no workload preset 'smal', did you mean small?",
        ),
        (
            "kind: policy\nname: a\ntables: x\noperations: compact\n",
            ("line 4: operations: nothing makes them due: add triggers, a cron schedule or a preset"),
        ),
        (
            "kind: policy\nname: a\ntables: x\nschedule: {windows: sat, blackouts: sat-sun}\n",
            ("line 4: schedule: work can never begin: the blackouts cover every window"),
        ),
        (
            "kind: policy\nname: a\ntables: x\ntriggers: {commits: 1}\noperations: [expire, expire]\n",
            ("line 5: operations[1]: expire is listed twice; use one policy for each"),
        ),
        (
            "kind: policy\nname: a\ntables: x\ntriggers: {commits: 1}\noperations: expire\nwhere: day > '2026-01-01'\n",
            "line 6: where: limits none of the operations expire; those that take it are cluster, compact",
        ),
        (
            "kind: policy\nname: a\ntables: x\ntriggers: {commits: 1}\noperations: [compact, maintain]\npartitions: p=1\n",
            (
                "line 6: partitions: maintain works on the whole table; name the operations that should keep to this part: "
                "cluster, compact"
            ),
        ),
        (
            "kind: policy\nname: a\ntables: x\ntriggers: {small_files: 1}\n",
            ("line 4: triggers.small_files: unknown key, did you mean small-files?"),
        ),
        (
            "kind: policy\nname: a\ntables: x\nset: {max-files: '${env:X}'}\n",
            ("line 4: set.max-files: takes no reference; set it by its NEVE_ variable instead"),
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(read: Read, text: str, problem: str) -> None:
    assert problems(read, text) == [f"a.yaml, {problem}"]


def test_knobs_that_contradict_each_other_are_refused(read: Read) -> None:
    text = "kind: policy\nname: a\ntables: x\npreset: small\nset:\n  small-file-threshold: 1 GB\n"
    [found] = problems(read, text)
    assert found.startswith("a.yaml, line 6: set.small-file-threshold: ")
    assert "target-file-size" in found


def test_documents_before_and_after_one_that_cannot_be_read_are_checked_too(read: Read) -> None:
    found = problems(read, "kind: team\nname: A\n---\na: b: c\n", "kind: team\nname: B\n")
    assert [line.partition(": ")[0] for line in found] == [
        "a.yaml, line 2",
        "b.yaml, line 2",
        "a.yaml, line 4",
    ]


def test_a_team_in_force_can_be_named(read: Read) -> None:
    text = "kind: policy\nname: a\ntables: x\nowner: sales\n"
    assert problems(read, text) == ["a.yaml, line 4: owner: there is no team 'sales' (known: none)"]
    assert len(read(text, teams=("sales",))) == 1


def test_a_policy_that_is_not_enabled_needs_nothing_that_makes_it_due(read: Read) -> None:
    assert len(read("kind: policy\nname: a\ntables: x\noperations: compact\nenabled: false\n")) == 1


def test_a_path_without_policies_is_refused(place: Path) -> None:
    words = Vocabulary(operation_problems, [], [])
    with pytest.raises(SettingsError, match=r"Cannot read policies missing\.yaml: No such file"):
        read_policies("missing.yaml", words)
    (place / "empty").mkdir()
    with pytest.raises(SettingsError, match=r"the directory has no \.yaml file"):
        read_policies("empty", words)
    (place / "latin.yaml").write_bytes(b"name: \xe9\n")
    with pytest.raises(SettingsError, match="it is not UTF-8 text"):
        read_policies("latin.yaml", words)


def test_written_documents_are_read_as_the_same_documents(place: Path, read: Read) -> None:
    found = read(
        """
        kind: policy
        name: a
        description: "a: b # 'c'"
        tables: ["*", "prod.[*].t"]
        except: prod.tmp.*
        operations: [expire, {name: compact, options: {tier: minor, partitions: ["day=2026-01-*"]}}]
        preset: cdc
        schedule: {cron: 0 2 * * mon, blackouts: [2026-12-24/2026-12-27, sun], time-zone: Europe/Berlin}
        triggers: {bytes-added: 1.5 GB, quiet-for: 90 s, hint: true}
        where: day >= current_date() - INTERVAL 7 DAYS
        set: {target-file-size: auto, max-files: 7}
        limits: {per-run: {core-seconds: 1 h}, per-day: {money: 0.5}}
        priority: -3
        """
    )
    text = policy_yaml(found, {"a": ["first\nreason", "second"]})
    assert text.startswith("# first reason\n# second\nkind: policy\nname: a\n")
    (place / "out.yaml").write_text(text)
    assert read_policies("out.yaml", Vocabulary(operation_problems, [], [])) == found


def test_every_operation_on_tables_can_be_named_with_all_of_its_options_but_a_dry_run() -> None:
    assert set(option_names()) == {name for name, one in OPERATIONS.items() if not one.of_run}
    assert option_names()["tags"] == frozenset()
    assert {"partitions", "where", "expire_snapshots"} <= option_names()["compact"]
    assert all("dry_run" not in names for names in option_names().values())


def test_the_kinds_of_delete_file_maintenance_are_those_of_the_operation() -> None:
    assert tuple(Upkeep) == UPKEEP


def test_an_option_takes_what_its_request_takes() -> None:
    good = {"expire-snapshots": True, "snapshot-retention-hours": 12, "partitions": ["a=1"], "tier": None}
    assert operation_problems(OperationChoice(name="compact", options=good)) == []
    assert operation_problems(OperationChoice(name="deletes", options={"operation": "prune"})) == []
    [found] = operation_problems(OperationChoice(name="deletes", options={"operation": "prunee"}))
    assert found == (("options", "operation"), "there is no 'prunee'; write one of convert, rewrite, prune")
    bad = {"snapshot-retention-hours": float("nan"), "partitions": "a=1"}
    refused = operation_problems(OperationChoice(name="compact", options=bad))
    assert [one.path for one in refused] == [("options", "snapshot-retention-hours"), ("options", "partitions")]
