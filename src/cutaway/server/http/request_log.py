"""One line in the log for each request: who, what, how it ended, how long it took, how many tokens. Never any text.

In: a request and its answer; what routes note in ``facts``. Out: a record of the logger "cutaway.server".
"""

import logging
import time
from uuid import uuid4

from cutaway.server.http.asgi import App, Message, Receive, Scope, Send, state

REQUEST_LOGGER = "cutaway.server.request"


class RequestLog:
    """Middleware that gives each request an id, which the header ``X-Request-Id`` tells, and writes its line."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and write the line when it has ended, in whichever way."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = uuid4().hex
        facts: dict[str, object] = {}
        state(scope).update(request_id=request_id, facts=facts)
        begin, status = time.perf_counter(), 0

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                names = (b"x-request-id", b"request-id")  # the second is where Anthropic's clients look
                ids = [(name, request_id.encode("ascii")) for name in names]
                message["headers"] = [*message.get("headers", ()), *ids]
            await send(message)

        try:
            await self._app(scope, receive, tell)
        finally:
            host, port = scope.get("client") or ("?", 0)
            fields = {
                "client": f"{host}:{port}",
                "method": scope["method"],
                "path": scope.get("raw_path", scope["path"].encode()).decode("ascii", "backslashreplace")[:500],
                "status": status,
                "seconds": round(time.perf_counter() - begin, 4),
                "request_id": request_id,
                **facts,
            }
            logging.getLogger(REQUEST_LOGGER).info("request", extra={"fields": fields})
