"""The schema of an error, for the OpenAPI document.

In: nothing. Out: pydantic models of what ``errors`` and ``error_shapes`` write.
"""

from typing import Any, Literal

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


class AnthropicErrorBody(BaseModel):
    """What is wrong, with which parameter."""

    type: str
    message: str


class AnthropicErrorReply(BaseModel):
    """The same of Anthropic's routes."""

    type: Literal["error"]
    error: AnthropicErrorBody


def described(reply: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The responses that a document has for errors."""
    return {
        "4XX": {"model": reply, "description": "What is wrong with the request"},
        "5XX": {"model": reply, "description": "Why the server can't answer"},
    }
