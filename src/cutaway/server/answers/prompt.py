"""A conversation to the ids of its prompt, and to how the answer is to be read.

In: messages in OpenAI's shape, checked; tools. Out: ids, and the rules of the answer's parser.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from cutaway.errors import InvalidRequestError
from cutaway.server.answers.tools import ToolUse
from cutaway.tokenizer.answers.formats import AnswerFormat
from cutaway.tokenizer.answers.parser import AnswerParser
from cutaway.tokenizer.built_in_templates import MissingTemplateError
from cutaway.tokenizer.tokenizer import Tokenizer

TAIL: Final = 16  # ids at the end of a prompt that are looked at: a marker is a few tokens at most
MISTRAL_ID: Final = 9  # letters and digits that Mistral's templates want of the id of a call


@dataclass(frozen=True)
class AnswerRules:
    """How answers to one prompt are read."""

    form: AnswerFormat
    use: ToolUse
    within_reasoning: bool  # the prompt ends there

    def parser(self) -> AnswerParser:
        """A parser for one answer."""
        most = None if self.use.parallel else 1
        return AnswerParser(self.form, self.use.names, most_calls=most, within_reasoning=self.within_reasoning)


@dataclass(frozen=True)
class ChatPrompt:
    """What the engine gets, and how its answers are read."""

    ids: list[int]
    shown_ids: frozenset[int]  # control tokens that the parser needs to see
    rules: AnswerRules


def continues(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an answer to these goes on with the last of them, unless it is said."""
    last = messages[-1]
    return last["role"] == "assistant" and bool(last["content"]) and not last.get("tool_calls")


def chat_prompt(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    use: ToolUse,
    *,
    chat_template_kwargs: Mapping[str, Any] | None,
    most_ids: int | None,
    add_generation_prompt: bool | None = None,
    continue_final_message: bool | None = None,
) -> ChatPrompt:
    """The prompt of a conversation, which has one message at least. Options are those of ``Tokenizer.encode_chat``;
    whether the answer goes on with the last message is, where nothing is said, as it fits.

    Raises:
        InvalidRequestError: as ``encode_chat``; or the model's template has no place for tools or calls, or its calls
            are of a format that is not known here.
    """
    try:
        tokenizer.require_chat_template()
    except MissingTemplateError as error:
        advice = error.advice("use /v1/completions", "starting the server with --chat-template {}")
        raise InvalidRequestError(advice, "messages") from None
    if continue_final_message is None:
        continue_final_message = add_generation_prompt is None and continues(messages)
    form = tokenizer.answer_format
    _check_tools(form, use)
    ids = tokenizer.encode_chat(
        _with_calls(messages, form),
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        tools=[tool.definition() for tool in use.tools] or None,
        chat_template_kwargs=chat_template_kwargs,
        most_ids=most_ids,
    )
    within = False
    if form.reasoning is not None:
        begin, end = form.reasoning
        if continue_final_message:
            last = messages[-1]["content"]
            within = last.rfind(begin) > last.rfind(end)
        else:
            within = tokenizer.decode(ids[-TAIL:], skip_special=False).rstrip().endswith(begin)
    shown = tokenizer.control_ids(form.markers(calls=bool(use.tools)))
    return ChatPrompt(ids, shown, AnswerRules(form, use, within))


def _check_tools(form: AnswerFormat, use: ToolUse) -> None:
    if not use.tools:
        return
    number = len(use.tools)
    given = f"there {'is' if number == 1 else 'are'} {number} tool{'s' * (number != 1)}, and this model's chat template"
    remedy = "Take a model that is trained to call them (cutaway show MODEL tells), or start the server with a "
    remedy += "--chat-template, a Jinja file, that shows tools."
    if not form.takes_tools:
        raise InvalidRequestError(f"{given} has no place for any. {remedy}", "tools")
    if form.calls is None:
        raise InvalidRequestError(f"{given} writes calls in a format that is not known here. {remedy}", "tools")


def _with_calls(messages: Sequence[Mapping[str, Any]], form: AnswerFormat) -> list[Mapping[str, Any]]:
    """The messages, their calls as the template can show them."""
    found: list[Mapping[str, Any]] = []
    for number, message in enumerate(messages):
        calls = message.get("tool_calls")
        if calls and not form.takes_calls:
            if form.calls != "hermes":
                raise InvalidRequestError(
                    f"messages[{number}].tool_calls has {len(calls)} call{'s' * (len(calls) != 1)}, which this model's "
                    "chat template leaves out. Take a model that is trained to call tools, or write in contents what "
                    "was called.",
                    f"messages[{number}].tool_calls",
                )
            message = {**message, "content": _written(message["content"], calls)}
        if form.calls in ("mistral", "mistral_named"):
            message = _with_short_ids(message)
        found.append(message)
    return found


def _written(content: str, calls: Sequence[Mapping[str, Any]]) -> str:
    """A message's text with its calls as the model wrote them, for a template that leaves calls out."""
    lines = [content] if content else []
    for call in calls:
        function = call["function"]
        arguments = function.get("arguments") or "{}"
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        name = json.dumps(function["name"], ensure_ascii=False)
        lines.append(f'<tool_call>\n{{"name": {name}, "arguments": {text}}}\n</tool_call>')
    return "\n".join(lines)


def _with_short_ids(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with ids of calls as Mistral's templates take them: others are replaced, the same by the same."""
    changed = dict(message)
    if isinstance(message.get("tool_call_id"), str):
        changed["tool_call_id"] = _short_id(message["tool_call_id"])
    if message.get("tool_calls"):
        changed["tool_calls"] = [{**call, "id": _short_id(call["id"])} for call in message["tool_calls"]]
    return changed


def _short_id(given: str) -> str:
    if len(given) == MISTRAL_ID and given.isascii() and given.isalnum():
        return given
    return blake2b(given.encode("utf-8", "surrogatepass")).hexdigest()[:MISTRAL_ID]
