"""Prompts to ids, and whether there is room for the answer.

In: ``prompt`` as clients send it, ids, limits. Out: prompts in a list; nothing, or an ApiError with all the numbers.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from cutaway.engine.settings import EngineSettings
from cutaway.errors import CapacityError, counted
from cutaway.sampling.params_checks import is_integer, shown
from cutaway.server.http.errors import ApiError
from cutaway.tokenizer.legal_text import check_legal
from cutaway.tokenizer.tokenizer import Tokenizer

MOST_PROMPTS: Final = 1024

TextOrIds: TypeAlias = "str | list[int]"

_IDS: Final = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
PROMPT_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
        _IDS,
        {"type": "array", "minItems": 1, "items": _IDS},
    ]
}


def read_prompts(prompt: Any, name: str = "prompt") -> list[TextOrIds]:
    """One prompt or several, as a list: texts, and lists of ids that are integers and not yet checked otherwise.

    name: of the field.
    """
    if isinstance(prompt, str):
        check_legal(prompt, name)
        return [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise _refusal(name, prompt)
    if set(map(type, prompt)) == {int}:  # quick, however many there are
        return [prompt]
    if len(prompt) > MOST_PROMPTS:
        raise ApiError(
            400,
            f"{name} has {len(prompt)} prompts; the limit is {MOST_PROMPTS}. Send them in several requests.",
            name,
            "invalid_value",
        )
    for number, each in enumerate(prompt):
        place = f"{name}[{number}]"
        if isinstance(each, str):
            check_legal(each, place)
        elif not isinstance(each, list) or set(map(type, each)) != {int}:
            wrong = next((token for token in each if type(token) is not int), each) if isinstance(each, list) else each
            raise _refusal(place, wrong)
    return prompt


def _refusal(place: str, value: Any) -> ApiError:
    return ApiError(
        400,
        f"{place} is {shown(value)}; it must be a text, a list of texts, a list of token ids, or a list of such lists, "
        "none of them empty.",
        place,
        "invalid_type",
    )


def check_ids(ids: Sequence[Any], vocab_size: int, place: str) -> None:
    """Refuse what is no id of the vocabulary. place: of the list."""
    for number, token in enumerate(ids):
        if not is_integer(token) or not 0 <= token < vocab_size:
            raise ApiError(
                400,
                f"{place}[{number}] is {shown(token)}; it must be an integer from 0 to {vocab_size - 1}. Use the ids "
                "of this model's own tokenizer.",
                f"{place}[{number}]",
                "invalid_value",
            )


def check_prompt_ids(ids: Sequence[Any], vocab_size: int, place: str) -> None:
    """Refuse a prompt without tokens, and one with ids of another vocabulary. place: of the prompt."""
    if not ids:
        raise ApiError(
            400, f"{place} is empty; it must have at least 1 token. Write something.", place, "invalid_value"
        )
    check_ids(ids, vocab_size, place)


def place_of(number: int, count: int, name: str) -> str:
    """The path of one of ``count`` prompts. name: of the field."""
    return name if count == 1 else f"{name}[{number}]"


def encode_prompts(tokenizer: Tokenizer, prompts: Sequence[TextOrIds], context: int, name: str) -> list[list[int]]:
    """The ids of prompts; ApiError 400 for a text of which it is clear that the context can't hold it. name: of the
    field.
    """
    found = []
    for number, each in enumerate(prompts):
        try:
            found.append(tokenizer.encode(each, most_ids=context) if isinstance(each, str) else each)
        except CapacityError as error:
            place = place_of(number, len(prompts), name)
            raise ApiError(400, str(error), place, "context_length_exceeded") from None
    return found


def check_room(num_prompt: int, max_tokens: int | None, context: int, param: str, name: str = "max_tokens") -> None:
    """Refuse a prompt that leaves no room in the context, and an answer that is longer than the room.

    param: of the prompt. name: of max_tokens in the request.
    """
    # "This model's maximum context length is" are OpenAI's words, "prompt is too long" Anthropic's. LiteLLM and
    # LangChain know by them, not by the code, that a shorter history would be taken.
    if num_prompt >= context:
        raise ApiError(
            400,
            f"the prompt is too long: it has {num_prompt} tokens, and this model's maximum context length is {context} "
            "tokens, of which one must be left for the answer. Shorten the prompt, or start the server with a larger "
            "--max-model-len, where the model allows it.",
            param,
            "context_length_exceeded",
        )
    if max_tokens is not None and num_prompt + max_tokens > context:
        raise ApiError(
            400,
            f"{name} is {max_tokens} and the prompt has {num_prompt} tokens, together {num_prompt + max_tokens}; this "
            f"model's maximum context length is {context} tokens. Ask for {context - num_prompt} at most, or leave "
            f"{name} out.",
            name,
            "context_length_exceeded",
        )


def check_places(prompts: Sequence[Sequence[int]], num_choices: int, settings: EngineSettings, name: str) -> None:
    """Refuse prompts that the waiting queue could not take together if it were empty: to try again would never help.

    num_choices: answers to each. name: of the field. A single prompt finds its place in an empty queue, as it is.
    """
    choices, tokens = len(prompts) * num_choices, sum(map(len, prompts)) * num_choices
    if len(prompts) > 1 and (choices > settings.max_waiting or tokens > settings.max_waiting_tokens):
        raise ApiError(
            400,
            f"{name} has {len(prompts):,} prompts, for {counted(choices, 'answer')} with {counted(tokens, 'token')} of "
            f"prompts; the waiting queue has places for {settings.max_waiting:,} (--max-waiting) and "
            f"{settings.max_waiting_tokens:,}. Send them in several requests.",
            name,
            "capacity_exceeded",
        )
