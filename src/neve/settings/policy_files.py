"""Policy documents in YAML: files and directories of them are read and checked, and documents are written as text.

Called by `service.policies`. Everything is checked before anything is used, and one SettingsError names each problem with file,
line and reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ValidationError

from neve.errors import SettingsError
from neve.policy.document import Document, OperationChoice, PolicyDocument, TeamDocument, as_written
from neve.policy.schedule_times import check_schedule
from neve.policy.workload_presets import AUTO, TARGET_KEY, with_workload_preset
from neve.settings.files import UniqueKeys
from neve.settings.keys import settings_tree
from neve.settings.layers import LayerReader
from neve.settings.origins import Origin, OriginKind
from neve.settings.problems import Problem, reason_in, refuse
from neve.settings.section import nearest
from neve.settings.table_policy import find_contradictions

STDIN = "-"
_SUFFIXES = frozenset({".yaml", ".yml"})
_MODELS: Mapping[str, type[PolicyDocument | TeamDocument]] = {"policy": PolicyDocument, "team": TeamDocument}
_PLACEHOLDERS: Mapping[str, dict[str, str]] = {"policy": {"name": "unnamed", "tables": "*"}, "team": {"name": "unnamed"}}
_MAINTAIN = "maintain"
_HINT = "The guide (docs/guide/policies.md) describes every key. Nothing was applied."

Lines = Mapping[tuple[Any, ...], int]
"""The line of each key, by its path in the document."""


class OperationProblem(NamedTuple):
    """What is wrong with an operation that a policy names, and the key below the operation."""

    path: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Vocabulary:
    """The names that documents may use, besides those that they define."""

    operation_problems: Callable[[OperationChoice], Sequence[OperationProblem]]
    targets: Collection[str]
    channels: Collection[str]
    teams: Collection[str] = ()
    """Teams in force that the files need not contain."""
    operation_options: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The options that each operation takes; what is not known is not checked."""


@dataclass
class _Entry:
    """One document of a file as it was read."""

    file: str
    content: Any
    lines: Lines
    document: Document | None = None
    partial: Document | None = None
    """Without the sections that are wrong, where the rest can be read: what it says is checked as well."""
    dropped: frozenset[str] = frozenset()
    """The keys of these sections."""
    problems: list[tuple[int, Problem]] = field(default_factory=list)
    """Each with its line."""

    def complain(self, path: Sequence[Any], reason: str) -> None:
        """Notes a problem at the line of the key, or of the nearest part around it."""
        known = next(tuple(path[:end]) for end in range(len(path), -1, -1) if tuple(path[:end]) in self.lines or end == 0)
        line = self.lines.get(known, 1)
        self.problems.append((line, Problem(f"{self.file}, line {line}", _key(path), reason)))

    def in_order(self) -> list[Problem]:
        """The problems by their lines."""
        return [problem for _, problem in sorted(self.problems, key=lambda one: one[0])]


def read_policies(path: str, vocabulary: Vocabulary) -> tuple[Document, ...]:
    """The documents of a file, of every .yaml and .yml file of a directory, or of standard input (`-`).

    Raises SettingsError with everything that is wrong with them.
    """
    entries: list[_Entry] = []
    problems: list[Problem] = []
    for name, text in _texts(path):
        found, problem = _parsed(name, text)
        entries += found
        problems += [problem] if problem else []
    for entry in entries:
        _read(entry)
    _check_names(entries)
    documents = [entry.document for entry in entries if entry.document is not None]
    teams = {*vocabulary.teams, *(one.partial.name for one in entries if isinstance(one.partial, TeamDocument))}
    for entry in entries:
        _check_meaning(entry, vocabulary, teams)
    refuse([*(one for entry in entries for one in entry.in_order()), *problems], what="use these policies", hint=_HINT)
    return tuple(sorted(documents, key=lambda one: (one.kind, one.name)))


def policy_yaml(documents: Iterable[Document], comments: Mapping[str, Sequence[str]] | None = None) -> str:
    """The documents as the text of one file, which reads as the same documents; comments are put above those they name."""
    return "---\n".join(_commented((comments or {}).get(one.name, ())) + _yaml(one) for one in documents)


