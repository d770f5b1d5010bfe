"""Taps over HTTP: the field of a body, and what a reply has of them.

In: JSON, or what was tapped. Out: a ``TapRequest``, where the server's owner allows taps; rows as base64.
"""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cutaway.audit.taps.request import TapRequest
from cutaway.engine.outputs import TappedRows
from cutaway.engine.runner import ModelRunner
from cutaway.errors import counted
from cutaway.server.http.errors import ApiError


def tap_request(taps: Sequence[str] | None, max_tap_bytes: int | None) -> TapRequest | None:
    """What was asked for. max_tap_bytes: of the server's settings; None refuses all."""
    if not taps:
        return None
    if max_tap_bytes is None:
        raise ApiError(
            403,
            "taps are not allowed here: they show the inside of a request, and slow others down. Leave it out, or "
            "start the server with --max-tap-bytes.",
            "taps",
            "taps_not_allowed",
        )
    return TapRequest(*taps)


def check_tap_bytes(
    taps: TapRequest, ids: Sequence[Sequence[int]], max_tokens: int, n: int, runner: ModelRunner, limit: int
) -> None:
    """Refuse what the prompts of a body, each with n answers, may not keep together, with ApiError 400: to try again
    would never help.
    """
    most, counts = runner.context, Counter(map(len, ids))
    plans = {length: taps.plan(runner, length, min(max_tokens, most - length), n) for length in counts}
    found = sum(plan.num_bytes * counts[length] for length, plan in plans.items())
    if found > limit:
        raise ApiError(
            400,
            f"the taps of {counted(len(ids), 'prompt')} would keep up to {found:,} bytes together; the limit "
            f"(--max-tap-bytes) is {limit:,}. Send them in several requests, or tap less of each.",
            "taps",
            "capacity_exceeded",
        )


class Tapped:
    """What was tapped of a request, by name: positions, and the rows in base64, C order, little-endian. A
    ``server.http.write_json.Later``, and so is each tensor, as they are put together when they are written.
    """

    def __init__(self, taps: Mapping[str, TappedRows]) -> None:
        self._taps = taps

    def as_json(self) -> "dict[str, TappedTensor]":
        """By name."""
        return {name: TappedTensor(self._taps, name) for name in self._taps}


class TappedTensor:
    """One of them."""

    def __init__(self, taps: Mapping[str, TappedRows], name: str) -> None:
        self._taps, self._name = taps, name

    def as_json(self) -> dict[str, Any]:
        """Its rows."""
        found = self._taps[self._name]
        values = np.ascontiguousarray(found.values)
        return {
            "positions": found.positions.tolist(),
            "shape": list(values.shape),
            "dtype": str(values.dtype),
            "base64": base64.b64encode(values.data).decode("ascii"),
        }
