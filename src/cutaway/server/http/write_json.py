"""JSON as it goes out: never a value that the other side can't read.

In: Python values. Out: bytes.
"""

import json
from typing import Any

from fastapi.responses import Response


def json_bytes(value: Any) -> bytes:
    """A value as JSON. A lone surrogate, which UTF-8 can't have, becomes its escape; ValueError for NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def json_response(value: Any) -> Response:
    """The reply of a request that went well."""
    return Response(json_bytes(value), media_type="application/json")