def _yaml(document: Document) -> str:
    return yaml.safe_dump(as_written(document), sort_keys=False, allow_unicode=True, width=120, default_flow_style=False)


def _commented(lines: Sequence[str]) -> str:
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def _texts(path: str) -> Iterator[tuple[str, str]]:
    if path == STDIN:
        yield "standard input", sys.stdin.read()
        return
    place = Path(path)
    files = sorted(_yaml_files(place)) if place.is_dir() else [place]
    if not files:
        raise SettingsError(f"Cannot read policies {path}: the directory has no .yaml file", hint="Check the path.")
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise SettingsError(f"Cannot read policies {file}: {error.strerror or error}", hint="Check the path.") from error
        except UnicodeDecodeError as error:
            raise SettingsError(f"Cannot read policies {file}: it is not UTF-8 text", hint="Save it as UTF-8.") from error


def _yaml_files(place: Path) -> Iterator[Path]:
    """At any depth; hidden files and directories are left out."""
    for file in place.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(place).parts)
        if file.suffix in _SUFFIXES and not hidden and file.is_file():
            yield file


def _parsed(file: str, text: str) -> tuple[list[_Entry], Problem | None]:
    """The documents of one file, up to the first that is not YAML."""
    loader, entries = UniqueKeys(text), list[_Entry]()
    try:
        while loader.check_node():
            node = loader.get_node()
            content = loader.construct_document(node)
            if content is not None:
                entries.append(_Entry(file, content, dict(_lines(node, ()))))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        return entries, Problem(f"{file}{line}", "", getattr(error, "problem", None) or "not YAML")
    except ValueError as error:  # a date such as 2026-13-01
        return entries, Problem(file, "", str(error))
    finally:
        loader.dispose()
    return entries, None


def _lines(node: yaml.Node | None, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], int]]:
    if node is not None:
        yield path, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _lines(value, (*path, key.value))
            yield (*path, key.value), key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines(value, (*path, index))


def _read(entry: _Entry) -> None:
    """Turns the content into a document, or notes why that cannot be."""
    if not isinstance(entry.content, dict):
        entry.complain((), "should be a section with keys such as kind, name and tables")
        return
    kind = entry.content.get("kind")
    if not isinstance(kind, str) or kind not in _MODELS:
        close = nearest(str(kind), _MODELS) or "; write policy or team"
        entry.complain(("kind",), "is needed: policy or team" if kind is None else f"there is no kind {kind!r}{close}")
        return
    try:
        entry.document = entry.partial = _validated(kind, entry.content)
    except ValidationError as error:
        details = error.errors(include_url=False)
        for detail in details:
            entry.complain(detail["loc"], _reason(detail, _MODELS[kind]))
        entry.dropped = frozenset(str(detail["loc"][0]) for detail in details)
        rest = {key: value for key, value in entry.content.items() if str(key) not in entry.dropped}
        with suppress(ValidationError):
            entry.partial = _validated(kind, _PLACEHOLDERS[kind] | rest)


def _validated(kind: str, content: Mapping[Any, Any]) -> Document:
    return _MODELS[kind].model_validate(content, by_alias=True, by_name=False)


def _reason(detail: Any, model: type[BaseModel]) -> str:
    if detail["type"] == "missing":
        return "is needed"
    if detail["type"] == "extra_forbidden":
        known = _keys_at(model, detail["loc"][:-1])
        return f"unknown key{nearest(str(detail['loc'][-1]), known) or '; valid here: ' + ', '.join(known)}"
    if detail["type"] == "string_pattern_mismatch":
        return f"{detail['input']!r} is not a name: write lower-case letters, digits, dots, hyphens and underscores"
    if detail["type"] in ("string_too_short", "too_short"):
        return "should not be empty"
    return reason_in(detail, detail["input"])


def _keys_at(model: type[BaseModel], loc: Sequence[Any]) -> list[str]:
    """The valid keys of the section at a path."""
    for part in (one for one in loc if isinstance(one, str)):
        info = next((info for info in model.model_fields.values() if info.alias == part), None)
        annotation = OperationChoice if part == "operations" else info.annotation if info else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return [str(info.alias) for info in model.model_fields.values()]


