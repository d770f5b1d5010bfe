"""API keys: who may use the server, and by which name a key is known where keys are not to be told.

In: the headers of a request. Out: its ``Client`` in the request's state; or 401.
"""

import hmac
from collections.abc import Container, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from cutaway.server.http.asgi import App, Receive, Scope, Send, header, state
from cutaway.server.http.error_shapes import error_response
from cutaway.server.http.errors import ApiError

NAME_DIGITS: Final = 8


class Client(NamedTuple):
    """Who asks, as far as the server tells one from another: by key."""

    name: str  # of the key, for logs and counters; "" where no key is asked for
    salt: bytes  # of its part of the prefix cache: no other key learns by the time it takes what was asked before


ANYBODY: Final = Client("", b"")


def client_of(key: str) -> Client:
    """The client that has this key. From the name nobody finds the key."""
    digest = blake2b(key.encode("utf-8", "surrogateescape"), digest_size=32, person=b"cutaway-api-key").digest()
    return Client(digest.hex()[:NAME_DIGITS], digest)


class ApiKeys:
    """Middleware that lets requests with one of the keys pass, and all where there are none."""

    def __init__(self, app: App, keys: Sequence[str], open_paths: Container[str]) -> None:
        """open_paths: which need no key."""
        self._app, self._open_paths = app, open_paths
        self._clients = [client_of(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found = ANYBODY
        if self._clients and scope["path"] not in self._open_paths:
            given = _given_key(scope)
            asking = None if given is None else client_of(given)
            # All are compared, each in constant time: how long it takes tells nothing about a key.
            matches = [each for each in self._clients if asking and hmac.compare_digest(each.salt, asking.salt)]
            if not matches:
                what = "there is no API key" if given is None else "this API key is not one of the server's"
                refusal = ApiError(
                    401,
                    f"{what}. Send one as the header Authorization: Bearer KEY, or X-Api-Key: KEY.",
                    None,
                    "invalid_api_key",
                    {"WWW-Authenticate": "Bearer"},
                )
                await error_response(refusal, scope["path"])(scope, receive, send)
                return
            found = matches[0]
        state(scope)["client"] = found
        await self._app(scope, receive, send)


def _given_key(scope: Scope) -> str | None:
    """The key in ``Authorization: Bearer``, or in ``X-Api-Key`` as other clients send it."""
    scheme, _, key = (header(scope, b"authorization") or "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return header(scope, b"x-api-key") or None
