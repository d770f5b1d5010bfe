"""The model behind the routes: it is being loaded, or there, or the server ends.

In: a function that loads it. Out: the engine, or an error that says why there is none; what runs at the moment.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from cutaway import __version__
from cutaway.audit.request_ledger import StepMeter, meter_of
from cutaway.engine.async_engine import AsyncEngine, AsyncStream
from cutaway.engine.core import EngineCore
from cutaway.engine.llm import LLM
from cutaway.engine.pooling import Pooling
from cutaway.engine.watched import Tapping
from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.ops.numerics import NUMERICS_VERSION
from cutaway.sampling.params import SamplingParams
from cutaway.server.http.errors import ApiError, loading, shutting_down
from cutaway.server.metrics import Metrics
from cutaway.server.settings import ServerSettings
from cutaway.server.timings import FIELD, Timings
from cutaway.server.work import Errors, Work, admit

Answer = TypeVar("Answer")
ENCODERS: Final = 4
"""Prompts that are encoded at a time; more would only take turns more often, since Python runs one of them."""
CHECKERS: Final = 2
"""Requests whose schemas are checked at a time."""


@dataclass(frozen=True)
class ServedModel:
    """A model that answers."""

    engine: AsyncEngine
    names: tuple[str, ...]  # for clients, the first for replies
    created: int  # seconds since 1970, when it was loaded
    metrics: Metrics
    meter: StepMeter | None = None  # where requests may ask for their ledger

    @property
    def llm(self) -> LLM:
        """The engine's model."""
        return self.engine.llm

    @property
    def context(self) -> int:
        """Positions of prompt and answer at most."""
        return self.llm.settings.context

    @property
    def fingerprint(self) -> str:
        """What decides on an answer's bits beside the request: program, numerical contract."""
        return f"cutaway-{__version__}-numerics-{NUMERICS_VERSION}"

    def check_name(self, name: str | None) -> None:
        """Refuse a request for another model."""
        if name is not None and name not in self.names:
            raise ApiError(
                404,
                f"model is {name[:200]!r}; here is {' or '.join(map(repr, self.names))}. Name it, or leave model out.",
                "model",
                "model_not_found",
            )


