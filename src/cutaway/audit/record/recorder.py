"""The recorder: an engine's observer that makes lines of what it is told, for a record or for a replay.

In: requests, steps and ends, in the engine's thread. Out: lines, given to a sink; a summary for whoever asked. Whatever
goes wrong in it ends the record, and never a request.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from cutaway.audit.record.levels import TENSORS, TOKENS, check_level
from cutaway.audit.record.operations import OpenStep, Operations, RowSink, SequenceHashes
from cutaway.audit.record.request_log import Further, RequestLog
from cutaway.engine.generation import Generation
from cutaway.engine.guarded_look import GuardedLook
from cutaway.engine.llm import LLM
from cutaway.engine.observer import Observer
from cutaway.engine.step_outcome import StepOutcome
from cutaway.engine.steps import Look
from cutaway.scheduler.step import Step

UNRECORDED: Final = "it ended before it had a place in the queue, and no record begins earlier"
"""What is told of a request that has no lines, in a record that is right."""
Result = TypeVar("Result")


class LineSink(Protocol):
    """What takes the lines of requests."""

    @property
    def error(self) -> str | None:
        """Why nothing is taken any more."""

    def attach(self, llm: LLM, level: str) -> None:
        """The engine is there; may raise."""

    def begin(self, request_id: str, content: Mapping[str, Any]) -> None:
        """The first line of a request."""

    def add(self, request_id: str, body: str) -> None:
        """A further one, as JSON up to its last brace."""

    def flush(self) -> bool:
        """All that a step brought was added. Out: whether more is taken."""

    def end(self, request_id: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The last one. Out: for whoever asked."""

    def fail(self, error: BaseException) -> None:
        """The recorder itself has failed: take nothing more."""

    def close(self) -> None:
        """No line comes any more."""


class RowKeeper(RowSink, Protocol):
    """Who wants the values of operations, too."""

    def keep(self, request_id: str, choices: Sequence[int]) -> list[Any]:
        """The step counts. Out: for the line, where the values are."""

    def drop(self) -> None:
        """The step before did not count."""


class Recorder(Observer):
    """Tells a sink what it is told."""

    def __init__(self, sink: LineSink, level: str = TOKENS, rows: RowKeeper | None = None) -> None:
        """rows: for the level "tensors"."""
        self.level = check_level(level)
        assert (rows is not None) == (level == TENSORS)
        self.opens_steps = level != TOKENS
        self.wants_logprobs = True  # as long as anything is recorded
        self._sink, self._rows = sink, rows
        self._logs: dict[str, RequestLog] = {}
        self._hashes: dict[str, SequenceHashes] = {}
        self._places: dict[tuple[str, int], list[Any]] = {}  # of values, since a choice's last token
        self._operations: Operations | None = None
        self._open: tuple[OpenStep, GuardedLook] | None = None  # of the step

    def attach(self, llm: LLM) -> None:
        """The engine is there."""
        if self.opens_steps:
            self._operations = Operations(llm.runner.config)
        self._sink.attach(llm, self.level)

    def admitted(self, generation: Generation) -> None:
        """A request waits."""
        self._guarded(lambda: self._admit(generation))

    def _admit(self, generation: Generation) -> None:
        log = RequestLog(generation)
        self._sink.begin(generation.request_id, log.begin())
        self._logs[generation.request_id] = log
        if self._operations is not None:
            count = generation.asked.params.n
            self._hashes[generation.request_id] = SequenceHashes(count, len(self._operations.order))

    def looks(self, step: Step) -> list[Look]:
        """Into each step, where operations are recorded."""
        if self._operations is None:
            return []
        self._guarded(lambda: self._open_step(step))
        return [] if self._open is None else [self._open[1]]

    def _open_step(self, step: Step) -> None:
        """The step before either counted, or its rows are dropped."""
        assert self._operations is not None
        self._open = None
        if self._rows is not None:
            self._rows.drop()
        opened = OpenStep(step, self._operations, self._hashes, self._rows)
        self._open = opened, GuardedLook(opened)

    def stepped(self, outcome: StepOutcome) -> None:
        """A step counts."""
        self._guarded(lambda: self._advance(outcome))

    def _advance(self, outcome: StepOutcome) -> None:
        if self._open is not None:
            (opened, look), self._open = self._open, None
            if look.error is not None:
                raise look.error
            opened.commit()
        if not self.wants_logprobs:
            return
        step, residuals = outcome.step, outcome.residuals
        of_step = step.number, f"{len(step.pieces)},{step.num_tokens}"
        further: Further | None = None
        for result, taken in zip(outcome.computed.results, outcome.taken, strict=True):
            log = self._logs.get(result.generation.request_id)
            if log is None:
                continue
            if self._operations is not None:
                if self._rows is not None:
                    self._keep_rows(self._rows, log.request_id, result.piece.sequence.choices)
                further = partial(self._further, log.request_id)
            log.advance(of_step, result, taken, residuals, further, self._sink.add)
        self.wants_logprobs = self._sink.flush()

    def _further(self, request_id: str, choice: int) -> dict[str, Any]:
        """What the line of a token has of operations."""
        digests = self._hashes[request_id].digests(choice)
        found: dict[str, Any] = {"operations": base64.b64encode(digests).decode("ascii")}
        if self._rows is not None:
            found["tensors"] = self._places.pop((request_id, choice), [])
        return found

    def _keep_rows(self, rows: RowKeeper, request_id: str, choices: Sequence[int]) -> None:
        """Write the values of a piece; each choice that it stands for has the place in its next line."""
        places = rows.keep(request_id, choices)
        for choice in choices:
            self._places.setdefault((request_id, choice), []).extend(places)

    def ended(self, generation: Generation, reason: str) -> dict[str, Any]:
        """A request has ended. Out: its receipt, or why there is none."""
        found = self._guarded(lambda: self._end(generation, reason))
        if found is not None:
            return found
        return {"unrecorded": UNRECORDED} if self._sink.error is None else {"error": self._sink.error}

    def _end(self, generation: Generation, reason: str) -> dict[str, Any] | None:
        request_id = generation.request_id
        log = self._logs.pop(request_id, None)
        if log is None:
            return None
        self._hashes.pop(request_id, None)
        for place in [each for each in self._places if each[0] == request_id]:
            del self._places[place]
        return self._sink.end(request_id, log.end(reason))

    def _guarded(self, work: Callable[[], Result]) -> Result | None:
        """A fault of the recorder ends the record, and says so to whoever asks. So does an interruption, which goes on:
        a log may count a token that has no line.
        """
        try:
            return work()
        except BaseException as error:
            self._sink.fail(error)
            self._logs.clear()
            self._hashes.clear()
            self._places.clear()
            self._open = None
            if self._rows is not None:
                self._rows.drop()
            if not isinstance(error, Exception):
                raise
            return None

    def close(self) -> None:
        """The engine has ended."""
        self._sink.close()
