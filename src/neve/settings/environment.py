"""Variables as a layer: NEVE_, then the path in capitals with `__` between levels and `_` for `-`.

A secret given so is kept as a reference to its variable. Any NEVE_ variable that is neither a setting nor reserved is refused,
since a misspelt one would silently do nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import yaml

from neve.settings.keys import KeyGroup, KeyLeaf, Named, Node, Path, is_secret, leaves, settings_tree, takes_references
from neve.settings.layers import Layer, LayerReader
from neve.settings.origins import Origin, OriginKind
from neve.settings.problems import Problem
from neve.settings.secrets import REFERENCE, holds_password
from neve.settings.section import nearest

PREFIX = "NEVE_"
RESERVED = frozenset({"NEVE_CONFIG", "NEVE_DEBUG", "NEVE_JARS", "NEVE_JARS_CACHE", "NEVE_MAVEN_MIRROR", "NEVE_REQUIRE_STACK"})
"""Variables that say something, but are no settings."""
RESERVED_PREFIXES = ("NEVE_TEST_", "NEVE_STACK_", "NEVE_BENCH_")


def read_environment(environ: Mapping[str, str], catalogs: Collection[str]) -> tuple[Layer, list[Problem]]:
    """The layer of all NEVE_ variables; `catalogs` are names of catalogs and other named sections, known from files.

    An empty variable counts as unset.
    """
    layer: Layer = {}
    problems: list[Problem] = []
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or is_reserved(variable) or not environ[variable]:
            continue
        reader = _read_variable(variable, environ[variable], catalogs)
        layer |= reader.layer
        problems += reader.problems
    return layer, problems


def is_reserved(variable: str) -> bool:
    """Whether a NEVE_ variable is meant for something else than settings."""
    return variable in RESERVED or variable.startswith(RESERVED_PREFIXES)


def variable_name(path: Path) -> str:
    """The variable that sets the value at a path."""
    return PREFIX + "__".join(part.upper().replace("-", "_") for part in path)


def _read_variable(variable: str, text: str, catalogs: Collection[str]) -> LayerReader:
    reader = LayerReader(f"variable {variable}", Origin(OriginKind.VARIABLE, variable))
    found = _locate(variable.removeprefix(PREFIX).lower().split("__"), settings_tree(), catalogs)
    if found is None:
        # Compared without the prefix, which would make any two of them look alike.
        known = [name.removeprefix(PREFIX) for name in (*_known_variables(catalogs), *RESERVED)]
        close = nearest(variable.removeprefix(PREFIX), known).replace("mean ", f"mean {PREFIX}")
        reader.problems.append(Problem(reader.where, "", f"no such setting{close}"))
        return reader
    path, node = found
    try:
        reader.read(_value(text, node, variable), node, path)
    except yaml.YAMLError:
        reader.complain(path, "should be a mapping written as YAML or JSON")
    return reader


def _locate(parts: list[str], node: Node, catalogs: Collection[str]) -> tuple[Path, Node] | None:
    path: Path = ()
    for part in parts:
        if isinstance(node, KeyGroup):
            key = next((key for key in node.children if key.replace("-", "_") == part), None)
            if key is None:
                return None
            path, node = (*path, key), node.children[key]
        elif isinstance(node, Named) and isinstance(node.child, KeyGroup) and part:
            path, node = (*path, _catalog_name(part, catalogs)), node.child
        else:
            return None
    whole = isinstance(node, KeyLeaf) or (isinstance(node, Named) and isinstance(node.child, KeyLeaf))
    return (path, node) if whole else None


def _catalog_name(part: str, catalogs: Collection[str]) -> str:
    return next((name for name in catalogs if name.lower().replace("-", "_") == part), part)


def _value(text: str, node: Node, variable: str) -> Any:
    if not isinstance(node, KeyLeaf):
        return yaml.safe_load(text)
    if takes_references(node) and not REFERENCE.search(text) and (is_secret(node) or holds_password(text)):
        return f"${{env:{variable}}}"
    return split_list(text) if node.holds(tuple) else text


def split_list(text: str) -> list[str]:
    """`a, b`: how a list is written where there is one text only."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _known_variables(catalogs: Collection[str]) -> Iterator[str]:
    for path, _ in leaves(settings_tree()):
        if path[-1] == "<name>":
            path = path[:-1]
        names = [*catalogs, "<name>"] if "<name>" in path else [""]
        yield from (variable_name(tuple(name if part == "<name>" else part for part in path)) for name in names)
