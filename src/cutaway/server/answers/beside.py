"""What comes beside an answer, or an embedding, where it is asked for: parameters, the receipt, the timings.

In: the fields by which a body asks, the same for any API; the engine's work for it, at its end. Out: the reply's
"cutaway" object.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import Field

from cutaway.engine.llm import LLM
from cutaway.server.http.errors import ApiError
from cutaway.server.openai.fields import RequestBody
from cutaway.server.work import Work


class BesideFields(RequestBody):
    """What is to be said beside the answer."""

    return_parameters: bool | None = Field(
        None, description='Add "cutaway": the parameters in effect, the seed, what was ignored.'
    )
    return_receipt: bool | None = Field(
        None,
        description='Add "cutaway" with the receipt, by which the record of this answer is found (docs/record.md; '
        "serve --record).",
    )
    return_timings: bool | None = Field(
        None, description='Add "cutaway.timings": what the answer took, operation by operation (serve --timings).'
    )


def check_receipt(llm: LLM, body: BesideFields) -> None:
    """Refuse what can't be given: ApiError 400."""
    if body.return_receipt and not llm.is_recorded:
        raise ApiError(
            400,
            "return_receipt is true, and this server keeps no record. Start it with --record, or leave return_receipt.",
            "return_receipt",
            "unsupported_parameter",
        )


def beside(work: Work, body: BesideFields, ignored: Sequence[str]) -> dict[str, Any]:
    """All of it for an answer, empty where nothing was asked for: ``parameters``, the ``seeds`` and ``statistics`` of
    each prompt, ``ignored``; and ``proofs``.
    """
    found: dict[str, Any] = {}
    if body.return_parameters:
        found = {
            "parameters": asdict(work.params),
            "seeds": [stream.seed for stream in work.streams],
            "ignored": list(ignored),
            "statistics": [asdict(stream.statistics()) for stream in work.streams],
        }
    return found | proofs(work, body)


def proofs(work: Work, body: BesideFields) -> dict[str, Any]:
    """``receipt``, or ``receipts`` of several prompts; ``timings``; and, whether it was asked for or not,
    ``record_error`` where the record has ended.
    """
    records = [stream.record or {} for stream in work.streams]
    errors = [each["error"] for each in records if "error" in each]
    found: dict[str, Any] = {"record_error": errors[0]} if errors else {}
    if body.return_receipt:
        receipts = [each.get("receipt") for each in records]
        found |= {"receipt": receipts[0]} if len(receipts) == 1 else {"receipts": receipts}
    if work.timings is not None:
        found["timings"] = work.timings.as_dict()
    return found
