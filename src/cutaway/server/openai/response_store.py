"""The responses that are kept, so that others can follow them: the last ones of each API key, in memory.

In: responses with their conversations, as they end. Out: the same by id, for the key that asked for them alone. Nothing
is written to a disk.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from cutaway.server.http.auth import Client
from cutaway.server.http.errors import ApiError
from cutaway.server.http.write_json import json_bytes

MOST_RESPONSES: Final = 1000
MOST_BYTES: Final = 16 << 20
"""Of each key: the ones used least lately are forgotten beyond that. Bytes are those of JSON."""


class Kept(NamedTuple):
    """A response."""

    messages: Sequence[Mapping[str, Any]]  # the conversation with the answer, without instructions
    response: Mapping[str, Any]
    size: int  # bytes, as if nothing were shared with the responses before


class ResponseStore:
    """Used within the event loop alone."""

    def __init__(self, most_responses: int = MOST_RESPONSES, most_bytes: int = MOST_BYTES) -> None:
        self._most_responses, self._most_bytes = most_responses, most_bytes
        self._kept: dict[Client, OrderedDict[str, Kept]] = {}  # of each client, the one used last at the end
        self._bytes: dict[Client, int] = {}

    def keep(self, client: Client, messages: Sequence[Mapping[str, Any]], response: Mapping[str, Any]) -> None:
        """Keep a response, and forget older ones. One that is larger than all of the room is not kept."""
        size = len(json_bytes(messages)) + len(json_bytes(response))
        kept = self._kept.setdefault(client, OrderedDict())
        kept[response["id"]] = Kept(messages, response, size)
        self._bytes[client] = self._bytes.get(client, 0) + size
        while len(kept) > self._most_responses or self._bytes[client] > self._most_bytes:
            _, oldest = kept.popitem(last=False)
            self._bytes[client] -= oldest.size

    def find(self, client: Client, name: str) -> Kept | None:
        """The response of this id, which is used now."""
        kept = self._kept.get(client)
        if kept is None or name not in kept:
            return None
        kept.move_to_end(name)
        return kept[name]

    def forget(self, client: Client, name: str) -> bool:
        """Forget a response; False if there is none, or no more."""
        kept = self._kept.get(client)
        if kept is None or name not in kept:
            return False
        self._bytes[client] -= kept.pop(name).size
        return True

    def missing(self, status: int, name: str, param: str | None, code: str, remedy: str) -> ApiError:
        """What is said of an id that is not there."""
        return ApiError(
            status,
            f"there is no response {name[:100]!r}, or no more: the last {self._most_responses} of an API key are kept, "
            f"in {self._most_bytes >> 20} MiB, until the server ends, but for those with store: false. {remedy}",
            param,
            code,
        )
