"""``cutaway bench``: the machine's limits, then the ledger of a decode step and of a prefill step.

In: a model and the lengths to measure at. Out: tables, or JSON.
"""

import json
from typing import Annotated

import typer

from cutaway.cli.console import CompileProgress, FetchProgress, error_console
from cutaway.cli.models import Json, ModelName
from cutaway.hub import resolve

DECODE_REPEATS = 31
PREFILL_REPEATS = 11


def bench(
    model: ModelName,
    threads: Annotated[int | None, typer.Option(help="Default: the processors that this process may use.")] = None,
    context: Annotated[int, typer.Option(help="Positions that the decoded token attends.")] = 128,
    prompt: Annotated[int, typer.Option(help="Tokens of the prefill step.")] = 512,
    as_json: Json = False,
) -> None:
    """Measure a model's speed, operation by operation, against the machine's limits."""
    # Imported here: the other commands shall not wait for the compiler to load.
    from cutaway.audit.ledger import measure_ledger
    from cutaway.audit.limits import measure_limits
    from cutaway.audit.workloads import check_length, decode_batch, prefill_batch
    from cutaway.cli.tables import LEGEND, ledger_dict, ledger_summary, ledger_table, limits_table, output_console
    from cutaway.engine.compile import compilations
    from cutaway.engine.runner import ModelRunner
    from cutaway.formats.gguf import open_gguf
    from cutaway.model.config import read_config

    errors = error_console()
    with FetchProgress(errors) as fetching:
        path = resolve(model, fetching).path
    compiling = CompileProgress(errors, fetching)
    with compilations(compiling):
        with open_gguf(path) as gguf:
            config = read_config(gguf)
            check_length("context", context, config)
            check_length("prompt", prompt, config)
            weight_bytes = {name: tensor.nbytes for name, tensor in gguf.tensors.items()}
            runner = ModelRunner(gguf, threads=threads, context=max(context, prompt), max_tokens=prompt)
        with runner:
            limits = measure_limits(runner.team)
            decode = measure_ledger(runner, decode_batch(runner, context), weight_bytes, limits, DECODE_REPEATS)
            prefill = measure_ledger(runner, prefill_batch(runner, prompt), weight_bytes, limits, PREFILL_REPEATS)
    compiling.done()
    if as_json:
        data = {"model": config.name, "limits": limits.as_dict()}
        typer.echo(json.dumps({**data, "decode": ledger_dict(decode), "prefill": ledger_dict(prefill)}, indent=2))
        return
    console = output_console()
    console.print(limits_table(limits))
    titles = (f"Decode: 1 token at context {context}", f"Prefill: {prompt} tokens")
    for ledger, title in zip((decode, prefill), titles, strict=True):
        console.print()
        console.print(ledger_table(ledger, f"{title}, {config.name}"))
        for line in ledger_summary(ledger):
            console.print(line)
    console.print()
    console.print(LEGEND, style="dim")
