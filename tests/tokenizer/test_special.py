"""Special tokens in text: found where they may be, as text where not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_cases import tiny_metadata

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer import Tokenizer, load_tokenizer
from cutaway.tokenizer.special import special_pattern, split_special

BYTES = 256 + 3  # ids below are bytes and merged pieces of the tiny vocabulary


def test_control_tokens_only_on_request(smollm2: Tokenizer) -> None:
    text = "<|im_start|>Hello World<|im_end|>"
    assert smollm2.encode(text, parse_special=True) == [1, 19556, 2260, 2]
    spelled_out = smollm2.encode(text)
    assert not any(smollm2.is_special(token_id) for token_id in spelled_out)
    assert smollm2.decode(spelled_out) == text


@pytest.mark.parametrize("parse_special", [False, True])
def test_user_defined_tokens_in_either_mode_and_shown(parse_special: bool) -> None:
    tokenizer = load_tokenizer(tiny_metadata(control=("<ctl>",), user_defined=("<tool_call>",)))
    ids = tokenizer.encode("x<tool_call>y", parse_special=parse_special)
    assert ids == [ord("x"), BYTES + 1, ord("y")]
    assert tokenizer.decode(ids) == "x<tool_call>y"
    assert not tokenizer.is_special(BYTES + 1)


def test_the_longest_token_wins() -> None:
    tokenizer = load_tokenizer(tiny_metadata(control=("<a", "<a>", "a>b")))
    assert tokenizer.encode("<a>b", parse_special=True) == [BYTES + 1, ord("b")]
    assert tokenizer.encode("<<a", parse_special=True) == [ord("<"), BYTES]


@given(st.lists(st.sampled_from(["<a>", "<a", "b", "<", "[x]", "."])).map("".join))
def test_runs_join_to_the_text(text: str) -> None:
    runs = list(split_special(text, special_pattern(["<a>", "[x]", "."])))
    assert "".join(run for run, _ in runs) == text
    assert {run for run, is_special in runs if is_special} <= {"<a>", "[x]", "."}
    assert not any(token in run for run, is_special in runs if not is_special for token in ("<a>", "[x]", "."))


def test_one_bos() -> None:
    """Whatever asks for it, BOS comes once; where the model doesn't want it, not at all."""
    bos = BYTES
    wants = load_tokenizer(tiny_metadata(bos_token_id=bos, add_bos_token=True))
    assert wants.encode("a") == [bos, ord("a")]
    assert wants.encode("") == [bos]
    assert wants.encode("<s>a", parse_special=True) == [bos, ord("a")]
    assert wants.encode("a", add_bos=False) == [ord("a")]
    assert wants.encode("<s>")[:2] == [bos, ord("<")]  # not parsed: the text is text
    silent = load_tokenizer(tiny_metadata(bos_token_id=bos))
    assert silent.encode("a") == [ord("a")]
    assert silent.encode("a", add_bos=True) == [bos, ord("a")]
    with pytest.raises(InvalidRequestError, match="no BOS"):
        load_tokenizer(tiny_metadata()).encode("a", add_bos=True)