class Service:
    """What the routes share. Everything but ``load`` is used within the event loop alone."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.works: dict[str, Work] = {}  # that have not ended, by id
        self.closing = False
        self.ending = asyncio.Event()  # what runs is aborted, and what comes late
        self._model: ServedModel | None = None
        self._encoders = ThreadPoolExecutor(ENCODERS, "cutaway-encode")
        self._checkers = ThreadPoolExecutor(CHECKERS, "cutaway-check")

    async def load(self, load: Callable[[], LLM]) -> None:
        """Load the model, in a thread that nobody waits for at the end of the process."""
        loaded: Future[tuple[LLM, StepMeter | None]] = Future()
        loaded.set_running_or_notify_cancel()  # from now on nobody can cancel it under the thread's hands

        def work() -> None:
            try:
                llm = load()
                if self.settings.max_tap_bytes is not None:  # else all would wait while the first is compiled for
                    llm.engine().call(lambda core: llm.runner.prepare_tapped()).result()
                loaded.set_result((llm, meter_of(llm) if self.settings.timings else None))
            except BaseException as error:
                loaded.set_exception(error)

        threading.Thread(target=work, name="cutaway-load", daemon=True).start()
        llm, meter = await asyncio.wrap_future(loaded)
        names = self.settings.served_names or (llm.model.name,)
        self._model = ServedModel(AsyncEngine(llm), names, int(time.time()), Metrics(names[0]), meter)

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self._model is not None and not self.closing

    @property
    def model(self) -> ServedModel:
        """The model; ApiError 503 while there is none, or no more."""
        if self.closing:
            raise shutting_down()
        if self._model is None:
            raise loading()
        return self._model

    async def begin(
        self,
        name: str,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        state: Mapping[str, Any],
        shown_ids: frozenset[int] = frozenset(),
        taps: Tapping | None = None,
        errors: Errors = nullcontext,
        timed: bool = False,
    ) -> Work:
        """Let the prompts wait for their turn, as the work of this name. state: of the request; ``reads_cache`` False
        there computes the prompts whole. shown_ids: control tokens that are in the text nevertheless. taps: what is to
        be seen of each prompt's steps. errors: what renames the parameters of errors that come later. timed: have their
        steps run timed; ApiError 400 together with taps, whose steps are open.
        """
        if timed and taps is not None:
            raise ApiError(
                400,
                f"there are taps and {FIELD}; tapped steps are run open, and have no clocks. Leave one.",
                FIELD,
                "timings_of_taps",
            )
        options: dict[str, Any] = {"salt": state["client"].salt, "reads_cache": state.get("reads_cache", True)}
        submit = partial(self.model.engine.submit, sampling_params=params, shown_ids=shown_ids, taps=taps, **options)
        return await self._begin(name, [partial(submit, ids) for ids in prompts], params, state, errors, timed)

    async def begin_embeddings(
        self,
        name: str,
        prompts: Sequence[Sequence[int]],
        pooling: Pooling,
        state: Mapping[str, Any],
        timed: bool = False,
    ) -> Work:
        """The same for embeddings."""
        submit = partial(self.model.engine.submit_embedding, pooling=pooling, salt=state["client"].salt)
        submitting = [partial(submit, ids) for ids in prompts]
        return await self._begin(name, submitting, SamplingParams(), state, nullcontext, timed)

    async def _begin(
        self,
        name: str,
        submitting: Sequence[Callable[[], Awaitable[AsyncStream]]],
        params: SamplingParams,
        state: Mapping[str, Any],
        errors: Errors,
        timed: bool,
    ) -> Work:
        """submitting: submits each prompt when it is called."""
        timings = await Timings.begin(self.model.llm, self.model.meter) if timed else None
        try:
            work = await self._admit(name, [submit() for submit in submitting], params, state, errors)
        except BaseException:
            if timings is not None:
                timings.end()
            raise
        if timings is not None:
            timings.follow(work)
        return work

    async def _admit(
        self,
        name: str,
        submitting: Sequence[Awaitable[AsyncStream]],
        params: SamplingParams,
        state: Mapping[str, Any],
        errors: Errors,
    ) -> Work:
        def forget() -> None:
            self.works.pop(name, None)

        metrics = self.model.metrics
        admitting = asyncio.ensure_future(
            admit(name, submitting, params, state["client"], metrics, state["facts"], forget, errors)
        )
        ending = asyncio.ensure_future(self.ending.wait())
        try:
            await asyncio.wait({admitting, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not admitting.done():  # its form is being compiled, which nothing can hurry
                raise shutting_down()
            work = admitting.result()
        finally:
            admitting.cancel()
            ending.cancel()
        self.works[name] = work
        if self.ending.is_set():
            work.abort()
        return work

    async def encode(self, work: Callable[[], Answer], param: str) -> Answer:
        """The result of encoding or decoding text, which may take long: in another thread, few at a time, so that the
        event loop goes on. A client that leaves before its turn takes no time of them. param: where the text is from.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._encoders, work)
        except CapacityError as error:
            raise ApiError(400, str(error), param, "context_length_exceeded") from None

    async def check_form(self, work: Callable[[], Answer], field: str) -> Answer:
        """The result of checking the schemas of a request: in another thread, few at a time, within the time limit of
        forms. field: where they are from.

        Raises InvalidRequestError where it takes longer, QueueFullError where its turn doesn't come.
        """
        grammars, begun = self.model.llm.requests.grammars, threading.Event()

        def begin() -> Answer:
            begun.set()
            return work()

        checking = asyncio.get_running_loop().run_in_executor(self._checkers, begin)
        try:
            return await asyncio.wait_for(checking, grammars.time_limit)
        except TimeoutError:
            if not begun.is_set():
                raise grammars.no_turn() from None
            raise InvalidRequestError(
                f"{field} takes more than {grammars.time_limit:g} s to check, the most that is waited for. "
                "Simplify it.",
                field,
            ) from None

    async def ask_engine(self, question: Callable[[EngineCore], Answer]) -> Answer:
        """What the engine's thread answers, between two steps."""
        return await asyncio.wrap_future(self.model.llm.engine().call(question))

    def abort_all(self) -> None:
        """End what runs, with an error for each client."""
        self.ending.set()
        for work in list(self.works.values()):
            work.abort()

    async def close(self) -> None:
        """End the engine, if there is one."""
        self.closing = True
        for each in (self._encoders, self._checkers):
            each.shutdown(wait=False, cancel_futures=True)
        if self._model is not None:
            await self._model.engine.close()
