"""The tokenizer of one model: text and chats to ids, ids to text. The family's text model does the work
between added tokens.

In: a model file's metadata, then text, messages or ids. Out: ids or text.
"""

import operator
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, Protocol

from cutaway.errors import CapacityError, InvalidRequestError, ModelFileError
from cutaway.tokenizer.added_tokens import AddedTokens
from cutaway.tokenizer.answers.formats import AnswerFormat
from cutaway.tokenizer.bpe import load_byte_level_bpe
from cutaway.tokenizer.chat import ChatRenderer
from cutaway.tokenizer.detokenize import StreamingDetokenizer, readable, unfinished_tail
from cutaway.tokenizer.legal_text import check_legal
from cutaway.tokenizer.metadata import read_scalar
from cutaway.tokenizer.normalized_tokens import NormalizedTokens
from cutaway.tokenizer.sentencepiece import load_sentencepiece_bpe
from cutaway.tokenizer.unigram import load_unigram
from cutaway.tokenizer.vocabulary import Vocabulary, read_vocabulary


class TextModel(Protocol):
    """What a tokenizer family provides: text without added tokens ↔ ids."""

    @property
    def adds_space(self) -> bool:
        """Whether ``normalize`` or ``encode`` puts a space before the text, which decoding must take away again."""
        ...

    @property
    def begins_with_bos(self) -> bool:
        """Whether text begins with BOS where the model file doesn't say."""
        ...

    @property
    def keeps_bytes(self) -> bool:
        """Whether the ids of a text stand for all of its bytes, so that a long text can't be few ids."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What had to be assumed of the model file, or isn't done as it says: sentences for people."""
        ...

    @property
    def normalize(self) -> Callable[[str], str]:
        """Text → the text that is encoded."""
        ...

    def encode(self, text: str, at_start: bool = True) -> list[int]:
        """Normalized text to ids; ``at_start``: nothing stands before it."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """What the token stands for in a text, in UTF-8: a part of a character, maybe."""
        ...


# The value of tokenizer.ggml.model → how the family's text model is built.
FAMILIES: Mapping[str, Callable[[Mapping[str, Any], Vocabulary], TextModel]] = MappingProxyType(
    {"gpt2": load_byte_level_bpe, "llama": load_sentencepiece_bpe, "t5": load_unigram}
)

ENDS_WITH_EOS = (
    "the model file puts EOS behind every text (tokenizer.ggml.add_eos_token); that is not done here, since a model "
    "that continues a text needs its end to be open."
)


class Tokenizer:
    """Text ↔ ids for one vocabulary of ``vocab_size`` tokens; ids are ``0 … vocab_size - 1``.

    ``notes`` are the warnings that loading gave, for records of a run.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        model: TextModel,
        chat_template: str | None,
        given_template: str | os.PathLike[str] | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        """chat_template: the model file's own; given_template: in its place, as ``load_tokenizer`` takes it. notes:
        besides the text model's.
        """
        self.vocab_size = len(vocabulary.pieces)
        self.bos_id = vocabulary.bos_id
        self.eos_id, self.eos_ids = vocabulary.eos_id, vocabulary.eos_ids
        wants_bos = model.begins_with_bos and vocabulary.bos_id is not None
        self.add_bos = wants_bos if vocabulary.add_bos is None else vocabulary.add_bos
        self.chat_template = chat_template
        self.notes = (*model.notes, *notes)
        # Not the vocabulary itself: its index from pieces to ids is for loading.
        self._pieces = vocabulary.pieces
        self._special_ids, self._control_ids = vocabulary.special_ids, vocabulary.control_ids
        self._model = model
        self._added = AddedTokens(token for token in vocabulary.added if not token.normalized)
        normalized = [token for token in vocabulary.added if token.normalized]
        self._normalized = NormalizedTokens(normalized, model.normalize) if normalized else None
        tokens = {"bos_token": self._token_text(self.bos_id), "eos_token": self._token_text(vocabulary.eos_id)}
        self._chat = ChatRenderer(vocabulary.control, tokens, chat_template, given_template)

    # -- to ids

    def encode(
        self, text: str, *, parse_special: bool = False, add_bos: bool | None = None, most_ids: int | None = None
    ) -> list[int]:
        """Text to ids.

        Args:
            text: any Unicode text.
            parse_special: turn the spelling of a control token into the token; for trusted text only.
                User-defined tokens are text and always found.
            add_bos: begin with the BOS token, unless the text begins with it already; None: as the model
                wants it.
            most_ids: refuse a text that can't be so few ids, before it is encoded. What is let through may be more.

        Raises:
            InvalidRequestError: a lone surrogate, a byte that the vocabulary lacks, or BOS wanted where there
                is none.
            CapacityError: the text is too long for ``most_ids``.
        """
        check_legal(text, "text")
        self._check_length(text, most_ids)
        ids = self._encode_pieces(None if parse_special else "", text)
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
        most_ids: int | None = None,
    ) -> list[int]:
        """Chat messages to ids through the chat template, which also decides on BOS.

        Only text that the template itself wrote becomes control tokens; every string in ``messages``, ``tools`` and
        ``chat_template_kwargs`` is user text, except for a role of the protocol. For strings without the spelling of
        control tokens the ids are those of the rendered text, encoded with ``parse_special``.

        Args:
            messages: mappings with ``role`` and ``content``. Arguments of ``tool_calls`` may be JSON text or mappings;
                the template gets what it can print.
            add_generation_prompt: end with the beginning of an answer; None: unless the final message is continued.
            continue_final_message: end within the final message, behind its text as it was given.
            tools: definitions of tools, for templates that print them.
            chat_template: Jinja source, or the name of a built-in template, in place of the model's own.
            chat_template_kwargs: what else the template may read, as ``{"enable_thinking": False}``.
            most_ids: as for ``encode``, of the rendered text.

        Raises:
            InvalidRequestError: no template, no messages, messages that the template refuses, or a ``chat_template``
                that is not valid.
            CapacityError: the text is too long for ``most_ids``.
            ModelFileError: the model's template is not valid, leaves the sandbox, or takes too much time or memory.
        """
        rendered = self._chat.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            chat_template=chat_template,
            chat_template_kwargs=chat_template_kwargs,
        )
        plain = self._chat.marks.unmark(rendered)
        check_legal(plain, "messages")
        self._check_length(plain, most_ids)
        return self._encode_pieces(rendered, plain)

    def require_chat_template(self) -> None:
        """Raises MissingTemplateError where ``encode_chat`` would need a ``chat_template`` with each call."""
        self._chat.require_template()

    @property
    def template(self) -> str | None:
        """The source of the chat template in use: the one that was given, else the model's own; None for none."""
        return self._chat.source

    @property
    def answer_format(self) -> AnswerFormat:
        """How the model writes calls of tools and its thoughts, as its chat template does."""
        return self._chat.answer_format

    @property
    def can_skip_thoughts(self) -> bool:
        """Whether the chat template reads ``enable_thinking``."""
        return "enable_thinking" in (self._chat.source or "")

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

    def detokenizer(
        self, *, prompt_ids: Sequence[int] = (), skip_special: bool = True, shown: Collection[int] = ()
    ) -> StreamingDetokenizer:
        """A detokenizer for ids that continue a prompt; its pieces join to ``decode`` of all ids.

        With a prompt, they join to what the ids add to the prompt's text: a character that the prompt left
        unfinished, if the first ids finish it, and a leading space, which is the space between two words then.
        shown: of the control tokens those that are not skipped.

        Raises:
            InvalidRequestError: an id of the prompt outside the vocabulary, as far as the end of the prompt is read.
        """
        pieces = filter(None, (self._text_bytes(token_id, skip_special) for token_id in reversed(prompt_ids)))
        last = next(pieces, b"")
        return StreamingDetokenizer(
            lambda token_id: self._text_bytes(token_id, skip_special and token_id not in shown),
            drop_space=self._model.adds_space and not last,
            prompt_tail=unfinished_tail(chain([last], pieces)),
        )

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; for a special token its spelling.

        Raises:
            InvalidRequestError: the id is outside the vocabulary.
        """
        token_id = self._checked(token_id)
        if token_id in self._special_ids:
            return self._pieces[token_id].encode("utf-8")
        return self._model.token_bytes(token_id)

    def piece(self, token_id: int) -> str:
        """The token for display: on one line, parts of characters as ``<0xNN>``."""
        return readable(self.token_bytes(token_id))

    def control_ids(self, spelled: Iterable[str]) -> frozenset[int]:
        """The ids of those of these texts that are control tokens."""
        return self._chat.control_ids(spelled)

    def is_special(self, token_id: int) -> bool:
        """Is this a control token? User-defined tokens are text."""
        return self._checked(token_id) in self._control_ids

    # -- inside

    @cached_property
    def _longest_token(self) -> int | None:
        """Bytes of text that one token stands for at most; None where that has no limit."""
        if not self._model.keeps_bytes or self._added.takes_spaces or self._normalized is not None:
            return None
        return max(len(self.token_bytes(token_id)) for token_id in range(self.vocab_size))

    def _check_length(self, text: str, most_ids: int | None) -> None:
        """Refuse a text that is more ids, whatever they are."""
        if most_ids is None or 4 * len(text) <= most_ids or self._longest_token is None:
            return
        size = len(text.encode("utf-8")) - 2 * text.count("▁")  # which some vocabularies read as a space
        least = -(-size // self._longest_token)
        if least > most_ids:
            raise CapacityError(
                f"the prompt has {size} bytes, and no token of this model more than {self._longest_token}: it is "
                f"{least} tokens at least, and the limit is {most_ids}. Shorten the prompt, or raise the limit where "
                "the model allows it."
            )

    def _encode_pieces(self, marked: str | None, plain: str) -> list[int]:
        """Text to ids; control tokens are found where ``marked`` spells them (``AddedTokens.split``), or, without it,
        wherever the text does.
        """
        ids: list[int] = []
        for start, stop, token_id in self._added.split(plain if marked is None else marked, plain):
            if token_id is None:
                span = None if marked is None else marked[start:stop]
                ids += self._encode_span(span, plain[start:stop], at_start=start == 0)
            else:
                ids.append(token_id)
        return ids

    def _encode_span(self, marked: str | None, plain: str, *, at_start: bool) -> list[int]:
        """Text between added tokens to ids: normalized, and searched for those of normalized text."""
        text = self._model.normalize(plain)
        if self._normalized is None:
            return self._model.encode(text, at_start)
        ids: list[int] = []
        for start, stop, token_id in self._normalized.split(marked, plain, text):
            if token_id is None:
                ids += self._model.encode(text[start:stop], at_start and start == 0)
            else:
                ids.append(token_id)
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
        return "" if token_id is None else self._pieces[token_id]


def load_tokenizer(metadata: Mapping[str, Any], chat_template: str | os.PathLike[str] | None = None) -> Tokenizer:
    """Build the tokenizer that a model file describes.

    Args:
        metadata: GGUF metadata, key → value; arrays of strings may be lazy sequences.
        chat_template: in place of the file's own: a built-in name, the path of a Jinja file, or Jinja source.

    Raises:
        InvalidRequestError: ``chat_template`` is none of these, not valid, or not for this vocabulary.
        ModelFileError: the vocabulary is missing, inconsistent, or of a family that is not supported.
    """
    family = read_scalar(metadata, "tokenizer.ggml.model", str)
    if family is None or family not in FAMILIES:
        raise ModelFileError(
            f"tokenizer.ggml.model is {family!r:.80}; supported tokenizers: {', '.join(sorted(FAMILIES))}. "
            "Use a model with one of these."
        )
    vocabulary = read_vocabulary(metadata)
    own_template = read_scalar(metadata, "tokenizer.chat_template", str)
    notes = (ENDS_WITH_EOS,) if read_scalar(metadata, "tokenizer.ggml.add_eos_token", bool) else ()
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return Tokenizer(vocabulary, FAMILIES[family](metadata, vocabulary), own_template, chat_template, notes)
