"""Cutaway, by its public interface."""

import platform
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue

from cutaway import LLM, SamplingParams
from cutaway.audit.llama_cpp_process import Prompts, StepEngine
from cutaway.engine.generation import Arrival
from cutaway.memory.kv_setting import PAGE_LENGTH

SEQUENCES = 16  # at once, at most


class Cutaway(StepEngine):
    """``LLM.stream`` for one sequence; several are submitted together and share the engine's steps."""

    def __init__(self, model: Path, threads: int, positions: int) -> None:
        whole_pages = -(-positions // PAGE_LENGTH) * PAGE_LENGTH
        self._llm = LLM(model, threads=threads, max_model_len=positions, kv_tokens=whole_pages, max_num_seqs=SEQUENCES)

    def info(self) -> dict[str, str]:
        return {"python": platform.python_version()} | {n: version(n) for n in ("cutaway", "numba", "numpy")}

    def forget(self) -> None:
        self._llm.reset_prefix_cache()

    def generate(self, prompts: Prompts, new_tokens: int) -> Iterator[int]:
        parameters = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        if len(prompts) == 1:
            for delta in self._llm.stream(list(prompts[0]), parameters):
                yield len(delta.token_ids)
            return
        arrivals: SimpleQueue[tuple[int, Arrival]] = SimpleQueue()
        requests = [
            self._llm.requests.make((None, list(ids)), parameters, partial(_put, arrivals, number))
            for number, ids in enumerate(prompts)
        ]
        self._llm.engine().submit([request.generation for request in requests])
        # The first prompts to be computed get tokens while others wait. All of that is the time to the first token:
        # the other engines compute all prompts, then decode.
        waiting, early = set(range(len(prompts))), 0
        for _ in range(len(prompts) * new_tokens):
            number, arrival = arrivals.get()
            if isinstance(arrival, BaseException):
                raise arrival
            waiting.discard(number)
            early += len(arrival)
            if not waiting:
                yield early
                early = 0


def _put(arrivals: "SimpleQueue[tuple[int, Arrival]]", number: int, arrival: Arrival) -> None:
    arrivals.put((number, arrival))
