"""The vocabulary of a model file: pieces, their types and the ids with a role, checked before anything relies
on them.

In: GGUF metadata (keys ``tokenizer.ggml.*``). Out: a ``Vocabulary``, the same for every tokenizer family.
Source: the GGUF specification, section "Tokenizer".
"""

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cutaway.errors import ModelFileError

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # values of tokenizer.ggml.token_type that concern text

# Files often declare one end-of-sequence id where the model was trained to end its turn with another token.
END_OF_TURN_NAMES = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end_of_turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|endoftext|>",
    "<|end|>",
    "<|EOT|>",
    "<｜end▁of▁sentence｜>",
    "</s>",
    "<eos>",
)


@dataclass(frozen=True)
class Vocabulary:
    """The pieces by id and the ids with a role: ``eos_id`` as the file declares it, ``eos_ids`` all that end
    a turn.

    ``control`` and ``user_defined`` map the text of special tokens to their ids. Control tokens (and the
    unknown token) steer the model and are never text; user-defined tokens are text that the vocabulary keeps
    in one piece.
    """

    pieces: list[str]
    id_of: dict[str, int]
    control: dict[str, int]
    user_defined: dict[str, int]
    bos_id: int | None
    eos_id: int | None
    eos_ids: frozenset[int]
    add_bos: bool

    @cached_property
    def control_ids(self) -> frozenset[int]:
        return frozenset(self.control.values())

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids whose piece is plain text, not text in the family's own spelling."""
        return self.control_ids | frozenset(self.user_defined.values())


def read_strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    """An array of strings as a list.

    Raises:
        ModelFileError: the key is missing or its value is no array of strings.
    """
    value = metadata.get(key)
    if value is None:
        raise ModelFileError(f"{key} is missing from the model file; the tokenizer needs it. Convert the model again.")
    strings: list[str] = value.to_list() if hasattr(value, "to_list") else list(value)
    if isinstance(value, str) or not all(isinstance(string, str) for string in strings):
        raise ModelFileError(f"{key} must be an array of strings, but it is {type(value).__name__}")
    return strings


def read_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """Read and check the vocabulary of a model file.

    Raises:
        ModelFileError: pieces are missing or doubled, the types don't match them, or an id lies outside.
    """
    pieces = read_strings(metadata, "tokenizer.ggml.tokens")
    if not pieces:
        raise ModelFileError("tokenizer.ggml.tokens is empty; a vocabulary needs at least one token")
    id_of = {piece: token_id for token_id, piece in enumerate(pieces)}
    if len(id_of) != len(pieces):
        doubled = next(token_id for token_id, piece in enumerate(pieces) if id_of[piece] != token_id)
        raise ModelFileError(
            f"tokenizer.ggml.tokens has {pieces[doubled]!r} twice, as ids {doubled} and "
            f"{id_of[pieces[doubled]]}; every token must be unique"
        )
    control, user_defined = _special_tokens(metadata, pieces)

    def read_id(role: str) -> int | None:
        return _read_id(metadata, f"tokenizer.ggml.{role}_token_id", len(pieces))

    bos_id = read_id("bos")
    eos_id = read_id("eos")
    declared = {eos_id, read_id("eot"), read_id("eom")}
    by_name = {control.get(name) for name in END_OF_TURN_NAMES}
    add_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", False))
    if add_bos and bos_id is None:
        raise ModelFileError("tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing")
    return Vocabulary(
        pieces=pieces,
        id_of=id_of,
        control=control,
        user_defined=user_defined,
        bos_id=bos_id,
        eos_id=eos_id,
        eos_ids=frozenset(token_id for token_id in declared | by_name if token_id is not None),
        add_bos=add_bos,
    )


def _special_tokens(metadata: Mapping[str, Any], pieces: list[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The control tokens and the user-defined tokens, text → id."""
    value = metadata.get("tokenizer.ggml.token_type")
    if value is None:
        raise ModelFileError(
            "tokenizer.ggml.token_type is missing; without it control tokens can't be told from text. "
            "Convert the model again."
        )
    types = np.asarray(value)
    if types.shape != (len(pieces),):
        raise ModelFileError(
            f"tokenizer.ggml.token_type has {types.size} entries for {len(pieces)} tokens; there must be one for each"
        )
    of_control = np.flatnonzero((types == CONTROL) | (types == UNKNOWN)).tolist()
    of_user = np.flatnonzero(types == USER_DEFINED).tolist()
    for token_id in (*of_control, *of_user):
        if not pieces[token_id]:
            raise ModelFileError(
                f"special token {token_id} in tokenizer.ggml.tokens is empty; it can't be found in text"
            )
    return {pieces[i]: i for i in of_control}, {pieces[i]: i for i in of_user}


def _read_id(metadata: Mapping[str, Any], key: str, vocabulary_size: int) -> int | None:
    value = metadata.get(key)
    if value is None:
        return None
    try:
        token_id = operator.index(value)
    except TypeError:
        raise ModelFileError(f"{key} must be an integer, but it is {value!r}") from None
    if not 0 <= token_id < vocabulary_size:
        raise ModelFileError(f"{key} is {token_id}; the vocabulary has ids 0 to {vocabulary_size - 1}")
    return token_id
