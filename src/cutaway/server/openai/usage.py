"""``usage``: the tokens of a request.

In: statistics of its prompts. Out: OpenAI's object.
"""

from collections.abc import Iterable
from typing import Any

from cutaway.engine.outputs import Statistics


def usage(statistics: Iterable[Statistics], *, counts_answers: bool = True) -> dict[str, Any]:
    """All prompts together, each counted once. counts_answers: else nothing was asked for but the prompt."""
    each = list(statistics)
    prompt = sum(one.prompt_tokens for one in each)
    generated = sum(one.generated_tokens for one in each) if counts_answers else 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": sum(one.cached_tokens for one in each)},
    }
