"""llama.cpp, driven through its C API in a process of its own: another engine to compare with.

In: on the command line a GGUF file and a number of threads; then on standard input one request a line, in JSON: prompts
and how many new tokens each shall get. Out: one answer a line: when the tokens arrived, or why they did not, and the
process's peak memory.

This file runs in any interpreter that has llama-cpp-python: it imports nothing of Cutaway. ``serve`` and what it needs
are apart from llama.cpp, so that benchmarks can serve other engines in the same way.
"""

import json
import os
import platform
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

STEP_TOKENS = 512  # that llama.cpp computes at a time: its own default
CONTEXT_UNIT = 256  # llama.cpp rounds a context up to a multiple of it

Prompts = Sequence[Sequence[int]]  # one or several, all of one length
Arrivals = list[tuple[float, int]]  # (seconds since the request, tokens received so far), one for each step


class CannotRunError(Exception):
    """An engine can't do what was asked; the message says why."""


class Engine(Protocol):
    """An engine with a model loaded."""

    def info(self) -> dict[str, str]:
        """Versions and build, for the record."""

    def measure(self, prompts: Prompts, new_tokens: int) -> Arrivals:
        """Decode greedily, past any end of sequence; when the tokens arrived, the first time one for every prompt.
        Raises CannotRunError.
        """


class StepEngine(ABC):
    """An ``Engine`` whose steps can be watched."""

    @abstractmethod
    def info(self) -> dict[str, str]:
        """See ``Engine``."""

    @abstractmethod
    def forget(self) -> None:
        """Drop the state of the last request; not timed."""

    @abstractmethod
    def generate(self, prompts: Prompts, new_tokens: int) -> Iterator[int]:
        """The request, step by step; after each step how many tokens it brought."""

    def measure(self, prompts: Prompts, new_tokens: int) -> Arrivals:
        """See ``Engine``. Raises CannotRunError where another number of tokens came than was asked for."""
        self.forget()
        arrivals: Arrivals = []
        received = 0
        start = time.perf_counter()
        for count in self.generate(prompts, new_tokens):
            received += count
            arrivals.append((time.perf_counter() - start, received))
        if received != len(prompts) * new_tokens:
            raise CannotRunError(f"{received} tokens came, {len(prompts) * new_tokens} were asked for")
        return arrivals


def peak_bytes() -> int | None:
    """The most memory that this process has had in RAM so far, shared pages of files included; None where the system
    doesn't say.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def serve(make: Callable[[], Engine]) -> None:
    """Make the engine, and answer requests from standard input until it ends.

    The first answer is {"info": …}, each other {"arrivals": …, "peak_bytes": …}; or {"cannot": the reason}.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not mix with the answers

    def answer(work: Callable[[], dict[str, Any]]) -> None:
        try:
            said = work()
        except CannotRunError as error:
            said = {"cannot": str(error)}
        except Exception as error:  # whatever a foreign library raises is an answer, too
            said = {"cannot": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), file=answers, flush=True)

    engines: list[Engine] = []

    def start() -> dict[str, Any]:
        engines.append(make())
        return {"info": engines[0].info()}

    answer(start)
    for line in sys.stdin if engines else ():
        request = json.loads(line)
        answer(
            lambda request=request: {  # type: ignore[misc]
                "arrivals": engines[0].measure(request["prompts"], request["new_tokens"]),
                "peak_bytes": peak_bytes(),
            }
        )


class LlamaCpp(StepEngine):
    """One model. A context for so many sequences is made when it is first needed, and kept."""

    def __init__(self, model: Path, threads: int, flash_attention: bool = False) -> None:
        import llama_cpp  # type: ignore[import-not-found,unused-ignore]

        self._api: Any = llama_cpp
        self._threads, self._flash_attention = threads, flash_attention
        self._silence = self._api.llama_log_callback(lambda level, text, data: None)
        self._api.llama_log_set(self._silence, None)
        self._api.llama_backend_init()
        self._model = self._api.llama_model_load_from_file(str(model).encode(), self._api.llama_model_default_params())
        if not self._model:
            raise CannotRunError(f"llama.cpp can't read {model.name}")
        self._contexts: dict[int, tuple[int, Any]] = {}  # sequences → positions of each, the context
        self._batch = self._api.llama_batch_init(STEP_TOKENS, 0, 1)
        self._sampler = self._api.llama_sampler_chain_init(self._api.llama_sampler_chain_default_params())
        self._api.llama_sampler_chain_add(self._sampler, self._api.llama_sampler_init_greedy())

    def info(self) -> dict[str, str]:
        """Versions, and the instruction sets that llama.cpp was built for."""
        return {
            "python": platform.python_version(),
            "llama_cpp_python": version("llama_cpp_python"),
            "system_info": self._api.llama_print_system_info().decode().strip(),
        }

    def forget(self) -> None:
        """Empty the KV caches."""
        for _, context in self._contexts.values():
            self._api.llama_memory_clear(self._api.llama_get_memory(context), True)

    def generate(self, prompts: Prompts, new_tokens: int) -> Iterator[int]:
        """See ``StepEngine``. The tokens of all prompts, then of all answers, share steps."""
        length = len(prompts[0])
        context = self._context(len(prompts), length + new_tokens)
        entries = [
            (token, position, sequence, position == length - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        following = []
        for begin in range(0, len(entries), STEP_TOKENS):
            following += self._step(context, entries[begin : begin + STEP_TOKENS])
        yield len(prompts)
        for position in range(length, length + new_tokens - 1):
            entries = [(token, position, sequence, True) for sequence, token in enumerate(following)]
            following = self._step(context, entries)
            yield len(prompts)

    def _context(self, sequences: int, positions: int) -> Any:
        """A context with room for so many sequences of so many positions."""
        room, context = self._contexts.get(sequences, (0, None))
        if room < positions:
            if context:
                self._api.llama_free(context)
            room = -(-positions // CONTEXT_UNIT) * CONTEXT_UNIT
            params = self._api.llama_context_default_params()
            params.n_ctx, params.n_seq_max = sequences * room, sequences
            params.n_batch = params.n_ubatch = STEP_TOKENS
            params.n_threads = params.n_threads_batch = self._threads
            params.kv_unified = sequences == 1  # the faster way where sequences share no prefix, says llama.h
            params.flash_attn_type = int(self._flash_attention)
            context = self._api.llama_init_from_model(self._model, params)
            if not context:
                raise CannotRunError(f"llama.cpp makes no context of {sequences} sequences of {room} positions")
            self._contexts[sequences] = room, context
        return context

    def _step(self, context: Any, entries: list[tuple[int, int, int, bool]]) -> list[int]:
        """Compute tokens, each (id, position, sequence, whether the next one is wanted); the next ones."""
        batch = self._batch
        batch.n_tokens = len(entries)
        for row, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[row], batch.pos[row], batch.logits[row] = token, position, wanted
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence
        if code := self._api.llama_decode(context, batch):
            raise CannotRunError(f"llama_decode returned {code}")
        sample = self._api.llama_sampler_sample
        return [sample(self._sampler, context, row) for row, entry in enumerate(entries) if entry[3]]


if __name__ == "__main__":
    sys.path.pop(0)  # the modules beside this file are Cutaway's: no library shall find them
    serve(lambda: LlamaCpp(Path(sys.argv[1]), int(sys.argv[2])))
