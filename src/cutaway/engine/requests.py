"""From a prompt and its parameters to a request that the engine takes: checked, numbered, with what it needs to end.

In: text and ids, parameters, whom to tell. Out: a ``Received`` with its ``Generation``.
"""

import itertools
import sys
import time
from array import array
from collections.abc import Sequence
from typing import Any

from cutaway.engine.choice import Asked
from cutaway.engine.generation import Generation, Sink
from cutaway.engine.pooling import Pooling, check_pooling
from cutaway.engine.prompts import check_prompt
from cutaway.engine.received import Received
from cutaway.engine.tap_limits import TapAdmission
from cutaway.engine.watched import Tapping, Watched
from cutaway.errors import InvalidRequestError
from cutaway.grammar.grammars import Grammars
from cutaway.sampling.forbidden import bad_word_ids, stop_ids
from cutaway.sampling.params import SamplingParams, check_against_vocabulary, fresh_seed
from cutaway.sampling.params_checks import is_integer, is_number, shown
from cutaway.tokenizer.tokenizer import Tokenizer

TextAndIds = tuple[str | None, list[int]]


class Requests:
    """Makes the requests of one engine."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        context: int,
        position_bytes: int,
        defaults: SamplingParams,
        taps: TapAdmission | None = None,
    ) -> None:
        """context: positions of a sequence at most. position_bytes: of the KV cache. defaults: of requests without
        parameters. taps: admits them.
        """
        self.grammars = Grammars(tokenizer)
        self._tokenizer, self._context, self._position_bytes = tokenizer, context, position_bytes
        self._defaults, self._taps = defaults, taps
        self._numbers = itertools.count()

    def make(
        self,
        prompt: TextAndIds,
        params: SamplingParams | None,
        sink: Sink,
        *,
        priority: int | None = 0,
        timeout: float | None = None,
        salt: bytes = b"",
        whole: bool = False,
        pooling: Pooling | None = None,
        shown_ids: frozenset[int] = frozenset(),
        taps: Tapping | None = None,
        reads_cache: bool = True,
    ) -> Received:
        """A request that has been checked.

        priority: 0 or None goes first. timeout: seconds from now until the request is ended, whatever its state.
        salt: requests of different salts share nothing in the prefix cache. whole: the sink is handed all events at the
        end. pooling: the prompt's embedding is wanted, and no answer. shown_ids: control tokens that are in the text,
        whatever the parameters say. taps: what is to be seen of its steps. reads_cache: the prompt may begin with what
        the prefix cache has. Where an answer must have a form that was
        not asked for lately, it takes the time to compile it.
        """
        if params is not None and not isinstance(params, SamplingParams):
            raise no_params(params)
        params = params or self._defaults
        text, ids = prompt
        is_answered = pooling is None
        check_prompt(ids, self._context, self._tokenizer.vocab_size, is_answered=is_answered)
        check_against_vocabulary(params, self._tokenizer.vocab_size)
        _check(priority, timeout, salt, shown_ids)
        form = params.structured_outputs
        grammar = None if form is None else self.grammars.get(form)
        left = self._context - len(ids) if is_answered else 1  # what the scheduler takes for its end
        asked = Asked(
            prompt_ids=array("i", ids),  # 4 bytes each, while it waits
            params=params,
            seed=fresh_seed() if params.seed is None else params.seed,
            max_new_tokens=left if params.max_tokens is None else min(left, params.max_tokens),
            stop_ids=stop_ids(params, self._tokenizer.eos_ids),
            bad_words=bad_word_ids(params.bad_words, lambda word: self._tokenizer.encode(word, add_bos=False)),
            pooling=pooling if is_answered else check_pooling(pooling),
            shown_ids=shown_ids,
            grammar=grammar,
        )
        generation = Generation(
            str(next(self._numbers)),
            asked,
            self._tokenizer,
            sink,
            priority=int(priority or 0),
            deadline=None if timeout is None else time.perf_counter() + float(timeout),
            salt=salt,
            whole=whole,
            watched=self._watched(taps, asked),
            reads_cache=reads_cache,
        )
        return Received(generation, text, self._tokenizer, self._position_bytes)

    def _watched(self, taps: object, asked: Asked) -> Watched | None:
        if taps is None:
            return None
        if self._taps is None:
            raise InvalidRequestError("there are taps, and this engine takes none. Leave them out.", "taps")
        return self._taps.watched(taps, asked.params, asked.prompt_ids, asked.max_new_tokens)


def no_params(given: object) -> InvalidRequestError:
    """What is said of parameters that are none."""
    return InvalidRequestError(
        f"sampling_params is {shown(given)}; give a SamplingParams, or one for each prompt.", "sampling_params"
    )


def one_for_each(
    given: SamplingParams | Sequence[SamplingParams] | None, count: int, what: str
) -> Sequence[SamplingParams | None]:
    """The parameters of each of ``count`` requests."""
    if given is None or isinstance(given, SamplingParams):
        return [given] * count
    if not isinstance(given, Sequence):
        raise no_params(given)
    if len(given) != count:
        raise InvalidRequestError(
            f"there are {count} {what} and {len(given)} sampling_params; give one for all, or as many.",
            "sampling_params",
        )
    return given


def _check(priority: object, timeout: Any, salt: object, shown_ids: object) -> None:
    """Refuse what would fail amid a step, which others share: salts and ids become keys of dictionaries there."""
    if priority is not None and not is_integer(priority):
        raise InvalidRequestError(f"priority is {shown(priority)}; it must be an integer, 0 for the best.", "priority")
    if timeout is not None and not (is_number(timeout) and 0 < timeout <= sys.float_info.max):
        raise InvalidRequestError(
            f"timeout is {shown(timeout)}; it must be seconds above 0. Leave it out for none.", "timeout"
        )
    if not isinstance(salt, bytes):
        raise InvalidRequestError(f"salt is {shown(salt)}; it must be bytes. Leave it out for none.", "salt")
    if not isinstance(shown_ids, frozenset):
        raise InvalidRequestError(
            f"shown_ids is {shown(shown_ids)}; it must be a frozenset of ids. Leave it out for none.", "shown_ids"
        )
