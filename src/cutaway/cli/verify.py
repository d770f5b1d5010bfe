"""``cutaway verify``: a record, replayed.

In: a record's file, and a model. Out: "same bits", or the first difference; exit code 0, or 1, and 2 for what is no
record.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.console import error_console, escaped, first_use
from cutaway.cli.models import NAMES_A_MODEL, Json
from cutaway.cli.options import ChatTemplate, Threads

if TYPE_CHECKING:
    from cutaway.audit.record.recorded import RecordedRequest
    from cutaway.audit.record.replay import Difference

DIFFERENT = 1


def verify(
    record: Annotated[Path, typer.Argument(help="A file that was written by --record.")],
    model: Annotated[
        str | None,
        typer.Argument(help=f"Default: what the record names, if it is on this machine. {NAMES_A_MODEL}."),
    ] = None,
    chat_template: ChatTemplate = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Replay a record, offline and alone: the same bits, or the first difference."""
    from cutaway.audit.record.read_record import read_record

    content = read_record(record)  # once, as it may be a pipe; what is no record is told before anything is loaded
    from cutaway.audit.record.verify import verify as verify_record
    from cutaway.ops.simd.lowering import LOWERING

    console = error_console()
    with first_use(console) as (fetching, compiling):

        def told(done: int, total: int) -> None:
            fetching("digest", done, total)

        def heard(request: "RecordedRequest", difference: "Difference | None") -> None:
            compiling.done()
            if not as_json and difference is None:
                count = len(request.tokens)
                place = f"line {request.begin.number}, request {escaped(request.id)}"
                typer.echo(f"{place}: same bits, {count} token{'s' * (count != 1)}")

        verdict = verify_record(content, model, threads=threads, chat_template=chat_template, told=told, heard=heard)
    if as_json:
        typer.echo(json.dumps({"same_bits": verdict.same_bits, **asdict(verdict), "lowering": LOWERING}))
    else:
        for note in verdict.notes:
            typer.echo(f"note: {escaped(note)}")
        if verdict.difference is None:
            counts = f"{verdict.requests} request{'s' * (verdict.requests != 1)}, {verdict.tokens} tokens"
            typer.echo(f"same bits: {counts}, replayed with {LOWERING}")
        else:
            typer.echo(f"different: {escaped(verdict.difference)}")
    if verdict.difference is not None:
        raise typer.Exit(DIFFERENT)
