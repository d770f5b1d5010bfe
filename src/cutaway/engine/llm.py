"""``LLM``: the engine from Python, in the shape of vLLM's class.

In: a model's name and prompts, as text, as token ids or as chat messages. Out: texts, tokens and logprobs, at once or
streamed.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from cutaway.engine.core import EngineCore
from cutaway.engine.engine_thread import EngineThread
from cutaway.engine.foreign_options import EMBED, LOAD, REQUEST, refuse_foreign
from cutaway.engine.generation import Arrival
from cutaway.engine.load import LoadedEngine, load_engine
from cutaway.engine.observer import Observer
from cutaway.engine.outputs import EmbeddingRequestOutput, RequestOutput
from cutaway.engine.pooling import DEFAULT_POOLING, Pooling, check_pooling
from cutaway.engine.progress import progress_bar
from cutaway.engine.prompts import Prompt, as_list, chat_prompt, conversations, prompt_ids
from cutaway.engine.received import Received
from cutaway.engine.requests import Requests, TextAndIds, one_for_each
from cutaway.engine.run_all import run_all, sink_of
from cutaway.engine.runner import ModelRunner
from cutaway.engine.settings import check_options
from cutaway.engine.step_batch import ScratchPage
from cutaway.engine.stream import Stream
from cutaway.engine.tap_limits import TapAdmission, TapLimits, tap_limits
from cutaway.engine.totals import Totals
from cutaway.engine.watched import Tapping
from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.hub.progress import Progress
from cutaway.memory.byte_size import parse_bytes
from cutaway.memory.kv_cache import kv_format
from cutaway.memory.kv_setting import kv_setting
from cutaway.ops.cpu.threads import check_threads
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.params_checks import is_integer, shown
from cutaway.scheduler.decisions import Decision
from cutaway.tokenizer.tokenizer import Tokenizer

CLOSED: Final = "this LLM is closed. Load the model again."

OPTIONS: Final = (
    "model, threads, max_model_len, max_num_seqs, max_num_batched_tokens, batching, enable_chunked_prefill, "
    "enable_prefix_caching, kv, kv_dtype, kv_tokens, memory, max_waiting, max_waiting_tokens, chat_template, "
    "generation_config, needs_chat, record, progress, max_tap_bytes, tap_share"
)
GENERATE_OPTIONS: Final = "prompts, sampling_params, use_tqdm, priority, timeout, taps"
EMBED_OPTIONS: Final = "prompts, use_tqdm, pooling, priority, timeout"


class LLM:
    """A model that answers. Requests share its steps, whichever threads they come from; each gets the tokens that it
    would get alone, to the bit.

    Keys and values stay until their memory is needed: a request that begins with the same ids computes only the others.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        threads: int | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        batching: str = "continuous",
        enable_chunked_prefill: bool | None = None,
        enable_prefix_caching: bool | None = None,
        kv: str = "paged",
        kv_dtype: str = "f16",
        kv_tokens: int | None = None,
        memory: int | str | None = None,
        max_waiting: int | None = None,
        max_waiting_tokens: int | None = None,
        chat_template: str | os.PathLike[str] | None = None,
        generation_config: str = "auto",
        needs_chat: bool = False,
        record: Observer | None = None,
        progress: Progress | None = None,
        max_tap_bytes: int | str | None = None,
        tap_share: float | None = None,
        **foreign: Any,
    ) -> None:
        """Find the model, fetching it if it is missing, and load it.

        Args:
            model: a name of the catalogue; the path of a GGUF file (of a split one, any part), or of a folder with a
                model; or a repository on the Hugging Face hub, ``owner/repo`` or ``owner/repo:Q4_K_M``.
            threads: default, the processors that this process may use.
            max_model_len: positions of prompt and answer together; default, the model's own up to 8,192.
            max_num_seqs: sequences that run together; default, 32.
            max_num_batched_tokens: tokens of a step; default, 256. Prompts are cut to it.
            batching: "continuous", "static" or "bucketed" (``scheduler.continuous``, ``scheduler.static``). The latter
                two are there to be compared with.
            enable_chunked_prefill: let chunks of prompts share steps with the tokens of answers; default, wherever
                batching is continuous.
            enable_prefix_caching: keep what was computed for requests that begin with the same ids; default, wherever
                batching is continuous and kv is not "none".
            kv: "paged", "contiguous" or "none" (``memory.kv_setting``); the tokens are the same, to the bit.
            kv_dtype: of keys and values: "f16", "f32", or "int8" with a scale for each (docs/kv-cache.md).
            kv_tokens: positions in the KV pool, of all sequences together; default, 8,192, and one context at least.
            memory: of the whole process, in bytes or as a text, such as "2GiB": the KV pool gets what the rest leaves,
                and as much as all sequences can use. In place of kv_tokens.
            max_waiting: answers that may wait for their turn; default, 1,024. Those of ``generate``, ``chat`` and
                ``embed`` are counted apart, and what is more than that is held back, not refused.
            max_waiting_tokens: tokens of their prompts; default, 1,048,576.
            chat_template: in place of the model's own: a built-in name ("chatml", "gemma", "llama2", "llama3",
                "mistral", "phi3", "zephyr"), the path of a Jinja file, or Jinja source.
            generation_config: where requests come without parameters, "auto" takes those that the model's authors
                advise; "vllm" those of ``SamplingParams()``.
            needs_chat: refuse a model without a chat template, before its weights are loaded.
            record: writes down every request, so that it can be replayed: ``Record("answers.jsonl")`` (docs/record.md).
            progress: is told of the stages of a fetch.
            max_tap_bytes: that the taps of all requests may keep (docs/taps.md), in bytes or as a text; default,
                256MiB.
            tap_share: the part of the time that open steps, of requests with taps, may take while others want to run;
                default, 0.25.
            foreign: vLLM's other options, taken where they ask for nothing (``engine.foreign_options``).

        Raises:
            CutawayError: one of its subclasses, for everything that can be wrong with these.
        """
        refuse_foreign("LLM", foreign, LOAD, OPTIONS)
        threads = _check_threads(threads)
        kv_format(kv_dtype)
        options = check_options(
            {
                "max_num_seqs": max_num_seqs,
                "max_num_batched_tokens": max_num_batched_tokens,
                "batching": batching,
                "enable_chunked_prefill": enable_chunked_prefill,
                "enable_prefix_caching": enable_prefix_caching,
                "kv_tokens": kv_tokens,
                "max_waiting": max_waiting,
                "max_waiting_tokens": max_waiting_tokens,
            }
        )
        taps = tap_limits(max_tap_bytes, tap_share)
        limit = _check_memory(memory, kv_tokens)
        loaded = load_engine(
            _check_name(model),
            options,
            threads=threads,
            max_model_len=max_model_len,
            setting=kv_setting(kv),
            kv_dtype=kv_dtype,
            memory=limit,
            chat_template=chat_template,
            generation_config=generation_config,
            needs_chat=needs_chat,
            progress=progress,
        )
        self.model, self.settings, self.default_params = loaded.model, loaded.settings, loaded.default_params
        self.tokenizer: Tokenizer = loaded.tokenizer
        self.runner: ModelRunner = loaded.runner
        self._core = _make_core(loaded, taps, record)
        self._engine = EngineThread(self._core, CLOSED)
        self._process = os.getpid()
        self._closed = False
        self._closing = threading.RLock()  # a signal handler may close, too
        self.requests = Requests(
            self.tokenizer,
            self.settings.context,
            self.runner.kv.position_bytes,
            self.get_default_sampling_params(),
            TapAdmission(self.runner, taps, self.settings.batching),
        )
        self._record = record
        if record is not None:
            try:
                record.attach(self)
            except BaseException:
                self.close()
                raise

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        *,
        priority: int | None = 0,
        timeout: float | None = None,
        taps: Tapping | None = None,
        **foreign: Any,
    ) -> list[RequestOutput]:
        """Complete each prompt; one output for each, in order.

        A list of ints is one prompt of token ids. Texts are completed as they are, without the chat template.
        sampling_params: one for all prompts, or one for each; default, ``get_default_sampling_params()``. use_tqdm:
        show a progress bar where there are several prompts and standard error is a terminal. priority: 0 goes before
        others, 7 is the last. timeout: seconds after which what has not ended is ended, with the finish reason
        "deadline". taps: a ``TapRequest``: tensors to be shown of each prompt's steps (docs/taps.md).
        """
        refuse_foreign("LLM.generate", foreign, REQUEST, GENERATE_OPTIONS)
        several = as_list(prompts)
        params = one_for_each(sampling_params, len(several), "prompts")
        pairs = [prompt_ids(prompt, self.tokenizer) for prompt in several]
        return [each.output() for each in self._run_all(pairs, params, use_tqdm, priority, timeout, taps=taps)]

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        use_tqdm: bool = True,
        pooling: Pooling = DEFAULT_POOLING,
        priority: int | None = 0,
        timeout: float | None = None,
        **foreign: Any,
    ) -> list[EmbeddingRequestOutput]:
        """The embedding of each prompt, in order: its last hidden states, pooled to a vector of length 1.

        Prompts as for ``generate``; a text gets no EOS behind it. pooling: "last", the state of the last token, which
        alone has seen all others in a model that reads forwards; "mean", the mean over all tokens. The others as for
        ``generate``; CutawayError if the timeout passes.
        """
        refuse_foreign("LLM.embed", foreign, EMBED, EMBED_OPTIONS)
        check_pooling(pooling)
        pairs = [prompt_ids(prompt, self.tokenizer) for prompt in as_list(prompts)]
        found = self._run_all(pairs, [None] * len(pairs), use_tqdm, priority, timeout, pooling)
        return [each.embedding() for each in found]

    def chat(
        self,
        messages: Sequence[Any],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        *,
        priority: int | None = 0,
        timeout: float | None = None,
        taps: Tapping | None = None,
        **template: Any,
    ) -> list[RequestOutput]:
        """Answer a conversation, or each of several, through the model's chat template.

        messages: a list of ``{"role": …, "content": …}``, or a list of such lists. template: as for ``stream_chat``;
        the others as for ``generate``.
        Of a conversation that goes on where the last one ended, only the new messages are computed.
        """
        several = conversations(messages)
        params = one_for_each(sampling_params, len(several), "conversations")
        pairs = [chat_prompt(self.tokenizer, each, **template) for each in several]
        return [each.output() for each in self._run_all(pairs, params, use_tqdm, priority, timeout, taps=taps)]

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int | None = 0,
        timeout: float | None = None,
        taps: Tapping | None = None,
    ) -> Stream:
        """Complete one prompt; a delta for each token. The last has the finish reason.

        What is wrong with the prompt is told at once; the request is submitted with the first delta. priority, timeout,
        taps: as for ``generate``.
        """
        return self._stream(prompt_ids(prompt, self.tokenizer), sampling_params, priority, timeout, taps)

    def stream_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling_params: SamplingParams | None = None,
        *,
        priority: int | None = 0,
        timeout: float | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        taps: Tapping | None = None,
        **foreign: Any,
    ) -> Stream:
        """Answer one conversation; a delta for each token, as ``stream``.

        Args:
            messages: each ``{"role": …, "content": …}``. Their text never becomes control tokens.
            sampling_params: default, ``get_default_sampling_params()``.
            priority: as for ``generate``.
            timeout: as for ``generate``.
            chat_template: Jinja source, or a built-in name, in place of the model's own.
            add_generation_prompt: let the template begin the answer's turn; default, unless a message is continued.
            continue_final_message: let the answer go on with the last message, whose turn is left open.
            tools: descriptions of functions, for templates that show them to the model.
            chat_template_kwargs: further variables for the template.
            taps: as for ``generate``.
        """
        prompt = chat_prompt(
            self.tokenizer,
            messages,
            chat_template=chat_template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
            **foreign,
        )
        return self._stream(prompt, sampling_params, priority, timeout, taps)

    def _stream(
        self,
        prompt: TextAndIds,
        params: SamplingParams | None,
        priority: int | None,
        timeout: float | None,
        taps: Tapping | None,
    ) -> Stream:
        self.engine()
        arrivals: SimpleQueue[Arrival] = SimpleQueue()
        request = self.requests.make(prompt, params, arrivals.put, priority=priority, timeout=timeout, taps=taps)
        return Stream(self.engine, request, arrivals)

    def _run_all(
        self,
        prompts: Sequence[TextAndIds],
        params: Sequence[SamplingParams | None],
        shows_progress: bool,
        priority: int | None,
        timeout: float | None,
        pooling: Pooling | None = None,
        taps: Tapping | None = None,
    ) -> list[Received]:
        """All are checked before the first is computed."""
        engine = self.engine()
        arrivals: SimpleQueue[tuple[int, Arrival]] = SimpleQueue()
        make = partial(self.requests.make, priority=priority, timeout=timeout, whole=True, pooling=pooling, taps=taps)
        requests = [
            make(prompt, each, sink_of(arrivals, number))
            for number, (prompt, each) in enumerate(zip(prompts, params, strict=True))
        ]
        with progress_bar(len(requests), shows_progress) as ended:
            run_all(engine, requests, arrivals, ended)
        return requests

    @property
    def is_recorded(self) -> bool:
        """Whether requests are written down."""
        return self._record is not None

    @property
    def opens_steps(self) -> bool:
        """Whether all steps run open, since the record has operations."""
        return self._record is not None and self._record.opens_steps

    def get_tokenizer(self) -> Tokenizer:
        """``self.tokenizer``, by vLLM's name."""
        return self.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What is used where no parameters are given: ``SamplingParams()``, with what the model's authors advise
        (``default_params``, a mapping), unless the model was loaded with ``generation_config="vllm"``.
        """
        return SamplingParams(**self.default_params)

    def decisions(self) -> list[Decision]:
        """What the scheduler decided lately, about whom and why; the oldest first."""
        return self.engine().call(lambda core: core.scheduler.log.read()).result()

    def totals(self) -> Totals:
        """What was computed so far."""
        return self.engine().call(lambda core: replace(core.totals)).result()

    def reset_prefix_cache(self) -> None:
        """Forget the keys and values that no running request holds. What one holds stays, and others may share it."""
        self.engine().call(lambda core: core.scheduler.reset_prefix_cache()).result()

    def close(self) -> None:
        """End the engine's threads and give its memory back. Requests that run are ended with an error."""
        if os.getpid() != self._process:  # after a fork the threads are the parent's
            return
        with self._closing:  # who closes beside another waits until all is given back
            if self._closed:
                return
            self._closed = True
            self._engine.close()
            if self._record is not None:
                self._record.close()
            self.runner.close()
            del self.runner, self._core

    @property
    def is_broken(self) -> bool:
        """Whether it takes no request any more, since it found its own memory in disorder (the log says how)."""
        core: EngineCore | None = getattr(self, "_core", None)  # another thread may close it at any moment
        return core is not None and core.broken

    def engine(self) -> EngineThread:
        """The thread that computes the requests; raises CutawayError where nothing can be computed any more."""
        if os.getpid() != self._process:
            raise CutawayError(
                f"this LLM was loaded by process {self._process}, and a fork takes no threads along. Load the model in "
                "the new process, or start processes with the method 'spawn'."
            )
        if self._closed:
            raise CutawayError(CLOSED)
        return self._engine

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _make_core(loaded: LoadedEngine, taps: TapLimits, record: Observer | None) -> EngineCore:
    """The engine's loop over a runner, with the scheduler of its settings."""
    settings, runner = loaded.settings, loaded.runner
    scratch = settings.scratch_page
    return EngineCore(
        runner,
        settings.scheduler(runner.max_step_outputs),
        None if scratch is None else ScratchPage(scratch, min(settings.page_length, settings.context)),
        team=runner.team,
        taps=taps,
        observers=() if record is None else (record,),
    )


def _check_name(model: str | os.PathLike[str]) -> str:
    """A model's name or path as text."""
    if not isinstance(model, str | os.PathLike):
        raise InvalidRequestError(
            f"model is {model!r}; it must be a name, such as 'smollm2', or the path of a GGUF file.", "model"
        )
    return os.fspath(model)


def _check_memory(memory: int | str | None, kv_tokens: int | None) -> int | None:
    """The limit of the process in bytes, where there is one."""
    limit = None if memory is None else parse_bytes(memory, "memory")
    if limit is not None and kv_tokens is not None:
        raise InvalidRequestError(
            "there are memory and kv_tokens; each says how large the pool is. Leave one.", "memory"
        )
    return limit


def _check_threads(threads: int | None) -> int | None:
    """Refuse a number of threads that no team can have, before anything is fetched."""
    if threads is None:
        return None
    if not is_integer(threads):
        raise InvalidRequestError(
            f"threads is {shown(threads)}; it must be an integer. Leave it out for as many as this process may use.",
            "threads",
        )
    check_threads(threads)
    return int(threads)
