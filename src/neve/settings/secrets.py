"""Texts that may hold references, `${env:NAME}` and `${file:PATH}`, and secrets, which must be references.

The models use both types; adapters call `reveal` at the last moment. A value kept here is always what was written, never
what it stands for, so that printing, logging or dumping settings cannot leak anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from neve.errors import SettingsError

REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
CURE = "write a reference, ${env:NAME} or ${file:PATH}, in its place"

_PASSWORD = re.compile(r"://[^/@:\s]*:(?!\$\{)[^/@\s]+@|[?&;](?i:password|pwd|sslpassword)=(?!\$\{)[^&;\s]+")
_SECRET_KEY = re.compile(
    r"secret|passw(or)?d|passphrase|credential|(^|[._-])(sas|token)([._-]|$)|(access|account|private|api|shared|(en|de)cryption)[._-]?key"
)
# Keys that speak about a secret without being one: ids, providers, addresses, lifetimes, switches, files, mounts.
_HARMLESS_KEY = re.compile(
    r"^spark\.kubernetes\.(driver|executor)\.secret|"
    r"(key[._-]?id|provider([._-]path|[._-]type|s)?|uri|url|endpoint|path|location|file|enabled|type|name|interval|"
    r"refresh\S*|expir\S*|timeout\S*|-ms|seconds|exchange\S*)$"
)


class Text(str):
    """A text as written, references included; `reveal` puts in what they stand for."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """From a text, or from a mapping `{env: NAME}` or `{file: PATH}`; a password in a URL is refused."""
        text = _written(value)
        if holds_password(text):
            raise ValueError(f"holds a password; {CURE}")
        return cls(text)

    def reveal(self, environ: Mapping[str, str] | None = None) -> str:
        """The text with every reference replaced. Raises SettingsError where one leads nowhere."""
        source = os.environ if environ is None else environ
        return REFERENCE.sub(lambda match: _resolve(match[1], match[2], source), str(self))

    def beside(self, directory: Path) -> Self:
        """The same with relative file references taken from a directory, that of the settings file."""

        def place(match: re.Match[str]) -> str:
            return match[0] if match[1] == "env" else f"${{file:{directory / Path(match[2]).expanduser()}}}"

        return type(self)(REFERENCE.sub(place, str(self)))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(str),
            json_schema_input_schema=core_schema.str_schema(),
        )


class Secret(Text):
    """One reference and nothing else."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """As `Text.parse`; a plain value is refused, and not repeated in the message."""
        text = _written(value)
        if not REFERENCE.fullmatch(text):
            raise ValueError(f"is a secret and must not be written down; {CURE}")
        return cls(text)


def holds_password(text: str) -> bool:
    """Whether a URL in the text carries a password in plain sight."""
    return bool(_PASSWORD.search(text))


def is_secret_key(key: str) -> bool:
    """Whether a free property (of a client, of Spark) looks as if its value were secret."""
    lower = key.lower()
    return bool(_SECRET_KEY.search(lower)) and not _HARMLESS_KEY.search(lower)


def _written(value: object) -> str:
    if isinstance(value, Mapping) and len(value) == 1:
        (kind, name), *_ = value.items()
        if kind in ("env", "file") and isinstance(name, str) and name:
            return f"${{{kind}:{name}}}"
    if not isinstance(value, str):
        raise ValueError("should be text, {env: NAME} or {file: PATH}")
    return value


def _resolve(kind: str, name: str, environ: Mapping[str, str]) -> str:
    what = f"Cannot resolve ${{{kind}:{name}}}"
    if kind == "env":
        if name not in environ:
            raise SettingsError(f"{what}: the variable is not set", hint=f"Set {name} in the environment of this process.")
        return environ[name]
    try:
        value = Path(name).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a text file"
        raise SettingsError(f"{what}: {reason}", hint="The file must exist and be readable by this user.") from None
    if not value:
        raise SettingsError(f"{what}: the file is empty", hint="Write the secret into it, on one line.")
    return value
