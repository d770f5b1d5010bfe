"""``AsyncEngine``: the engine for asyncio. Its thread computes; event loops only wait.

In: prompts, from any number of event loops and threads. Out: async iterators of deltas.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any
from weakref import WeakValueDictionary

from cutaway.engine.engine_thread import EngineThread
from cutaway.engine.generation import Arrival, Event, Sink
from cutaway.engine.llm import LLM
from cutaway.engine.outputs import Delta, EmbeddingRequestOutput, RequestOutput, Statistics
from cutaway.engine.pooling import DEFAULT_POOLING, Pooling
from cutaway.engine.prompts import Prompt, chat_prompt, prompt_ids
from cutaway.engine.received import Received
from cutaway.engine.requests import TextAndIds
from cutaway.engine.watched import Tapping
from cutaway.errors import CutawayError
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.structured_outputs import StructuredOutputsParams


class Mailbox:
    """What the engine's thread has for one event loop. However many requests a step has served, it wakes it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._letters: deque[tuple[asyncio.Queue[Arrival], Arrival]] = deque()
        self._called = False  # and has not begun yet

    def sink(self, queue: "asyncio.Queue[Arrival]", lost: Callable[[], None]) -> Sink:
        """A sink that fills the queue within the loop. lost: is called where the loop is closed."""

        def deliver(arrival: Arrival) -> None:
            self._letters.append((queue, arrival))
            if self._called and not self._loop.is_closed():
                return
            self._called = True
            try:
                self._loop.call_soon_threadsafe(self._empty)
            except RuntimeError:  # the loop is closed, maybe amid a call
                self._letters.clear()
                self._called = False
                lost()

        return deliver

    def _empty(self) -> None:
        self._called = False  # first: what comes from now on may need another call
        while self._letters:
            queue, arrival = self._letters.popleft()
            queue.put_nowait(arrival)


class AsyncStream(AsyncIterator[Delta]):
    """One request while it runs: an async iterator of deltas. Choices come side by side.

    It belongs to the event loop in which it was submitted, whose tasks may share it: each delta goes to one of them.
    A request that is aborted, or whose deadline passes, ends with a delta for each choice that says so. A task that is
    cancelled while it waits for a delta aborts the request, and so does forgetting the stream.
    """

    def __init__(self, engine: EngineThread, received: Received, arrivals: "asyncio.Queue[Arrival]") -> None:
        self._engine, self._received, self._arrivals = engine, received, arrivals
        self._events: list[Event] = []  # arrived and not given out, the next one last
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()  # of the task that takes the next delta
        self._ended = False

    def __aiter__(self) -> "AsyncStream":
        return self

    async def __anext__(self) -> Delta:
        if asyncio.get_running_loop() is not self._loop:
            raise CutawayError("this stream belongs to the event loop in which it was submitted. Iterate it there.")
        try:
            async with self._turn:
                if self._ended:
                    raise StopAsyncIteration
                if not self._events:
                    arrival = await self._arrivals.get()
                    if isinstance(arrival, BaseException):
                        raise arrival
                    self._events = arrival[::-1]
                delta = self._received.take(self._events.pop())
                self._ended = self._received.finished
                return delta
        except StopAsyncIteration:
            raise
        except BaseException:
            self._ended = True
            self.abort()
            raise

    async def run(self) -> RequestOutput:
        """All that is left, and the whole output."""
        async for _ in self:
            pass
        return self.output()

    def abort(self) -> None:
        """End the request within a step; nothing happens if it has ended."""
        self._engine.abort(self._received.generation)

    def __del__(self) -> None:
        if hasattr(self, "_engine"):
            self.abort()

    @property
    def request_id(self) -> str:
        """By which ``AsyncEngine.abort`` knows it."""
        return self._received.generation.request_id

    @property
    def seed(self) -> int:
        """In effect."""
        return self._received.generation.asked.seed

    @property
    def finished(self) -> bool:
        """Whether it was iterated to the end of every choice."""
        return self._received.finished

    @property
    def ended(self) -> bool:
        """Whether the engine computes nothing more for it. Deltas may be left to iterate."""
        return self._received.generation.ended

    def statistics(self) -> Statistics:
        """Counts and times so far."""
        return self._received.statistics()

    def output(self) -> RequestOutput:
        """The request's output, as far as it was iterated."""
        return self._received.output()

    @property
    def tap_bytes(self) -> int:
        """Bytes that its taps will have, at most; 0 without."""
        return self._received.tap_bytes

    @property
    def record(self) -> dict[str, Any] | None:
        """What the record has of it, once it was iterated to its end: as ``RequestOutput.record``."""
        return self._received.generation.summary if self.finished else None

    def embedding(self) -> EmbeddingRequestOutput:
        """The prompt's embedding, once it was iterated to its end."""
        return self._received.embedding()


