"""Cutaway, by its public interface."""

import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from cutaway import LLM, SamplingParams
from cutaway.audit.greedy_engine import GreedyEngine
from cutaway.audit.llama_cpp_process import Prompts, StepEngine

FORGET = SamplingParams(temperature=0, max_tokens=1)


class Cutaway(StepEngine):
    """``LLM.stream`` for one sequence. Several go through the runner, since ``LLM.generate`` computes one after the
    other; when it computes them together, ``_together`` becomes that call.
    """

    def __init__(self, model: Path, threads: int, positions: int) -> None:
        self._llm = LLM(model, threads=threads, max_model_len=positions)

    def info(self) -> dict[str, str]:
        return {"python": platform.python_version()} | {n: version(n) for n in ("cutaway", "numba", "numpy")}

    def forget(self) -> None:
        """A prompt of one token leaves no more than itself to reuse, and makes the cache forget all else."""
        self._llm.generate([1], FORGET)

    def generate(self, prompts: Prompts, new_tokens: int) -> Iterator[int]:
        if len(prompts) > 1:
            yield from self._together(prompts, new_tokens)
            return
        parameters = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        for delta in self._llm.stream(list(prompts[0]), parameters):
            yield len(delta.token_ids)

    def _together(self, prompts: Prompts, new_tokens: int) -> Iterator[int]:
        return GreedyEngine(self._llm.runner).generate(prompts, new_tokens)
