"""``cutaway bench``: the machine's limits, the ledgers of a decode and a prefill step, and two curves of decoding:
against the rows of a step, and against the context.

In: a model and the lengths to measure at. Out: tables as they are measured, or JSON.
"""

import json
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from cutaway.cli.console import error_console, first_use
from cutaway.cli.models import Json, ModelName
from cutaway.hub import resolve

if TYPE_CHECKING:
    from cutaway.audit.limits import MachineLimits
    from cutaway.engine.runner import ModelRunner

DECODE_CONTEXT = 128
PREFILL_TOKENS = 512
DECODE_REPEATS = 31
PREFILL_REPEATS = 11
CURVE_REPEATS = 11


class Part(str, Enum):
    """What ``--only`` may name."""

    LEDGER = "ledger"
    BATCH = "batch"
    CONTEXT = "context"


Shown = tuple[str, Any, list[Any]]  # its key in JSON, plain data, what to print


def bench(
    model: ModelName,
    only: Annotated[
        list[Part] | None, typer.Option(help="Measure this part; may be given again. Default: all three.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Default: the processors that this process may use.")] = None,
    context: Annotated[
        int | None,
        typer.Option(help="Positions that a decoded token attends, in the ledger and against the batch; default, 128."),
    ] = None,
    prompt: Annotated[int | None, typer.Option(help="Tokens of the prefill step; default, 512.")] = None,
    as_json: Json = False,
) -> None:
    """Measure a model's speed: operation by operation against the machine's limits, then against batch and context."""
    # Imported here: the other commands shall not wait for the compiler to load.
    from cutaway.audit.curves import BATCH_ROWS, batch_rows
    from cutaway.audit.limits import measure_limits
    from cutaway.audit.workloads import check_length, fill_kv
    from cutaway.cli.tables import FirstThatFits, limits_table, output_console
    from cutaway.engine.runner import DEFAULT_CONTEXT, ModelRunner
    from cutaway.formats.open_model import open_model
    from cutaway.model.config import read_config
    from cutaway.ops.cpu.kv_tiles import SUBTILE

    asked = set(only or Part)
    errors = error_console()
    status = _StatusLine(errors)
    console = output_console()
    data: dict[str, Any] = {}

    with first_use(errors) as (fetching, compiling):

        def show(key: str, plain: Any, printed: list[Any]) -> None:
            status.clear()
            compiling.done()
            data[key] = plain
            for each in [] if as_json else [*printed, ""]:
                console.print(each)

        with open_model(resolve(model, fetching).path) as source:
            config = read_config(source)
            context = min(DECODE_CONTEXT, config.context_length) if context is None else context
            prompt = min(PREFILL_TOKENS, config.context_length) if prompt is None else prompt
            check_length("context", context, config)
            check_length("prompt", prompt, config)
            weight_bytes = {name: tensor.nbytes for name, tensor in source.tensors.items()}
            longest = min(config.context_length, DEFAULT_CONTEXT)
            # The pool of one long context is also that of many short ones.
            pool = max(DEFAULT_CONTEXT, -(-context // SUBTILE) * SUBTILE)  # one row at least fits
            rows = batch_rows(context, pool) if Part.BATCH in asked else [1]
            positions = max(context, prompt, longest if Part.CONTEXT in asked else 2)
            runner = ModelRunner(
                source,
                threads=threads,
                context=positions,
                max_tokens=max(prompt, BATCH_ROWS[-1]),
                max_outputs=max(rows),
                num_contexts=-(-pool // positions) if Part.BATCH in asked else 1,
            )
        data["model"] = config.name
        with runner:
            fill_kv(runner.kv)
            status("measuring the machine's limits")
            limits = measure_limits(runner.team)
            show(
                "limits",
                limits.as_dict(),
                [FirstThatFits(limits_table(limits), limits_table(limits, narrow=True))],
            )
            if Part.LEDGER in asked:
                for part in _ledgers(runner, context, prompt, weight_bytes, limits, status):
                    show(*part)
            if Part.BATCH in asked:
                show(*_batch_curve(runner, rows, context, weight_bytes, limits, status))
            if Part.CONTEXT in asked:
                show(*_context_curve(runner, longest, weight_bytes, limits, status))
    if as_json:
        typer.echo(json.dumps(data, indent=2))


def _ledgers(
    runner: "ModelRunner",
    context: int,
    prompt: int,
    weight_bytes: dict[str, int],
    limits: "MachineLimits",
    status: "_StatusLine",
) -> Iterator[Shown]:
    """The ledgers of a decode step and of a prefill step."""
    from cutaway.audit.ledger import measure_ledgers
    from cutaway.audit.workloads import decode_batch, prefill_batch
    from cutaway.cli.tables import (
        LEGEND,
        FirstThatFits,
        ledger_dict,
        ledger_summary,
        ledger_table,
        narrow_ledger_table,
    )

    works = (
        ("decode", f"Decode: 1 token at context {context}", decode_batch(runner, context), DECODE_REPEATS),
        ("prefill", f"Prefill: {prompt} tokens", prefill_batch(runner, prompt), PREFILL_REPEATS),
    )
    for key, title, batch, repeats in works:
        heard = status.rounds(f"measuring a {key} step")
        (ledger,) = measure_ledgers(runner, [batch], weight_bytes, limits, repeats, heard)
        heading = f"{title}, {runner.config.name}"
        table = FirstThatFits(ledger_table(ledger, heading), narrow_ledger_table(ledger, heading))
        legend = [LEGEND] if key == "prefill" else []
        yield key, ledger_dict(ledger), [table, *ledger_summary(ledger), *legend]


def _batch_curve(
    runner: "ModelRunner",
    rows: list[int],
    context: int,
    weight_bytes: dict[str, int],
    limits: "MachineLimits",
    status: "_StatusLine",
) -> Shown:
    from cutaway.audit.curves import measure_batch_curve
    from cutaway.cli.curve_tables import batch_dict, batch_explanation, batch_table
    from cutaway.cli.tables import unrest

    heard = status.rounds(f"measuring batches of 1 to {rows[-1]} rows")
    curve = measure_batch_curve(runner, rows, context, weight_bytes, limits, CURVE_REPEATS, heard)
    title = f"Batch: one token in each row, each at context {context}, {runner.config.name}"
    return "batch", batch_dict(curve), [batch_table(curve, title), *batch_explanation(curve), *unrest(curve.ledgers)]


def _context_curve(
    runner: "ModelRunner",
    longest: int,
    weight_bytes: dict[str, int],
    limits: "MachineLimits",
    status: "_StatusLine",
) -> Shown:
    from cutaway.audit.curves import contexts_up_to, measure_context_curve
    from cutaway.cli.curve_tables import context_dict, context_explanation, context_table
    from cutaway.cli.tables import unrest

    heard = status.rounds(f"measuring contexts of 1 to {longest:,} positions")
    curve = measure_context_curve(runner, contexts_up_to(longest), weight_bytes, limits, CURVE_REPEATS, heard)
    title = f"Context: one token, {runner.config.name}"
    return (
        "context",
        context_dict(curve),
        [context_table(curve, title), *context_explanation(curve), *unrest(curve.ledgers)],
    )


class _StatusLine:
    """One line on standard error that says what is being measured; drawn on a terminal only."""

    def __init__(self, console: Console) -> None:
        self._shown = console.is_terminal

    def __call__(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{text} …" if text else "\r\x1b[K")
            sys.stderr.flush()

    def rounds(self, text: str) -> Callable[[int, int], None]:
        """A listener that counts rounds."""
        return lambda done, total: self(f"{text}: round {done + 1} of {total}")

    def clear(self) -> None:
        """Take the line away."""
        self("")
