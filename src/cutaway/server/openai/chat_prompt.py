"""The part of a body that becomes a chat's prompt, and how.

In: messages, tools and variables of the template. Out: ids, and how the answer is to be read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from cutaway.server.answers.prompt import ChatPrompt, chat_prompt
from cutaway.server.answers.tools import ToolUse
from cutaway.server.openai.messages import continues, read_messages
from cutaway.server.openai.tool_fields import ToolsField
from cutaway.tokenizer.tokenizer import Tokenizer


class TemplateFields(ToolsField):
    """How a conversation becomes a prompt, by vLLM's names."""

    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Further variables for the chat template.")
    add_generation_prompt: bool | None = Field(None, description="Begin the answer's turn; default, as it fits.")
    continue_final_message: bool | None = Field(None, description="Go on with the last message; default, as it fits.")


class ChatFields(TemplateFields):
    """A conversation."""

    messages: list[dict[str, Any]] = Field(
        min_length=1, description="The conversation. If its last message is the assistant's, the answer continues it."
    )


def read_chat(
    tokenizer: Tokenizer,
    conversation: Sequence[Mapping[str, Any]],
    use: ToolUse,
    body: TemplateFields,
    context: int | None = None,
) -> ChatPrompt:
    """The prompt of a conversation, which has one message at least. context: CapacityError where it is clear that it
    can't hold it.
    """
    messages = read_messages(conversation)
    continued = body.continue_final_message
    if continued is None:
        continued = body.add_generation_prompt is None and continues(messages)
    return chat_prompt(
        tokenizer,
        messages,
        use,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=continued,
        chat_template_kwargs=body.chat_template_kwargs,
        most_ids=context,
    )
