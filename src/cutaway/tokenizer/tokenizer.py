"""The tokenizer of one model: text and chats to ids, ids to text. The family's text model does the work
between specials.

In: a model file's metadata, then text, messages or ids. Out: ids or text.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.tokenizer.bpe import load_byte_level_bpe
from cutaway.tokenizer.chat_messages import mark_messages
from cutaway.tokenizer.chat_template import ChatTemplate
from cutaway.tokenizer.detokenize import StreamingDetokenizer, readable
from cutaway.tokenizer.legal_text import check_legal
from cutaway.tokenizer.metadata import read_scalar
from cutaway.tokenizer.provenance import Marks
from cutaway.tokenizer.special import special_pattern, split_special
from cutaway.tokenizer.vocabulary import Vocabulary, read_vocabulary


class TextModel(Protocol):
    """What a tokenizer family provides: text without special tokens ↔ ids."""

    def encode(self, text: str) -> list[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...


# The value of tokenizer.ggml.model → how the family's text model is built.
FAMILIES: dict[str, Callable[[Mapping[str, Any], Vocabulary], TextModel]] = {"gpt2": load_byte_level_bpe}


class Tokenizer:
    """Text ↔ ids for one vocabulary of ``vocab_size`` tokens; ids are ``0 … vocab_size - 1``."""

    def __init__(self, vocabulary: Vocabulary, model: TextModel, chat_template: str | None) -> None:
        self.vocab_size = len(vocabulary.pieces)
        self.bos_id = vocabulary.bos_id
        self.eos_ids = vocabulary.eos_ids
        self.add_bos = vocabulary.add_bos
        self.chat_template = chat_template
        self._vocabulary = vocabulary
        self._model = model
        self._user_defined = special_pattern(vocabulary.user_defined)
        self._all_special = special_pattern([*vocabulary.user_defined, *vocabulary.control])

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
        ids = self._encode_pieces(text, self._all_special if parse_special else self._user_defined)
        if not (self.add_bos if add_bos is None else add_bos):
            return ids
        if self.bos_id is None:
            raise InvalidRequestError(
                "add_bos is true, but this vocabulary has no BOS token; leave it out", field="add_bos"
            )
        return ids if ids[:1] == [self.bos_id] else [self.bos_id, *ids]

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> list[int]:
        """Chat messages to ids through the model's chat template, which also decides on BOS.

        Only text that the template itself wrote becomes control tokens; every string in ``messages`` is user
        text, except for a role of the protocol. For messages without the spelling of control tokens the ids
        are those of the rendered text, encoded with ``parse_special``.

        Raises:
            InvalidRequestError: no template, no messages, or messages that the template refuses.
            ModelFileError: the template is not valid, leaves the sandbox, or takes too much time or memory.
        """
        if not messages:
            raise InvalidRequestError("messages is empty; a chat needs at least one message", field="messages")
        marks, template, specials = self._chat
        variables = {
            "add_generation_prompt": add_generation_prompt,
            "bos_token": self._token_text(self.bos_id),
            "eos_token": self._token_text(self._vocabulary.eos_id),
        }
        rendered = template.render(mark_messages(messages, marks), variables)
        check_legal(marks.unmark(rendered), "messages")
        return self._encode_pieces(rendered, specials, marks.unmark)

    # -- to text

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Ids to text; bytes that are no UTF-8 become U+FFFD.

        Raises:
            InvalidRequestError: an id outside the vocabulary.
        """
        data = b"".join(self._text_bytes(token_id, skip_special) for token_id in ids)
        return data.decode("utf-8", errors="replace")

    def detokenizer(self, *, skip_special: bool = True) -> StreamingDetokenizer:
        """A detokenizer whose pieces join to ``decode`` of all ids."""
        return StreamingDetokenizer(lambda token_id: self._text_bytes(token_id, skip_special))

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
    def _chat(self) -> tuple[Marks, ChatTemplate, "re.Pattern[str] | None"]:
        """What chats need, built for the first one.

        In rendered text a control token is found as it is spelled, which marks make impossible for user text;
        a user-defined token is found in user text, too, so each of its characters may be a mark.
        """
        if self.chat_template is None:
            raise InvalidRequestError(
                "this model's file has no chat template, so it takes no messages; pass plain text (encode), "
                "or give load_tokenizer metadata with a Jinja template as 'tokenizer.chat_template'",
                field="messages",
            )
        vocabulary = self._vocabulary
        marks = Marks(vocabulary.control)

        def expression(text: str) -> str:
            if text in vocabulary.control:
                return re.escape(text)
            return "".join(f"[{re.escape(marks.either_form(character))}]" for character in text)

        specials = special_pattern([*vocabulary.user_defined, *vocabulary.control], expression)
        return marks, ChatTemplate(self.chat_template, marks), specials

    def _encode_pieces(
        self, text: str, specials: "re.Pattern[str] | None", unmark: Callable[[str], str] = str
    ) -> list[int]:
        ids: list[int] = []
        for run, is_special in split_special(text, specials):
            run = unmark(run)
            if is_special:
                ids.append(self._vocabulary.id_of[run])
            else:
                ids += self._model.encode(run)
        return ids

    def _text_bytes(self, token_id: int, skip_special: bool) -> bytes:
        return b"" if skip_special and self.is_special(token_id) else self.token_bytes(token_id)

    def _checked(self, token_id: int) -> int:
        index = operator.index(token_id)
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
    if family not in FAMILIES:
        raise ModelFileError(
            f"tokenizer.ggml.model is {family!r}; supported tokenizers: {', '.join(sorted(FAMILIES))}. "
            "Use a model with one of these."
        )
    vocabulary = read_vocabulary(metadata)
    chat_template = read_scalar(metadata, "tokenizer.chat_template", str)
    return Tokenizer(vocabulary, FAMILIES[family](metadata, vocabulary), chat_template)
