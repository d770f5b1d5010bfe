"""``cutaway receipts``: the receipts of a record.

In: a record's file, a key, a receipt that somebody holds. Out: a line for each; exit code 0, or 1 where one doesn't
follow or was not signed by the key, and 2 for what is no record.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.console import escaped
from cutaway.cli.models import Json

DIFFERENT = 1


def receipts(
    record: Annotated[Path, typer.Argument(help="A file that was written by --record.")],
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Check the signatures: the HMAC key, or a PEM file.")
    ] = None,
    held: Annotated[
        str | None,
        typer.Option("--receipt", metavar="JSON|FILE", help="Check that this receipt, as it was returned, is there."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List a record's receipts, and check that each follows from its request and from the receipt before it."""
    from cutaway.audit.record.read_receipts import check_held, read_held, read_receipts
    from cutaway.audit.record.read_record import read_record
    from cutaway.audit.record.signatures import read_signer

    content = read_record(record)  # once, as it may be a pipe
    found = read_receipts(content, None if key is None else read_signer(key))
    difference = found.difference
    if held is not None and difference is None:
        difference = check_held(content, read_held(held))
    if as_json:
        typer.echo(json.dumps({**asdict(found), "difference": difference}, indent=2))
    else:
        for each in found.receipts:
            typer.echo(
                escaped(
                    f"{each.number}  {each.hash}  {each.time}  request {each.request}  {each.tokens} tokens  "
                    f"{each.reason}  {each.model}  {each.signature}"
                )
            )
        for note in found.notes:
            typer.echo(f"note: {note}")
        if held is not None and difference is None:
            typer.echo("the receipt that was given is there")
        count = len(found.receipts)
        typer.echo(
            f"{count} receipt{'s' * (count != 1)}: each follows from the one before it"
            if difference is None
            else f"different: {escaped(difference)}"
        )
    if difference is not None:
        raise typer.Exit(DIFFERENT)
