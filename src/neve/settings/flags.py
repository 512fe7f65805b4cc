"""Command-line flags as a layer. A flag is named by the key of a knob (`target-file-size`) or by any dotted settings key."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from neve.policy.model import knobs
from neve.settings.environment import split_list
from neve.settings.keys import KeyGroup, KeyLeaf, Named, Node, Path, settings_tree
from neve.settings.layers import Layer, LayerReader
from neve.settings.origins import Origin, OriginKind
from neve.settings.problems import Problem, unknown_key

_OWN_FLAG = {
    "default-catalog": "--catalog",
    "profile": "--profile",
    "log.level": "--log-level",
    "log.format": "--log-format",
}


def read_flags(flags: Mapping[str, object], catalogs: Collection[str]) -> tuple[Layer, list[Problem]]:
    """The layer of all flags that were given; None stands for one that was not."""
    layer: Layer = {}
    problems: list[Problem] = []
    for key, value in flags.items():
        if value is not None:
            reader = _read_flag(key, value, catalogs)
            layer |= reader.layer
            problems += reader.problems
    return layer, problems


def _read_flag(key: str, value: object, catalogs: Collection[str]) -> LayerReader:
    knob = key.removeprefix("policy.")
    is_knob = knob in knobs()
    flag = f"--{knob}" if is_knob else _OWN_FLAG.get(key, f"--set {key}")
    reader = LayerReader(f"flag {flag}", Origin(OriginKind.FLAG, flag))
    path, node, rest = _locate(f"policy.{knob}" if is_knob else key, settings_tree(), catalogs)
    if rest and isinstance(node, KeyGroup):
        reader.problems.append(Problem(reader.where, key, unknown_key(rest.partition(".")[0], node, path), path))
    elif rest:
        reader.complain(path, f"is a single value, and has no key {rest}")
    elif isinstance(node, KeyLeaf) and node.holds(tuple) and isinstance(value, str):
        reader.read(split_list(value), node, path)
    else:
        reader.read(value, node, path)
    return reader


def _locate(key: str, node: Node, catalogs: Collection[str]) -> tuple[Path, Node, str]:
    """Walks as far as the key leads; what is left over names nothing."""
    path: Path = ()
    rest = key
    while rest and not isinstance(node, KeyLeaf):
        part, _, after = rest.partition(".")
        if isinstance(node, Named):
            # Spark's own keys have dots in them, and a catalog's name may.
            whole = isinstance(node.child, KeyLeaf)
            part = rest if whole else next((name for name in catalogs if rest.startswith(f"{name}.")), part)
            after = rest[len(part) + 1 :]
            child = node.child
        elif part in node.children:
            child = node.children[part]
        else:
            break
        path, node, rest = (*path, part), child, after
    return path, node, rest
