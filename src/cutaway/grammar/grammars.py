"""The grammars of one engine: compiled in threads of their own, within a time limit, and kept while they are in use.

In: forms. Out: for each a future of its ``Grammar``.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from typing import TYPE_CHECKING, Final, TypeVar

from cutaway.errors import CutawayError, InvalidRequestError, QueueFullError
from cutaway.grammar.grammar import Grammar, compile_grammar
from cutaway.grammar.vocabulary import grammar_vocabulary
from cutaway.sampling.structured_outputs import FIELD, StructuredOutputsParams
from cutaway.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

TIME_LIMIT: Final = 5.0
"""Seconds in which a grammar is compiled, or given up."""
MOST_KEPT: Final = 64
MOST_WAITING: Final = 64
THREADS: Final = 2
STACK: Final = 128 << 20
"""Bytes of address space for the stack of a thread that compiles: llguidance descends as deep as schemas are nested."""

Key = tuple[str, bytes]
Result = TypeVar("Result")


class Grammars:
    """Compiles each form once, and keeps the ``MOST_KEPT`` that were used last. Any thread may ask.

    Nothing can stop what a thread computes, but the limits of llguidance and of ``check_schema`` end it. Meanwhile who
    waits for it is told, and the others wait for the other threads.
    """

    def __init__(self, tokenizer: Tokenizer, time_limit: float = TIME_LIMIT) -> None:
        self.time_limit = time_limit
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._vocabulary: Future[LLTokenizer] | None = None
        self._known: OrderedDict[Key, Future[Grammar]] = OrderedDict()  # compiled, or being compiled
        self._slots = threading.BoundedSemaphore(THREADS)

    def get(self, form: StructuredOutputsParams) -> Grammar:
        """The grammar of a form, compiled within the time limit.

        Raises InvalidRequestError where it can't be enforced, or isn't compiled in time; QueueFullError where too many
        are being compiled.
        """
        self.vocabulary().result()
        try:
            return self.submit(form).result(self.time_limit)
        except TimeoutError:
            raise self.too_slow(form) from None

    def vocabulary(self) -> "Future[LLTokenizer]":
        """The vocabulary, made with the first form. It takes up to seconds, which are not the form's."""
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = started(lambda: grammar_vocabulary(self._tokenizer))
            return self._vocabulary

    def submit(self, form: StructuredOutputsParams) -> "Future[Grammar]":
        """A future of the grammar; who waits for it minds the time limit, once there is a vocabulary."""
        key, vocabulary = digest(form), self.vocabulary()

        def compile_it() -> Grammar:
            with self._slots:
                try:
                    if not threading.main_thread().is_alive():
                        raise CutawayError("the program ends.")
                    grammar = compile_grammar(form, vocabulary.result())
                except BaseException:
                    with self._lock:
                        del self._known[key]
                    raise
            with self._lock:
                compiled = [each for each, made in self._known.items() if made.done() or each == key]
                for oldest in compiled[:-MOST_KEPT]:
                    del self._known[oldest]
            return grammar

        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
            pending = sum(not each.done() for each in self._known.values())
            if pending >= MOST_WAITING:
                raise QueueFullError(f"{pending} grammars are being compiled. Try again in a moment.", self.time_limit)
            future = self._known[key] = started(compile_it)
        return future

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
    future = Future[Result]()
    future.set_running_or_notify_cancel()

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


def digest(form: StructuredOutputsParams) -> Key:
    """By which a form is known."""
    value = getattr(form, form.kind)
    text = "".join(f"{len(each)} {each}" for each in value) if isinstance(value, tuple) else str(value)
    return form.kind, hashlib.sha256(text.encode()).digest()
