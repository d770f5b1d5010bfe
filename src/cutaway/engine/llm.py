"""``LLM``: the engine from Python, in the shape of vLLM's class.

In: a model's name and prompts, as text or as token ids. Out: texts, tokens and logprobs, at once or streamed.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from cutaway.engine.compile import compile_for_any_model
from cutaway.engine.generate import GeneratedToken, generate_tokens
from cutaway.engine.outputs import CompletionOutput, Delta, FinishReason, Logprob, RequestOutput, Statistics
from cutaway.engine.runner import ModelRunner
from cutaway.errors import InvalidRequestError
from cutaway.formats.gguf import open_gguf
from cutaway.hub.progress import Progress
from cutaway.hub.resolve import resolve
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
        # What every model needs is compiled while the file is fetched; later starts find both.
        compiling = Future[None]()
        threading.Thread(target=_fulfil, args=(compiling, kv_dtype), name="cutaway-compile", daemon=True).start()
        self.model = resolve(os.fspath(model), progress)
        compiling.result()
        with open_gguf(self.model.path) as gguf:
            self.tokenizer: Tokenizer = load_tokenizer(gguf.metadata)
            self.runner = ModelRunner(gguf, threads=threads, context=context, kv_dtype=kv_dtype)
        if self.tokenizer.vocab_size > self.runner.vocab_size:
            raise InvalidRequestError(
                f"the tokenizer has {self.tokenizer.vocab_size} tokens, the embedding {self.runner.vocab_size} rows. "
                "The file is damaged.",
                "model",
            )
        self._scratch = SamplerScratch.allocate(self.runner.vocab_size)
        self._lock = threading.Lock()

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
            params = [sampling_params or SamplingParams()] * len(several)
        else:
            params = list(sampling_params)
        if len(params) != len(several):
            raise InvalidRequestError(
                f"there are {len(several)} prompts and {len(params)} sampling_params; give one for all, or as many.",
                "sampling_params",
            )
        return [self._complete(prompt, each) for prompt, each in zip(several, params, strict=True)]

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[Delta]:
        """Complete one prompt; a delta for each token. The last has the finish reason."""
        stream = self.open_stream(prompt, sampling_params)
        yield from stream

    def open_stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> "Stream":
        """A stream that also knows its seed, its prompt's ids, and, whenever it ends, its whole output."""
        text, ids = self._prompt_ids(prompt)
        return Stream(self, text, ids, sampling_params or SamplingParams())

    def _complete(self, prompt: Prompt, params: SamplingParams) -> RequestOutput:
        stream = self.open_stream(prompt, params)
        for _ in stream:
            pass
        return stream.output()

    def _prompt_ids(self, prompt: Prompt) -> tuple[str | None, list[int]]:
        if isinstance(prompt, str):
            return prompt, self.tokenizer.encode(prompt)
        if isinstance(prompt, Mapping):
            unknown = sorted(set(prompt) - {"prompt", "prompt_token_ids"})
            if unknown or len(prompt) != 1:
                raise InvalidRequestError(
                    f"the prompt has the keys {sorted(prompt)}; give exactly one of 'prompt' and 'prompt_token_ids'.",
                    "prompt",
                )
            return self._prompt_ids(next(iter(prompt.values())))
        if isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray):
            ids: list[Any] = list(prompt)  # ``generate_tokens`` checks them
            return None, ids
        raise InvalidRequestError(
            f"the prompt is a {type(prompt).__name__}; give a text or a list of token ids.", "prompt"
        )

    def close(self) -> None:
        """End the engine's threads and give its memory back."""
        self.runner.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Stream:
    """One request while it runs: an iterator of deltas. Stop iterating at any time; ``output`` has what came so far."""

    def __init__(self, llm: LLM, prompt: str | None, prompt_ids: list[int], params: SamplingParams) -> None:
        self.prompt, self.prompt_token_ids, self.params = prompt, prompt_ids, params
        self.seed = fresh_seed() if params.seed is None else params.seed
        self._tokens: list[GeneratedToken] = []
        self._logprobs: list[dict[int, Logprob]] = []
        self._texts: list[str] = []
        self._deltas = self._run(llm)

    def __iter__(self) -> Iterator[Delta]:
        return self._deltas

    def __next__(self) -> Delta:
        return next(self._deltas)

    def _run(self, llm: LLM) -> Iterator[Delta]:
        detokenizer = llm.tokenizer.detokenizer()
        with llm._lock:
            tokens = generate_tokens(
                llm.runner, self.prompt_token_ids, self.params, self.seed, llm.tokenizer.eos_ids, llm._scratch
            )
            for token in tokens:
                self._tokens.append(token)
                text = "" if token.finish_reason == "stop" else detokenizer.push(token.token_id)
                if token.finish_reason is not None:
                    text += detokenizer.flush()
                self._texts.append(text)
                logprobs = None
                if self.params.logprobs is not None:
                    logprobs = [_named(token, llm.tokenizer)]
                    self._logprobs += logprobs
                yield Delta(text, [token.token_id], logprobs, token.finish_reason)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it runs or when it was abandoned."""
        return self._tokens[-1].finish_reason if self._tokens else None

    def statistics(self) -> Statistics:
        """Counts and times so far."""
        first = self._tokens[0].seconds if self._tokens else 0.0
        last = self._tokens[-1].seconds if self._tokens else 0.0
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


def _fulfil(compiling: "Future[None]", kv_dtype: str) -> None:
    """Compile, then say so; or say what went wrong."""
    try:
        compile_for_any_model(kv_dtype)
    except BaseException as error:
        compiling.set_exception(error)
    else:
        compiling.set_result(None)


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
    if all(isinstance(item, int) for item in items):
        return [items]
    return items
