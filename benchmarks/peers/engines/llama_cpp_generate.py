"""llama.cpp by llama-cpp-python's own class."""

import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from peers.contract import CannotRunError, StepEngine


class Generate(StepEngine):
    """``Llama.generate``."""

    def __init__(self, model: Path, threads: int, positions: int) -> None:
        import llama_cpp

        self._llama = llama_cpp.Llama(
            str(model),
            n_ctx=positions,
            n_batch=512,
            n_ubatch=512,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )

    def info(self) -> dict[str, str]:
        return {"python": platform.python_version(), "llama_cpp_python": version("llama_cpp_python")}

    def forget(self) -> None:
        self._llama.reset()

    def generate(self, prompts: list[list[int]], new_tokens: int) -> Iterator[int]:
        if len(prompts) > 1:
            raise CannotRunError("Llama.generate takes one sequence")
        generation = self._llama.generate(prompts[0], temp=0.0)
        for _ in range(new_tokens):
            next(generation)
            yield 1
