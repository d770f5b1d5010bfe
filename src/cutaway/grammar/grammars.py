"""The grammars of one engine: compiled in threads of their own, within a time limit, and kept while they are in use.

In: forms. Out: for each a future of its ``Grammar``.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from cutaway.errors import CutawayError, InvalidRequestError, QueueFullError
from cutaway.grammar.grammar import Grammar, compile_grammar
from cutaway.grammar.vocabulary import grammar_vocabulary
from cutaway.sampling.structured_outputs import FIELD, StructuredOutputsParams
from cutaway.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

TIME_LIMIT: Final = 5.0
"""Seconds in which a grammar is compiled, or given up; and in which its turn comes."""
MOST_KEPT: Final = 64
MOST_KEPT_BYTES: Final = 1 << 20
"""Of the text of all forms that are kept."""
MOST_WAITING: Final = 64
"""Forms that are being compiled, or wait: each has a thread."""
THREADS: Final = 2
"""Of these threads, those that compile at a time."""
STACK: Final = 128 << 20
"""Bytes of address space for the stack of a thread that compiles: llguidance descends as deep as schemas are nested."""

Result = TypeVar("Result")


class Key(NamedTuple):
    """By which a form is known."""

    kind: str
    digest: bytes
    size: int  # bytes of its text


class Compilation(NamedTuple):
    """A form that is being compiled, or waits for its turn."""

    begun: Future[float]  # when its turn has come, on the monotonic clock
    grammar: Future[Grammar]

    def seconds_left(self, time_limit: float) -> float:
        """Of the time limit, of one that has begun."""
        return max(0.0, self.begun.result() + time_limit - time.monotonic())


class Grammars:
    """Compiles each form once, and keeps those that were used last: ``MOST_KEPT``, of ``MOST_KEPT_BYTES``. Any thread
    may ask.

    Nothing can stop what a thread computes, but the limits of llguidance and of ``CheckedSchema`` end it. Meanwhile who
    waits for it is told, and the others wait for the other threads; not for ever, but until they are told, too.
    """

    def __init__(self, tokenizer: Tokenizer, time_limit: float = TIME_LIMIT) -> None:
        self.time_limit = time_limit
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._vocabulary: Future[LLTokenizer] | None = None
        self._known: OrderedDict[Key, Compilation] = OrderedDict()
        self._slots = threading.BoundedSemaphore(THREADS)

    def get(self, form: StructuredOutputsParams) -> Grammar:
        """The grammar of a form, compiled within the time limit.

        Raises InvalidRequestError where it can't be enforced, or isn't compiled in time; QueueFullError where too many
        are being compiled.
        """
        self.vocabulary().result()
        compilation = self.submit(form)
        try:
            compilation.begun.result(self.time_limit)
        except TimeoutError:
            raise self.no_turn() from None
        try:
            return compilation.grammar.result(compilation.seconds_left(self.time_limit))
        except TimeoutError:
            raise self.too_slow(form) from None

    def vocabulary(self) -> "Future[LLTokenizer]":
        """The vocabulary, made with the first form. It takes up to seconds, which are not the form's."""
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = started(lambda: grammar_vocabulary(self._tokenizer))
            return self._vocabulary

    def submit(self, form: StructuredOutputsParams) -> Compilation:
        """The futures of a form. Who waits for them minds the time limit, for each of them, once there is a vocabulary;
        afterwards it is ``no_turn``, or ``too_slow``.
        """
        key, vocabulary = key_of(form), self.vocabulary()
        begun: Future[float] = _future()

        def compile_it() -> Grammar:
            try:
                tokens = vocabulary.result()
                with self._slots:
                    begun.set_result(time.monotonic())
                    if not threading.main_thread().is_alive():
                        raise CutawayError("the program ends.")
                    grammar = compile_grammar(form, tokens)
            except BaseException as error:
                with self._lock:
                    del self._known[key]
                if not begun.done():
                    begun.set_exception(error)
                raise
            with self._lock:
                self._forget_oldest(key)
            return grammar

        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
            pending = sum(not each.grammar.done() for each in self._known.values())
            if pending >= MOST_WAITING:
                raise QueueFullError(f"{pending} grammars are being compiled. Try again in a moment.", self.time_limit)
            compilation = self._known[key] = Compilation(begun, started(compile_it))
        return compilation

    def _forget_oldest(self, compiled: Key) -> None:
        """Keep no more than the limits say of those that are compiled; compiled: one that is, though not told yet."""
        done = [key for key, each in self._known.items() if each.grammar.done() or key == compiled]
        size = sum(key.size for key in done)
        for number, oldest in enumerate(done):
            if len(done) - number <= MOST_KEPT and size <= MOST_KEPT_BYTES:
                break
            size -= oldest.size
            del self._known[oldest]

    def no_turn(self) -> QueueFullError:
        """What is said when others have taken all of the time."""
        return QueueFullError(
            f"the forms of other requests have been compiled for {self.time_limit:g} s, the most that is waited for a "
            "turn. Try again in a moment.",
            self.time_limit,
        )

    def too_slow(self, form: StructuredOutputsParams) -> InvalidRequestError:
        """What is said when the time limit has passed."""
        field = f"{FIELD}.{form.kind}"
        return InvalidRequestError(
            f"{field} takes more than {self.time_limit:g} s to compile, the most that is waited for. Simplify it.",
            field,
        )


def started(work: Callable[[], Result]) -> "Future[Result]":
    """A future of what a thread of its own computes, which nobody can cancel: others may wait for it, too.

    The end of the process waits for such threads: native code must not run on while Python is taken down.
    """
    future: Future[Result] = _future()

    def fulfil() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    usual = threading.stack_size(STACK)
    try:
        threading.Thread(target=fulfil, name="cutaway-grammar").start()
    finally:
        threading.stack_size(usual)
    return future


def _future() -> "Future[Result]":
    """A future that nobody can cancel."""
    future = Future[Result]()
    future.set_running_or_notify_cancel()
    return future


def key_of(form: StructuredOutputsParams) -> Key:
    """By which a form is known."""
    value = getattr(form, form.kind)
    text = "".join(f"{len(each)} {each}" for each in value) if isinstance(value, tuple) else str(value)
    data = text.encode()
    return Key(form.kind, hashlib.sha256(data).digest(), len(data))
