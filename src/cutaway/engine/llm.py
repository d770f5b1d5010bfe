"""``LLM``: the engine from Python, in the shape of vLLM's class.

In: a model's name and prompts, as text, as token ids or as chat messages. Out: texts, tokens and logprobs, at once or
streamed.
"""

import itertools
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from cutaway.engine.compile import compile_for_any_model
from cutaway.engine.foreign_options import CHAT, LOAD, REQUEST, refuse_foreign
from cutaway.engine.generate import check_prompt
from cutaway.engine.outputs import RequestOutput
from cutaway.engine.progress import with_progress
from cutaway.engine.prompts import Prompt, as_list, conversations, prompt_ids
from cutaway.engine.runner import ModelRunner, choose_context
from cutaway.engine.stream import EngineParts, Stream
from cutaway.engine.turns import Turns
from cutaway.errors import CutawayError, InvalidRequestError, ModelFileError
from cutaway.formats.open_model import open_model
from cutaway.hub.catalogue import CATALOGUE, find_hub_alias
from cutaway.hub.progress import Progress
from cutaway.hub.resolve import resolve
from cutaway.memory.kv_cache import kv_format
from cutaway.memory.kv_setting import kv_setting
from cutaway.memory.sequence_cache import SequenceCache
from cutaway.model.config import read_config
from cutaway.model.loader import check_tensors
from cutaway.ops.cpu.threads import check_threads
from cutaway.sampling.params import SamplingParams, check_against_vocabulary
from cutaway.sampling.params_checks import is_integer, shown
from cutaway.sampling.row import SamplerScratch
from cutaway.tokenizer.open_tokenizer import open_tokenizer
from cutaway.tokenizer.tokenizer import Tokenizer

PROMPT_ROWS: Final = 32
"""Rows of logits that the logprobs of a prompt are computed from at a time."""

OPTIONS: Final = "model, threads, max_model_len, kv, kv_dtype, chat_template, needs_chat, progress"
GENERATE_OPTIONS: Final = "prompts, sampling_params, use_tqdm"
CHAT_OPTIONS: Final = (
    "messages, sampling_params, use_tqdm, chat_template, add_generation_prompt, continue_final_message, tools, "
    "chat_template_kwargs"
)


