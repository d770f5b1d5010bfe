"""``cutaway ladder``: one workload on the same engine, each rung with one idea more.

In: a model. Out: a table with what each rung reached, a sentence on what changed, a drawing; or JSON.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cutaway.cli.console import error_console, first_use, quantity
from cutaway.cli.files import check_can_be_written, write_result
from cutaway.cli.models import Json, ModelName
from cutaway.cli.stages import stages
from cutaway.errors import InvalidRequestError
from cutaway.hub import resolve

if TYPE_CHECKING:
    from rich.table import Table

    from cutaway.audit.ladder import RungResult

REQUESTS: Final = 48
MOST_REQUESTS: Final = 1024
"""As many have a place in the engine's queue, where a policy sees all of them when it forms a batch."""
LEGEND: Final = (
    "All rungs gave the same tokens. First token: the median and the longest of all requests; pause: the longest "
    "between two tokens of an answer; together: sequences in a step. Memory is that of keys and values. Means are over "
    "steps."
)


def ladder(
    model: ModelName,
    requests: Annotated[int, typer.Option(help="Requests of the workload, one long among twelve.")] = REQUESTS,
    svg: Annotated[Path | None, typer.Option(help="Draw it, into this file.")] = None,
    threads: Annotated[int | None, typer.Option(help="Default: the processors that this process may use.")] = None,
    as_json: Json = False,
) -> None:
    """Climb from no cache to paged memory and continuous batching: the same requests, one idea more at each rung."""
    if not 2 <= requests <= MOST_REQUESTS:
        raise InvalidRequestError(
            f"requests is {requests}; it must be 2 at least, a long one and a short one, and {MOST_REQUESTS} at most.",
            "requests",
        )
    if svg is not None:
        check_can_be_written(svg, "--svg")
    # Imported here: the other commands shall not wait for the compiler to load.
    from cutaway.audit.ladder import RUNGS, check_context, climb, mixed_workload
    from cutaway.cli.tables import output_console
    from cutaway.engine.llm import LLM
    from cutaway.formats.open_model import open_model
    from cutaway.model.config import read_config

    console, results = error_console(), []
    with first_use(console) as (fetching, _), stages(console) as stage:
        path = resolve(model, fetching).path
        with open_model(path) as source:
            config = read_config(source)
        check_context(config.context_length)

        def load(**settings: Any) -> LLM:
            return LLM(path, threads=threads, **settings)

        workload = mixed_workload(requests, config.vocab_size)

        for result in climb(load, workload, RUNGS, stage.begin):
            results.append(result)
    if svg is not None:
        _draw(svg, f"The ladder: {config.name}, {requests} requests", results)
    if as_json:
        typer.echo(json.dumps({"model": model, "rungs": [each.as_dict() for each in results]}, indent=2))
        return
    output = output_console()
    output.print(_table(results, config.name, requests))
    output.print()
    for result in results:
        output.print(f"{result.name}: {result.change}", soft_wrap=True, markup=False, highlight=False)
    output.print(f"\n{LEGEND}", soft_wrap=True, highlight=False)
    if svg is not None:
        output.print(f"Drawn: {svg}", soft_wrap=True, markup=False, highlight=False)


def _table(results: "list[RungResult]", model: str, requests: int) -> "Table":
    """A row for each rung."""
    from cutaway.cli.tables import plain_table

    table = plain_table(f"The ladder: {model}, {requests} requests")
    table.add_column("rung")
    for title in ("requests", "tok/s", "first token", "longest", "pause", "together", "pads", "reserved", "used"):
        table.add_column(title, justify="right")
    for each in results:
        table.add_row(
            each.name,
            str(each.requests),
            f"{each.rate:.1f}",
            f"{each.first_token:.2f} s",
            f"{each.last_first_token:.2f} s",
            f"{each.longest_pause:.2f} s",
            f"{each.together:.1f}",
            f"{100 * each.waste:.0f} %",
            quantity(each.kv_reserved, "B"),
            quantity(each.kv_used, "B"),
        )
    return table


def _draw(svg: Path, title: str, results: "list[RungResult]") -> None:
    from cutaway.audit.ladder_svg import ladder_svg

    write_result(svg, ladder_svg(title, results))
