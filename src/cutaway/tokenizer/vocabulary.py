"""The vocabulary of a model file: pieces, their types and the ids with a role, checked before anything relies
on them.

In: GGUF metadata (keys ``tokenizer.ggml.*``). Out: a ``Vocabulary``, the same for every tokenizer family and file.
Source: the GGUF specification, section "Tokenizer".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.errors import ModelFileError
from cutaway.formats.cursor import shown
from cutaway.tokenizer.added_tokens import AddedToken
from cutaway.tokenizer.metadata import CONVERT_AGAIN, read_integers, read_scalar, read_strings

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # values of tokenizer.ggml.token_type

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

# Some files call tokens that begin or end a turn user-defined, which is text, so that a user could write them.
TURN_TOKENS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|end_of_turn|>",
    "<|START_OF_TURN_TOKEN|>",
    "<|END_OF_TURN_TOKEN|>",
)


LONGEST_SPECIAL = 256
"""Characters of a special token: at each place of a text, every length that there is of them may have to be tried."""


@dataclass(frozen=True)
class Vocabulary:
    """The pieces by id, their types ``[V] int64``, and the ids with a role: ``eos_id`` as the file declares it,
    ``eos_ids`` all that end a turn. ``add_bos`` is None where the file doesn't say.

    ``control`` and ``user_defined`` map the text of special tokens to their ids. Control tokens (and the
    unknown token) steer the model and are never text; user-defined tokens are text that the vocabulary keeps
    in one piece. ``added`` has both, with the way in which each is looked for.
    """

    pieces: list[str]
    types: npt.NDArray[np.int64]
    id_of: dict[str, int]
    control: dict[str, int]
    user_defined: dict[str, int]
    added: tuple[AddedToken, ...]
    bos_id: int | None
    eos_id: int | None
    eos_ids: frozenset[int]
    unknown_id: int | None
    add_bos: bool | None

    def of_type(self, kind: int) -> list[int]:
        """The ids of this type, in order."""
        ids: list[int] = np.flatnonzero(self.types == kind).tolist()
        return ids

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """Ids of tokens that steer and are not shown, such as the end of a turn."""
        return frozenset(self.control.values())

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids whose piece is plain text, not text in the family's own spelling."""
        return self.control_ids | frozenset(self.user_defined.values())


def read_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """Read and check the vocabulary of a model file.

    Raises:
        ModelFileError: pieces are missing or doubled, special tokens empty or too long, the types don't match them, or
            an id lies outside.
    """
    pieces = read_strings(metadata, "tokenizer.ggml.tokens")
    if not pieces:
        raise ModelFileError(f"tokenizer.ggml.tokens is empty; a vocabulary needs at least one token. {CONVERT_AGAIN}")
    id_of = {piece: token_id for token_id, piece in enumerate(pieces)}
    if len(id_of) != len(pieces):
        doubled = next(token_id for token_id, piece in enumerate(pieces) if id_of[piece] != token_id)
        raise ModelFileError(
            f"tokenizer.ggml.tokens has {shown(pieces[doubled])} twice, as ids {doubled} and "
            f"{id_of[pieces[doubled]]}; every token must be unique. {CONVERT_AGAIN}"
        )
    types = _with_turns_as_control(_read_types(metadata, len(pieces)), id_of)
    control = _special_tokens(pieces, (types == CONTROL) | (types == UNKNOWN))
    user_defined = _special_tokens(pieces, types == USER_DEFINED)

    def read_id(role: str) -> int | None:
        return _read_id(metadata, f"tokenizer.ggml.{role}_token_id", len(pieces))

    bos_id = read_id("bos")
    eos_id = read_id("eos")
    add_bos = read_scalar(metadata, "tokenizer.ggml.add_bos_token", bool)
    if add_bos and bos_id is None:
        raise ModelFileError(
            "tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing; text that begins with "
            f"BOS needs its id. {CONVERT_AGAIN}"
        )
    return Vocabulary(
        pieces=pieces,
        types=types,
        id_of=id_of,
        control=control,
        user_defined=user_defined,
        added=_added_tokens(metadata, control, user_defined),
        bos_id=bos_id,
        eos_id=eos_id,
        eos_ids=ends_of_turn(control, [eos_id, read_id("eot"), read_id("eom")]),
        unknown_id=read_id("unknown"),
        add_bos=add_bos,
    )


