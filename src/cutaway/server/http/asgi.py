"""The types of ASGI, the interface between an HTTP server and an application: names for what passes there.

In: nothing. Out: aliases. Source: the ASGI specification, version 3.0, "HTTP & WebSocket ASGI Message Format".
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def header(scope: Scope, name: bytes) -> str | None:
    """The value of a request's header, the first of several; None where there is none. name: in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


def state(scope: Scope) -> dict[str, Any]:
    """What the layers of the server know about a request, under names; ``request.state`` in a route."""
    found: dict[str, Any] = scope.setdefault("state", {})
    return found
