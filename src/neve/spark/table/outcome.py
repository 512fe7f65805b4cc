"""What an exception of Iceberg's means: of a commit, that it certainly did not land, or that nobody knows.

Only a CleanableFailure can be definite, or a refusal while Iceberg builds the snapshot, before it calls the catalog. Even then
a second try of a commit that had landed raises one, so the commit stage looks at the table before it removes a file. Everything
else (a lost answer, a 5xx, a broken connection, Ctrl-C) is unknown.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from neve.errors import (
    AccessDeniedError,
    CatalogUnreachableError,
    CommitConflictError,
    CommitNotSentError,
    CommitUnknownError,
    MissingFileError,
    NeveError,
    TableNotFoundError,
)
from neve.outage import outage

log = logging.getLogger(__name__)

T = TypeVar("T")

_WAITS = (0.1, 0.5, 2.0)
_DEFINITE = "org.apache.iceberg.exceptions.CleanableFailure"
_UNKNOWN = "org.apache.iceberg.exceptions.CommitStateUnknownException"
_ILLEGAL, _PRODUCER = "java.lang.IllegalArgumentException", "org.apache.iceberg.SnapshotProducer"
_REFUSED_HINT = (
    "Nothing was committed. If added records exceed replaced ones, the table lists a data file more than once, as add_files "
    "with check_duplicate_files => false leaves it: compare count(*) and count(DISTINCT file_path) of the table's files."
)


@contextmanager
def committing() -> Iterator[None]:
    """Around `commit()` alone."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise _sorted_out(error.java_exception) from error
    except KeyboardInterrupt:
        raise  # Java goes on: whoever committed finds out what became of it
    except BaseException as error:
        raise CommitUnknownError(f"Cannot tell whether the commit landed: {type(error).__name__}: {error}") from error


@contextmanager
def describing() -> Iterator[None]:
    """Around what makes Iceberg's files for a commit: whatever it raises, nothing was sent to the catalog."""
    try:
        yield
    except NeveError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        raise CommitNotSentError(
            f"Cannot describe the files of the commit to Iceberg: {reason}",
            hint="Nothing was sent. The other groups are committed without these; report this with the traceback.",
        ) from error


_REFUSED: dict[str, type[NeveError]] = {
    "org.apache.iceberg.exceptions.NoSuchTableException": TableNotFoundError,
    "org.apache.iceberg.exceptions.NotAuthorizedException": AccessDeniedError,
    "org.apache.iceberg.exceptions.ForbiddenException": AccessDeniedError,
    "org.apache.iceberg.exceptions.NotFoundException": MissingFileError,
}
_HINTS: dict[type[NeveError], str] = {
    MissingFileError: "If the file is in the trash (`neve quarantine list TABLE`), `neve restore RUN` puts it back. If not, "
    "something else deleted it.",
}
_DOWN = "Check the addresses under catalogs, and that the servers are up; `neve doctor` tests them."
_MISSING = frozenset({"org.apache.iceberg.exceptions.NotFoundException", "java.io.FileNotFoundException"})
_MOST_CAUSES = 20


@contextmanager
def reading(purpose: str) -> Iterator[None]:
    """Around what only looks: nothing can have happened to the table, and most failures pass."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        kind, java = _meaning(error.java_exception)
        reason, hint = _reason(java), _HINTS.get(kind)
        if kind is CatalogUnreachableError and (found := outage(RuntimeError(_causes(java)))) is not None:
            at = f" at {found.address}" if found.address else ""
            reason, hint = f"the catalog or its storage did not answer{at} ({found.cause})", _DOWN
        raise kind(f"Cannot {purpose}: {reason}", hint=hint) from error
    except (Py4JError, OSError) as error:
        raise CatalogUnreachableError(f"Cannot {purpose}: {type(error).__name__}: {error}") from error


def patiently(purpose: str, look: Callable[[], T]) -> T:
    """What `look` finds. Looking can be repeated, and Iceberg's own clients give up on an answer that broke off."""
    for seconds in _WAITS:
        try:
            with reading(purpose):
                return look()
        except (CatalogUnreachableError, MissingFileError) as error:
            log.info("tried again in %s s: %s", seconds, error)
            time.sleep(seconds)
    with reading(purpose):
        return look()


def _meaning(java: Any) -> tuple[type[NeveError], Any]:
    """The error that an exception stands for, or one that caused it, such as a task's; and that exception."""
    cause, left = java, _MOST_CAUSES
    while cause is not None and left:
        names = _class_names(cause)
        if (kind := next((kind for name, kind in _REFUSED.items() if name in names), None)) is not None:
            return kind, cause
        cause, left = cause.getCause(), left - 1
    return CatalogUnreachableError, java


def _causes(java: Any) -> str:
    """The texts of an exception and of what caused it."""
    texts, left = list[str](), _MOST_CAUSES
    while java is not None and left:
        texts.append(str(java.toString()))
        java, left = java.getCause(), left - 1
    return "\n".join(texts)


def is_missing(error: Exception) -> bool:
    """Whether Java says that a file does not exist, as opposed to storage that fails or does not answer."""
    java = getattr(error, "java_exception", None)
    return java is not None and not _MISSING.isdisjoint(_class_names(java))


def _reason(java: Any) -> str:
    return " ".join(str(java.toString()).split())[:500]


def _sorted_out(java: Any) -> Exception:
    reason, names = _reason(java), _class_names(java)
    if _DEFINITE in names and _UNKNOWN not in names:
        return CommitConflictError(f"Cannot commit the rewrite: {reason}")
    if _ILLEGAL in names and was_refused_before_sending(java):
        return CommitNotSentError(f"Cannot commit: Iceberg refused the change before sending it: {reason}", hint=_REFUSED_HINT)
    return CommitUnknownError(f"Cannot tell whether the commit landed: {reason}")


def was_refused_before_sending(java: Any) -> bool:
    """Whether Iceberg raised an exception while it built the snapshot. It calls the catalog only after that, and after an
    earlier attempt only if the catalog had certainly refused that one. The parser of a catalog's answer raises the same type,
    so the type alone proves nothing."""
    return any(frame.getClassName() == _PRODUCER and frame.getMethodName() == "apply" for frame in java.getStackTrace())


def _class_names(java: Any) -> set[str]:
    """The names of the exception's class, its ancestors and their interfaces."""
    names, kind = set(), java.getClass()
    while kind is not None:
        names.add(str(kind.getName()))
        names.update(str(interface.getName()) for interface in kind.getInterfaces())
        kind = kind.getSuperclass()
    return names
