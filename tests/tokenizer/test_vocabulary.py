"""The vocabulary's checks: what a file may get wrong, and which ids end a turn."""

import numpy as np
import pytest
from tokenizer_cases import tiny_metadata

from cutaway.errors import ModelFileError
from cutaway.tokenizer import Tokenizer, load_tokenizer

PIECES = tiny_metadata()["tokenizer.ggml.tokens"]
TYPES = tiny_metadata()["tokenizer.ggml.token_type"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "tokenizer.ggml.model is None; supported tokenizers: gpt2, llama, t5"),
        ({"model": "bert"}, "'bert'; supported tokenizers: gpt2, llama, t5"),
        ({"unknown_token_id": 261}, "unknown_token_id is 261"),
        ({"tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"tokens": []}, "empty"),
        ({"tokens": [*PIECES[:-1], "a"]}, "'a' twice, as ids 97 and 260"),
        ({"token_type": None}, "tokenizer.ggml.token_type is missing"),
        ({"token_type": TYPES[:-1]}, "260 entries for 261 tokens"),
        ({"token_type": [*TYPES, 1]}, "262 entries for 261 tokens"),
        ({"tokens": [*PIECES[:-1], ""]}, "special token 260 .* is empty"),
        ({"tokens": [*PIECES[:-1], "x" * 257]}, "special token 260 .* has 257 characters; it must have at most 256"),
        ({"eos_token_id": 261}, "eos_token_id is 261; the vocabulary has ids 0 to 260"),
        ({"eos_token_id": -1}, "eos_token_id is -1"),
        ({"eos_token_id": "2"}, "must be an integer"),
        ({"bos_token_id": 2**32}, "bos_token_id"),
        ({"eot_token_id": 999}, "eot_token_id"),
        ({"add_bos_token": True}, "bos_token_id is missing"),
    ],
)
def test_inconsistent_vocabularies_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        load_tokenizer(tiny_metadata(**changes))


def test_the_types_may_be_an_array() -> None:
    assert load_tokenizer(tiny_metadata(token_type=np.array(TYPES, np.int32))).is_special(260)


def test_smollm2_declares(smollm2: Tokenizer) -> None:
    assert smollm2.vocab_size == 49_152
    assert (smollm2.bos_id, smollm2.add_bos) == (1, False)
    assert smollm2.eos_ids == {0, 2}  # <|endoftext|> by name, <|im_end|> as declared


@pytest.mark.parametrize("name", ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|endoftext|>", "</s>"])
def test_every_end_of_turn_counts(name: str) -> None:
    """A file that declares one end-of-sequence id only, as Gemma's does; chats would never stop."""
    control = ("<first>", "<eot>", "<eom>", name)
    first = len(PIECES) - 2
    tokenizer = load_tokenizer(
        tiny_metadata(control, eos_token_id=first, eot_token_id=first + 1, eom_token_id=first + 2)
    )
    assert tokenizer.eos_ids == {first, first + 1, first + 2, first + 3}


def test_ordinary_text_never_ends_a_turn() -> None:
    tokenizer = load_tokenizer(tiny_metadata(control=("<s>",), user_defined=("</s>",)))
    assert tokenizer.eos_ids == frozenset()


@pytest.mark.parametrize("name", ["<|im_end|>", "<|eot_id|>", "<end_of_turn>"])
def test_a_token_that_ends_a_turn_is_no_text_whatever_the_file_calls_it(name: str) -> None:
    """Else chats would never stop, and a user could end the turn by writing it."""
    tokenizer = load_tokenizer(tiny_metadata(control=("<s>",), user_defined=(name, "<tool_call>")))
    token_id = len(PIECES) - 2 + 1
    assert tokenizer.eos_ids == {token_id}
    assert tokenizer.is_special(token_id)
    assert tokenizer.encode(f"a{name}", parse_special=True)[-1] == token_id
    assert token_id not in tokenizer.encode(f"a{name}")
    assert tokenizer.encode("<tool_call>") == [token_id + 1], "other user-defined tokens are text in one piece"
