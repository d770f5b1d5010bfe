"""Receipts in replies, of a server that records what it computes.

In: whether a request asks for its receipt; the engine's requests, at their ends. Out: what the reply has of them.
"""

from collections.abc import Sequence
from typing import Any, Final

from cutaway.engine.async_engine import AsyncStream
from cutaway.engine.llm import LLM
from cutaway.server.http.errors import ApiError

MEANING: Final = 'Add "cutaway" with the receipt, by which the record of this answer is found (docs/record.md).'


def check_receipt(llm: LLM, wanted: bool | None) -> None:
    """Refuse what can't be given: ApiError 400."""
    if wanted and not llm.is_recorded:
        raise ApiError(
            400,
            "return_receipt is true, and this server keeps no record. Start it with --record, or leave return_receipt.",
            "return_receipt",
            "unsupported_parameter",
        )


def receipts_of(streams: Sequence[AsyncStream], wanted: bool | None) -> dict[str, Any]:
    """For the "cutaway" object: ``receipt``, or ``receipts`` of several prompts; and, whether it is wanted or not,
    ``record_error`` where the record has ended.
    """
    found = [stream.record or {} for stream in streams]
    errors = [each["error"] for each in found if "error" in each]
    said: dict[str, Any] = {"record_error": errors[0]} if errors else {}
    if wanted:
        receipts = [each.get("receipt") for each in found]
        said |= {"receipt": receipts[0]} if len(receipts) == 1 else {"receipts": receipts}
    return said
