"""``LLM``: the engine from Python, in the shape of vLLM's class.

In: a model's name and prompts, as text or as token ids. Out: texts, tokens and logprobs, at once or streamed.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from cutaway.engine.compile import compile_for_any_model
from cutaway.engine.generate import GeneratedToken, check_prompt, generate_tokens
from cutaway.engine.outputs import CompletionOutput, Delta, FinishReason, Logprob, RequestOutput, Statistics
from cutaway.engine.runner import ModelRunner, choose_context
from cutaway.engine.turns import Turns
from cutaway.errors import CutawayError, InvalidRequestError, ModelFileError
from cutaway.formats.gguf import open_gguf
from cutaway.hub.catalogue import CATALOGUE
from cutaway.hub.progress import Progress
from cutaway.hub.resolve import resolve
from cutaway.memory.kv_cache import kv_format
from cutaway.model.config import read_config
from cutaway.model.loader import check_tensors
from cutaway.ops.cpu.threads import check_threads
from cutaway.sampling.params import SamplingParams, fresh_seed
from cutaway.sampling.row import SamplerScratch
from cutaway.tokenizer.tokenizer import Tokenizer, load_tokenizer

Prompt: TypeAlias = str | Sequence[int] | Mapping[str, Any]
"""A text, token ids, or ``{"prompt": text}`` or ``{"prompt_token_ids": ids}``."""


class LLM:
    """A model that answers. One request is computed at a time; calls from several threads wait for each other."""

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        threads: int | None = None,
        context: int | None = None,
        kv_dtype: str = "f16",
        progress: Progress | None = None,
    ) -> None:
        """Find the model (fetching it if it is catalogued and missing) and load it.

        model: a name or the path of a GGUF file. threads: default, the processors that this process may use. context:
        positions of prompt and answer together; default, the model's own up to 8,192. kv_dtype: "f16" or "f32".
        Raises CutawayError subclasses for everything that can be wrong with these.
        """
        _check_threads(threads)
        kv_format(kv_dtype)
        name = os.fspath(model)
        # What every model needs is compiled while a catalogued file is fetched; another file is looked at first.
        compiling = _compile_aside(kv_dtype) if name in CATALOGUE else None
        self.model = resolve(name, progress)
        with open_gguf(self.model.path) as gguf:
            config = read_config(gguf)
            check_tensors(gguf, config)
            choose_context(context, config)
            self.tokenizer: Tokenizer = load_tokenizer(gguf.metadata)
            if self.tokenizer.vocab_size != config.vocab_size:  # an id without a text could be drawn, or the reverse
                raise ModelFileError(
                    f"{self.model.path}: the tokenizer has {self.tokenizer.vocab_size} tokens, the embedding "
                    f"{config.vocab_size} rows. The file is damaged; fetch it again."
                )
            (compiling or _compile_aside(kv_dtype)).result()
            self.runner = ModelRunner(gguf, threads=threads, context=context, kv_dtype=kv_dtype)
        self._scratch = SamplerScratch.allocate(self.runner.vocab_size)
        self._turns = Turns()
        self._process = os.getpid()
        self._closed = False

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Complete each prompt; one output for each, in order.

        A list of ints is one prompt of token ids. Texts are completed as they are, without the chat template.
        """
        several = _as_list(prompts)
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            params: list[SamplingParams | None] = [sampling_params] * len(several)
        elif isinstance(sampling_params, Sequence):
            params = list(sampling_params)
        else:
            raise _no_params(sampling_params)
        if len(params) != len(several):
            raise InvalidRequestError(
                f"there are {len(several)} prompts and {len(params)} sampling_params; give one for all, or as many.",
                "sampling_params",
            )
        # All are checked before the first is computed.
        streams = [self.stream(prompt, each) for prompt, each in zip(several, params, strict=True)]
        return [stream.run() for stream in streams]

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> "Stream":
        """Complete one prompt; a delta for each token. The last has the finish reason.

        A stream holds the engine from its first delta until it ends, is closed, or is forgotten: requests of other
        threads wait for that. A request of the same thread goes first; the stream continues afterwards with the same
        tokens as without it, and computes its context again for that.
        """
        if sampling_params is not None and not isinstance(sampling_params, SamplingParams):
            raise _no_params(sampling_params)
        self._check_usable()
        text, ids = self._prompt_ids(prompt)
        check_prompt(ids, self.runner.context, self.runner.vocab_size)
        return Stream(self, text, ids, sampling_params or SamplingParams())

    def _prompt_ids(self, prompt: Prompt) -> tuple[str | None, list[int]]:
        if isinstance(prompt, str):
            return prompt, self.tokenizer.encode(prompt)
        if isinstance(prompt, Mapping):
            return self._prompt_ids(_content(prompt))  # no mapping again
        if isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray):
            given: Sequence[Any] = prompt  # ``check_prompt`` refuses what is no id
            return None, [int(each) if isinstance(each, np.integer) else each for each in given]
        raise InvalidRequestError(
            f"the prompt is a {type(prompt).__name__}; give a text or a list of token ids.", "prompt"
        )

    def close(self) -> None:
        """End the engine's threads and give its memory back. Waits for a request of another thread."""
        if self._closed or os.getpid() != self._process:  # after a fork the threads are the parent's
            return
        ticket = object()
        self._turns.take(ticket)
        self._closed = True
        self.runner.close()
        del self.runner, self._scratch
        self._turns.give_back(ticket)

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise CutawayError(
                f"this LLM was loaded by process {self._process}, and a fork takes no threads along. Load the model in "
                "the new process, or start processes with the method 'spawn'."
            )
        if self._closed:
            raise CutawayError("this LLM is closed. Load the model again.")

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Stream:
    """One request while it runs: an iterator of deltas. Stop iterating at any time; ``output`` has what came so far.

    It knows the seed in effect. An error in a step, or Ctrl-C, ends it.
    """

    def __init__(self, llm: LLM, prompt: str | None, prompt_ids: list[int], params: SamplingParams) -> None:
        self.prompt, self.prompt_token_ids, self.params = prompt, prompt_ids, params
        self.seed = fresh_seed() if params.seed is None else params.seed
        self._llm = llm
        self._ticket = object()
        self._detokenizer = llm.tokenizer.detokenizer()
        self._generation: Iterator[GeneratedToken] = iter(())
        self._ended = False
        self._begin: float | None = None
        self._tokens: list[GeneratedToken] = []
        self._seconds: list[float] = []
        self._logprobs: list[dict[int, Logprob]] = []
        self._texts: list[str] = []

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Delta:
        if self._ended:
            raise StopIteration
        try:
            delta = self._step()
        except BaseException:
            self.close()
            raise
        if delta.finish_reason is not None:
            self.close()
        return delta

    def run(self) -> RequestOutput:
        """All that is left, and the whole output."""
        for _ in self:
            pass
        return self.output()

    def close(self) -> None:
        """End the request, finished or not, and let others compute."""
        self._ended = True
        self._generation = iter(())
        self._llm._turns.give_back(self._ticket)

    def __del__(self) -> None:
        self.close()

    def _step(self) -> Delta:
        llm = self._llm
        llm._check_usable()
        kept = llm._turns.take(self._ticket)
        llm._check_usable()  # it may have been closed while we waited
        if not kept:
            self._generation = self._generate()
        if self._begin is None:
            self._begin = time.perf_counter()
        token = next(self._generation)
        text = "" if token.finish_reason == "stop" else self._detokenizer.push(token.token_id)
        if token.finish_reason is not None:
            text += self._detokenizer.flush()
        logprobs = None if self.params.logprobs is None else [_named(token, llm.tokenizer)]
        self._tokens.append(token)
        self._seconds.append(time.perf_counter() - self._begin)
        self._texts.append(text)
        self._logprobs += logprobs or []
        return Delta(text, [token.token_id], logprobs, token.finish_reason)

    def _generate(self) -> Iterator[GeneratedToken]:
        """Generation from here on. What came so far is a part of the prompt, to the same effect to the bit."""
        so_far = [token.token_id for token in self._tokens]
        most = self.params.max_tokens
        params = replace(self.params, max_tokens=None if most is None else most - len(so_far))
        llm = self._llm
        return generate_tokens(
            llm.runner, self.prompt_token_ids + so_far, params, self.seed, llm.tokenizer.eos_ids, llm._scratch
        )

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it runs or when it was abandoned."""
        return self._tokens[-1].finish_reason if self._tokens else None

    def statistics(self) -> Statistics:
        """Counts and times so far."""
        first, last = (self._seconds[0], self._seconds[-1]) if self._seconds else (0.0, 0.0)
        return Statistics(len(self.prompt_token_ids), len(self._tokens), first, last - first)

    def output(self) -> RequestOutput:
        """The request's output so far."""
        completion = CompletionOutput(
            index=0,
            text="".join(self._texts),
            token_ids=[token.token_id for token in self._tokens],
            cumulative_logprob=None
            if self.params.logprobs is None
            else sum(t.sample.logprob or 0.0 for t in self._tokens),
            logprobs=list(self._logprobs) if self.params.logprobs is not None else None,
            finish_reason=self.finish_reason,
        )
        return RequestOutput(
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            outputs=[completion],
            seed=self.seed,
            statistics=self.statistics(),
            finished=self.finish_reason is not None,
        )


