"""What taps may cost: bytes that are kept at a time, and the share of the time that open steps may take.

In: the engine's settings, a request. Out: a ``Watched`` for it, or an error that names the bytes and the limit.
"""

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cutaway.engine.watched import Tapping, Watched
from cutaway.errors import CapacityError, CutawayError, InvalidRequestError, QueueFullError, shown
from cutaway.memory.byte_size import parse_bytes
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.params_checks import is_number

if TYPE_CHECKING:
    from cutaway.engine.runner import ModelRunner

DEFAULT_BYTES: Final = 256 << 20
DEFAULT_SHARE: Final = 0.25
LEAST_SHARE: Final = 0.01
MOST_SHARE: Final = 0.9


@dataclass(frozen=True)
class TapLimits:
    """Make it by ``tap_limits``."""

    max_bytes: int = DEFAULT_BYTES  # of all requests that have not ended
    share: float = DEFAULT_SHARE  # of the time, for open steps while others want to run


def tap_limits(max_tap_bytes: int | str | None, tap_share: float | None) -> TapLimits:
    """The limits in effect. Raises InvalidRequestError for a value outside its own."""
    if tap_share is not None and not (is_number(tap_share) and LEAST_SHARE <= tap_share <= MOST_SHARE):
        raise InvalidRequestError(
            f"tap_share is {shown(tap_share)}; it must be a number from {LEAST_SHARE} to {MOST_SHARE}, the part of the "
            f"time that open steps may take. Leave it out for {DEFAULT_SHARE}.",
            "tap_share",
        )
    return TapLimits(
        DEFAULT_BYTES if max_tap_bytes is None else parse_bytes(max_tap_bytes, "max_tap_bytes"),
        DEFAULT_SHARE if tap_share is None else float(tap_share),
    )


class TapAdmission:
    """Checks what requests want to be shown."""

    def __init__(self, runner: "ModelRunner", limits: TapLimits, batching: str) -> None:
        self._limits, self._batching = limits, batching
        self._runner = weakref.ref(runner)  # which is gone when its engine is closed

    def watched(self, taps: object, params: SamplingParams, prompt_ids: Sequence[int], max_new_tokens: int) -> Watched:
        """A watch for a request. Raises InvalidRequestError, or CapacityError."""
        if isinstance(taps, type) or not isinstance(taps, Tapping):  # a class has the methods, too
            raise InvalidRequestError(
                f"taps is {shown(taps)}; give a cutaway.TapRequest, such as TapRequest('layers.*.resid').", "taps"
            )
        if self._batching != "continuous":
            raise InvalidRequestError(
                f"there are taps, and batching is {self._batching!r}: a batch that was begun runs to its end before "
                "others come, so open steps would take all of the time, and not their share. Load the model with "
                "continuous batching.",
                "taps",
            )
        runner = self._runner()
        if runner is None:
            raise CutawayError("the model is closed, and nothing of it can be tapped. Load it again.")
        watch = taps.watch(runner, prompt_ids, max_new_tokens, params.n)
        if watch.num_bytes > self._limits.max_bytes:
            raise CapacityError(
                f"the taps would keep up to {watch.num_bytes:,} bytes, {watch.describe()}; the limit (max_tap_bytes, "
                f"--max-tap-bytes) is {self._limits.max_bytes:,}. Name fewer layers or positions, lower max_tokens, or "
                "raise the limit.",
                "taps",
            )
        watch.prepare()
        return Watched(watch)


def check_room(watched: Watched, others: Iterable[Watched | None], limits: TapLimits) -> None:
    """Raises QueueFullError where other requests keep, or will keep, too much. others: of requests not ended."""
    taken = sum(each.watch.num_bytes for each in others if each is not None)
    if taken + watched.watch.num_bytes > limits.max_bytes:
        raise QueueFullError(
            f"the taps would keep up to {watched.watch.num_bytes:,} bytes, and those of other requests {taken:,}; the "
            f"limit (max_tap_bytes, --max-tap-bytes) is {limits.max_bytes:,}. Try again when one of them has ended, or "
            "raise the limit."
        )
