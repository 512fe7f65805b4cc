"""Puts settings together: file, profile, variables, flags, each a layer over the one before, then checks the whole.

`load_settings` is what every surface calls first. It reads at most one file of the user's, changes nothing, and either returns
settings that are right or raises one SettingsError with everything that is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from neve.settings.effective import Loaded
from neve.settings.environment import read_environment
from neve.settings.files import find_file, parse_file
from neve.settings.flags import read_flags
from neve.settings.keys import KeyGroup, Named, Node, profile_tree, settings_tree
from neve.settings.layers import Layer, LayerReader, merge, nest
from neve.settings.legacy_config import SECTION, translate
from neve.settings.model import Settings
from neve.settings.origins import Origin, OriginKind
from neve.settings.presets import with_preset
from neve.settings.problems import Problem, refuse
from neve.settings.section import ContradictionError, nearest
from neve.settings.table_policy import settled_contradictions


def load_settings(
    *,
    file: Path | None = None,
    profile: str | None = None,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """The effective settings. Without `file`: NEVE_CONFIG, then neve.yaml, neve.yml or neve.json in the working directory.

    `flags` maps a knob's key or a dotted settings key to a value; None values count as not given.
    """
    environ = os.environ if environ is None else environ
    found = find_file(file, environ)
    source = _Source(found, parse_file(found) if found else {})
    names = source.names()
    from_flags, flag_problems = read_flags({**(flags or {}), "profile": profile or (flags or {}).get("profile")}, names)
    from_environ, environ_problems = read_environment(environ, names)
    problems = [*source.problems, *environ_problems, *flag_problems]
    base = merge(source.base, from_environ, from_flags)
    layers = [source.base, *source.profile_layers(base, problems), from_environ, from_flags]
    merged = merge(*with_preset(layers))
    refuse([*problems, *_whole_problems(merged, blamed={problem.path[:2] for problem in problems})])
    settings = Settings.model_validate({**nest(merged), "profiles": source.profiles})
    return Loaded(settings=settings, file=found, layer=merged)


class _Source:
    """A file cut into its base layer and its profiles, each checked."""

    def __init__(self, file: Path | None, document: dict[str, Any]) -> None:
        self.where = str(file) if file else "settings"
        self.directory = file.parent if file else None
        self.document = document
        self.problems: list[Problem] = []
        self.profiles: dict[str, Any] = {}
        self.layers: dict[str, Layer] = {}
        self.base = self._read_base(document)

    def names(self) -> list[str]:
        """Names of catalogs, channels and other named sections anywhere in the file, wrong as their descriptions may be."""
        trees = (self.document, *self.profiles.values())
        return list(dict.fromkeys(name for tree in trees for name in _section_names(tree, settings_tree())))

    def profile_layers(self, base: Layer, problems: list[Problem]) -> list[Layer]:
        """The layers of the chosen profile, the shipped one first."""
        entry = base.get(("profile",))
        if entry is None:
            return []
        known = [*dict.fromkeys((*shipped_profiles(), *self.layers))]
        if entry.value not in known and entry.value not in self.profiles:
            close = nearest(entry.value, known) or f"; there are {', '.join(known)}"
            problems.append(Problem(entry.where, entry.key, f"no such profile {entry.value!r}{close}", ("profile",)))
        return [_shipped_layer(entry.value), self.layers.get(entry.value, {})]

    def _read_base(self, document: dict[str, Any]) -> Layer:
        document = dict(document)
        reader = LayerReader(self.where, Origin(OriginKind.FILE, self.where), directory=self.directory)
        if SECTION in document:
            translated = translate(document, self.where)
            document, reader.names = translated.tree, translated.names
            reader.problems += translated.problems
        self._read_profiles(document.pop("profiles", None))
        reader.read(document, settings_tree())
        self.problems = reader.problems + self.problems
        return reader.layer

    def _read_profiles(self, profiles: object) -> None:
        if profiles is None:
            return
        if not isinstance(profiles, Mapping):
            self.problems.append(Problem(self.where, "profiles", "should be a section with one section per profile"))
            return
        for name, tree in profiles.items():
            origin = Origin(OriginKind.PROFILE, f"{name} in {self.where}")
            reader = LayerReader(self.where, origin, prefix=f"profiles.{name}.", directory=self.directory)
            reader.read(tree, profile_tree())
            self.profiles[str(name)] = tree or {}
            self.layers[str(name)] = reader.layer
            self.problems += reader.problems


def _section_names(tree: object, node: Node) -> Iterator[str]:
    """The names that users chose for sections."""
    if not isinstance(tree, Mapping):
        return
    if isinstance(node, Named) and isinstance(node.child, KeyGroup):
        yield from map(str, tree)
    elif isinstance(node, KeyGroup):
        for key, child in node.children.items():
            yield from _section_names(tree.get(key), child)


@cache
def shipped_profiles() -> dict[str, Any]:
    """The profiles that come with the package."""
    text = files("neve.settings").joinpath("profiles.yaml").read_text(encoding="utf-8")
    profiles: dict[str, Any] = yaml.safe_load(text)
    return profiles


def _shipped_layer(name: str) -> Layer:
    reader = LayerReader(f"profile {name}", Origin(OriginKind.PROFILE, name))
    reader.read(shipped_profiles().get(name), profile_tree())
    return reader.layer


def _whole_problems(merged: Layer, blamed: set[tuple[str, ...]]) -> Iterator[Problem]:
    """What only the whole can show; a section that already has a problem is not blamed twice."""
    yield from settled_contradictions(merged)
    try:
        Settings.model_validate(nest(merged))
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False):
            path = tuple(str(part) for part in detail["loc"])
            if path[:2] not in blamed:
                yield _whole_problem(path, detail, merged)


def _whole_problem(path: tuple[str, ...], detail: Any, merged: Layer) -> Problem:
    cause = detail.get("ctx", {}).get("error")
    if detail["type"] == "missing":
        reason = "is needed"
    elif isinstance(cause, ContradictionError):
        path, reason = (*path, cause.keys[0]), str(cause)
    else:
        reason = detail["msg"].removeprefix("Value error, ")
    entry = merged.get(path) or next((e for p, e in merged.items() if p[: len(path) - 1] == path[:-1]), None)
    where = entry.where if entry else "settings"
    key = entry.key if entry and path in merged else ".".join(path)
    return Problem(where, key, reason, path)
