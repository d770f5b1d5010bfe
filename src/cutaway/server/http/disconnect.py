"""The client's leaving, while the server works for it.

In: a coroutine, and what the client sends. Out: the coroutine's result; or it is cancelled, and ClientLeftError raised.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from cutaway.server.http.asgi import Receive
from cutaway.server.http.errors import ApiError

Result = TypeVar("Result")


class ClientLeftError(ApiError):
    """Nobody reads this; the log has its status."""

    def __init__(self) -> None:
        super().__init__(499, "the client has closed the connection.")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of the work, which ends before this does; also where it was there when the client left.

    receive: of a request whose body has been read.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.wait({task, watch})
    if task.cancelled():
        raise ClientLeftError
    return task.result()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
