"""An answer as it is sent: piece by piece, none of them without text but the last.

In: the deltas of the engine, one a token. Out: pieces. A token whose text isn't certain yet (half a character, what may
be a stop string) waits for the text that makes it so.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import NamedTuple

from cutaway.engine.outputs import FinishReason, Logprob
from cutaway.server.work import Work


class Piece(NamedTuple):
    """Text of one choice, and the tokens that became text with it."""

    prompt: int  # its number
    choice: int
    text: str  # empty only with a finish reason
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]]  # one for each token, where they were asked for
    finish_reason: FinishReason | None


@dataclass
class _Held:
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)


async def pieces(work: Work) -> AsyncGenerator[Piece, None]:
    """The pieces of all choices of all prompts, in the order in which they come."""
    held: dict[tuple[int, int], _Held] = {}
    async for prompt, delta in work.deltas():
        kept = held.setdefault((prompt, delta.index), _Held())
        kept.token_ids += delta.token_ids
        kept.logprobs += delta.logprobs or []
        if delta.text or delta.finish_reason is not None:
            del held[prompt, delta.index]
            yield Piece(prompt, delta.index, delta.text, kept.token_ids, kept.logprobs, delta.finish_reason)