class AsyncEngine:
    """The engine of an ``LLM``, for asyncio; the ``LLM`` itself can be used beside it. All methods may be called from
    any event loop and any thread.
    """

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self._mailboxes: dict[asyncio.AbstractEventLoop, Mailbox] = {}
        self._streams: WeakValueDictionary[str, AsyncStream] = WeakValueDictionary()
        self._lock = threading.Lock()

    async def submit(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        timeout: float | None = None,
        salt: bytes = b"",
        shown_ids: frozenset[int] = frozenset(),
        taps: Tapping | None = None,
        reads_cache: bool = True,
    ) -> AsyncStream:
        """Let a request wait for its turn. Parameters as for ``LLM.stream``; salt: requests of different salts share
        nothing in the prefix cache, so that the time of one tells nothing about another. shown_ids: control tokens
        that are in the text nevertheless. taps: as for ``LLM.generate``. reads_cache: False computes the
        whole prompt, though the prefix cache may have its beginning; the bits are the same.

        Raises QueueFullError, with an estimate of when to try again, where too many wait already.
        """
        return await self._submit(
            lambda: prompt_ids(prompt, self.llm.tokenizer),
            sampling_params,
            priority,
            timeout,
            salt,
            shown_ids=shown_ids,
            taps=taps,
            reads_cache=reads_cache,
        )

    async def submit_embedding(
        self,
        prompt: Prompt,
        pooling: Pooling = DEFAULT_POOLING,
        *,
        priority: int = 0,
        timeout: float | None = None,
        salt: bytes = b"",
    ) -> AsyncStream:
        """The same for an embedding, as ``LLM.embed``: one delta without text, and then ``AsyncStream.embedding``."""
        return await self._submit(
            lambda: prompt_ids(prompt, self.llm.tokenizer), None, priority, timeout, salt, pooling
        )

    async def submit_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        timeout: float | None = None,
        salt: bytes = b"",
        shown_ids: frozenset[int] = frozenset(),
        taps: Tapping | None = None,
        **template: Any,
    ) -> AsyncStream:
        """The same for a conversation. Parameters as for ``LLM.stream_chat``; salt, shown_ids and taps as for
        ``submit``.
        """
        return await self._submit(
            lambda: chat_prompt(self.llm.tokenizer, messages, **template),
            sampling_params,
            priority,
            timeout,
            salt,
            shown_ids=shown_ids,
            taps=taps,
        )

    async def _submit(
        self,
        prompt: Callable[[], TextAndIds],
        params: SamplingParams | None,
        priority: int,
        timeout: float | None,
        salt: bytes = b"",
        pooling: Pooling | None = None,
        shown_ids: frozenset[int] = frozenset(),
        taps: Tapping | None = None,
        reads_cache: bool = True,
    ) -> AsyncStream:
        """Hand a request to the engine's thread; its stream once it is admitted. To cancel this aborts the request."""
        arrivals: asyncio.Queue[Arrival] = asyncio.Queue()
        received: Received
        engine = self.llm.engine()

        def lost() -> None:
            engine.abort(received.generation)

        sink = self._mailbox().sink(arrivals, lost)
        if params is not None and isinstance(params, SamplingParams) and params.structured_outputs is not None:
            await self._compile(params.structured_outputs)
        # A long prompt takes a while to encode: not in the event loop.
        received = await asyncio.to_thread(
            lambda: self.llm.requests.make(
                prompt(),
                params,
                sink,
                priority=priority,
                timeout=timeout,
                salt=salt,
                pooling=pooling,
                shown_ids=shown_ids,
                taps=taps,
                reads_cache=reads_cache,
            )
        )
        try:
            admission = await asyncio.wrap_future(engine.submit([received.generation]))
        except asyncio.CancelledError:
            engine.abort(received.generation)
            raise
        if admission.error is not None:
            raise admission.error
        stream = AsyncStream(engine, received, arrivals)
        self._streams[stream.request_id] = stream
        return stream

    async def _compile(self, form: StructuredOutputsParams) -> None:
        """Have the grammar compiled, so that no thread of the event loop's waits for it; then it is known."""
        grammars = self.llm.requests.grammars
        await asyncio.wrap_future(grammars.vocabulary())
        compilation = grammars.submit(form)
        if compilation.grammar.done():
            return
        try:
            await asyncio.wait_for(asyncio.wrap_future(compilation.begun), grammars.time_limit)
        except asyncio.TimeoutError:
            raise grammars.no_turn() from None
        try:
            left = compilation.seconds_left(grammars.time_limit)
            await asyncio.wait_for(asyncio.wrap_future(compilation.grammar), left)
        except asyncio.TimeoutError:
            raise grammars.too_slow(form) from None

    def _mailbox(self) -> Mailbox:
        loop = asyncio.get_running_loop()
        with self._lock:
            for other in [each for each in self._mailboxes if each.is_closed()]:
                del self._mailboxes[other]
            return self._mailboxes.setdefault(loop, Mailbox(loop))

    def abort(self, request_id: str) -> bool:
        """End the request of this id within a step. False if there is none, or it has ended, though deltas may be left
        to iterate. After True it may still end by itself, in the step that is being computed.
        """
        stream = self._streams.get(request_id)
        if stream is None or stream.ended:
            return False
        stream.abort()
        return True

    async def close(self) -> None:
        """Close the ``LLM``: requests that run end with an error."""
        await asyncio.to_thread(self.llm.close)

    async def __aenter__(self) -> "AsyncEngine":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
