"""The schema of an error, for the OpenAPI document.

In: nothing. Out: a pydantic model of what ``errors`` writes.
"""

from pydantic import BaseModel


class ErrorBody(BaseModel):
    """What is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(BaseModel):
    """Every answer whose status is 400 or above."""

    error: ErrorBody
