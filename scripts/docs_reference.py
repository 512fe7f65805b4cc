"""Renders the reference pages from the code: settings, policy, commands, errors, and the schemas of what goes in and out.

Called by `scripts/docs.py`. Everything comes from declarations (pydantic fields, click parameters, error classes), so a page
cannot say what the code does not do; a test fails when a page is older than the code.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from neve.table.units import format_bytes, format_seconds

_GENERATED = "<!-- Generated from the code by scripts/docs.py; edits here are lost. -->"


def pages() -> dict[str, str]:
    """Every page of `docs/reference` by file name."""
    return {
        "index.md": _index(),
        "settings.md": _settings(),
        "policy.md": _policy(),
        "cli.md": _cli(),
        "errors.md": _errors(),
        "inspection.md": _inspection(),
        "inspection.schema.json": _schema(_inspection_schema()),
        "work-order.schema.json": _schema(_work_order_schema()),
        "work-result.schema.json": _schema(_work_result_schema()),
    }


def _schema(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2) + "\n"


def _page(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", _GENERATED, *(part.strip("\n") for part in parts))) + "\n"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(header)
    lines = [head, ["---"] * len(head), *[[_cell(cell) for cell in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _index() -> str:
    return _page(
        "Reference",
        "These pages are made from the code, so they are exact and dry; the [guide](../index.md) explains.",
        "- [Settings](settings.md): every key of `neve.yaml`\n"
        "- [Policy](policy.md): every knob, with its table properties\n"
        "- [Commands](cli.md): every command and option\n"
        "- [Errors](errors.md): every error code and exit code\n"
        "- [Inspection](inspection.md): the fields of `neve inspect --json`, and its [JSON Schema](inspection.schema.json)\n"
        "- JSON Schemas of a [work order](work-order.schema.json) and of a [work result](work-result.schema.json), as in "
        "[work orders](../guide/work-orders.md)",
    )


def _settings() -> str:
    from neve.settings import Settings

    sections = []
    for path, model in _sections(Settings, ""):
        title = f"`{path}`" if path else "Top level"
        rows = [_setting_row(path, name, field) for name, field in model.model_fields.items()]
        sections.append(f"## {title}\n\n{_doc(model)}\n\n{_table(('key', 'type', 'default', 'meaning'), rows)}")
    return _page(
        "Settings",
        "Every key of a settings file; names in angle brackets are yours. How files, profiles, variables and flags combine "
        "is in the [guide](../guide/settings.md). The variable for a key is `NEVE_` and its path in capitals, with `__` "
        "between levels and `_` for `-`: `NEVE_SPARK__MASTER` sets `spark.master`.",
        *sections,
    )


def _sections(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """The model and the models inside it, depth first, each with the path of its keys."""
    yield path, model
    for name, field in model.model_fields.items():
        inner, step = _inner_model(field)
        if inner is not None:
            yield from _sections(inner, _join(path, _key(name, field) + step))


def _inner_model(field: FieldInfo) -> tuple[type[BaseModel] | None, str]:
    for part in (field.annotation, *get_args(field.annotation)):
        if inspect.isclass(part) and issubclass(part, BaseModel):
            return part, ".<name>" if get_origin(field.annotation) is dict else ""
    return None, ""


def _setting_row(path: str, name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    key = _join(path, _key(name, field))
    inner, step = _inner_model(field)
    if inner is not None:
        section = key + step
        return f"`{key}`", f"[section](#{_anchor(section)})", "", field.description or _doc(inner)
    if key == "policy":
        return "`policy`", "[knobs](policy.md)", "", field.description or ""
    return f"`{key}`", _setting_kind(name, field), _default(name, field), field.description or ""


def _setting_kind(name: str, field: FieldInfo) -> str:
    by_ending = {"_bytes": "size", "_memory": "size", "_seconds": "duration"}
    return next((kind for ending, kind in by_ending.items() if name.endswith(ending)), _kind(field.annotation))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _key(name: str, field: FieldInfo) -> str:
    return str(field.alias or name.replace("_", "-"))


def _kind(annotation: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{a}`" for a in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_kind(a) for a in arguments if a is not type(None))
    if origin is dict:
        return f"mapping of name to {_kind(arguments[1])}"
    if origin in (tuple, list):
        return f"list of {_kind(arguments[0])}"
    if hasattr(annotation, "__metadata__"):
        return _kind(annotation.__origin__)
    if getattr(annotation, "__members__", None):
        return " or ".join(f"`{m.value}`" for m in annotation)
    words = {"bool": "yes/no", "int": "whole number", "float": "number", "str": "text", "Any": "any", "object": "any"}
    words |= {"Secret": "reference to a secret", "Text": "text, may hold references", "Path": "path"}
    name = getattr(annotation, "__name__", str(annotation))
    return words.get(name, name)


def _default(name: str, field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if field.is_required():
        return "required"
    if value is None or value == () or value == {}:
        return ""
    if name.endswith("_bytes"):
        return f"`{format_bytes(value)}`"
    if name.endswith("_seconds"):
        return f"`{format_seconds(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _doc(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _policy() -> str:
    from neve.policy.model import Policy, knobs

    fields = {str(field.alias): (name, field) for name, field in Policy.model_fields.items()}
    rows = []
    for key, knob in knobs().items():
        default = _default(*fields[key]) or knob.unset or "the table's own"
        rows.append((f"`{key}`", default, knob.unit, knob.why, ", ".join(f"`{p}`" for p in knob.properties)))
    return _page(
        "Policy",
        "Every knob, in one place: in `neve.yaml` under `policy`, as a variable (`NEVE_POLICY__TARGET_FILE_SIZE`), or as a "
        "property of the table itself. Where a table has several of the properties named, the first wins.",
        _table(("key", "default", "unit", "why", "table properties"), rows),
    )


def _errors() -> str:
    from neve.errors import NeveError

    rows = []
    for error in _subclasses(NeveError):
        link = f"[`{error.code}`](../guide/troubleshooting.md#{error.code})"
        meaning = "Something that has no code of its own." if error is NeveError else _doc(error).split("\n")[0]
        rows.append((link, str(error.exit_code), "yes" if error.retryable else "no", meaning))
    codes = [
        ("0", "done, or nothing to do"),
        ("1", "failed; outages are among this"),
        ("2", "the request was wrong: settings, names, refused credentials, a missing extra"),
        ("3", "partly done"),
        ("130", "interrupted (Ctrl-C)"),
        ("141", "whoever read the output stopped reading (a closed pipe)"),
    ]
    return _page(
        "Errors",
        "An error is one line on standard error, `Error: Cannot <verb> <thing>: <reason>`, and a hint. `--debug` adds the "
        "traceback. The cures are in [troubleshooting](../guide/troubleshooting.md).",
        f"## Exit codes\n\n{_table(('code', 'meaning'), codes)}",
        f"## Error codes\n\n{_table(('code', 'exit code', 'worth a retry', 'meaning'), rows)}",
    )


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    for child in cls.__subclasses__():
        if child.__module__ == cls.__module__:
            yield from _subclasses(child)


def _inspection_schema() -> dict[str, Any]:
    from neve.health.inspection import Inspection

    return Inspection.model_json_schema(mode="serialization")


def _work_order_schema() -> dict[str, Any]:
    """What an order must say to be carried out; what has a default may be left out."""
    from neve.rewrite.work_order import WorkOrder

    return _of_this_version(WorkOrder.model_json_schema())


def _work_result_schema() -> dict[str, Any]:
    """What a result says; bounds are Iceberg's bytes in base64."""
    from neve.rewrite.work_order import WorkResult

    return _of_this_version(WorkResult.model_json_schema(mode="serialization"))


