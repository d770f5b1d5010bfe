"""The shapes in which a prompt may come, as vLLM's API takes them.

In: a text, token ids, a mapping of either, or a list of these. Out: for each prompt its text, if it has one, and its
ids.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from cutaway.engine.foreign_options import CHAT, refuse_foreign
from cutaway.errors import CapacityError, InvalidRequestError, shown
from cutaway.tokenizer.tokenizer import Tokenizer

CHAT_OPTIONS: Final = (
    "messages, sampling_params, use_tqdm, priority, timeout, chat_template, add_generation_prompt, "
    "continue_final_message, tools, chat_template_kwargs"
)

Prompt: TypeAlias = str | Sequence[int] | Mapping[str, Any]
"""A text, token ids, or ``{"prompt": text}`` or ``{"prompt_token_ids": ids}``."""


def as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several, as a list. A list whose items are all integers is one prompt."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes | bytearray):
        raise InvalidRequestError(
            f"prompts is a {type(prompts).__name__}; give a text, a list of token ids, or a list of these.", "prompts"
        )
    items: list[Any] = list(prompts)
    if not items:
        raise InvalidRequestError("prompts is empty; give at least one.", "prompts")
    if all(isinstance(item, int | np.integer) for item in items):
        return [items]
    return items


def prompt_ids(prompt: Prompt, tokenizer: Tokenizer) -> tuple[str | None, list[int]]:
    """(text, or None for a prompt of ids; ids). The ids are not yet checked: that is ``check_prompt``'s."""
    if isinstance(prompt, str):
        return prompt, tokenizer.encode(prompt)
    if isinstance(prompt, Mapping):
        return prompt_ids(_content(prompt), tokenizer)  # no mapping again
    if isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray):
        given: Sequence[Any] = prompt
        return None, [int(each) if isinstance(each, np.integer) else each for each in given]
    raise InvalidRequestError(f"the prompt is a {type(prompt).__name__}; give a text or a list of token ids.", "prompt")


def check_prompt(prompt_ids: Sequence[int], context: int, vocab_size: int, *, is_answered: bool = True) -> None:
    """Refuse a prompt that can't be computed: empty, ids outside the vocabulary, or no room for one more token, where
    it is answered.
    """
    if not prompt_ids:
        raise InvalidRequestError("the prompt is empty; it must have at least 1 token. Write something.", "prompt")
    for index, token_id in enumerate(prompt_ids):
        is_integer = isinstance(token_id, int) and not isinstance(token_id, bool)
        if not is_integer or not 0 <= token_id < vocab_size:
            raise InvalidRequestError(
                f"prompt token {index} is {shown(token_id)}; it must be an integer from 0 to {vocab_size - 1}. Use "
                "the ids of this model's own tokenizer.",
                "prompt",
            )
    if len(prompt_ids) > context - is_answered:
        left = ", and one must be left for the answer" if is_answered else ""
        raise CapacityError(
            f"the prompt has {len(prompt_ids)} tokens; the context holds {context}{left}. Shorten the prompt, or "
            "raise the context where the model allows it."
        )


def _content(prompt: Mapping[str, Any]) -> str | Sequence[int]:
    """The one value of ``{"prompt": text}`` or ``{"prompt_token_ids": ids}``."""
    text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if list(prompt) == ["prompt"] and isinstance(text, str):
        return text
    if list(prompt) == ["prompt_token_ids"] and isinstance(ids, Sequence) and not isinstance(ids, str):
        return ids
    shape = ", ".join(f"{key!r}: {type(value).__name__}" for key, value in prompt.items())
    raise InvalidRequestError(
        f"the prompt is {{{shape}}}; give either {{'prompt': text}} or {{'prompt_token_ids': list of ids}}.", "prompt"
    )


def conversations(messages: Sequence[Any]) -> list[Sequence[Mapping[str, Any]]]:
    """One conversation (a list of messages) or several, as a list of conversations."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidRequestError(
            f"messages is a {type(messages).__name__}; give a list of messages, such as "
            "[{'role': 'user', 'content': 'Hello'}], or a list of such lists.",
            "messages",
        )
    items = list(messages)
    several = bool(items) and all(isinstance(item, Sequence) and not isinstance(item, str | bytes) for item in items)
    return items if several else [items]


def chat_prompt(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    chat_template: str | None = None,
    add_generation_prompt: bool | None = None,
    continue_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    **foreign: Any,
) -> tuple[str, list[int]]:
    """Text and ids of a conversation; parameters as for ``LLM.stream_chat``."""
    refuse_foreign("LLM.chat", foreign, CHAT, CHAT_OPTIONS)
    ids = tokenizer.encode_chat(
        messages,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        chat_template=chat_template,
        tools=tools,
        chat_template_kwargs=chat_template_kwargs,
    )
    return tokenizer.decode(ids, skip_special=False), ids