def _compile_aside(kv_dtype: str) -> "Future[None]":
    """Compile what every model needs in a thread of its own; the future says when it is done, or what went wrong."""
    compiling = Future[None]()

    def fulfil() -> None:
        try:
            compile_for_any_model(kv_dtype)
        except BaseException as error:
            compiling.set_exception(error)
        else:
            compiling.set_result(None)

    threading.Thread(target=fulfil, name="cutaway-compile", daemon=True).start()
    return compiling


def _check_threads(threads: int | None) -> None:
    """Refuse a number of threads that no team can have, before anything is fetched."""
    if threads is None:
        return
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise InvalidRequestError(
            f"threads is {threads!r}; it must be an integer. Leave it out for as many as this process may use.",
            "threads",
        )
    check_threads(threads)


def _no_params(given: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"sampling_params is {given!r}; give a SamplingParams, or one for each prompt.", "sampling_params"
    )


def _content(prompt: Mapping[str, Any]) -> str | Sequence[int]:
    """The one value of ``{"prompt": text}`` or ``{"prompt_token_ids": ids}``."""
    text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if list(prompt) == ["prompt"] and isinstance(text, str):
        return text
    if list(prompt) == ["prompt_token_ids"] and isinstance(ids, Sequence) and not isinstance(ids, str):
        return ids
    shape = ", ".join(f"{key!r}: {type(value).__name__}" for key, value in prompt.items())
    raise InvalidRequestError(
        f"the prompt is {{{shape}}}; give either {{'prompt': text}} or {{'prompt_token_ids': list of ids}}.", "prompt"
    )


def _named(token: GeneratedToken, tokenizer: Tokenizer) -> dict[int, Logprob]:
    """The logprobs of one position, the best ones' and the chosen token's, with their pieces of text."""

    def named(token_id: int, logprob: float, rank: int) -> Logprob:
        return Logprob(logprob, rank, tokenizer.decode([token_id], skip_special=False))

    best = {
        token_id: named(token_id, value, rank) for rank, (token_id, value) in enumerate(token.sample.top_logprobs, 1)
    }
    assert token.sample.logprob is not None, "logprobs were asked for"
    assert token.rank is not None
    return {**best, token.token_id: named(token.token_id, token.sample.logprob, token.rank)}


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several, as a list. A list whose items are all integers is one prompt."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes | bytearray):
        raise InvalidRequestError(
            f"prompts is a {type(prompts).__name__}; give a text, a list of token ids, or a list of these.", "prompts"
        )
    items: list[Any] = list(prompts)
    if not items:
        raise InvalidRequestError("prompts is empty; give at least one.", "prompts")
    if all(isinstance(item, int | np.integer) for item in items):
        return [items]
    return items
