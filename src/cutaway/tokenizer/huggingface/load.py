"""A ``tokenizer.json`` to a tokenizer: normalizer, pre-tokenizer, model, decoder, added tokens.

In: the file's text, and the roles of tokens that other files declare. Out: a ``Tokenizer``. Its ids are those of the
``tokenizers`` package, but for two things: text never becomes a control token or the token of a byte by spelling it,
and a character that the vocabulary can't express is refused instead of dropped. ``truncation`` and ``padding`` are
about batches of a trainer and play no part.
Source: the ``tokenizers`` package, whose serialized form this is.
"""

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from cutaway.errors import ModelFileError
from cutaway.formats.cursor import shown
from cutaway.formats.gguf_parts import listed
from cutaway.tokenizer.added_tokens import AddedToken
from cutaway.tokenizer.huggingface.component import Component
from cutaway.tokenizer.huggingface.decoders import BYTE_PIECE, read_decoder
from cutaway.tokenizer.huggingface.models import Pieces, read_pieces, read_word_encoder
from cutaway.tokenizer.huggingface.normalizers import read_normalizer
from cutaway.tokenizer.huggingface.post_processors import Around, read_post_processor
from cutaway.tokenizer.huggingface.pre_tokenizers import read_pre_tokenizer
from cutaway.tokenizer.tokenizer import Tokenizer
from cutaway.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    LONGEST_SPECIAL,
    NORMAL,
    TURN_TOKENS,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
    ends_of_turn,
)
from cutaway.tokenizer.word_model import WordModel

LARGEST_ID = 1 << 24  # vocabularies have some hundred thousand tokens; a larger id is a mistake, and takes memory
MOST_UNUSED = 1 << 16  # ids without a token


class Roles(NamedTuple):
    """What other files say: the texts of BOS and EOS, ids that end a turn, the chat template, how many tokens the model
    has (its embedding may have rows that no token uses), and whether text begins with BOS: None where they don't say.
    """

    bos: str | None = None
    eos: str | None = None
    eos_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    vocab_size: int = 0
    add_bos: bool | None = None


def load_tokenizer_json(
    text: str | bytes, roles: Roles | None = None, chat_template: str | os.PathLike[str] | None = None
) -> Tokenizer:
    """Build the tokenizer that a ``tokenizer.json`` describes.

    Args:
        text: the file's content.
        roles: what other files say.
        chat_template: in place of their own, as ``load_tokenizer`` takes it.

    Raises:
        ModelFileError: the file is malformed, or has a component that is not supported; the message names it.
    """
    roles = roles or Roles()
    try:
        root = Component(json.loads(text), "tokenizer.json")
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"tokenizer.json is no JSON ({error}). Fetch the model again.") from None
    parts = {name: _part(root, name) for name in ("model", "normalizer", "pre_tokenizer", "decoder", "post_processor")}
    model = parts["model"]
    if model is None:
        root.refuse("has no model")
    pieces = read_pieces(model)
    around = read_post_processor(parts["post_processor"])
    spelling = read_decoder(parts["decoder"])
    added, without_row = _with_rows(_added_tokens(root), pieces, roles.vocab_size)
    vocabulary = _vocabulary(added, pieces, around, roles, byte_pieces=model.flag("byte_fallback", False))
    notes = _notes(around, without_row)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    text_model = WordModel(
        read_pre_tokenizer(parts["pre_tokenizer"]),
        read_word_encoder(model, vocabulary, byte_level=spelling.byte_alphabet),
        lambda token_id: spelling.bytes_of(vocabulary.pieces[token_id]),
        normalize=read_normalizer(parts["normalizer"]),
        adds_space=spelling.adds_space,
        notes=notes,
    )
    return Tokenizer(vocabulary, text_model, roles.chat_template, chat_template)


def _part(root: Component, name: str) -> Component | None:
    value = root.fields.get(name)
    return None if value is None else Component(value, name)


def _with_rows(added: list[AddedToken], pieces: Pieces, rows: int) -> tuple[list[AddedToken], list[str]]:
    """The added tokens that the model has a row for, and the texts of the others: Gemma 3's tokenizer has a token for
    images, which its models without images lack. ``rows``: 0 where it isn't known.
    """
    without_row = {token.text for token in added if rows and token.token_id >= rows} - pieces.id_of.keys()
    return [token for token in added if token.text not in without_row], sorted(without_row)


def _notes(around: Around, without_row: list[str]) -> tuple[str, ...]:
    behind = (
        f"the model's tokenizer.json puts {listed([each[:80] for each in around.behind])} behind every text; that is "
        "not done here, since a model that continues a text needs its end to be open."
    )
    beyond = (
        f"the model's tokenizer.json has {len(without_row)} added tokens that its embedding has no row for; they are "
        f"left out, and are text where they are spelled: {', '.join(map(repr, without_row[:5]))}."
    )
    return tuple(note for note, given in ((behind, around.behind), (beyond, without_row)) if given)


