"""``cutaway plan``: the memory that an engine will take, before it takes it, and what fits into a limit.

In: a model, how many requests of how many tokens; only the head of the file is read. Out: a table, or JSON; what to
change where it doesn't fit.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from cutaway.cli.console import FetchProgress, error_console, quantity
from cutaway.cli.models import Json, ModelName
from cutaway.cli.options import KVDtype
from cutaway.errors import CapacityError, InvalidRequestError, counted
from cutaway.hub import resolve

if TYPE_CHECKING:
    from cutaway.engine.settings import EngineSettings
    from cutaway.memory.plan import MemoryPlan
    from cutaway.model.config import ModelConfig

SMALL_STEP: Final = 64  # tokens of a step, where memory is short


class Fitting(NamedTuple):
    """What a limit has room for, if all else stays as it was asked; 0 for nothing."""

    requests: int
    context: int  # tokens, up to the model's own


def plan(
    model: ModelName,
    context: Annotated[
        int | None, typer.Option(help="Tokens of a request, prompt and answer; default: the model's, up to 8,192.")
    ] = None,
    requests: Annotated[int, typer.Option(help="Requests that run together.")] = 1,
    memory: Annotated[
        str | None, typer.Option(help="What the process may take, such as 2GB; default: what is free now.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Tokens of a step at most; default: 256.")] = None,
    threads: Annotated[int | None, typer.Option(help="Default: the processors that this process may use.")] = None,
    kv_dtype: KVDtype = "f16",
    as_json: Json = False,
) -> None:
    """Show what memory an engine takes for so many requests of so many tokens, and what fits."""
    # Imported here: the other commands shall not wait for the compiler to load.
    from cutaway.memory.available import available_bytes
    from cutaway.memory.byte_size import parse_bytes
    from cutaway.memory.kv_cache import kv_format
    from cutaway.ops.cpu.processors import default_threads
    from cutaway.ops.cpu.threads import check_threads

    limit = available_bytes() if memory is None else parse_bytes(memory, "memory")
    kv_format(kv_dtype)
    members = default_threads() if threads is None else threads
    check_threads(members)
    _check_numbers(requests, step)
    with FetchProgress(error_console()) as fetching:
        path = resolve(model, fetching).path
    found = _find(path, Asked(context, requests, step, members, kv_dtype), limit)
    fits = found.planned.total <= limit
    if as_json:
        typer.echo(json.dumps(_report(model, found, members, kv_dtype, limit), indent=2, ensure_ascii=False))
    else:
        _print(found.planned, found.settings, found.config, kv_dtype)
        whence = f"{quantity(limit, 'B')} are free now" if memory is None else f"{memory} are given"
        enough = counted(found.fitting.requests, "request")
        _say(f"{whence}: enough for {enough} of {found.settings.context:,} tokens.")
        if fits:
            given: dict[str, Any] = {"max_num_batched_tokens": step, "threads": threads}
            if kv_dtype != "f16":
                given["kv_dtype"] = kv_dtype
            _say(f"It fits. {_call(found.planned, found.settings, model, given)} takes this, at its start.")
        else:
            _print_remedies(found, limit)
    if not fits:
        raise typer.Exit(CapacityError.exit_code)


class Asked(NamedTuple):
    """What the engine shall do."""

    context: int | None  # tokens of a request; None: the model's, up to 8,192
    requests: int
    step: int | None
    threads: int
    kv_dtype: str


class Found(NamedTuple):
    """What it takes."""

    config: "ModelConfig"
    settings: "EngineSettings"
    planned: "MemoryPlan"
    small_step: int
    planned_small: "MemoryPlan"  # with steps of so many tokens
    fitting: Fitting


def _check_numbers(requests: int, step: int | None) -> None:
    """Refuse what no engine can do, before any file is looked for."""
    from cutaway.engine.settings import MOST_SEQUENCES, MOST_STEP

    for name, value, most in (("requests", requests, MOST_SEQUENCES), ("step", step, MOST_STEP)):
        if value is not None and not 1 <= value <= most:
            raise InvalidRequestError(f"--{name} is {value}; it must be from 1 to {most}.", name)
    if step is not None and requests > step:
        raise InvalidRequestError(
            f"--requests is {requests} and --step {step}; each request that runs needs a token of the step. Lower the "
            "first or raise the second.",
            "requests",
        )


def _find(path: Path, asked: Asked, limit: int) -> Found:
    """Plan what was asked, and what else the limit has room for, by the head of the model's file."""
    from cutaway.engine.plan import measure_runtime, plan_memory
    from cutaway.engine.runner import choose_context
    from cutaway.engine.settings import MOST_SEQUENCES, EngineSettings
    from cutaway.formats.open_model import open_model
    from cutaway.model.config import read_config
    from cutaway.model.loader import check_tensors

    with open_model(path) as source:
        config = read_config(source)
        check_tensors(source, config)
        context = choose_context(asked.context, config)
        settings = _settings_for(context, asked.requests, asked.step)
        runtime = measure_runtime(path, asked.kv_dtype, asked.threads)

        def plan_of(settings: EngineSettings) -> "MemoryPlan":
            return plan_memory(source, config, settings, asked.threads, asked.kv_dtype, runtime)

        # Each is planned again, since the buffers of a step grow with its requests, too.
        def fits(context: int, requests: int) -> bool:
            return plan_of(_settings_for(context, requests, asked.step)).total <= limit

        small = replace(settings, max_num_batched_tokens=max(SMALL_STEP, asked.requests))
        most = min(asked.step or MOST_SEQUENCES, MOST_SEQUENCES)
        fitting = Fitting(
            _greatest(lambda requests: fits(context, requests), most),
            _greatest(lambda length: fits(length, asked.requests), config.context_length),
        )
        return Found(config, settings, plan_of(settings), small.max_num_batched_tokens, plan_of(small), fitting)


