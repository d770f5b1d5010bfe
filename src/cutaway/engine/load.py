"""From a model's name to what an engine computes with: found, checked, its kernels compiled, its weights in memory.

In: a name and the options of ``LLM``, which are checked. Out: a ``LoadedEngine``, whose memory is all taken.
"""

import threading
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.engine.compile import compile_for_any_model
from cutaway.engine.default_params import default_params
from cutaway.engine.plan import check_available, engine_limits, settings_within
from cutaway.engine.runner import ModelRunner, choose_context
from cutaway.engine.settings import EngineSettings, engine_settings
from cutaway.errors import ModelFileError
from cutaway.formats.open_model import open_model
from cutaway.formats.source import ModelSource
from cutaway.hub.catalogue import CATALOGUE, find_hub_alias
from cutaway.hub.progress import Progress
from cutaway.hub.resolve import LocalModel, resolve
from cutaway.memory.kv_setting import KVSetting
from cutaway.model.config import ModelConfig, read_config
from cutaway.model.loader import check_tensors
from cutaway.ops.cpu.processors import default_threads
from cutaway.tokenizer.open_tokenizer import open_tokenizer
from cutaway.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class LoadedEngine:
    """All that an engine has of its model."""

    model: LocalModel
    settings: EngineSettings
    default_params: Mapping[str, Any]  # what the model's authors advise
    tokenizer: Tokenizer
    runner: ModelRunner


def load_engine(
    name: str,
    options: Mapping[str, Any],
    *,
    threads: int | None,
    max_model_len: int | None,
    setting: KVSetting,
    kv_dtype: str,
    memory: int | None,
    chat_template: Any,
    generation_config: str,
    needs_chat: bool,
    progress: Progress | None,
) -> LoadedEngine:
    """options: of ``engine_settings``. memory: bytes of the whole process; the others as for ``LLM``.

    Raises CutawayError: one of its subclasses, for everything that can be wrong with these and with the file.
    """
    # What every model needs is compiled while a catalogued file is fetched; another file is looked at first.
    compiling = _compile_aside(kv_dtype) if name in CATALOGUE or find_hub_alias(name) else None
    model = resolve(name, progress)
    with open_model(model.path) as source:
        config = read_config(source)
        check_tensors(source, config)
        _warn_of_key_biases(source, config, kv_dtype)
        advised = default_params(source, model.entry, generation_config)
        settings = engine_settings(choose_context(max_model_len, config), setting, **options)
        compiling = compiling or _compile_aside(kv_dtype)
        tokenizer = open_tokenizer(source, chat_template)
        if needs_chat:
            tokenizer.require_chat_template()
        _check_vocabulary(model.path, tokenizer, config)
        compiling.result()
        members = default_threads() if threads is None else threads
        if memory is not None:
            settings = settings_within(memory, source, config, settings, members, kv_dtype)
        given = "memory" if memory is not None else None if options.get("kv_tokens") is None else "kv_tokens"
        check_available(source, config, settings, members, kv_dtype, given)
        runner = ModelRunner(
            source,
            threads=members,
            context=settings.context,
            max_tokens=settings.max_num_batched_tokens,
            max_outputs=engine_limits(settings, 1).max_outputs,
            kv_dtype=kv_dtype,
            page_length=settings.page_length,
            num_pages=settings.num_pages,
        )
    runner.touch()  # here, where nothing of the file is in memory any more
    return LoadedEngine(model, settings, advised, tokenizer, runner)


def _check_vocabulary(path: Path, tokenizer: Tokenizer, config: ModelConfig) -> None:
    """Else an id without a text could be drawn, or the reverse."""
    if tokenizer.vocab_size != config.vocab_size:
        raise ModelFileError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} tokens, the embedding {config.vocab_size} rows. The "
            "file is damaged; fetch it again."
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


def _warn_of_key_biases(source: ModelSource, config: ModelConfig, kv_dtype: str) -> None:
    """One scale serves all numbers of a key, and a bias makes some of them much greater than the others."""
    names = (f"blk.0.{name}.bias" for name in ("attn_k", "attn_qkv"))
    if kv_dtype == "int8" and any(name in source.tensors for name in names):
        warnings.warn(
            f"the keys of {config.name} have biases, and kv_dtype is 'int8': the other numbers of a key are rounded "
            "coarsely, and answers may differ much from the model's (docs/kv-cache.md). Use kv_dtype='f16'.",
            stacklevel=4,
        )
