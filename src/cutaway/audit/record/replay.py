"""Replaying a recorded request: computed once more, alone, and compared line by line with what was recorded.

In: an ``LLM`` whose recorder gives its lines here; a request of a record. Out: the first difference, or none.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, Protocol

from cutaway.audit.record.read_record import token_name
from cutaway.audit.record.recorded import RecordedRequest
from cutaway.audit.record.request_lines import OF_THE_RUN
from cutaway.engine.generation import Arrival
from cutaway.engine.llm import LLM
from cutaway.engine.stream import Stream
from cutaway.errors import CapacityError, CutawayError, InvalidRequestError, shown
from cutaway.sampling.params import SamplingParams

Key = tuple[str, int, int]  # kind, choice, token
LAST: Final = ("operations", "residual", "logprob", "noise", "id")
REASONS: Final = ("end", "abort", "deadline", "error")
"""Why a request has ended."""
END_FIELDS: Final = {"kind", "request", "time", "reason", "tokens", "cached", "embedding", "steps"}


class CollectedLines:
    """Takes the lines of one request after the other; a recorder's sink. The engine's thread adds, another reads."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.lines: dict[Key, Mapping[str, Any]] = {}
        self.new: SimpleQueue[Key] = SimpleQueue()  # of lines that nobody has compared

    def attach(self, llm: LLM, level: str) -> None:
        """Nothing is needed."""

    def begin(self, request_id: str, content: Mapping[str, Any]) -> None:
        """A new request."""
        self.error, self.lines, self.new = None, {}, SimpleQueue()
        self._take(content)

    def _take(self, content: Mapping[str, Any]) -> None:
        key = key_of(content)
        self.lines[key] = content
        self.new.put(key)

    def add(self, request_id: str, body: str) -> None:
        """A further line."""
        self._take(json.loads(body + "}"))

    def flush(self) -> bool:
        """Nothing is needed."""
        return True

    def end(self, request_id: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The last line."""
        self._take(content)
        return {}

    def fail(self, error: BaseException) -> None:
        """The recorder has failed."""
        self.error = self.error or f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """Nothing is needed."""


@dataclass(frozen=True)
class Difference:
    """Where a replay first differs."""

    what: str

    def __str__(self) -> str:
        return self.what


class Explain(Protocol):
    """Says more of a token whose line differs: which operation, which values. None: nothing more is known."""

    def __call__(self, recorded: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
        """The contents of both lines → what to say."""


def key_of(content: Mapping[str, Any]) -> Key:
    """By which a line of the record and one of the replay are paired."""
    token = content["kind"] == "token"
    return content["kind"], content["choice"] if token else 0, content["token"] if token else 0


def replay(llm: LLM, collected: CollectedLines, request: RecordedRequest, explain: Explain) -> Difference | None:
    """The first difference; None where all that was recorded is found again. Raises InvalidRequestError where the
    record's request is none that could have been let in.
    """
    stream = _stream(llm, request)
    left = {key_of(line.content): line.content for line in request.lines}
    begun = False
    ended: CutawayError | None = None
    try:
        while True:
            try:
                next(stream)
            except StopIteration:
                break
            except CutawayError as error:
                ended = error
                break
            if not begun:
                begun = True
                if found := _compare(request.begin.content, collected.lines[("begin", 0, 0)]):
                    return Difference(f"request {request.id}: {found}")
            if different := _compare_new(request, left, collected, explain):
                return different
            if not left and (request.end is None or request.end.content.get("reason") != "end"):
                break  # that was as far as it came
    finally:
        stream.close()
        # Where the record ends before the answer does, a step may still run, whose lines and values are this request's.
        llm.engine().call(lambda core: None).result()
    if collected.error is not None:
        raise CutawayError(f"the replay could not be followed ({collected.error}).")
    if not begun and request.begin.content != collected.lines.get(("begin", 0, 0)):
        found = _compare(request.begin.content, collected.lines.get(("begin", 0, 0), {}))
        if found:
            return Difference(f"request {request.id}: {found}")
    if different := _compare_new(request, left, collected, explain):
        return different
    if left:
        missing = min(left)
        why = f"; it ended with: {ended}" if ended is not None else ""
        return Difference(f"request {request.id}, {missing[0]} {missing[2]} of choice {missing[1]}: none came{why}")
    return _compare_end(request, collected, ended)


def _stream(llm: LLM, request: RecordedRequest) -> Stream:
    asked = request.begin.content
    arrivals: SimpleQueue[Arrival] = SimpleQueue()
    try:
        params = SamplingParams(**asked["params"])
        shown_ids = frozenset(asked["shown_ids"])
        received = llm.requests.make(
            (None, list(asked["prompt_ids"])), params, arrivals.put, pooling=asked["pooling"], shown_ids=shown_ids
        )
    except (KeyError, TypeError) as error:
        raise InvalidRequestError(
            f"request {request.id}, line {request.begin.number}, is none that can be asked ({error}).", "record"
        ) from None
    except (InvalidRequestError, CapacityError) as error:
        kind = InvalidRequestError if isinstance(error, InvalidRequestError) else CapacityError
        raise kind(
            f"request {request.id}, line {request.begin.number}, is none that can be asked: {error}", "record"
        ) from None
    return Stream(llm.engine, received, arrivals)


def _compare_new(
    request: RecordedRequest, left: dict[Key, dict[str, Any]], collected: CollectedLines, explain: Explain
) -> Difference | None:
    """Compare what has come since the last time; what is the same is taken out of ``left``."""
    while not collected.new.empty():
        key = collected.new.get()
        recorded, found = left.pop(key, None), collected.lines[key]
        if recorded is None:  # the beginning, the end, or more than was recorded
            continue
        if what := _compare(recorded, found):
            where = f"request {request.id}, " + (token_name(recorded) if key[0] == "token" else key[0])
            more = explain(recorded, found) if key[0] == "token" else None
            return Difference(f"{where}: {more or what}")
    return None


def _compare(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    """The first field that differs, of those that a replay can find again."""
    names = [name for name in found if name not in OF_THE_RUN]
    for name in sorted(names, key=lambda name: name in LAST):
        if name not in recorded:
            return f"{name} is not recorded; the replay has {shown(found[name])}"
        if not _same(recorded[name], _plain(found[name])):
            return f"{name} is {shown(recorded[name])} in the record, and {shown(_plain(found[name]))} in the replay"
    further = [name for name in recorded if name not in found and (name not in OF_THE_RUN or name == "tensors")]
    return f"{further[0]} is recorded, and the replay has none" if further else None


def _same(one: Any, other: Any) -> bool:
    """To the last digit: 1, 1.0 and true are three values, and so are 0.0 and -0.0."""
    try:
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    except RecursionError:  # lists in lists without end, which none of a replay is
        return False


def _plain(value: Any) -> Any:
    """As JSON would give it back: tuples as lists, keys as texts."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _compare_end(request: RecordedRequest, collected: CollectedLines, ended: CutawayError | None) -> Difference | None:
    """Whether the counts are right, and whether a request that came to its end comes to it again."""
    if request.end is None:
        return None
    recorded = request.end.content
    counts = recorded.get("tokens")
    if not isinstance(counts, list):
        return Difference(f"request {request.id}, end: tokens is {shown(counts)}, and no list of counts")
    lengths = [0] * len(counts)
    for line in request.tokens:
        choice = line.content["choice"]
        if choice >= len(lengths):
            return Difference(f"request {request.id}, end: there are tokens of choice {choice}, and no count of them")
        lengths[choice] += 1
    if not _same(counts, lengths):
        return Difference(f"request {request.id}, end: tokens is {shown(counts)}, and there are {lengths}")
    reason = recorded.get("reason")
    if reason not in REASONS:
        return Difference(f"request {request.id}, end: reason is {shown(reason)}, and none of {', '.join(REASONS)}")
    if reason != "end":
        wrong = sorted(set(recorded) ^ END_FIELDS) or (["embedding"] if recorded["embedding"] is not None else [])
        return Difference(f"request {request.id}, end: {wrong[0]} is none of such an end") if wrong else None
    found = collected.lines.get(("end", 0, 0))
    if found is None or found["reason"] != "end":
        why = f" ({ended})" if ended is not None else ""
        return Difference(f"request {request.id}, end: it came to its end in the record, and not in the replay{why}")
    what = _compare(recorded, found)
    return Difference(f"request {request.id}, end: {what}") if what else None