def _check_names(entries: Iterable[_Entry]) -> None:
    """Each name of a kind is used once."""
    first: dict[tuple[str, str], _Entry] = {}
    for entry in entries:
        if not isinstance(entry.content, dict) or not isinstance(entry.content.get("name"), str):
            continue
        key = (str(entry.content.get("kind")), entry.content["name"])
        if (other := first.setdefault(key, entry)) is not entry:
            line = other.lines.get(("name",), 1)
            entry.complain(("name",), f"{key[0]} {key[1]} is also in {other.file}, line {line}")


def _check_meaning(entry: _Entry, vocabulary: Vocabulary, teams: Collection[str]) -> None:
    """What is right by itself, against everything else: operations, knobs, teams, targets, channels."""
    document = entry.partial
    if isinstance(document, TeamDocument):
        for index, channel in enumerate(document.notify):
            if channel not in vocabulary.channels:
                path = ("notify", index) if ("notify", index) in entry.lines else ("notify",)
                entry.complain(path, _unknown("channel", channel, vocabulary.channels))
    elif isinstance(document, PolicyDocument):
        _check_policy(entry, document, vocabulary, teams)


def _check_policy(entry: _Entry, document: PolicyDocument, vocabulary: Vocabulary, teams: Collection[str]) -> None:
    if document.owner and document.owner not in teams:
        entry.complain(("owner",), _unknown("team", document.owner, teams))
    if document.target != AUTO and document.target not in vocabulary.targets:
        entry.complain(("target",), _unknown("target", document.target, [AUTO, *vocabulary.targets]))
    _check_operations(entry, document, vocabulary)
    _check_knobs(entry, document)
    for reason in check_schedule(document.schedule):
        entry.complain(("schedule",), reason)


def _check_operations(entry: _Entry, document: PolicyDocument, vocabulary: Vocabulary) -> None:
    seen: set[str] = set()
    for index, choice in enumerate(document.operations):
        if choice.name in seen:
            entry.complain(("operations", index), f"{choice.name} is listed twice; use one policy for each")
        seen.add(choice.name)
        for path, reason in vocabulary.operation_problems(choice):
            entry.complain(("operations", index, *path), reason)
    for key, value in (("partitions", document.partitions), ("where", document.where)):
        if value and vocabulary.operation_options and (why := _limits_nothing(key, seen, vocabulary.operation_options)):
            entry.complain((key,), why)
    whole = with_workload_preset(document)
    is_due_by = (
        whole.triggers.makes_due or whole.schedule.cron or not entry.dropped.isdisjoint(("triggers", "schedule", "preset"))
    )
    if document.enabled and document.operations and not is_due_by:
        entry.complain(("operations",), "nothing makes them due: add triggers, a cron schedule or a preset")


def _limits_nothing(key: str, operations: Collection[str], options: Mapping[str, Collection[str]]) -> str | None:
    """Why an operation would work on more than this key says."""
    takers = sorted(name for name, taken in options.items() if key in taken)
    if _MAINTAIN in operations:
        return f"maintain works on the whole table; name the operations that should keep to this part: {', '.join(takers)}"
    if operations and not any(name in takers for name in operations):
        return f"limits none of the operations {', '.join(sorted(operations))}; those that take it are {', '.join(takers)}"
    return None


def _check_knobs(entry: _Entry, document: PolicyDocument) -> None:
    """Values by themselves, then together with those of the workload preset."""
    reader = LayerReader(entry.file, Origin(OriginKind.POLICY, document.name))
    knobs = with_workload_preset(document).knobs
    reader.read({"policy": {key: value for key, value in knobs.items() if (key, value) != (TARGET_KEY, AUTO)}}, settings_tree())
    for problem in reader.problems:
        entry.complain(("set", *problem.path[1:]), problem.reason)
    if not reader.problems:
        for problem in find_contradictions({path[1]: one for path, one in reader.layer.items()}):
            entry.complain(("set", *problem.path[1:2]), problem.reason)


def _unknown(what: str, name: str, known: Collection[str]) -> str:
    listed = ", ".join(sorted(known)) or "none"
    return f"there is no {what} {name!r}{nearest(name, known) or f' (known: {listed})'}"


def _key(path: Sequence[Any]) -> str:
    """`operations[0].options.tier`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
