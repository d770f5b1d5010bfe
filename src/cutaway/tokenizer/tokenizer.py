"""The tokenizer of one model: text and chats to ids, ids to text. The family's text model does the work
between specials.

In: a model file's metadata, then text, messages or ids. Out: ids or text.
"""

import operator
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import cached_property, lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any, Protocol

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.tokenizer.bpe import load_byte_level_bpe
from cutaway.tokenizer.chat_messages import check_kind, cut_open, leave_open, mark_messages, mark_tools, mark_variables
from cutaway.tokenizer.chat_template import ChatTemplate
from cutaway.tokenizer.detokenize import StreamingDetokenizer, readable, unfinished_tail
from cutaway.tokenizer.legal_text import check_legal
from cutaway.tokenizer.metadata import read_scalar
from cutaway.tokenizer.provenance import Marks
from cutaway.tokenizer.sentencepiece import load_sentencepiece_bpe
from cutaway.tokenizer.special import SpecialTokens
from cutaway.tokenizer.template_allowance import UNSOUND
from cutaway.tokenizer.vocabulary import Vocabulary, read_vocabulary

COMPILED_TEMPLATES = 8  # kept of a tokenizer: the model's own, and those that requests bring


class TextModel(Protocol):
    """What a tokenizer family provides: text without special tokens ↔ ids."""

    @property
    def adds_space(self) -> bool:
        """Whether ``encode`` puts a space before the text, which decoding must take away again."""
        ...

    @property
    def begins_with_bos(self) -> bool:
        """Whether text begins with BOS where the model file doesn't say."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...


# The value of tokenizer.ggml.model → how the family's text model is built.
FAMILIES: Mapping[str, Callable[[Mapping[str, Any], Vocabulary], TextModel]] = MappingProxyType(
    {"gpt2": load_byte_level_bpe, "llama": load_sentencepiece_bpe}
)


class Tokenizer:
    """Text ↔ ids for one vocabulary of ``vocab_size`` tokens; ids are ``0 … vocab_size - 1``."""

    def __init__(self, vocabulary: Vocabulary, model: TextModel, chat_template: str | None) -> None:
        self.vocab_size = len(vocabulary.pieces)
        self.bos_id = vocabulary.bos_id
        self.eos_ids = vocabulary.eos_ids
        wants_bos = model.begins_with_bos and vocabulary.bos_id is not None
        self.add_bos = wants_bos if vocabulary.add_bos is None else vocabulary.add_bos
        self.chat_template = chat_template
        self._vocabulary = vocabulary
        self._model = model
        self._user_defined = SpecialTokens((), vocabulary.user_defined)
        self._all_special = SpecialTokens(vocabulary.control, vocabulary.user_defined)
        self._compiled_template = lru_cache(COMPILED_TEMPLATES)(lambda source: ChatTemplate(source, self._marks))

    # -- to ids

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool | None = None) -> list[int]:
        """Text to ids.

        Args:
            text: any Unicode text.
            parse_special: turn the spelling of a control token into the token; for trusted text only.
                User-defined tokens are text and always found.
            add_bos: begin with the BOS token, unless the text begins with it already; None: as the model
                wants it.

        Raises:
            InvalidRequestError: a lone surrogate, a byte that the vocabulary lacks, or BOS wanted where there
                is none.
        """
        check_legal(text, "text")
        ids = self._encode_pieces(text, text, self._all_special if parse_special else self._user_defined)
        if not (self.add_bos if add_bos is None else add_bos):
            return ids
        if self.bos_id is None:
            raise InvalidRequestError(
                "add_bos is true, but this vocabulary has no BOS token; leave it out", field="add_bos"
            )
        return ids if ids[:1] == [self.bos_id] else [self.bos_id, *ids]

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Chat messages to ids through the chat template, which also decides on BOS.

        Only text that the template itself wrote becomes control tokens; every string in ``messages``, ``tools`` and
        ``chat_template_kwargs`` is user text, except for a role of the protocol. For strings without the spelling of
        control tokens the ids are those of the rendered text, encoded with ``parse_special``.

        Args:
            messages: mappings with ``role`` and ``content``.
            add_generation_prompt: end with the beginning of an answer; None: unless the final message is continued.
            continue_final_message: end within the final message, behind its text as it was given.
            tools: definitions of tools, for templates that print them.
            chat_template: Jinja source in place of the model's own.
            chat_template_kwargs: what else the template may read, as ``{"enable_thinking": False}``.

        Raises:
            InvalidRequestError: no template, no messages, messages that the template refuses, or a ``chat_template``
                that is not valid.
            ModelFileError: the model's template is not valid, leaves the sandbox, or takes too much time or memory.
        """
        check_kind("add_generation_prompt", add_generation_prompt, bool | None, "true or false")
        check_kind("continue_final_message", continue_final_message, bool, "true or false")
        check_kind("messages", messages, Sized, "a list of messages")
        if not messages:
            raise InvalidRequestError("messages is empty; a chat needs at least one message", field="messages")
        if add_generation_prompt and continue_final_message:
            raise InvalidRequestError(
                "add_generation_prompt and continue_final_message are both true; a prompt ends in one way. Leave one "
                "out.",
                field="continue_final_message",
            )
        marks = self._marks
        marked = mark_messages(messages, marks)
        if continue_final_message:
            leave_open(marked, marks)
        variables = {
            "add_generation_prompt": not continue_final_message
            if add_generation_prompt is None
            else add_generation_prompt,
            "tools": None if tools is None else mark_tools(tools, marks),
            "bos_token": self._token_text(self.bos_id),
            "eos_token": self._token_text(self._vocabulary.eos_id),
        }
        variables |= mark_variables(chat_template_kwargs or {}, {"messages", *variables}, marks)
        rendered = self._render(chat_template, marked, variables)
        if continue_final_message:
            rendered = cut_open(rendered)
        plain = marks.unmark(rendered)
        check_legal(plain, "messages")
        return self._encode_pieces(rendered, plain, self._all_special)

    # -- to text

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Ids to text; bytes that are no UTF-8 become U+FFFD.

        Raises:
            InvalidRequestError: an id outside the vocabulary.
        """
        data = b"".join(self._text_bytes(token_id, skip_special) for token_id in ids)
        if self._model.adds_space:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", errors="replace")

    def detokenizer(self, *, prompt_ids: Sequence[int] = (), skip_special: bool = True) -> StreamingDetokenizer:
        """A detokenizer for ids that continue a prompt; its pieces join to ``decode`` of all ids.

        With a prompt, they join to what the ids add to the prompt's text: a character that the prompt left
        unfinished, if the first ids finish it, and a leading space, which is the space between two words then.

        Raises:
            InvalidRequestError: an id of the prompt outside the vocabulary, as far as the end of the prompt is read.
        """
        pieces = filter(None, (self._text_bytes(token_id, skip_special) for token_id in reversed(prompt_ids)))
        last = next(pieces, b"")
        return StreamingDetokenizer(
            lambda token_id: self._text_bytes(token_id, skip_special),
            drop_space=self._model.adds_space and not last,
            prompt_tail=unfinished_tail(chain([last], pieces)),
        )

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; for a special token its spelling.

        Raises:
            InvalidRequestError: the id is outside the vocabulary.
        """
        token_id = self._checked(token_id)
        if token_id in self._vocabulary.special_ids:
            return self._vocabulary.pieces[token_id].encode("utf-8")
        return self._model.token_bytes(token_id)

    def piece(self, token_id: int) -> str:
        """The token for display: on one line, parts of characters as ``<0xNN>``."""
        return readable(self.token_bytes(token_id))

    def is_special(self, token_id: int) -> bool:
        """Is this a control token? User-defined tokens are text."""
        return self._checked(token_id) in self._vocabulary.control_ids

    # -- inside

    @cached_property
    def _marks(self) -> Marks:
        """The marks of user text, made for the first chat."""
        return Marks(self._vocabulary.control)

    def _render(self, source: str | None, messages: list[dict[str, Any]], variables: Mapping[str, Any]) -> str:
        """The messages as text, by the template from a request, else by the model's."""
        if source is not None:
            if not isinstance(source, str):
                raise InvalidRequestError(
                    f"chat_template is {type(source).__name__}; it must be Jinja source, a text", field="chat_template"
                )
            check_legal(source, "chat_template")
            try:
                return self._compiled_template(source).render(messages, variables)
            except ModelFileError as error:
                sound = str(error).replace(UNSOUND, "give another template, or none for the model's own")
                raise InvalidRequestError(sound, field="chat_template") from error
        if self.chat_template is None:
            raise InvalidRequestError(
                "this model's file has no chat template, so it takes no messages; pass plain text (encode), "
                "or give a Jinja template (chat_template)",
                field="messages",
            )
        return self._compiled_template(self.chat_template).render(messages, variables)

    def _encode_pieces(self, marked: str, plain: str, specials: SpecialTokens) -> list[int]:
        ids: list[int] = []
        for run, is_special in specials.split(marked, plain):
            if is_special:
                ids.append(self._vocabulary.id_of[run])
            else:
                ids += self._model.encode(run)
        return ids

    def _text_bytes(self, token_id: int, skip_special: bool) -> bytes:
        return b"" if skip_special and self.is_special(token_id) else self.token_bytes(token_id)

    def _checked(self, token_id: int) -> int:
        try:
            index = operator.index(token_id)
        except TypeError:
            raise InvalidRequestError(
                f"a token id is {type(token_id).__name__}; it must be an integer from 0 to {self.vocab_size - 1}",
                field="ids",
            ) from None
        if not 0 <= index < self.vocab_size:
            raise InvalidRequestError(
                f"token id {index} is outside the vocabulary; ids are 0 to {self.vocab_size - 1}", field="ids"
            )
        return index

    def _token_text(self, token_id: int | None) -> str:
        return "" if token_id is None else self._vocabulary.pieces[token_id]


def load_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer that a model file describes.

    Args:
        metadata: GGUF metadata, key → value; arrays of strings may be lazy sequences with ``to_list``.

    Raises:
        ModelFileError: the vocabulary is missing, inconsistent, or of a family that is not supported.
    """
    family = read_scalar(metadata, "tokenizer.ggml.model", str)
    if family is None or family not in FAMILIES:
        raise ModelFileError(
            f"tokenizer.ggml.model is {family!r}; supported tokenizers: {', '.join(sorted(FAMILIES))}. "
            "Use a model with one of these."
        )
    vocabulary = read_vocabulary(metadata)
    chat_template = read_scalar(metadata, "tokenizer.chat_template", str)
    return Tokenizer(vocabulary, FAMILIES[family](metadata, vocabulary), chat_template)
