"""``cutaway plan``: the memory that an engine will take, before it takes it, and what fits into a limit.

In: a model, how many requests of how many tokens; only the head of the file is read. Out: a table, or JSON; what to
change where it doesn't fit.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
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
    from cutaway.engine.plan import measure_runtime, plan_memory
    from cutaway.engine.runner import choose_context
    from cutaway.engine.settings import MOST_SEQUENCES, MOST_STEP, EngineSettings, engine_settings
    from cutaway.formats.open_model import open_model
    from cutaway.memory.available import available_bytes
    from cutaway.memory.byte_size import parse_bytes
    from cutaway.memory.kv_cache import kv_format, position_bytes
    from cutaway.memory.kv_setting import kv_setting
    from cutaway.model.config import read_config
    from cutaway.model.loader import check_tensors
    from cutaway.ops.cpu.kv_tiles import KV_FORMATS
    from cutaway.ops.cpu.processors import default_threads
    from cutaway.ops.cpu.threads import check_threads

    limit = available_bytes() if memory is None else parse_bytes(memory, "memory")
    kv_format(kv_dtype)
    members = default_threads() if threads is None else threads
    check_threads(members)
    for name, value, most in (("requests", requests, MOST_SEQUENCES), ("step", step, MOST_STEP)):
        if value is not None and not 1 <= value <= most:
            raise InvalidRequestError(f"--{name} is {value}; it must be from 1 to {most}.", name)
    if step is not None and requests > step:
        raise InvalidRequestError(
            f"--requests is {requests} and --step {step}; each request that runs needs a token of the step. Lower the "
            "first or raise the second.",
            "requests",
        )
    paged = kv_setting("paged")

    def settings_for(context: int, requests: int) -> EngineSettings:
        settings = engine_settings(context, paged, max_num_seqs=requests, max_num_batched_tokens=step)
        pages = requests * -(-context // settings.page_length)
        return replace(settings, kv_tokens=pages * settings.page_length)

    with FetchProgress(error_console()) as fetching:
        path = resolve(model, fetching).path
    with open_model(path) as source:
        config = read_config(source)
        check_tensors(source, config)
        positions = choose_context(context, config)
        settings = settings_for(positions, requests)
        runtime = measure_runtime(path, kv_dtype, members)

        def plan_of(settings: EngineSettings) -> "MemoryPlan":
            return plan_memory(source, config, settings, members, kv_dtype, runtime)

        planned = plan_of(settings)
        small = replace(settings, max_num_batched_tokens=max(SMALL_STEP, requests))
        planned_small = plan_of(small)
        # Each is planned again, since the buffers of a step grow with its requests, too.
        fitting = Fitting(
            _greatest(
                lambda number: plan_of(settings_for(positions, number)).total <= limit,
                min(step or MOST_SEQUENCES, MOST_SEQUENCES),
            ),
            _greatest(lambda length: plan_of(settings_for(length, requests)).total <= limit, config.context_length),
        )
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
            "requests_that_fit": fitting.requests,
            "context_that_fits": fitting.context,
        }
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        _print(planned, settings, config, kv_dtype)
        whence = f"{quantity(limit, 'B')} are free now" if memory is None else f"{memory} are given"
        enough = counted(fitting.requests, "request")
        _say(f"{whence}: enough for {enough} of {positions:,} tokens.")
        if planned.total <= limit:
            named = {"max_num_batched_tokens": step, "threads": threads}
            given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
            if kv_dtype != "f16":
                given["kv_dtype"] = kv_dtype
            _say(f"It fits. {_call(planned, settings, model, given)} takes this, at its start.")
        else:
            others = {name: replace(planned, position=position_bytes(config, name)) for name in KV_FORMATS}
            _print_remedies(planned, settings, others, limit, small.max_num_batched_tokens, planned_small, fitting)
    if planned.total > limit:
        raise typer.Exit(CapacityError.exit_code)


def _greatest(fits: Callable[[int], bool], most: int) -> int:
    """The greatest number up to ``most`` that fits, where whatever is less than one that fits does so, too; 0 if none
    does.
    """
    return bisect_left(range(1, most + 1), True, key=lambda number: not fits(number))


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


def _print_remedies(
    planned: "MemoryPlan",
    settings: "EngineSettings",
    others: Mapping[str, "MemoryPlan"],
    limit: int,
    small_step: int,
    planned_small: "MemoryPlan",
    fitting: Fitting,
) -> None:
    """What is missing, and each option that alone makes it fit. others: the plan by ``kv_dtype``; planned_small: with
    ``small_step``.
    """
    _say(f"It does not fit: {quantity(planned.total - limit, 'B')} are missing. To make it fit, one of:")
    if fitting.requests:
        _say(f"  --requests {fitting.requests}: the others wait, or are refused when too many do")
    if fitting.context > 1:
        _say(f"  --context {fitting.context}")
    for name, other in others.items():
        if other.kv < planned.kv and other.total <= limit:
            _say(f"  --kv-dtype {name}: a KV pool of {quantity(other.kv, 'B')}, and keys and values less exact")
    if small_step < settings.max_num_batched_tokens and planned_small.total <= limit:
        _say(f"  --step {small_step}: a smaller workspace; prompts take longer")
    _say(f"  --memory {planned.total // 10**6 + 1}MB")
