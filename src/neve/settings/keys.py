"""The tree of valid keys, read off the models once: sections, names that users choose, and leaves with their types.

Everything that walks settings (files, variables, flags, the reference page) walks this tree, so that a new field is known
everywhere at once. It also decides what may be merged: two layers are laid over each other leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from neve.policy.model import Policy
from neve.settings.model import Settings
from neve.settings.secrets import Secret, Text

Path = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class KeyLeaf:
    """A value."""

    annotation: Any
    description: str = ""
    default: Any = None

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Checks one value by itself."""
        return TypeAdapter(self.annotation)

    def holds(self, kind: type) -> bool:
        """Whether the value may be of this type (a subclass counts)."""
        return any(isinstance(part, type) and issubclass(part, kind) for part in _parts(self.annotation))


@dataclass(frozen=True, eq=False)
class KeyGroup:
    """A section with fixed keys."""

    children: Mapping[str, Node]


@dataclass(frozen=True, eq=False)
class Named:
    """A section whose keys the user chooses: catalogs, properties."""

    child: Node


Node = KeyLeaf | KeyGroup | Named


@cache
def settings_tree() -> KeyGroup:
    """Every key; `profiles` apart, which holds this tree again, and is read by `profile_tree`."""
    children = dict(_group(Settings).children)
    children["policy"] = _group(Policy)
    del children["profiles"]
    return KeyGroup(children)


@cache
def profile_tree() -> KeyGroup:
    """The keys that a profile can set."""
    return KeyGroup({key: node for key, node in settings_tree().children.items() if key != "profile"})


@cache
def knob_leaves() -> dict[str, KeyLeaf]:
    """The policy's leaves by key."""
    return {key: node for key, node in _group(Policy).children.items() if isinstance(node, KeyLeaf)}


def leaves(node: Node, path: Path = ()) -> Iterator[tuple[Path, KeyLeaf]]:
    """Every leaf with its path; a name that users choose is written `<name>`."""
    if isinstance(node, KeyLeaf):
        yield path, node
    elif isinstance(node, Named):
        yield from leaves(node.child, (*path, "<name>"))
    else:
        for key, child in node.children.items():
            yield from leaves(child, (*path, key))


def _group(model: type[BaseModel]) -> KeyGroup:
    return KeyGroup({str(info.alias or name): _node(info) for name, info in model.model_fields.items()})


def _node(info: FieldInfo) -> Node:
    annotation = info.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _group(annotation)
    if get_origin(annotation) is dict:
        value = get_args(annotation)[1]
        named = isinstance(value, type) and issubclass(value, BaseModel)
        return Named(_group(value) if named else KeyLeaf(value))
    return KeyLeaf(info.rebuild_annotation(), info.description or "", info.get_default(call_default_factory=False))


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    yield get_origin(annotation)
    for part in get_args(annotation):
        yield from _parts(part)


def is_secret(leaf: KeyLeaf) -> bool:
    """Whether the leaf takes references only."""
    return leaf.holds(Secret)


def takes_references(leaf: KeyLeaf) -> bool:
    """Whether the leaf may hold references."""
    return leaf.holds(Text)
