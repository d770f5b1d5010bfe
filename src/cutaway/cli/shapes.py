"""``cutaway shapes``: the shape table with a model's numbers: every dimension, weight and buffer.

In: a model and the engine's limits; only the head of the file is read. Out: tables, or JSON.
"""

import json
from typing import Annotated

import typer


def shapes(
    model: Annotated[str, typer.Argument(help="A model's name, or the path of a GGUF file.")],
    context: Annotated[int | None, typer.Option(help="Positions of the KV cache [default: as for `run`].")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads [default: the usable processors].")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every dimension, weight and buffer of a model, with symbolic and actual shapes, types and bytes."""
    # Imported here: the other commands shall not wait for the compiler to load.
    from cutaway.audit.shape_report import shape_report, shape_tables
    from cutaway.audit.table import output_console
    from cutaway.formats.gguf import open_gguf
    from cutaway.hub import resolve

    with open_gguf(resolve(model).path) as gguf:
        report = shape_report(gguf, context, threads)
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
        return
    console = output_console()
    for table in shape_tables(report):
        console.print(table)
        console.print()