def ends_of_turn(control: Mapping[str, int], declared: Iterable[int | None]) -> frozenset[int]:
    """The ids that end a turn: those that a file declares, and control tokens with a name that says so."""
    by_name = [control.get(name) for name in END_OF_TURN_NAMES]
    return frozenset(token_id for token_id in [*declared, *by_name] if token_id is not None)


def _read_types(metadata: Mapping[str, Any], vocabulary_size: int) -> npt.NDArray[np.int64]:
    types = read_integers(metadata, "tokenizer.ggml.token_type")
    if types is None:
        raise ModelFileError(
            f"tokenizer.ggml.token_type is missing; without it control tokens can't be told from text. {CONVERT_AGAIN}"
        )
    if types.shape != (vocabulary_size,):
        raise ModelFileError(
            f"tokenizer.ggml.token_type has {types.size} entries for {vocabulary_size} tokens; there must be one for "
            f"each. {CONVERT_AGAIN}"
        )
    return types


def _with_turns_as_control(types: npt.NDArray[np.int64], id_of: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """The types, with user-defined ``TURN_TOKENS`` as the control tokens that they are."""
    ids = [id_of[token] for token in TURN_TOKENS if token in id_of]
    changed: npt.NDArray[np.int64] = types.copy()
    changed[[token_id for token_id in ids if types[token_id] == USER_DEFINED]] = CONTROL
    return changed


def _special_tokens(pieces: list[str], chosen: npt.NDArray[np.bool_]) -> dict[str, int]:
    """The chosen tokens, text → id."""
    ids: list[int] = np.flatnonzero(chosen).tolist()
    for token_id in ids:
        if not pieces[token_id]:
            raise ModelFileError(
                f"special token {token_id} in tokenizer.ggml.tokens is empty; it can't be found in text. "
                f"{CONVERT_AGAIN}"
            )
        if len(pieces[token_id]) > LONGEST_SPECIAL:
            raise ModelFileError(
                f"special token {token_id} in tokenizer.ggml.tokens has {len(pieces[token_id])} characters; it must "
                f"have at most {LONGEST_SPECIAL}. {CONVERT_AGAIN}"
            )
    return {pieces[token_id]: token_id for token_id in ids}


def _added_tokens(
    metadata: Mapping[str, Any], control: Mapping[str, int], user_defined: Mapping[str, int]
) -> tuple[AddedToken, ...]:
    """The special tokens of a GGUF file, which can't say how they are looked for: as they are spelled, in the raw text.

    Phi-3's are the exception that is known: white space behind them belongs to them, but for three.
    Source: the ``tokenizer.json`` of the Phi-3 release.
    """
    phi3 = metadata.get("general.architecture") == "phi3" and metadata.get("tokenizer.ggml.model") == "llama"
    plain = {"<unk>", "<s>", "<|endoftext|>"}
    found = [*((text, i, True) for text, i in control.items()), *((text, i, False) for text, i in user_defined.items())]
    return tuple(AddedToken(text, i, special, rstrip=phi3 and text not in plain) for text, i, special in found)


def _read_id(metadata: Mapping[str, Any], key: str, vocabulary_size: int) -> int | None:
    token_id = read_scalar(metadata, key, int)
    if token_id is not None and not 0 <= token_id < vocabulary_size:
        raise ModelFileError(f"{key} is {token_id}; the vocabulary has ids 0 to {vocabulary_size - 1}. {CONVERT_AGAIN}")
    return token_id
