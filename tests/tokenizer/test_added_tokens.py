"""Special tokens in text: found where they may be, as text where not."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_cases import tiny_metadata

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer import Tokenizer, load_tokenizer
from cutaway.tokenizer.added_tokens import AddedToken, AddedTokens


def added(control: Iterable[str], user_defined: Iterable[str]) -> AddedTokens:
    tokens = [*((text, False) for text in user_defined), *((text, True) for text in control)]
    return AddedTokens(AddedToken(text, 0, special) for text, special in tokens)


def runs(tokens: AddedTokens, marked: str, plain: str) -> list[tuple[str, bool]]:
    spans = tokens.split(marked, plain)
    return [(str.__getitem__(plain, slice(start, stop)), token_id is not None) for start, stop, token_id in spans]


BYTES = 256 + 3  # ids below are bytes and merged pieces of the tiny vocabulary


def test_control_tokens_only_on_request(smollm2: Tokenizer) -> None:
    text = "<|im_start|>Hello World<|im_end|>"
    assert smollm2.encode(text, parse_special=True) == [1, 19556, 2260, 2]
    spelled_out = smollm2.encode(text)
    assert not any(smollm2.is_special(token_id) for token_id in spelled_out)
    assert smollm2.decode(spelled_out) == text


@pytest.mark.parametrize(
    "vocabulary", ["gpt2", "falcon", "deepseek_coder", "llama", "phi3", "smollm2", "qwen2", "gemma3"]
)
def test_every_control_token_of_real_vocabularies(vocabulary: str, request: pytest.FixtureRequest) -> None:
    """Its spelling is the token on request, and else a text like any other, which comes back."""
    tokenizer: Tokenizer = request.getfixturevalue(vocabulary)
    control = {tokenizer._pieces[i]: i for i in tokenizer._control_ids}
    assert control
    for text, token_id in control.items():
        assert tokenizer.encode(text, parse_special=True, add_bos=False) == [token_id]
        ids = tokenizer.encode(text, add_bos=False)
        assert not any(map(tokenizer.is_special, ids)), text
        assert tokenizer.decode(ids) == text


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


tokens = st.lists(st.text("<ab ", min_size=1, max_size=4), max_size=5)


@given(tokens, tokens, st.lists(st.tuples(st.text("<ab ", max_size=6), st.booleans()), max_size=6))
def test_equal_to_a_search_at_every_place(
    control: list[str], user_defined: list[str], parts: list[tuple[str, bool]]
) -> None:
    """Text of some origins is marked: control tokens are not found in it, user-defined ones are."""
    plain = "".join(text for text, _ in parts)
    marked = "".join(
        text.translate({ord(c): ord(c) + 0xD800 for c in "<ab "}) if user else text for text, user in parts
    )
    expected: list[tuple[str, bool]] = []
    user_defined = [text for text in user_defined if text not in control]
    i = 0
    while i < len(plain):
        found = [text for text in control if marked.startswith(text, i)]
        found += [text for text in user_defined if plain.startswith(text, i)]
        if found:
            expected.append((max(found, key=len), True))
            i += len(expected[-1][0])
            continue
        if expected and not expected[-1][1]:
            expected[-1] = (expected[-1][0] + plain[i], False)
        else:
            expected.append((plain[i], False))
        i += 1
    assert runs(added(control, user_defined), marked, plain) == expected


class CountingText(str):
    slices = 0

    def __getitem__(self, index: Any) -> str:
        type(self).slices += 1
        return super().__getitem__(index)


def test_thousands_of_special_tokens_cost_no_more_than_one() -> None:
    """As Gemma's, which are looked for in every text of a chat."""
    text = CountingText("<unused1 <unus <|x|> " * 100)

    def slices(control: list[str]) -> int:
        CountingText.slices = 0
        assert [run for run, found in runs(added(control, ()), text, text) if found] == ["<|x|>"] * 100
        return CountingText.slices

    assert slices(["<|x|>", *(f"<unused{n}>" for n in range(9_999))]) <= 5 * slices(["<|x|>", "<unused0>"])


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
