"""Which operations a run of `maintain` includes on a table, and what it did in their place. Pure; called by `decide`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neve.maintenance.steps import step_words
from neve.policy.effective import EffectivePolicy
from neve.rewrite.record import RunOutcome
from neve.scheduling.hold import PAUSED_BY_HAND
from neve.scheduling.observation import LastRun

MAINTAIN = "maintain"
_NO_OPERATION = "resume"
_SWITCHES = {f"maintain-{name}": name for name in ("expire", "compact", "deletes", "manifests", "orphans")}
_SUCCESS = frozenset({RunOutcome.DONE, RunOutcome.PARTLY_DONE, RunOutcome.NOTHING_TO_DO})
_OFF = frozenset({"false", "off", "no", "0"})


def included(policy: EffectivePolicy, options: Mapping[str, Any]) -> frozenset[str]:
    """The operations that `maintain` carries out when due, with these options and the policy's knobs."""
    only, skip = (_words(options.get(name)) for name in ("only", "skip"))
    off = {_SWITCHES[key] for key, knob in policy.knobs.items() if key in _SWITCHES and str(knob.value).lower() in _OFF}
    steps = set(step_words()) - {_NO_OPERATION}
    return frozenset((steps & only if only else steps - off) - skip)


def _words(given: object) -> set[str]:
    """Steps as options name them: one text with commas, or several."""
    texts = [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else []
    return {word.strip() for text in texts for word in str(text).split(",")}


def with_maintain(last: LastRun | None, maintained: LastRun | None) -> LastRun | None:
    """The last run of an included operation: that of `maintain`, if it succeeded later. A pause of the operation stays."""
    if maintained is None or maintained.outcome not in _SUCCESS:
        return last
    if last is None:
        return maintained.model_copy(update={"failures": 0, "paused_until_ms": None})
    if last.failures or (last.started_ms >= maintained.started_ms and last.outcome != PAUSED_BY_HAND):
        return last
    kept = {"operation": last.operation, "failures": 0, "paused_until_ms": last.paused_until_ms}
    return maintained.model_copy(update=kept)
