"""The names by which the server may be called: those that lead to this machine, and those that its user has named.

In: the Host header of a request. Out: the same request; or 403.

A page of anybody's can give its own name this machine's address once it is loaded (DNS rebinding): then the browser
takes the server for a part of that page, and the page may read its answers. But the browser still says the page's name.
"""

import ipaddress
import socket
from collections.abc import Collection
from typing import Final

from cutaway.server.http.asgi import App, Receive, Scope, Send, header
from cutaway.server.http.error_shapes import error_response
from cutaway.server.http.errors import ApiError

ANY: Final = "*"
LOCAL: Final = "localhost"


class AllowedHosts:
    """Middleware that refuses other names than these, ``localhost`` and addresses, which no page can have."""

    def __init__(self, app: App, names: Collection[str]) -> None:
        """names: in lower case, without ports."""
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        host = header(scope, b"host") if scope["type"] == "http" else None
        if host and not self._knows(host_name(host)):
            refusal = ApiError(
                403,
                f"the host is {host[:200]!r}, which is no name of this server. Call it localhost or by its address, or "
                f"start it with --allowed-host {host_name(host)[:200]}.",
                None,
                "host_not_allowed",
            )
            await error_response(refusal, scope["path"])(scope, receive, send)
            return
        await self._app(scope, receive, send)  # without the header it is no browser

    def _knows(self, name: str) -> bool:
        return name == LOCAL or name.endswith("." + LOCAL) or name in self._names or is_address(name)


def host_name(host: str) -> str:
    """The name or address in a Host header, without the port, the brackets of IPv6 and the dot of the root."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".").lower()


def is_address(name: str) -> bool:
    """Whether this is an address, of either version."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches who listens here. A name, or another spelling of an address, is what it means:
    the check of names must not depend on whether it is 127.0.0.1, 127.1 or this machine's own name.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][4][0]
    except (OSError, UnicodeError):  # nobody can listen there
        return False
    address = ipaddress.ip_address(str(found).partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
