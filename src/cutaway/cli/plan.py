"""``cutaway plan``: the memory that an engine will take, before it takes it, and what fits into a limit.

In: a model, how many requests of how many tokens; only the head of the file is read. Out: a table, or JSON; what to
change where it doesn't fit.
"""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cutaway.cli.console import FetchProgress, error_console, quantity
from cutaway.cli.models import Json, ModelName
from cutaway.errors import CapacityError
from cutaway.hub import resolve

if TYPE_CHECKING:
    from cutaway.engine.settings import EngineSettings
    from cutaway.memory.plan import MemoryPlan
    from cutaway.model.config import ModelConfig

SMALL_STEP: Final = 64  # tokens of a step, where memory is short


def plan(
    model: ModelName,
    context: Annotated[
        int | None, typer.Option(help="Tokens of a request, prompt and answer; default: the model's, up to 8,192.")
    ] = None,
    requests: Annotated[int, typer.Option(help="Requests that run together.")] = 1,
    memory: Annotated[
        str | None, typer.Option(help="What the process may take, such as 2GiB; default: what is free now.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Tokens of a step at most; default: 256.")] = None,
    threads: Annotated[int | None, typer.Option(help="Default: the processors that this process may use.")] = None,
    kv_dtype: Annotated[str, typer.Option(help="Of keys and values: f16 or f32.")] = "f16",
    as_json: Json = False,
) -> None:
    """Show what memory an engine takes for so many requests of so many tokens, and what fits."""
    # Imported here: the other commands shall not wait for the compiler to load.
    from cutaway.audit.machine import available_bytes
    from cutaway.engine.plan import measure_runtime, plan_memory
    from cutaway.engine.runner import choose_context
    from cutaway.engine.settings import check_options, engine_settings
    from cutaway.formats.open_model import open_model
    from cutaway.memory.byte_size import parse_bytes
    from cutaway.memory.kv_cache import kv_format
    from cutaway.memory.kv_setting import kv_setting
    from cutaway.model.config import read_config
    from cutaway.model.loader import check_tensors
    from cutaway.ops.cpu.processors import default_threads
    from cutaway.ops.cpu.threads import check_threads

    limit = available_bytes() if memory is None else parse_bytes(memory, "memory")
    kv_format(kv_dtype)
    members = default_threads() if threads is None else threads
    check_threads(members)
    options: dict[str, Any] = {"max_num_seqs": requests, "max_num_batched_tokens": step}
    check_options(options)
    with FetchProgress(error_console()) as fetching:
        path = resolve(model, fetching).path
    with open_model(path) as source:
        config = read_config(source)
        check_tensors(source, config)
        paged, positions = kv_setting("paged"), choose_context(context, config)
        settings = engine_settings(positions, paged, **options)
        pages = requests * -(-positions // settings.page_length)
        settings = replace(settings, kv_tokens=pages * settings.page_length)
        runtime = measure_runtime(path, kv_dtype, members)
        planned = plan_memory(source, config, settings, members, kv_dtype, runtime)
        small = replace(settings, max_num_batched_tokens=max(SMALL_STEP, requests))
        planned_small = plan_memory(source, config, small, members, kv_dtype, runtime)
    if as_json:
        report = {
            "model": model,
            "context": positions,
            "requests": requests,
            "threads": members,
            "kv_dtype": kv_dtype,
            **planned.as_dict(),
            "limit": limit,
            "fits": planned.total <= limit,
            "requests_that_fit": _requests_that_fit(planned, limit, positions),
            "context_that_fits": _context_that_fits(planned, limit, requests),
        }
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        _print(planned, settings, config, kv_dtype, limit, "free now" if memory is None else "given")
        if planned.total <= limit:
            named = {"max_num_batched_tokens": step, "threads": threads}
            given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
            if kv_dtype != "f16":
                given["kv_dtype"] = kv_dtype
            _say(f"It fits. {_call(planned, settings, model, given)} takes this, at its start.")
        else:
            _print_remedies(planned, settings, kv_dtype, limit, small.max_num_batched_tokens, planned_small)
    if planned.total > limit:
        raise typer.Exit(CapacityError.exit_code)


def _requests_that_fit(planned: "MemoryPlan", limit: int, context: int) -> int:
    return planned.pages_within(limit) // -(-context // planned.page_length)


def _context_that_fits(planned: "MemoryPlan", limit: int, requests: int) -> int:
    return planned.pages_within(limit) // requests * planned.page_length


def _call(planned: "MemoryPlan", settings: "EngineSettings", model: str, given: dict[str, Any]) -> str:
    """The Python that makes an engine by this plan. given: options besides, of those that were given."""
    options = {
        "max_model_len": settings.context,
        "max_num_seqs": settings.max_num_seqs,
        "kv_tokens": planned.tokens,
        **given,
    }
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in options.items())
    return f"LLM({json.dumps(model, ensure_ascii=False)}, {arguments})"


