"""``cutaway serve``: a model behind OpenAI's API.

In: a model and options, each also as a variable ``CUTAWAY_…``. Out: an HTTP server, until Ctrl-C or SIGTERM; its log on
standard error.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.cli.console import INTERRUPTED, error_console, first_use
from cutaway.cli.models import ModelName
from cutaway.cli.recording import FILE, KEY, LEVEL, record_of


def _option(name: str, meaning: str, **further: Any) -> Any:
    """An option, and the variable that stands for it."""
    variable = "CUTAWAY_" + name.removeprefix("--").replace("-", "_").upper()
    return typer.Option(name, envvar=variable, help=meaning, **further)


def serve(
    model: ModelName,
    host: Annotated[str, _option("--host", "The address to listen at; 0.0.0.0 is all of this machine.")] = "127.0.0.1",
    port: Annotated[int, _option("--port", "0 takes a free one.")] = 8000,
    api_key: Annotated[
        list[str] | None,
        _option(
            "--api-key",
            "What clients have to know, but for /health; once for each, or, in the variable, with spaces between.",
        ),
    ] = None,
    served_model_name: Annotated[
        list[str] | None, _option("--served-model-name", "The model's name for clients; several may be given.")
    ] = None,
    max_model_len: Annotated[
        int | None, _option("--max-model-len", "Positions of prompt and answer; default, the model's, up to 8192.")
    ] = None,
    max_num_seqs: Annotated[int | None, _option("--max-num-seqs", "Answers that are computed together.")] = None,
    max_num_batched_tokens: Annotated[
        int | None, _option("--max-num-batched-tokens", "Tokens of a step; prompts are cut to it.")
    ] = None,
    max_waiting: Annotated[
        int | None, _option("--max-waiting", "Answers that may wait for their turn; more are refused by 429.")
    ] = None,
    threads: Annotated[int | None, _option("--threads", "Default: the processors that this process may use.")] = None,
    memory: Annotated[
        str | None, _option("--memory", "Of the whole process, as 2GiB; keys and values get what the rest leaves.")
    ] = None,
    kv_dtype: Annotated[
        str, _option("--kv-dtype", "Of keys and values: f16, f32, or int8 with a scale for each.")
    ] = "f16",
    chat_template: Annotated[
        str | None, _option("--chat-template", "In place of the model's own: a built-in name, or a Jinja file.")
    ] = None,
    generation_config: Annotated[
        str,
        _option(
            "--generation-config",
            "What a request's sampling is where it says nothing: auto, as the model's authors advise; vllm, 1 and all.",
        ),
    ] = "auto",
    record: Annotated[Path | None, _option("--record", FILE, metavar="FILE")] = None,
    record_level: Annotated[str | None, _option("--record-level", LEVEL)] = None,
    record_key: Annotated[Path | None, _option("--record-key", KEY, metavar="FILE")] = None,
    cors_origin: Annotated[
        list[str] | None,
        _option("--cors-origin", "Whose pages may use the server from a browser, as https://example.org; * is all."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        _option("--allowed-host", "A further name by which clients call the server, as models.example.org; * is any."),
    ] = None,
    max_body_size: Annotated[str, _option("--max-body-size", "Of a request; more is refused by 413.")] = "4MiB",
    max_tap_bytes: Annotated[
        str | None,
        _option("--max-tap-bytes", "Let requests tap tensors, of so many bytes together, as 16MiB; default, none may."),
    ] = None,
    grace: Annotated[float, _option("--grace", "Seconds that running requests have when the server ends.")] = 10.0,
    log_format: Annotated[str, _option("--log-format", "text, or json: an object a line.")] = "text",
    timings: Annotated[
        bool,
        _option("--timings", "Let requests ask what they took, operation by operation: measures the machine first."),
    ] = False,
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
    from cutaway.server.http.hosts import is_loopback
    from cutaway.server.log_format import log_to_stderr
    from cutaway.server.serve import listen
    from cutaway.server.serve import serve as serve_until_told
    from cutaway.server.service import Service

    console = error_console()
    listening = listen(settings.host, settings.port)
    log_to_stderr(settings.log_format)

    def load() -> LLM:
        with first_use(console) as (fetching, _):
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

    if not settings.api_keys and not is_loopback(host):
        console.print(
            f"warning: everybody who reaches {host} can use this server; --api-key asks for a key.", soft_wrap=True
        )
    if not asyncio.run(serve_until_told(Service(settings), listening, load)):
        raise typer.Exit(INTERRUPTED)