class LLM:
    """A model that answers. One request is computed at a time; calls from several threads wait for each other.

    Keys and values of the last sequence stay: a request that begins with the same ids computes only the others.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        threads: int | None = None,
        max_model_len: int | None = None,
        kv: str = "paged",
        kv_dtype: str = "f16",
        chat_template: str | os.PathLike[str] | None = None,
        needs_chat: bool = False,
        progress: Progress | None = None,
        **foreign: Any,
    ) -> None:
        """Find the model, fetching it if it is missing, and load it.

        Args:
            model: a name of the catalogue; the path of a GGUF file (of a split one, any part), or of a folder with a
                model; or a repository on the Hugging Face hub, ``owner/repo`` or ``owner/repo:Q4_K_M``.
            threads: default, the processors that this process may use.
            max_model_len: positions of prompt and answer together; default, the model's own up to 8,192.
            kv: "paged", "contiguous" or "none" (``memory.kv_setting``); the tokens are the same, to the bit.
            kv_dtype: "f16" or "f32".
            chat_template: in place of the model's own: a built-in name ("chatml", "gemma", "llama2", "llama3",
                "mistral", "phi3", "zephyr"), the path of a Jinja file, or Jinja source.
            needs_chat: refuse a model without a chat template, before its weights are loaded.
            progress: is told of the stages of a fetch.
            foreign: vLLM's other options, taken where they ask for nothing (``engine.foreign_options``).

        Raises:
            CutawayError: one of its subclasses, for everything that can be wrong with these.
        """
        refuse_foreign("LLM", foreign, LOAD, OPTIONS)
        _check_threads(threads)
        kv_format(kv_dtype)
        setting = kv_setting(kv)
        if not isinstance(model, str | os.PathLike):
            raise InvalidRequestError(
                f"model is {model!r}; it must be a name, such as 'smollm2', or the path of a GGUF file.", "model"
            )
        name = os.fspath(model)
        # What every model needs is compiled while a catalogued file is fetched; another file is looked at first.
        compiling = _compile_aside(kv_dtype) if name in CATALOGUE or find_hub_alias(name) else None
        self.model = resolve(name, progress)
        with open_model(self.model.path) as source:
            config = read_config(source)
            check_tensors(source, config)
            context = choose_context(max_model_len, config)
            self.tokenizer: Tokenizer = open_tokenizer(source, chat_template)
            if needs_chat:
                self.tokenizer.require_chat_template()
            if self.tokenizer.vocab_size != config.vocab_size:  # an id without a text could be drawn, or the reverse
                raise ModelFileError(
                    f"{self.model.path}: the tokenizer has {self.tokenizer.vocab_size} tokens, the embedding "
                    f"{config.vocab_size} rows. The file is damaged; fetch it again."
                )
            (compiling or _compile_aside(kv_dtype)).result()
            self.runner = ModelRunner(
                source,
                threads=threads,
                context=context,
                max_outputs=PROMPT_ROWS,
                kv_dtype=kv_dtype,
                page_length=setting.page_length(context),
            )
        self._turns = Turns()
        self._process = os.getpid()
        self._closed = False
        self._engine = EngineParts(
            runner=self.runner,
            cache=SequenceCache(setting, context),
            position_bytes=self.runner.kv.position_bytes,
            scratch=SamplerScratch.allocate(self.runner.vocab_size),
        )
        self._request_numbers = itertools.count()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        **foreign: Any,
    ) -> list[RequestOutput]:
        """Complete each prompt; one output for each, in order.

        A list of ints is one prompt of token ids. Texts are completed as they are, without the chat template.
        sampling_params: one for all prompts, or one for each; default, ``SamplingParams()``. use_tqdm: show a progress
        bar where there are several prompts and standard error is a terminal.
        """
        refuse_foreign("LLM.generate", foreign, REQUEST, GENERATE_OPTIONS)
        several = as_list(prompts)
        params = _one_for_each(sampling_params, len(several), "prompts")
        # All are checked before the first is computed.
        streams = [self.stream(prompt, each) for prompt, each in zip(several, params, strict=True)]
        return [stream.run() for stream in with_progress(streams, use_tqdm)]

    def chat(
        self,
        messages: Sequence[Any],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        **template: Any,
    ) -> list[RequestOutput]:
        """Answer a conversation, or each of several, through the model's chat template.

        messages: a list of ``{"role": …, "content": …}``, or a list of such lists. template: as for ``stream_chat``.
        Of a conversation that goes on where the last one ended, only the new messages are computed.
        """
        several = conversations(messages)
        params = _one_for_each(sampling_params, len(several), "conversations")
        streams = [self.stream_chat(each, own, **template) for each, own in zip(several, params, strict=True)]
        return [stream.run() for stream in with_progress(streams, use_tqdm)]

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Stream:
        """Complete one prompt; a delta for each token. The last has the finish reason.

        A stream holds the engine from its first delta until it ends, is closed, or is forgotten: requests of other
        threads wait for that. A request of the same thread goes first; the stream continues afterwards with the same
        tokens as without it, and computes its context again for that.
        """
        text, ids = prompt_ids(prompt, self.tokenizer)
        return self._stream(text, ids, sampling_params)

    def stream_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling_params: SamplingParams | None = None,
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **foreign: Any,
    ) -> Stream:
        """Answer one conversation; a delta for each token, as ``stream``.

        Args:
            messages: each ``{"role": …, "content": …}``. Their text never becomes control tokens.
            sampling_params: default, ``SamplingParams()``.
            chat_template: Jinja source, or a built-in name, in place of the model's own.
            add_generation_prompt: let the template begin the answer's turn; default, unless a message is continued.
            continue_final_message: let the answer go on with the last message, whose turn is left open.
            tools: descriptions of functions, for templates that show them to the model.
            chat_template_kwargs: further variables for the template.
        """
        refuse_foreign("LLM.chat", foreign, CHAT, CHAT_OPTIONS)
        ids = self.tokenizer.encode_chat(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            chat_template=chat_template,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
        )
        return self._stream(self.tokenizer.decode(ids, skip_special=False), ids, sampling_params)

    def _stream(self, text: str | None, ids: list[int], params: SamplingParams | None) -> Stream:
        if params is not None and not isinstance(params, SamplingParams):
            raise _no_params(params)
        self._usable()
        params = params or SamplingParams()
        check_prompt(ids, self.runner.context, self.runner.vocab_size)
        check_against_vocabulary(params, self.runner.vocab_size)
        number = str(next(self._request_numbers))
        return Stream(self._usable, self._turns, self.tokenizer, number, text, ids, params)

    def get_tokenizer(self) -> Tokenizer:
        """``self.tokenizer``, by vLLM's name."""
        return self.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What is used where no parameters are given."""
        return SamplingParams()

    def close(self) -> None:
        """End the engine's threads and give its memory back. Waits for a request of another thread."""
        if self._closed or os.getpid() != self._process:  # after a fork the threads are the parent's
            return
        ticket = object()
        self._turns.take(ticket)
        self._closed = True
        self.runner.close()
        del self.runner, self._engine
        self._turns.give_back(ticket)

    def _usable(self) -> EngineParts:
        """What computes a request; raises CutawayError where nothing can be computed any more."""
        if os.getpid() != self._process:
            raise CutawayError(
                f"this LLM was loaded by process {self._process}, and a fork takes no threads along. Load the model in "
                "the new process, or start processes with the method 'spawn'."
            )
        if self._closed:
            raise CutawayError("this LLM is closed. Load the model again.")
        return self._engine

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


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
    if not is_integer(threads):
        raise InvalidRequestError(
            f"threads is {shown(threads)}; it must be an integer. Leave it out for as many as this process may use.",
            "threads",
        )
    check_threads(threads)


def _no_params(given: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"sampling_params is {shown(given)}; give a SamplingParams, or one for each prompt.", "sampling_params"
    )


def _one_for_each(
    given: SamplingParams | Sequence[SamplingParams] | None, count: int, what: str
) -> Sequence[SamplingParams | None]:
    """The parameters of each of ``count`` requests."""
    if given is None or isinstance(given, SamplingParams):
        return [given] * count
    if not isinstance(given, Sequence):
        raise _no_params(given)
    if len(given) != count:
        raise InvalidRequestError(
            f"there are {count} {what} and {len(given)} sampling_params; give one for all, or as many.",
            "sampling_params",
        )
    return given
