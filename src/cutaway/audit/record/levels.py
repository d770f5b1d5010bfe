"""How much of a computation is recorded.

In: a name. Out: a checked level.
"""

from typing import Final

from cutaway.errors import InvalidRequestError, shown

TOKENS: Final = "tokens"
"""A rolling hash of the last residual before each token."""
OPERATIONS: Final = "operations"
"""Besides, a rolling hash of each operation's output in each layer. Steps run open."""
TENSORS: Final = "tensors"
"""Besides, the outputs themselves, in safetensors files beside the record."""
LEVELS: Final = (TOKENS, OPERATIONS, TENSORS)


def check_level(level: object) -> str:
    """One of ``LEVELS``, or InvalidRequestError."""
    if isinstance(level, str) and level in LEVELS:
        return level
    raise InvalidRequestError(
        f"the record's level is {shown(level)}; it must be one of {', '.join(LEVELS)}. Leave it out for tokens.",
        "record_level",
    )
