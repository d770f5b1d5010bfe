"""A policy: which pieces a step has. What a scheduler is besides, all policies share.

In: the state. Out: the pieces of the next step. ``continuous`` and ``static`` are the two; bucketed is static with
another ``bucket``.
"""

from collections.abc import Hashable
from typing import Protocol

from cutaway.scheduler.request import Request
from cutaway.scheduler.state import SchedulerState
from cutaway.scheduler.step import Step


class Policy(Protocol):
    """The decisions that differ."""

    name: str
    shares_prompt: bool  # the choices of a request are one sequence until its prompt is computed
    frees_at_end: bool  # a sequence gives its blocks back when it is complete, else when the policy says so

    def bucket(self, request: Request) -> Hashable:
        """Requests of one bucket may be batched together."""

    def plan(self, state: SchedulerState, step: Step) -> None:
        """Add pieces, copies and pads to the step. It may be planned again if it failed: count nothing here."""

    def completed(self, state: SchedulerState) -> None:
        """The step that was planned last has been computed, and its sequences have moved on."""

    def drop_ended(self, state: SchedulerState) -> None:
        """Give back what only ended sequences hold: a request was aborted."""
