"""One connection, as long as its client has not said what it wants: for that it has half a minute.

In: bytes. Out: requests, to the application; or the end of the connection, by 408 where a request has begun.
What comes after a request's head is the application's matter, but for the rest of a body that nobody wants any more.
"""

import asyncio
from http import HTTPStatus
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cutaway.server.http.error_shapes import error_response
from cutaway.server.http.errors import ApiError

PATIENCE: Final = 30.0  # seconds
NO_PATH: Final = ""  # it may not be known yet


class Connection(H11Protocol):
    """The HTTP library's connection, with a limit of time where it has none, and errors in our shape."""

    patience = PATIENCE
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """From here on the client has time for the head of its first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """The client has its answer."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._forget()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """The answer to bytes that are no HTTP."""
        self._refuse(
            ApiError(400, f"{msg.rstrip('.')}: this is no HTTP/1.1, or its head is too large.", None, "no_http")
        )

    def _watch(self) -> None:
        """Wait where the client owes something, and stop where it doesn't; the limit is of all that it owes."""
        if not self._owes():
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.patience, self._end)

    def _owes(self) -> bool:
        if self.transport.is_closing():
            return False
        if self.conn.their_state is h11.IDLE:
            # Between two requests it may be silent; for that there is another limit.
            return self.cycle is None or self.timeout_keep_alive_task is None or self._has_begun()
        unwanted = self.cycle is not None and self.cycle.response_complete
        return unwanted and self.conn.their_state is h11.SEND_BODY

    def _has_begun(self) -> bool:
        return bool(self.conn.trailing_data[0])

    def _end(self) -> None:
        self._deadline = None
        if self.conn.our_state is h11.IDLE and self._has_begun():
            what = f"after {self.patience:g} s the head of the request has not come to its end. Send it again, faster."
            self._refuse(ApiError(408, what, None, "head_too_slow"))
        else:
            self.transport.close()

    def _refuse(self, error: ApiError) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer has begun
            self.transport.close()
            return
        response, status = error_response(error, NO_PATH), error.status_code
        headers = [*self.server_state.default_headers, *response.raw_headers, (b"connection", b"close")]
        head = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode("ascii"))
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
