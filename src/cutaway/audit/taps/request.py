"""``TapRequest``: which tensors a request wants to see.

In: taps, as texts. Out: a watch for each request that is asked with it.
"""

from collections.abc import Sequence
from typing import Final

from cutaway.audit.taps.plan import TapPlan, plan_taps
from cutaway.audit.taps.selection import parse
from cutaway.audit.taps.tensors import tap_tensors
from cutaway.audit.taps.watch import TapWatch
from cutaway.engine.runner import ModelRunner
from cutaway.errors import InvalidRequestError
from cutaway.memory.kv_cache import kv_format

MOST_TAPS: Final = 256


class TapRequest:
    """Tensors to be shown while a request is computed: ``llm.generate(prompt, taps=TapRequest("layers.3.resid"))``.

    Each tap is ``[layers.LAYERS.]NAME[@PLACES]``; docs/taps.md has the names, the places and what they cost. One may be
    used for any number of requests.
    """

    def __init__(self, *taps: str) -> None:
        """Raises InvalidRequestError for what is no tap; a name is looked up when it is used with a model."""
        if len(taps) > MOST_TAPS:
            raise InvalidRequestError(
                f"there are {len(taps):,} taps; it must be {MOST_TAPS} at most. Use * and ranges.", "taps"
            )
        if not taps:
            raise InvalidRequestError("there is no tap; name one at least, as in 'layers.*.resid'.", "taps")
        self.taps = taps
        self._selections = [parse(each) for each in taps]

    def plan(self, runner: ModelRunner, num_prompt: int, max_new_tokens: int, num_choices: int = 1) -> TapPlan:
        """What would be kept of a request: ``plan.num_bytes``, at most. num_prompt: tokens of its prompt. num_choices:
        answers, ``SamplingParams.n``.

        Raises InvalidRequestError for a name, a layer or a position that there isn't.
        """
        tensors = tap_tensors(kv_format(runner.kv_dtype))
        return plan_taps(self._selections, tensors, runner.dimensions, num_prompt, max_new_tokens, num_choices)

    def watch(self, runner: ModelRunner, prompt_ids: Sequence[int], max_new_tokens: int, num_choices: int) -> TapWatch:
        """For the engine: a watch for one request."""
        return TapWatch(self.plan(runner, len(prompt_ids), max_new_tokens, num_choices), runner)

    def __repr__(self) -> str:
        return f"TapRequest({', '.join(map(repr, self.taps))})"
