"""The receipts of a record: whether each follows from the one before it and from its request's lines, and who signed
it.

In: a record's file, maybe a key, maybe a receipt that somebody was given. Out: what was found of each. Nothing is
replayed: a receipt says what was recorded, and ``verify`` whether that was computed.
"""

import json
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cutaway.audit.record.read_record import read_record
from cutaway.audit.record.receipts import statement
from cutaway.audit.record.recorded import RecordContent, Session
from cutaway.audit.record.signatures import Signer
from cutaway.errors import InvalidRequestError, shown

UNSIGNED: Final = "unsigned"
NOT_CHECKED: Final = "not checked"
GOOD: Final = "good"
BAD: Final = "bad"


@dataclass(frozen=True)
class FoundReceipt:
    """A receipt, and what its request was."""

    number: int
    request: str
    root: str
    hash: str
    time: str | None  # when the request ended, as the record says
    model: str | None
    tensors: str | None  # the digest of the model's tensors
    tokens: int  # of all choices
    reason: str | None  # why the request ended
    signature: str  # UNSIGNED, NOT_CHECKED, GOOD or BAD


@dataclass(frozen=True)
class ReceiptsFound:
    """All receipts of a record, and the first thing that is wrong."""

    receipts: list[FoundReceipt]
    difference: str | None
    notes: list[str]


def read_receipts(record: Path | RecordContent, signer: Signer | None = None) -> ReceiptsFound:
    """The receipts of a record, a file or what was read of it. signer: by whose key signatures are checked."""
    content = record if isinstance(record, RecordContent) else read_record(record)
    found: list[FoundReceipt] = []
    difference = content.changed
    starts = [each.header.number for each in content.sessions]
    for line in content.receipts:
        session = content.sessions[bisect_left(starts, line.number) - 1]
        receipt = _found(line.content, line.hash, session, signer)
        if receipt.signature == BAD:
            how = "its signature is not by this key" if "signature" in line.content else "it is not signed"
            difference = difference or f"receipt {receipt.number}: {how}"
        found.append(receipt)
    return ReceiptsFound(found, difference, _notes(content))


def check_held(record: Path | RecordContent, held: Any) -> str | None:
    """Whether a receipt that somebody was given is one of a record; None, or what differs. held: its JSON, or a reply
    around it, or the reply's "cutaway" object. Raises InvalidRequestError where it is no receipt.
    """
    receipt = held
    for around in ("cutaway", "receipt"):
        receipt = receipt.get(around, receipt) if isinstance(receipt, dict) else receipt
    if not isinstance(receipt, dict) or not isinstance(receipt.get("number"), int):
        raise InvalidRequestError(
            f"{shown(held)} is no receipt; give one as it was returned, or the reply that has it.", "receipt"
        )
    content = record if isinstance(record, RecordContent) else read_record(record)
    for line in content.receipts:
        if line.content.get("number") == receipt["number"]:
            own = {**line.content, "hash": line.hash}
            for name in sorted({*own, *receipt} - {"kind"}):
                if own.get(name) != receipt.get(name):
                    return f"receipt {receipt['number']}: its {name} is not the record's"
            return None
    return f"the record has no receipt {receipt['number']}"


def read_held(text: str) -> Any:
    """A receipt's JSON, or that of a file. Raises InvalidRequestError."""
    try:
        return json.loads(text if text.lstrip().startswith("{") else Path(text).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the receipt {shown(text)} can't be read ({error}).", "receipt") from None


def _found(content: dict[str, Any], hashed: str, session: Session, signer: Signer | None) -> FoundReceipt:
    request = session.by_id[str(content.get("request"))]
    return FoundReceipt(
        content.get("number", 0),
        request.id,
        str(content.get("root")),
        hashed,
        request.time,
        session.header.content.get("model"),
        session.header.content.get("tensors"),
        request.tokens,
        request.reason,
        _signature(content, signer),
    )


def _signature(content: dict[str, Any], signer: Signer | None) -> str:
    signature = content.get("signature")
    if signature is None:
        return UNSIGNED if signer is None else BAD
    if signer is None:
        return NOT_CHECKED
    good = isinstance(signature, str) and signature.isascii() and signer.check(statement(content), signature)
    return GOOD if good else BAD


def _notes(content: RecordContent) -> list[str]:
    return [f"line {number} was not written to its end" for number in content.torn]
