"""JSON as it goes out: never a value that the other side can't read.

In: Python values. Out: bytes.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from fastapi.responses import Response


@runtime_checkable
class Later(Protocol):
    """A value that is made when it is written, as it is large."""

    def as_json(self) -> Any:
        """The value, in which there may be others."""


def _now(value: Any) -> Any:
    if isinstance(value, Later):
        return value.as_json()
    raise TypeError(f"a {type(value).__name__} is no value of JSON")


ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_now)


def is_large(value: Any) -> bool:
    """Whether it takes long to write it: a reply with tapped tensors."""
    return isinstance(value, Mapping) and "taps" in (value.get("cutaway") or ())


def json_bytes(value: Any) -> bytes:
    """A value as JSON. A lone surrogate, which UTF-8 can't have, becomes its escape; ValueError for NaN."""
    # In pieces other threads get their turn between them.
    pieces = ENCODER.iterencode(value) if is_large(value) else [ENCODER.encode(value)]
    return b"".join(piece.encode("utf-8", "backslashreplace") for piece in pieces)


async def written(write: Callable[[dict[str, Any]], bytes], value: dict[str, Any]) -> bytes:
    """The value by this function; in a thread of its own where it is large, so that all others are served meanwhile."""
    return await asyncio.to_thread(write, value) if is_large(value) else write(value)


def json_response(value: Any) -> Response:
    """The reply of a request that went well."""
    return Response(json_bytes(value), media_type="application/json")
