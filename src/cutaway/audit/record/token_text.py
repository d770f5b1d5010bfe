"""A token's line as text: what ``lines.encode`` makes of it, in a quarter of the time, as there is one for each token.

In: the content that ``request_lines.token_line`` makes. Out: JSON, as it stands in the record up to its hash.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from cutaway.audit.record.lines import encode

ALWAYS: Final = 10
"""The fields that every token has, which come first."""


def token_text(content: Mapping[str, Any]) -> str:
    """The JSON object. Raises ValueError where a number is none of JSON."""
    steps = ",".join([f"[{a},{b},{c},{d},{e}]" for a, b, c, d, e in content["steps"]])
    text = (
        f'{{"kind":"token","request":{encode(content["request"])},"choice":{content["choice"]},'
        f'"token":{content["token"]},"id":{content["id"]},"text":{encode(content["text"])},'
        f'"logprob":{_number(content["logprob"])},"noise":{_number(content["noise"])},'
        f'"residual":"{content["residual"]}","steps":[{steps}]'
    )
    if len(content) == ALWAYS:
        return text + "}"
    return f"{text},{encode(dict(islice(content.items(), ALWAYS, None)))[1:]}"


def _number(value: Any) -> str:
    """A finite float as JSON has it; whatever else there may be in place of it."""
    if value is None:
        return "null"
    return repr(value) if type(value) is float and value - value == 0 else encode(value)