def _settings_for(context: int, requests: int, step: int | None) -> "EngineSettings":
    """An engine for so many requests of so many tokens: its pool has all of them, and no more."""
    from cutaway.engine.settings import engine_settings
    from cutaway.memory.kv_setting import kv_setting

    settings = engine_settings(context, kv_setting("paged"), max_num_seqs=requests, max_num_batched_tokens=step)
    pages = requests * -(-context // settings.page_length)
    return replace(settings, kv_tokens=pages * settings.page_length)


def _report(model: str, found: Found, threads: int, kv_dtype: str, limit: int) -> dict[str, Any]:
    """The plan as plain data."""
    return {
        "model": model,
        "context": found.settings.context,
        "requests": found.settings.max_num_seqs,
        "threads": threads,
        "kv_dtype": kv_dtype,
        **found.planned.as_dict(),
        "limit": limit,
        "fits": found.planned.total <= limit,
        "requests_that_fit": found.fitting.requests,
        "context_that_fits": found.fitting.context,
    }


def _greatest(fits: Callable[[int], bool], most: int) -> int:
    """The greatest number up to ``most`` that fits, where whatever is less than one that fits does so, too; 0 if none
    does.
    """
    return bisect_left(range(1, most + 1), True, key=lambda number: not fits(number))


def _call(planned: "MemoryPlan", settings: "EngineSettings", model: str, given: Mapping[str, Any]) -> str:
    """The Python that makes an engine by this plan. given: options besides; those that are None were not given."""
    options = {
        "max_model_len": settings.context,
        "max_num_seqs": settings.max_num_seqs,
        "kv_tokens": planned.tokens,
        **{name: value for name, value in given.items() if value is not None},
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
) -> None:
    """The parts, and what a token takes."""
    from cutaway.cli.tables import output_console, plain_table

    requests, context = settings.max_num_seqs, settings.context
    table = plain_table(f"Memory of {config.name} for {requests:,} × {context:,} tokens")
    table.add_column("part")
    table.add_column("bytes", justify="right")
    table.add_column("what it is")
    width, scale = divmod(planned.position // (2 * config.num_layers * config.num_kv_heads), config.head_dim)
    each = f"({config.head_dim} × {width} + {scale} of a scale)" if scale else f"{config.head_dim} × {width}"
    rows = (
        ("runtime", planned.runtime, "Python, kernels, tokenizer: measured"),
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
        f"{each} bytes ({kv_dtype}) = {planned.position:,} bytes."
    )


def _print_remedies(found: Found, limit: int) -> None:
    """What is missing, and each option that alone makes it fit."""
    from cutaway.memory.kv_cache import position_bytes
    from cutaway.ops.cpu.kv_tiles import KV_FORMATS

    planned, fitting = found.planned, found.fitting
    others = {name: replace(planned, position=position_bytes(found.config, name)) for name in KV_FORMATS}
    _say(f"It does not fit: {quantity(planned.total - limit, 'B')} are missing. To make it fit, one of:")
    if fitting.requests:
        _say(f"  --requests {fitting.requests}: the others wait, or are refused when too many do")
    if fitting.context > 1:
        _say(f"  --context {fitting.context}")
    for name, other in others.items():
        if other.kv < planned.kv and other.total <= limit:
            _say(f"  --kv-dtype {name}: a KV pool of {quantity(other.kv, 'B')}, and keys and values less exact")
    if found.small_step < found.settings.max_num_batched_tokens and found.planned_small.total <= limit:
        _say(f"  --step {found.small_step}: a smaller workspace; prompts take longer")
    _say(f"  --memory {planned.total // 10**6 + 1}MB")
