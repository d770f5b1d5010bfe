"""What a request's steps took, operation by operation: for its reply, and of all steps for a while.

In: an engine, a meter. Out: a ledger as plain data. The steps of a request that asks run timed, the others as ever.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from cutaway.audit.request_ledger import StepClocks, StepMeter
from cutaway.engine.llm import LLM
from cutaway.errors import CutawayError
from cutaway.server.http.errors import ApiError
from cutaway.server.work import Work

FIELD: Final = "return_timings"


class Timings:
    """Of one request; ended with its work."""

    def __init__(self, llm: LLM, meter: StepMeter) -> None:
        self._llm, self._meter = llm, meter
        self._clocks = StepClocks(meter)
        self._ids: list[str] | None = None
        self._ended = False

    @classmethod
    async def begin(cls, llm: LLM, meter: StepMeter | None, field: str | None = FIELD) -> "Timings":
        """From the next step on, whoever's it is: whose are wanted is known when the request is let in. ApiError 400
        where the server takes no timings; field: that asked for it.
        """
        if meter is None:
            raise ApiError(
                400,
                "this server takes no timings: the machine's limits are measured at its start. Start it with "
                "--timings, or leave them out.",
                field,
                "timings_off",
            )
        timings = cls(llm, meter)
        try:
            await asyncio.wrap_future(llm.engine().call(timings._clocks.begin))
        except BaseException:  # the client has left, and the engine may have begun
            timings.end()
            raise
        return timings

    def follow(self, work: Work) -> None:
        """These requests' steps alone are timed from now on, until the work ends."""
        ids = self._ids = [stream.request_id for stream in work.streams]
        work.timings = self
        self._llm.engine().call(lambda core: self._clocks.narrow(ids))

    def as_dict(self) -> dict[str, Any]:
        """So far: the share of the requests that it follows; of all, where it follows none. With the limits."""
        found: Sequence[str] | None = self._ids
        return {**self._clocks.ledger(found).as_dict(), "limits": self._meter.limits.as_dict()}

    def end(self) -> None:
        """No more; again, or where they have not begun, does nothing. The engine may be closed meanwhile, and then
        there is nothing to end.
        """
        if not self._ended:
            self._ended = True
            with suppress(CutawayError):
                self._llm.engine().call(self._clocks.end)
