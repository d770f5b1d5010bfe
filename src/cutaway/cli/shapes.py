"""``cutaway shapes``: the shape table with a model's numbers: every dimension, weight and buffer.

In: a model and the engine's limits; only the head of the file is read. Out: tables, or JSON.
"""

import json
from typing import Annotated

import typer

from cutaway.cli.console import FetchProgress, error_console
from cutaway.cli.models import Json, ModelName
from cutaway.cli.options import KVDtype
from cutaway.hub import resolve


def shapes(
    model: ModelName,
    context: Annotated[
        int | None, typer.Option(help="Positions of the KV cache; default: the model's, up to 8,192.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Default: the processors that this process may use.")] = None,
    kv_dtype: KVDtype = "f16",
    as_json: Json = False,
) -> None:
    """Show every dimension, weight and buffer of a model, with symbolic and actual shapes, types and bytes."""
    # Imported here: the other commands shall not wait for the compiler to load.
    from cutaway.audit.shape_report import shape_report
    from cutaway.cli.shape_tables import shape_tables
    from cutaway.cli.tables import FirstThatFits, output_console
    from cutaway.formats.open_model import open_model

    with FetchProgress(error_console()) as fetching:
        path = resolve(model, fetching).path
    with open_model(path) as source:
        report = shape_report(source, context, threads, kv_dtype)
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
        return
    console = output_console()
    for wide, narrow in zip(shape_tables(report), shape_tables(report, narrow=True), strict=True):
        console.print(FirstThatFits(wide, narrow))
        console.print()