def _vocabulary(
    added: list[AddedToken], pieces: Pieces, around: Around, roles: Roles, *, byte_pieces: bool
) -> Vocabulary:
    """The pieces and the tokens beside them as one vocabulary; ids that have neither are unused."""
    id_of = pieces.id_of | {token.text: token.token_id for token in added}
    highest = max(id_of.values(), default=-1)
    if highest < 0 or highest >= LARGEST_ID:
        raise ModelFileError(
            f"tokenizer.json has {highest} as its highest token id; it must have one, below {LARGEST_ID}. Fetch the "
            "model again."
        )
    if roles.vocab_size > LARGEST_ID:
        raise ModelFileError(
            f"the model has {roles.vocab_size} tokens, its config says; at most {LARGEST_ID} are read. Fetch the model "
            "again."
        )
    size = max(highest + 1, roles.vocab_size)
    if size - len(id_of) > MOST_UNUSED:
        raise ModelFileError(
            f"tokenizer.json has {len(id_of)} tokens, and ids up to {size - 1}; at most {MOST_UNUSED} ids may be "
            "without a token. The files don't belong together: fetch the model again."
        )
    texts = _by_id(id_of, size)
    types = np.full(len(texts), NORMAL, np.int64)
    for token_id, piece in enumerate(texts):
        if piece is None:
            types[token_id] = UNUSED
        elif byte_pieces and BYTE_PIECE.fullmatch(piece):
            types[token_id] = BYTE
    for token in added:
        types[token.token_id] = CONTROL if token.special else USER_DEFINED
    if pieces.unknown is not None and types[id_of[pieces.unknown]] == NORMAL:
        types[id_of[pieces.unknown]] = UNKNOWN
    control = {token.text: token.token_id for token in added if token.special}
    bos = _bos(around, roles, id_of)
    eos_id = None if roles.eos is None else id_of.get(roles.eos)
    for token_id in roles.eos_ids:
        if not 0 <= token_id < len(texts):
            raise ModelFileError(f"the end-of-sequence id {token_id} is outside the vocabulary, 0 to {len(texts) - 1}.")
    named = [f"[PAD{token_id}]" if piece is None else piece for token_id, piece in enumerate(texts)]
    return Vocabulary(
        pieces=named,
        types=types,
        id_of={piece: token_id for token_id, piece in enumerate(named)} | id_of,
        control=control,
        user_defined={token.text: token.token_id for token in added if not token.special},
        added=tuple(added),
        bos_id=bos,
        eos_id=eos_id,
        eos_ids=ends_of_turn(control, [eos_id, *roles.eos_ids]),
        unknown_id=None if pieces.unknown is None else id_of[pieces.unknown],
        add_bos=bos is not None and (bool(around.before) if roles.add_bos is None else roles.add_bos),
    )


def _added_tokens(root: Component) -> list[AddedToken]:
    """The tokens that stand beside the model's own, as they are found in text before it is cut."""
    tokens: list[AddedToken] = []
    for each in root.children("added_tokens") if root.fields.get("added_tokens") is not None else []:
        token = AddedToken(
            text=each.text("content"),
            token_id=each.integer("id"),
            special=each.flag("special", False) or each.text("content") in TURN_TOKENS,
            lstrip=each.flag("lstrip", False),
            rstrip=each.flag("rstrip", False),
            single_word=each.flag("single_word", False),
            normalized=each.flag("normalized", False),
        )
        if not token.text or token.token_id < 0:
            each.refuse(f"has the content {shown(token.text)} and the id {token.token_id}")
        if len(token.text) > LONGEST_SPECIAL:
            each.refuse(f"has a content of {len(token.text)} characters; it must have at most {LONGEST_SPECIAL}")
        tokens.append(token)
    if len({token.text for token in tokens}) != len(tokens):
        root.refuse("has an added token twice")
    return tokens


def _by_id(id_of: Mapping[str, int], size: int) -> list[str | None]:
    texts: list[str | None] = [None] * size
    for piece, token_id in id_of.items():
        other = texts[token_id]
        if other is not None:
            raise ModelFileError(
                f"tokenizer.json gives the id {token_id} to {shown(other)} and to {shown(piece)}; an id is one "
                "token's. Fetch the model again."
            )
        texts[token_id] = piece
    return texts


def _bos(around: Around, roles: Roles, id_of: Mapping[str, int]) -> int | None:
    """The id of the token before every text; else of the token that the model's other files call BOS."""
    if len(around.before) > 1:
        raise ModelFileError(
            f"the post_processor of tokenizer.json puts {len(around.before)} tokens before every text "
            f"({listed([each[:80] for each in around.before])}); one is supported. Use another file of this "
            "model, as a GGUF."
        )
    name = _first([*around.before, roles.bos])
    if name is None:
        return None
    if around.before and name not in id_of:
        raise ModelFileError(
            f"the post_processor of tokenizer.json uses {shown(name)}, which is not in the vocabulary."
        )
    return id_of.get(name)


def _first(names: Iterable[str | None]) -> str | None:
    return next((name for name in names if name is not None), None)
