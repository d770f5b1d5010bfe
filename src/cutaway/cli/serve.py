"""``cutaway serve``: a model behind OpenAI's API.

In: a model and options, each also as a variable ``CUTAWAY_…``. Out: an HTTP server, until Ctrl-C or SIGTERM; its log on
standard error.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from cutaway.cli.console import INTERRUPTED, error_console, first_use
from cutaway.cli.models import ModelName
from cutaway.cli.recording import record_of
from cutaway.cli.serve_options import (
    AllowedHost,
    APIKey,
    ChatTemplate,
    CORSOrigin,
    GenerationConfig,
    Grace,
    Host,
    KVDtype,
    LogFormat,
    MaxBodySize,
    MaxModelLen,
    MaxNumBatchedTokens,
    MaxNumSeqs,
    MaxTapBytes,
    MaxWaiting,
    Memory,
    Port,
    Record,
    RecordKey,
    RecordLevel,
    ServedModelName,
    Threads,
    Timings,
)

if TYPE_CHECKING:
    from cutaway.engine.llm import LLM
    from cutaway.server.settings import ServerSettings


def serve(
    model: ModelName,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key: APIKey = None,
    served_model_name: ServedModelName = None,
    max_model_len: MaxModelLen = None,
    max_num_seqs: MaxNumSeqs = None,
    max_num_batched_tokens: MaxNumBatchedTokens = None,
    max_waiting: MaxWaiting = None,
    threads: Threads = None,
    memory: Memory = None,
    kv_dtype: KVDtype = "f16",
    chat_template: ChatTemplate = None,
    generation_config: GenerationConfig = "auto",
    record: Record = None,
    record_level: RecordLevel = None,
    record_key: RecordKey = None,
    cors_origin: CORSOrigin = None,
    allowed_host: AllowedHost = None,
    max_body_size: MaxBodySize = "4MiB",
    max_tap_bytes: MaxTapBytes = None,
    grace: Grace = 10.0,
    log_format: LogFormat = "text",
    timings: Timings = False,
) -> None:
    """Serve a model: OpenAI's API at http://127.0.0.1:8000/v1."""
    from cutaway.memory.byte_size import parse_bytes
    from cutaway.server.settings import ServerSettings

    settings = ServerSettings(
        host=host,
        port=port,
        api_keys=tuple(api_key or ()),
        served_names=tuple(served_model_name or ()),
        cors_origins=tuple(cors_origin or ()),
        allowed_hosts=tuple(allowed_host or ()),
        max_body_size=parse_bytes(max_body_size, "max_body_size"),
        max_tap_bytes=None if max_tap_bytes is None else parse_bytes(max_tap_bytes, "max_tap_bytes"),
        grace=grace,
        log_format=log_format,
        timings=timings,
    )
    # Imported here: the other commands shall not wait for the compiler and the web framework to load.
    from cutaway.engine.llm import LLM

    def load() -> LLM:
        with first_use(error_console()) as (fetching, _):
            return LLM(
                model,
                threads=threads,
                max_model_len=max_model_len,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                max_waiting=max_waiting,
                memory=memory,
                kv_dtype=kv_dtype,
                chat_template=chat_template,
                generation_config=generation_config,
                record=record_of(record, record_level, record_key, fetching),
                progress=fetching,
                max_tap_bytes=settings.max_tap_bytes,
            )

    _serve_until_told(settings, load)


def _serve_until_told(settings: "ServerSettings", load: "Callable[[], LLM]") -> None:
    """Listen, load the model, serve it. The exit code says so where a signal came before the model was there."""
    from cutaway.server.http.hosts import is_loopback
    from cutaway.server.log_format import log_to_stderr
    from cutaway.server.serve import listen, serve
    from cutaway.server.service import Service

    listening = listen(settings.host, settings.port)
    log_to_stderr(settings.log_format)
    if not settings.api_keys and not is_loopback(settings.host):
        error_console().print(
            f"warning: everybody who reaches {settings.host} can use this server; --api-key asks for a key.",
            soft_wrap=True,
        )
    if not asyncio.run(serve(Service(settings), listening, load)):
        raise typer.Exit(INTERRUPTED)
