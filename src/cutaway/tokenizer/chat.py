"""A chat to the text of its prompt: which template, what it is given, and in which shape.

In: messages, tools and variables from outside. Out: the text that the template makes of them, in which marks still tell
user text from template text.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from cutaway.errors import CutawayError, InvalidRequestError, ModelFileError
from cutaway.tokenizer.answers.formats import PLAIN, AnswerFormat, find_format, probe_conversations, probe_tools
from cutaway.tokenizer.built_in_templates import BUILT_IN, MissingTemplateError, find_template, fitting_names
from cutaway.tokenizer.chat_messages import check_kind, cut_open, leave_open, mark_messages, mark_tools, mark_variables
from cutaway.tokenizer.legal_text import check_legal
from cutaway.tokenizer.provenance import Marks
from cutaway.tokenizer.template_source import UNSOUND
from cutaway.tokenizer.tool_calls import Messages, probe_messages, shows_mapping, shows_text, with_arguments

if TYPE_CHECKING:
    from cutaway.tokenizer.chat_template import ChatTemplate

COMPILED_TEMPLATES = 8  # kept of a tokenizer: the model's own, and those that requests bring


class ChatRenderer:
    """The chat templates of one tokenizer.

    Args:
        control: the vocabulary's control tokens.
        tokens: the tokens that templates write by name, as ``bos_token``.
        own: the template in the model's file.
        given: in its place, as ``find_template`` takes it.

    Raises:
        InvalidRequestError: what is given is no template, not valid, or not for this vocabulary.
    """

    def __init__(
        self,
        control: Mapping[str, int],
        tokens: Mapping[str, str],
        own: str | None,
        given: str | os.PathLike[str] | None,
    ) -> None:
        self._control, self._tokens, self._own = control, tokens, own
        self._compiled = lru_cache(COMPILED_TEMPLATES)(self._compile)
        self._wants_text = lru_cache(COMPILED_TEMPLATES)(self._find_wants_text)
        self._given = None if given is None else find_template(given, control)
        if self._given is not None:
            self._template(self._given)  # an unsound one is refused now, and not by the first chat

    def _compile(self, source: str) -> "ChatTemplate":
        from cutaway.tokenizer.chat_template import ChatTemplate  # and with it Jinja, which only chats need

        return ChatTemplate(source, self.marks)

    @cached_property
    def marks(self) -> Marks:
        """The marks of user text, made for the first chat."""
        return Marks(self._control)

    def control_ids(self, spelled: Iterable[str]) -> frozenset[int]:
        """The ids of those of these texts that are control tokens."""
        return frozenset(self._control[text] for text in spelled if text in self._control)

    def require_template(self) -> None:
        """Raises MissingTemplateError where there is none, neither the model's own nor one in its place."""
        if self._given is None and self._own is None:
            raise MissingTemplateError(fitting_names(self._control))

    def render(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool | None,
        continue_final_message: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        chat_template: str | None,
        chat_template_kwargs: Mapping[str, Any] | None,
    ) -> str:
        """The marked text; arguments and errors are those of ``Tokenizer.encode_chat``."""
        check_kind("add_generation_prompt", add_generation_prompt, bool | None, "true or false")
        check_kind("continue_final_message", continue_final_message, bool, "true or false")
        check_kind("messages", messages, (list, tuple), "a list of messages")
        if chat_template is not None:
            check_kind("chat_template", chat_template, str, "Jinja source, a text")
            check_legal(chat_template, "chat_template")
        if not messages:
            raise InvalidRequestError("messages is empty; a chat needs at least one message", field="messages")
        if add_generation_prompt and continue_final_message:
            raise InvalidRequestError(
                "add_generation_prompt and continue_final_message are both true; a prompt ends in one way. Leave one "
                "out.",
                field="continue_final_message",
            )
        source = self._given if chat_template is None else chat_template
        if chat_template is not None and chat_template in BUILT_IN:
            source = find_template(chat_template, self._control)
        variables = {
            "add_generation_prompt": not continue_final_message
            if add_generation_prompt is None
            else add_generation_prompt,
            "tools": None if tools is None else mark_tools(tools, self.marks),
            **self._tokens,
        }
        variables |= mark_variables(chat_template_kwargs or {}, {"messages", *variables}, self.marks)

        as_mappings, decoded = with_arguments(messages, as_text=False)
        as_text, encoded = with_arguments(messages, as_text=True)
        shapes = [as_mappings]
        if (decoded or encoded) and self._wants_text(source):
            shapes = [as_text]
        elif decoded:
            shapes = [as_mappings, messages]  # the second for a template that fails on the first
        return self._render_first(source, shapes, variables, continue_final_message)

    def _render_first(
        self, source: str | None, shapes: Sequence[Messages], variables: Mapping[str, Any], continue_final_message: bool
    ) -> str:
        """The messages in the first of the shapes that the template takes; the first refusal if it takes none."""
        marked = [mark_messages(shape, self.marks) for shape in shapes]
        refusals: list[InvalidRequestError] = []
        for shape in marked:
            if continue_final_message:
                leave_open(shape, self.marks)
            try:
                rendered = self._render(source, shape, variables)
                return cut_open(rendered) if continue_final_message else rendered
            except InvalidRequestError as refusal:
                refusals.append(refusal)
        raise refusals[0]

    def _find_wants_text(self, source: str | None) -> bool:
        """Whether this template needs the arguments of a tool call as text: tried with a conversation of no meaning."""
        return not shows_mapping(self._probed(source, probe_messages(as_text=False))) and shows_text(
            self._probed(source, probe_messages(as_text=True))
        )

    def _probed(self, source: str | None, messages: Messages, tools: list[dict[str, Any]] | None = None) -> str:
        """What the template makes of a probe; "" if it refuses it."""
        variables = {
            "add_generation_prompt": True,
            "tools": None if tools is None else mark_tools(tools, self.marks),
            **self._tokens,
        }
        try:
            return self.marks.unmark(self._render(source, mark_messages(messages, self.marks), variables))
        except CutawayError:
            return ""

    @property
    def source(self) -> str | None:
        """Of the template in use; None where there is none."""
        return self._own if self._given is None else self._given

    @cached_property
    def answer_format(self) -> AnswerFormat:
        """How the model writes calls and thoughts, as its template does."""
        source = self.source
        if source is None:
            return PLAIN
        with_call, without_call = probe_conversations()
        rendered = self._probed(self._given, with_call, probe_tools())
        shows_calls = shows_mapping(rendered) or self._wants_text(self._given)
        return find_format(source, rendered or self._probed(self._given, without_call, probe_tools()), shows_calls)

    def _render(self, source: str | None, messages: list[dict[str, Any]], variables: Mapping[str, Any]) -> str:
        """The messages as text, by this template; None is the model's own."""
        if source is not None:
            try:
                return self._template(source).render(messages, variables)
            except ModelFileError as error:
                raise _not_the_models(error) from error
        if self._own is None:
            raise MissingTemplateError(fitting_names(self._control))
        return self._compiled(self._own).render(messages, variables)

    def _template(self, source: str) -> "ChatTemplate":
        """A compiled template that isn't the model's own."""
        try:
            return self._compiled(source)
        except ModelFileError as error:
            raise _not_the_models(error) from error


def _not_the_models(error: ModelFileError) -> InvalidRequestError:
    """What is wrong with a template that the request or the user brought."""
    sound = str(error).replace(UNSOUND, "give another template, or none for the model's own")
    return InvalidRequestError(sound, field="chat_template")
