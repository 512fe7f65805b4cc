"""A plan that remembers where it was made, so that it can be cut into orders by itself. Part of the Python surface."""

from __future__ import annotations

from pydantic import PrivateAttr

from neve.python_api import ConnectionOptions
from neve.rewrite.plan import Plan
from neve.rewrite.work_order import WorkOrder


class PlacedPlan(Plan):
    """What `neve.plan` gives. Its JSON is a plan's; the place, which may hold a session, does not travel."""

    _place: ConnectionOptions = PrivateAttr(default_factory=ConnectionOptions)

    @classmethod
    def at(cls, place: ConnectionOptions, plan: Plan) -> PlacedPlan:
        """A plan made at this place."""
        placed = cls.model_construct(**{name: getattr(plan, name) for name in Plan.model_fields})
        placed._place = place
        return placed

    @property
    def place(self) -> ConnectionOptions:
        """Where it was made."""
        return self._place

    def work_orders(self) -> list[WorkOrder]:
        """One order per group: each runs by itself, by `neve.execute` or anywhere by `neve work`, and `neve.commit` ends it."""
        with self._place.open() as neve:
            return neve.work_orders(self)
