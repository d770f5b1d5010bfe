"""The engine's requests of one HTTP request: one for each of its prompts, ended together.

In: prompts that have been admitted. Out: their deltas side by side, or their whole outputs; counts for metrics and log.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

from cutaway.engine.async_engine import AsyncStream
from cutaway.engine.outputs import Delta, EmbeddingRequestOutput, RequestOutput
from cutaway.errors import QueueFullError
from cutaway.sampling.params import SamplingParams
from cutaway.server.http.auth import Client
from cutaway.server.http.errors import shutting_down
from cutaway.server.metrics import Metrics

if TYPE_CHECKING:
    from cutaway.server.timings import Timings

Errors: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Within it, errors name the client's fields."""


class Work:
    """Invariant: once ``end`` was called, or this is forgotten, nothing of it runs in the engine."""

    def __init__(
        self,
        name: str,
        streams: Sequence[AsyncStream],
        params: SamplingParams,
        client: Client,
        metrics: Metrics,
        facts: dict[str, object],
        forget: Callable[[], object],
        errors: Errors = nullcontext,
    ) -> None:
        """facts: what the log is to say of the request. forget: is called at the end. errors: around what the engine
        says.
        """
        self.name = name  # by which the client knows it
        self.streams, self.params, self.client = streams, params, client
        self.timings: Timings | None = None  # where they were asked for
        self._forget, self._errors = forget, errors
        self._metrics, self._facts = metrics, facts
        self._begin = time.perf_counter()
        self._told: dict[tuple[int, int], float] = {}  # prompt and choice → when its last token came
        self._reasons: list[str] = []  # why answers have ended
        self._unfinished = "abort"  # the reason of those that have not, at the end
        self._ended = False

    @property
    def tap_bytes(self) -> int:
        """Bytes that the taps of all its prompts will have, at most."""
        return sum(stream.tap_bytes for stream in self.streams)

    async def deltas(self) -> AsyncGenerator[tuple[int, Delta], None]:
        """Each delta with the number of its prompt, in the order in which they come; ApiError if it was aborted."""
        begun: set[int] = set()
        async for prompt, delta in self._arriving():
            if delta.token_ids:
                if prompt not in begun:
                    begun.add(prompt)
                    self._metrics.prompt_computed(self.streams[prompt].statistics())
                    self._metrics.first_token(self.streams[prompt].statistics())
                now, place = time.perf_counter(), (prompt, delta.index)
                before = self._told.get(place)
                self._metrics.tokens(len(delta.token_ids), None if before is None else now - before)
                self._told[place] = now
            elif delta.finish_reason == "stop":  # of an embedding
                self._metrics.prompt_computed(self.streams[prompt].statistics())
            if delta.finish_reason is not None:
                self._reasons.append(delta.finish_reason)
                self._metrics.answer_ended(delta.finish_reason)
                if delta.finish_reason == "abort":
                    raise shutting_down()
            yield prompt, delta

    async def _arriving(self) -> AsyncGenerator[tuple[int, Delta], None]:
        try:
            with self._errors():
                async for each in _merged(self.streams):
                    yield each
        except Exception:
            self._unfinished = "error"
            raise

    async def run(self) -> list[RequestOutput]:
        """The whole output of each prompt."""
        async for _ in self.deltas():
            pass
        return self.outputs()

    async def embeddings(self) -> list[EmbeddingRequestOutput]:
        """The embedding of each prompt, where these were asked for."""
        async for _ in self.deltas():
            pass
        return [stream.embedding() for stream in self.streams]

    def outputs(self) -> list[RequestOutput]:
        """What has come so far of each prompt."""
        return [stream.output() for stream in self.streams]

    def abort(self) -> None:
        """Let the engine end it; whoever takes its deltas gets an error."""
        for stream in self.streams:
            stream.abort()

    def end(self) -> None:
        """Nothing more is wanted, finished or not. Counts it, once."""
        if self._ended:
            return
        self._ended = True
        self.abort()
        if self.timings is not None:
            self.timings.end()
        self._forget()
        all_statistics = [stream.statistics() for stream in self.streams]
        for statistics in all_statistics:
            seconds = time.perf_counter() - self._begin
            self._metrics.request_ended(statistics, self.params.n, seconds, self.client.name)
        unfinished = self.params.n * len(self.streams) - len(self._reasons)
        for _ in range(unfinished):
            self._metrics.answer_ended(self._unfinished)
        self._facts.update(
            prompt_tokens=sum(each.prompt_tokens for each in all_statistics),
            cached_tokens=sum(each.cached_tokens for each in all_statistics),
            generated_tokens=sum(each.generated_tokens for each in all_statistics),
            finish=",".join(sorted({*self._reasons, *([self._unfinished] if unfinished else [])})),
        )


async def admit(
    name: str,
    submitting: Sequence[Awaitable[AsyncStream]],
    params: SamplingParams,
    client: Client,
    metrics: Metrics,
    facts: dict[str, Any],
    forget: Callable[[], object],
    errors: Errors,
) -> Work:
    """Let all prompts wait for their turn; or none, where one of them is refused. submitting: one for each."""
    if client.name:
        facts["key"] = client.name
    # Together: the engine lets in all that have come between two of its steps.
    found = await asyncio.gather(*submitting, return_exceptions=True)
    streams = [each for each in found if not isinstance(each, BaseException)]
    for error in found:
        if isinstance(error, BaseException):
            for stream in streams:
                stream.abort()
            if isinstance(error, QueueFullError):
                metrics.refused()
            raise error
    return Work(name, streams, params, client, metrics, facts, forget, errors)


async def _merged(streams: Sequence[AsyncStream]) -> AsyncGenerator[tuple[int, Delta], None]:
    """The deltas of several streams in the order in which they come."""
    if len(streams) == 1:
        async for only in streams[0]:
            yield 0, only
        return
    arrivals: asyncio.Queue[tuple[int, Delta | Exception | None]] = asyncio.Queue()

    async def pump(number: int, stream: AsyncStream) -> None:
        try:
            async for delta in stream:
                arrivals.put_nowait((number, delta))
            arrivals.put_nowait((number, None))
        except Exception as error:
            arrivals.put_nowait((number, error))

    pumps = [asyncio.ensure_future(pump(number, stream)) for number, stream in enumerate(streams)]
    try:
        left = len(streams)
        while left:
            number, arrival = await arrivals.get()
            if isinstance(arrival, Exception):
                raise arrival
            if arrival is None:
                left -= 1
            else:
                yield number, arrival
    finally:
        for each in pumps:
            each.cancel()
