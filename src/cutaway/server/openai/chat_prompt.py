"""The part of a body that becomes a chat's prompt, and how.

In: messages, tools and variables of the template. Out: ids, and how the answer is to be read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from cutaway.server.answers.prompt import ChatPrompt, chat_prompt
from cutaway.server.answers.tools import ToolUse
from cutaway.server.http.errors import ApiError
from cutaway.server.openai.fields import is_ignored
from cutaway.server.openai.messages import read_messages
from cutaway.server.openai.tool_fields import ToolsField
from cutaway.tokenizer.tokenizer import Tokenizer


class TemplateFields(ToolsField):
    """How a conversation becomes a prompt, by vLLM's names."""

    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Further variables for the chat template.")
    add_generation_prompt: bool | None = Field(None, description="Begin the answer's turn; default, as it fits.")
    continue_final_message: bool | None = Field(None, description="Go on with the last message; default, as it fits.")

    reasoning_effort: Any = Field(
        None,
        description="none: without thoughts, where the chat template knows enable_thinking; elsewhere it is ignored.",
        json_schema_extra={"enum": ["none", None]},
    )

    @property
    def wants_no_thoughts(self) -> bool:
        """Whether OpenAI's ``reasoning_effort`` asks for none."""
        return bool(self.reasoning_effort == "none")

    def ignored(self) -> list[str]:
        """The fields that are ignored; ApiError 400 for one that may not be."""
        is_told = is_ignored(type(self), "reasoning_effort", self.reasoning_effort)
        return sorted([*super().ignored(), *(["reasoning_effort"] if is_told else [])])

    def template_variables(self, tokenizer: Tokenizer) -> dict[str, Any] | None:
        """Further variables of the template; ApiError 400 where two fields contradict each other."""
        given = self.chat_template_kwargs
        if not (self.wants_no_thoughts and tokenizer.can_skip_thoughts):
            return given
        if (given or {}).get("enable_thinking"):
            raise ApiError(
                400,
                "reasoning_effort is 'none' and chat_template_kwargs.enable_thinking is not false; both mean the same. "
                "Leave one out.",
                "reasoning_effort",
                "invalid_value",
            )
        return {**(given or {}), "enable_thinking": False}

    def left_out(self, tokenizer: Tokenizer) -> list[str]:
        """The fields that are ignored, where the template is this tokenizer's."""
        taken = {"reasoning_effort"} if tokenizer.can_skip_thoughts else set()
        return [name for name in self.ignored() if name not in taken]


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
    return chat_prompt(
        tokenizer,
        read_messages(conversation),
        use,
        chat_template_kwargs=body.template_variables(tokenizer),
        most_ids=context,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
    )
