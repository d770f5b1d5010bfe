"""Text from ids: streamed pieces join to the full decode for all ids; no half character is ever shown."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_cases import tiny_metadata

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer import StreamingDetokenizer, Tokenizer, load_tokenizer
from cutaway.tokenizer.detokenize import readable, unfinished_tail

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


def unfinished(data: bytes) -> bytes:
    """The definition: the longest end of the bytes that some continuation makes one character of."""
    for length in (3, 2, 1):
        tail = data[len(data) - length :]
        low, high = b"\x80" * 3, b"\xbf" * 3
        for rest in (fill[:n] for n in (1, 2, 3) for fill in (low, high)):
            try:
                if len((tail + rest).decode()) == 1 and len(tail) == length:
                    return tail
            except UnicodeDecodeError:
                continue
    return b""


@given(chunks)
def test_the_unfinished_tail(parts: list[bytes]) -> None:
    assert unfinished_tail(reversed(parts)) == unfinished(b"".join(parts))


def test_every_pair_of_bytes() -> None:
    for first in range(0xC0, 0x100):
        for second in range(0x100):
            data = bytes([first, second])
            assert unfinished_tail([data]) == unfinished(data), data


@given(chunks, chunks)
def test_a_continuation_shows_no_byte_of_the_prompt_but_of_a_character_it_finishes(
    prompt: list[bytes], parts: list[bytes]
) -> None:
    tail = unfinished_tail(reversed(prompt))
    detokenizer = StreamingDetokenizer(parts.__getitem__, prompt_tail=tail)
    text = "".join([*map(detokenizer.push, range(len(parts))), detokenizer.flush()])
    data = b"".join(parts)
    whole = (tail + data).decode("utf-8", errors="replace")
    first = tail + data[:1]
    continued = bool(data) and (unfinished(first) == first or is_character(first))
    assert text == (whole if continued or not tail else data.decode("utf-8", errors="replace"))


def is_character(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


@given(st.lists(st.integers(0, 49_151), max_size=30), st.booleans())
def test_streamed_is_decoded(smollm2: Tokenizer, ids: list[int], skip_special: bool) -> None:
    detokenizer = smollm2.detokenizer(skip_special=skip_special)
    streamed = "".join([*map(detokenizer.push, ids), detokenizer.flush()])
    assert streamed == smollm2.decode(ids, skip_special=skip_special)


@given(
    st.lists(st.sampled_from([10813, 242, 218, 230, 19556, 1, 2, 198]), max_size=12),
    st.integers(0, 12),
    st.booleans(),
)
def test_a_prompt_and_its_continuation_make_the_whole(
    smollm2: Tokenizer, ids: list[int], cut: int, skip_special: bool
) -> None:
    """Wherever ids are cut into prompt and continuation: the whole text, but for a character that the cut divided
    and nothing completed.
    """
    prompt, rest = ids[:cut], ids[cut:]
    detokenizer = smollm2.detokenizer(prompt_ids=prompt, skip_special=skip_special)
    shown = "".join([*map(detokenizer.push, rest), detokenizer.flush()])
    whole = smollm2.decode(ids, skip_special=skip_special)
    before = smollm2.decode(prompt, skip_special=skip_special)
    tail = unfinished(b"".join(smollm2.token_bytes(i) for i in prompt if not (skip_special and smollm2.is_special(i))))
    if not tail:
        assert before + shown == whole
    else:  # the prompt alone ends with U+FFFD, which the whole shows only if nothing continues the character
        assert whole in (before[:-1] + shown, before + shown)


@pytest.mark.parametrize(
    ("rest", "deltas"),
    [
        ([218, 19556], ["😀", "Hello"]),  # finished: the character, then new text
        ([19556, 19556], ["Hello", "Hello"]),  # not continued: no trace of it
        ([10813, 242, 218], ["", "", "😀"]),  # another character begins instead
        ([1, 218], ["", "😀"]),  # a skipped special token adds no bytes
        ([], []),
    ],
)
def test_a_prompt_that_ends_within_a_character(smollm2: Tokenizer, rest: list[int], deltas: list[str]) -> None:
    prompt = [*smollm2.encode("Hello "), 10813, 242]
    detokenizer = smollm2.detokenizer(prompt_ids=prompt)
    assert [*map(detokenizer.push, rest)] == deltas
    assert detokenizer.flush() == ""


def test_a_byte_of_the_continuation_that_completes_nothing_is_shown_as_broken(smollm2: Tokenizer) -> None:
    detokenizer = smollm2.detokenizer(prompt_ids=[10813])
    assert [detokenizer.push(242), detokenizer.push(19556)] == ["", "\ufffdHello"]
    detokenizer = smollm2.detokenizer(prompt_ids=[10813])
    assert [detokenizer.push(242), detokenizer.flush(), detokenizer.flush()] == ["", "\ufffd", ""]


def test_no_more_of_the_prompt_is_read_than_needed(smollm2: Tokenizer) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"\x9f"
        yield b"\xf0"
        yield b"x"
        raise AssertionError("a fourth byte was read")

    assert unfinished_tail(pieces()) == b"\xf0\x9f"
    with pytest.raises(InvalidRequestError, match="token id 49152"):
        smollm2.detokenizer(prompt_ids=[49_152])


def test_no_half_character(smollm2: Tokenizer) -> None:
    detokenizer = smollm2.detokenizer()
    assert [detokenizer.push(token_id) for token_id in [10813, 242, 218]] == ["", "", "😀"]
    assert detokenizer.flush() == ""


def test_a_broken_tail_is_flushed_once(smollm2: Tokenizer) -> None:
    detokenizer = smollm2.detokenizer()
    assert [detokenizer.push(10813), detokenizer.flush(), detokenizer.flush()] == ["", "\ufffd", ""]
    assert detokenizer.push(19556) == "Hello"  # nothing is left of the text before
    detokenizer = smollm2.detokenizer(prompt_ids=[10813, 242])
    assert [detokenizer.flush(), detokenizer.push(218), detokenizer.flush()] == ["", "\ufffd", ""]


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