def _of_this_version(schema: dict[str, Any]) -> dict[str, Any]:
    from neve.rewrite.work_order import FORMAT_VERSION

    schema["properties"]["format_version"]["const"] = FORMAT_VERSION
    return schema


def _inspection() -> str:
    from neve.health.inspection import SCHEMA_VERSION, Inspection

    parts = []
    for model in _models_of(Inspection):
        rows = [(f"`{name}`", _kind_of_value(field), _maybe(field)) for name, field in model.model_fields.items()]
        parts.append(f"## {model.__name__}\n\n{_doc(model)}\n\n{_table(('field', 'type', 'may be null'), rows)}")
    return _page(
        "Inspection",
        f"What `neve inspect --json` prints; schema version {SCHEMA_VERSION}. A field that is added keeps the version, one "
        "that is removed or changes its meaning raises it. The [JSON Schema](inspection.schema.json) is the exact form; what "
        "the numbers mean is in the [guide](../guide/inspect.md).",
        *parts,
    )


def _models_of(model: type[BaseModel]) -> list[type[BaseModel]]:
    """The model and every model in its fields, each once, in order of appearance."""
    found: dict[type[BaseModel], None] = {model: None}
    queue = [model]
    while queue:
        for field in queue.pop(0).model_fields.values():
            for part in _parts(field.annotation):
                if inspect.isclass(part) and issubclass(part, BaseModel) and part not in found:
                    found[part] = None
                    queue.append(part)
    return list(found)


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for argument in get_args(annotation):
        yield from _parts(argument)


