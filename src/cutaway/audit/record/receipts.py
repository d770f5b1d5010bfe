"""Receipts: one for each request, each bound to the one before it.

In: the hash of a request's last line, its root, which all its lines lead to, and the header before them. Out: the
content of a receipt's line; what is given to whoever asked.
"""

from collections.abc import Mapping
from typing import Any, Final

from cutaway.audit.record.record_file import Link
from cutaway.audit.record.signatures import Signer

SIGNED: Final = ("number", "previous", "header", "root")
"""What is signed, a line each, behind a line that says what it is."""


def statement(receipt: Mapping[str, Any]) -> bytes:
    """What the signature of a receipt is over, in ASCII. Of what is missing there is "None", which nobody signs."""
    return "".join(f"{line}\n" for line in ("cutaway receipt 1", *map(receipt.get, SIGNED))).encode("ascii", "replace")


def receipt_content(link: Link, request_id: str, root: str, header: str, signer: Signer | None) -> dict[str, Any]:
    """link: of the last receipt or header in the file."""
    receipt: dict[str, Any] = {
        "kind": "receipt",
        "number": link.number + 1,
        "request": request_id,
        "root": root,
        "header": header,
        "previous": link.hash,
    }
    if signer is not None:
        receipt["signature"] = signer.sign(statement(receipt))
    return receipt


def summary_of(receipt: Mapping[str, Any], found: str) -> dict[str, Any]:
    """For whoever asked. found: the receipt's own hash."""
    return {"receipt": {name: value for name, value in receipt.items() if name != "kind"} | {"hash": found}}
