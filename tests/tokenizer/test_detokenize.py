"""Text from ids: streamed pieces join to the full decode for all ids; no half character is ever shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_cases import tiny_metadata

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer import StreamingDetokenizer, Tokenizer, load_tokenizer
from cutaway.tokenizer.detokenize import readable

chunks = st.lists(
    st.one_of(
        st.binary(max_size=3),
        st.sampled_from(["€", "😀", "é", "\ud7ff", "\ue000", "\U0010ffff"]).flatmap(
            lambda character: st.integers(0, 4).map(lambda cut: character.encode()[:cut])
        ),
        st.sampled_from(
            [
                b"\xed\xa0",
                b"\x80",
                b"\xe0\x80",
                b"\xf0\x8f",
                b"\xf4\x90",
                b"\xf8",
                b"\xc0",
                b"\xff",
                b"\xf0\x9f",
            ]
        ),
    ),
    max_size=20,
)


@given(chunks)
def test_pieces_join_to_the_full_decode_of_byte_soup(parts: list[bytes]) -> None:
    detokenizer = StreamingDetokenizer(parts.__getitem__)
    pieces = [detokenizer.push(i) for i in range(len(parts))] + [detokenizer.flush()]
    assert "".join(pieces) == b"".join(parts).decode("utf-8", errors="replace")


@given(chunks)
def test_at_most_three_bytes_are_held(parts: list[bytes]) -> None:
    """What is shown after n pushes is the full decode but for the last 3 bytes at most."""
    detokenizer = StreamingDetokenizer(parts.__getitem__)
    shown = ""
    for n in range(len(parts)):
        shown += detokenizer.push(n)
        data = b"".join(parts[: n + 1])
        assert any(
            data[: len(data) - held].decode("utf-8", errors="replace") == shown
            for held in range(4)
            if held <= len(data)
        )


@given(st.lists(st.integers(0, 49_151), max_size=30), st.booleans())
def test_streamed_is_decoded(smollm2: Tokenizer, ids: list[int], skip_special: bool) -> None:
    detokenizer = smollm2.detokenizer(skip_special=skip_special)
    streamed = "".join([*map(detokenizer.push, ids), detokenizer.flush()])
    assert streamed == smollm2.decode(ids, skip_special=skip_special)


def test_no_half_character(smollm2: Tokenizer) -> None:
    detokenizer = smollm2.detokenizer()
    assert [detokenizer.push(token_id) for token_id in [10813, 242, 218]] == ["", "", "😀"]
    assert detokenizer.flush() == ""


def test_a_broken_tail_is_flushed_once(smollm2: Tokenizer) -> None:
    detokenizer = smollm2.detokenizer()
    assert [detokenizer.push(10813), detokenizer.flush(), detokenizer.flush()] == ["", "\ufffd", ""]
    assert detokenizer.push(19556) == "Hello"  # nothing is left of the text before


def test_added_tokens_bypass_the_byte_alphabet() -> None:
    """'Ö' is in the byte alphabet, as the byte 0xD6; in an added token it is itself."""
    tokenizer = load_tokenizer(tiny_metadata(user_defined=("ilÖveyou",)))
    (token_id,) = tokenizer.encode("ilÖveyou")
    assert tokenizer.decode([token_id]) == "ilÖveyou"
    assert tokenizer.token_bytes(token_id) == "ilÖveyou".encode()


def test_special_tokens_are_skipped_or_shown(smollm2: Tokenizer) -> None:
    assert smollm2.decode([1, 19556, 2]) == "Hello"
    assert smollm2.decode([1, 19556, 2], skip_special=False) == "<|im_start|>Hello<|im_end|>"


@pytest.mark.parametrize("token_id", [-1, 49_152, 2**40])
def test_ids_outside_the_vocabulary_are_refused(smollm2: Tokenizer, token_id: int) -> None:
    detokenizer = smollm2.detokenizer()
    for use in (
        lambda i: smollm2.decode([19556, i]),
        smollm2.token_bytes,
        smollm2.piece,
        smollm2.is_special,
        detokenizer.push,
    ):
        with pytest.raises(InvalidRequestError, match=rf"token id {token_id} .* 0 to 49151"):
            use(token_id)


def test_readable_pieces(smollm2: Tokenizer) -> None:
    assert [smollm2.piece(token_id) for token_id in [10813, 242, 198, 19556, 1]] == [
        "<0xF0><0x9F>",
        "<0x98>",
        "\\n",
        "Hello",
        "<|im_start|>",
    ]
    assert readable("é\x00\u2028".encode()) == "é\\x00\\u2028"
