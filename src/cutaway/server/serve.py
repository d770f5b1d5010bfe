"""The server's life: listen, load, serve, end.

In: an application, its service, a function that loads the model. Out: nothing, when it was told to end (SIGINT,
SIGTERM); or the error that loading met.
"""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from cutaway.engine.llm import LLM
from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.server.app import create_app
from cutaway.server.http.asgi import App
from cutaway.server.http.connection import Connection
from cutaway.server.service import Service

BACKLOG: Final = 2048  # connections that wait to be accepted
KEEP_ALIVE: Final = 65  # seconds that an idle connection stays open: more than clients keep theirs
LOG: Final = logging.getLogger("cutaway.server")
LAST_RESORT: Final = 5  # seconds beyond the grace time, after which connections are cut


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; the port is its own, where 0 is asked for."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InvalidRequestError(
            f"host is {host!r}, and no address of this machine ({error}). Use 127.0.0.1, 0.0.0.0 or a name of this "
            "machine.",
            "host",
        ) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise CutawayError(
            f"port {port} of {host} can't be listened to ({error.strerror}). Choose another, or end the program that "
            "has it."
        ) from None
    return listening


def address_of(listening: socket.socket) -> str:
    """The URL of a socket that listens."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class HttpServer(uvicorn.Server):
    """The HTTP server of one service: it ends what runs after the grace time, and then itself."""

    def __init__(self, app: App, service: Service) -> None:
        self._service = service
        grace = service.settings.grace
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=int(grace) + LAST_RESORT,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """From here on signals and requests are heard."""
        await super().startup(sockets)
        for listening in sockets or ():
            LOG.info("%s listens", address_of(listening))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """No connection is accepted any more; what runs may end within the grace time."""
        self._service.closing = True
        ending = asyncio.get_running_loop().call_later(self._service.settings.grace, self._service.abort_all)
        try:
            await super().shutdown(sockets)
        finally:
            ending.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the server within this block, and nothing else: the caller has work left."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


async def serve(service: Service, listening: socket.socket, load: Callable[[], LLM]) -> bool:
    """Serve until told to end; whether the model was there. Raises what loading raised."""
    server = HttpServer(create_app(service), service)
    serving = asyncio.ensure_future(server.serve([listening]))
    loading = asyncio.ensure_future(service.load(load))
    try:
        await asyncio.wait({serving, loading}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done() and loading.exception() is not None:
            server.should_exit = True
            await serving
        if not loading.done():
            loading.cancel()
            return False
        loading.result()
        if service.ready:
            LOG.info("%s serves %s", address_of(listening), ", ".join(service.model.names))
        await serving
        LOG.info("the server has ended")
        return True
    finally:
        await service.close()