def _say(text: str) -> None:
    from cutaway.cli.tables import output_console

    output_console().print(text, soft_wrap=True, markup=False, highlight=False)


def _print(
    planned: "MemoryPlan",
    settings: "EngineSettings",
    config: "ModelConfig",
    kv_dtype: str,
    limit: int,
    whence: str,
) -> None:
    """The parts, what a token takes, and what the limit has room for."""
    from cutaway.cli.tables import output_console, plain_table

    requests, context = settings.max_num_seqs, settings.context
    table = plain_table(f"Memory of {config.name} for {requests:,} × {context:,} tokens")
    table.add_column("part")
    table.add_column("bytes", justify="right")
    table.add_column("what it is")
    numbers = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    width = planned.position // numbers
    rows = (
        ("runtime", planned.runtime, "Python, LLVM, kernels, tokenizer: measured"),
        ("weights", planned.weights, "as they are loaded"),
        ("KV pool", planned.kv, f"{planned.tokens:,} positions × {planned.position:,} bytes"),
        ("workspace", planned.workspace, f"buffers of a step of {settings.max_num_batched_tokens:,} tokens"),
    )
    for name, size, meaning in rows:
        table.add_row(name, f"{size:,}", meaning)
    table.add_row("total", f"{planned.total:,}", quantity(planned.total, "B"), style="bold")
    console = output_console()
    console.print(table)
    console.print()
    _say(
        f"A token's keys and values: 2 × {config.num_layers} layers × {config.num_kv_heads} KV heads × "
        f"{config.head_dim} × {width} bytes ({kv_dtype}) = {planned.position:,} bytes."
    )
    room = planned.pages_within(limit) * planned.page_length
    _say(
        f"{quantity(limit, 'B')} are {whence}: beside the rest there is room for {room:,} tokens, so for "
        f"{_requests_that_fit(planned, limit, context):,} requests of {context:,}."
    )


def _print_remedies(
    planned: "MemoryPlan",
    settings: "EngineSettings",
    kv_dtype: str,
    limit: int,
    small_step: int,
    planned_small: "MemoryPlan",
) -> None:
    """What is missing, and each option that alone makes it fit. planned_small: the plan with ``small_step``."""
    requests, context = settings.max_num_seqs, settings.context
    _say(f"It does not fit: {quantity(planned.total - limit, 'B')} are missing. To make it fit, one of:")
    fewer, shorter = _requests_that_fit(planned, limit, context), _context_that_fits(planned, limit, requests)
    if fewer:
        _say(f"  --requests {fewer}: the others wait, or are refused when too many do")
    if shorter > 1:
        _say(f"  --context {shorter}")
    if kv_dtype == "f32" and planned.total - planned.kv // 2 <= limit:
        _say("  --kv-dtype f16: half the KV pool")
    if small_step < settings.max_num_batched_tokens and planned_small.total <= limit:
        _say(f"  --step {small_step}: a smaller workspace; prompts take longer")
    _say(f"  --memory {planned.total // 2**20 + 1}MiB")
