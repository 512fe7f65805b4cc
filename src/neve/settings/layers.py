"""One source of settings as a flat layer: path of a leaf -> checked value with its origin. Later layers lie over earlier ones.

Files, profiles, variables and flags all become layers here, by walking the tree of keys; every mistake is collected, none
stops the walk. A value of None takes back what lower layers said.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from neve.settings.keys import KeyGroup, KeyLeaf, Named, Node, Path, is_secret, takes_references
from neve.settings.origins import Origin
from neve.settings.problems import Problem, reason_of, unknown_key
from neve.settings.secrets import CURE, REFERENCE, Text, is_secret_key


@dataclass(frozen=True)
class LayerEntry:
    """A value, where it came from, and how to name that place and key in a message."""

    value: Any
    origin: Origin
    where: str
    key: str


Layer = dict[Path, LayerEntry]


@dataclass
class LayerReader:
    """Walks one source. `prefix` is what its keys are called in the source; `directory` is where its file lies."""

    where: str
    origin: Origin
    prefix: str = ""
    directory: pathlib.Path | None = None
    names: Mapping[Path, str] = field(default_factory=dict)
    layer: Layer = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def read(self, value: object, node: Node, path: Path = ()) -> None:
        """Takes in a value at a path, whatever it holds."""
        if isinstance(node, KeyLeaf):
            self._read_leaf(value, node, path)
        elif isinstance(value, Mapping):
            for key, child in value.items():
                self._read_child(key, child, node, path)
        elif value is not None:
            keys = f" with keys such as {', '.join(list(node.children)[:3])}" if isinstance(node, KeyGroup) else ""
            self.complain(path, f"should be a section{keys}")

    def complain(self, path: Path, reason: str) -> None:
        """Notes a mistake."""
        self.problems.append(Problem(self.where, self.key(path), reason, path))

    def key(self, path: Path) -> str:
        """The key as it stands in the source."""
        return self.names.get(path, self.prefix + ".".join(path))

    def _read_child(self, key: object, value: object, node: KeyGroup | Named, path: Path) -> None:
        if not isinstance(key, str) or not key:
            self.complain((*path, str(key)), "a key must be text; put it in quotes")
        elif isinstance(node, Named):
            self.read(value, node.child, (*path, key))
        elif key in node.children:
            self.read(value, node.children[key], (*path, key))
        else:
            self.complain((*path, key), unknown_key(key, node, path))

    def _read_leaf(self, value: object, leaf: KeyLeaf, path: Path) -> None:
        try:
            checked = None if value is None else check(value, leaf, path[-1])
        except ValueError as error:
            self.complain(path, str(error))
            return
        if isinstance(checked, Text) and self.directory is not None:
            checked = checked.beside(self.directory)
        self.layer[path] = LayerEntry(checked, self.origin, self.where, self.key(path))


def check(value: object, leaf: KeyLeaf, key: str) -> Any:
    """The value as its type; ValueError says why not, and keeps quiet about secrets."""
    if isinstance(value, bool) and not (leaf.holds(bool) or takes_references(leaf)):
        raise ValueError(f"should not be {str(value).lower()}; put it in quotes if it is a word")
    if isinstance(value, str) and not takes_references(leaf) and REFERENCE.search(value):
        raise ValueError("takes no reference; set it by its NEVE_ variable instead")
    try:
        checked = leaf.adapter.validate_python(value)
    except ValidationError as error:
        raise ValueError(reason_of(error, "this" if is_secret(leaf) else value)) from None
    if isinstance(checked, Text) and is_secret_key(key) and not REFERENCE.search(checked):
        raise ValueError(f"is a secret and must not be written down; {CURE}")
    return checked


def merge(*layers: Layer) -> Layer:
    """Lays layers over each other, the last on top; values taken back are gone."""
    merged: Layer = {}
    for layer in layers:
        merged |= layer
    return {path: entry for path, entry in merged.items() if entry.value is not None}


def nest(layer: Layer) -> dict[str, Any]:
    """The layer as nested mappings, ready for the models."""
    tree: dict[str, Any] = {}
    for path, entry in layer.items():
        inner = tree
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = entry.value
    return tree
