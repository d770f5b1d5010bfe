"""Receipts: one for each request, each bound to the one before it.

In: the hash of a request's last line, its root, which all its lines lead to, and the header before them. Out: the
content of a receipt's line; what is given to whoever asked.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from cutaway.audit.record.record_file import Link
from cutaway.audit.record.signatures import Signer

STATEMENT: Final = "cutaway receipt 1\n{number}\n{previous}\n{header}\n{root}\n"
"""What is signed, in ASCII."""


def statement(receipt: Mapping[str, Any]) -> bytes:
    """What the signature of a receipt is over. Of a receipt that lacks a field, another text: nobody signed that."""
    return STATEMENT.format_map(defaultdict(str, receipt)).encode("ascii", "replace")


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