def _kind_of_value(field: FieldInfo) -> str:
    text = _kind(field.annotation)
    for part in _parts(field.annotation):
        if inspect.isclass(part) and issubclass(part, BaseModel):
            text = re.sub(rf"\b{part.__name__}\b", f"[{part.__name__}](#{part.__name__.lower()})", text)
    return text


def _maybe(field: FieldInfo) -> str:
    return "yes" if type(None) in get_args(field.annotation) else ""


def _cli() -> str:
    import typer.main

    from neve.cli.app import app

    panels: dict[str, dict[str, Any]] = {}
    root = typer.main.get_command(app)
    commands = [_command(path, command, panels) for path, command in _commands(root, "neve")]
    shared = [f"## {title}\n\n{_options(options.values())}" for title, options in panels.items()]
    return _page("Commands", "Results go to standard output, everything else to standard error.", *commands, *shared)


def parameters(command: Any) -> list[Any]:
    """What a command takes. Some parameters exist only once a context asks for them, `--help` among them."""
    return list(command.get_params(command.context_class(command)))


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in (getattr(command, "commands", None) or {}).items():
        if not getattr(child, "hidden", False):
            yield from _commands(child, f"{path} {name}")


def _command(path: str, command: Any, panels: dict[str, dict[str, Any]]) -> str:
    """One command. Options of a named panel are the same wherever they stand: they are collected, and told once."""
    arguments = [p for p in parameters(command) if p.param_type_name == "argument"]
    options = [p for p in parameters(command) if p.param_type_name == "option" and not p.hidden and "--help" not in p.opts]
    shared = {
        title: [o for o in options if o.rich_help_panel == title] for title in dict.fromkeys(map(_panel, options)) if title
    }
    for title, members in shared.items():
        panels.setdefault(title, {}).update({option.name: option for option in members})
    own = [option for option in options if not _panel(option)]
    links = ", ".join(f"[{title}](#{_anchor(title)})" for title in shared)
    parts = [
        f"## `{path}`",
        _unmarked(inspect.cleandoc(command.help or "")),
        _table(("argument", "required", "meaning"), [_argument_row(p) for p in arguments]) if arguments else "",
        _options(own) if own else "",
        f"Also: {links}." if links else "",
        _epilog(command.epilog or ""),
    ]
    return "\n\n".join(part for part in parts if part)


def _panel(option: Any) -> str:
    return getattr(option, "rich_help_panel", None) or ""


def _options(options: Iterable[Any]) -> str:
    return _table(("option", "default", "meaning"), [_option_row(option) for option in options])


def _argument_row(argument: Any) -> tuple[str, str, str]:
    name = argument.metavar or argument.name.upper()
    return f"`{name}`", "yes" if argument.required else "no", _unmarked(getattr(argument, "help", None) or "")


def _option_row(option: Any) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {option.metavar or _choices(option)}"
    default = getattr(option.default, "value", option.default)
    unset = default is None or default is False or default in ((), [], "") or callable(default) or not option.show_default
    variable = f" Variable: `{option.envvar}`." if option.envvar else ""
    return (
        names + value,
        "" if unset else f"`{str(default).lower() if default is True else default}`",
        _unmarked(option.help or "") + variable,
    )


def _choices(option: Any) -> str:
    """The values of an enumeration, or what kind of value is meant."""
    for part in _parts(getattr(getattr(option, "type_descriptor", None), "annotation", None)):
        if inspect.isclass(part) and hasattr(part, "__members__"):
            return " or ".join(f"`{member.value}`" for member in part.__members__.values())
    return "VALUE"


def _epilog(text: str) -> str:
    """Examples become a console block, which the checker then reads; the rest stays text."""
    lines = [line.strip() for line in _unmarked(text).splitlines() if line.strip()]
    commands = [line for line in lines if line.startswith("$ ")]
    block = "```console\n" + "\n".join(commands) + "\n```" if commands else ""
    words = [line for line in lines if line not in commands and line != "Examples"]
    return "\n\n".join(part for part in (block, " ".join(words)) if part)


def _unmarked(text: str) -> str:
    """Help text without rich's markup, which Markdown would show."""
    return re.sub(r"(?<!\\)\[/?(?:bold|dim|italic|cyan|green|yellow|red)?\]", "", text).replace("\\[", "[").replace("\b\n", "")
