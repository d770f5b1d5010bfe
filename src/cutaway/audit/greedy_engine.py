"""Cutaway as an engine to be measured: greedy decoding of one sequence or several, which share each step.

In: a runner, then prompts of one length. Out: after each step, how many tokens it brought. It is the runner and the
sampler without scheduler and thread: one runner serves all of ``cutaway bench``, and each step has the same rows.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from cutaway.audit.llama_cpp_process import CannotRunError, Prompts, StepEngine
from cutaway.engine.runner import ModelRunner
from cutaway.model.batch import Piece, make_batch
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.threads import float_environment
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, sample_row

GREEDY = SamplingParams(temperature=0)


def cut(lengths: Sequence[int], most: int) -> Iterator[list[tuple[int, int, int]]]:
    """Steps of at most ``most`` tokens that compute sequences of these lengths one after another; each is a list of
    (sequence, its first token, the one behind its last).
    """
    step: list[tuple[int, int, int]] = []
    room = most
    for sequence, length in enumerate(lengths):
        first = 0
        while first < length:
            last = min(length, first + room)
            step.append((sequence, first, last))
            room -= last - first
            first = last
            if room == 0:
                yield step
                step, room = [], most
    if step:
        yield step


class GreedyEngine(StepEngine):
    """A ``StepEngine`` over a runner. It takes the runner's pages from the first on."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._scratch = SamplerScratch.allocate(runner.vocab_size)

    def info(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def forget(self) -> None:
        """Nothing is kept between requests."""

    def generate(self, prompts: Prompts, new_tokens: int) -> Iterator[int]:
        """See ``StepEngine``. Raises CannotRunError where the runner has too little room."""
        runner, length = self._runner, len(prompts[0])
        end = length + new_tokens - 1  # the last token is not computed upon
        each = -(-end // runner.kv.page_length)
        if end > runner.context or each * len(prompts) > runner.kv.num_pages:
            raise CannotRunError(
                f"{len(prompts)} × {end} positions are asked for; the context has {runner.context}, the KV cache "
                f"{runner.kv.num_pages * runner.kv.page_length}"
            )
        if len(prompts) > runner.max_step_outputs:
            raise CannotRunError(
                f"{len(prompts)} sequences are asked for; a step has {runner.max_step_outputs} at most"
            )
        pages = np.arange(each * len(prompts), dtype=np.int32).reshape(len(prompts), each)
        ids: list[int] = []
        for step in cut([length] * len(prompts), runner.max_step_tokens):
            pieces = [
                Piece(first, prompts[sequence][first:last], pages[sequence], outputs=int(last == length))
                for sequence, first, last in step
            ]
            ids += self._choose(runner.step(make_batch(pieces)), length)
        yield len(prompts)
        for position in range(length, end):
            pieces = [Piece(position, [token], own) for token, own in zip(ids, pages, strict=True)]
            ids = self._choose(runner.step(make_batch(pieces)), position + 1)
            yield len(prompts)

    def _choose(self, logits: Floats, position: int) -> list[int]:
        """The likeliest token of each row [O, V], by the sampler."""
        with float_environment():
            return [sample_row(row, GREEDY, NoiseKey(0, 0, position), self._scratch).token_id for row in logits]
