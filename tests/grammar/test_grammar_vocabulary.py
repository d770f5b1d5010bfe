"""A model's own vocabulary in a grammar: its bytes, special tokens, bytes of characters, and texts without choice."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from walks import allowed_ids

from cutaway.errors import InvalidRequestError
from cutaway.formats.open_model import open_model
from cutaway.grammar.grammar import Grammar
from cutaway.grammar.grammars import Grammars
from cutaway.grammar.state import GrammarState
from cutaway.grammar.vocabulary import LONGEST_CUT, VocabularyBytes
from cutaway.sampling.structured_outputs import StructuredOutputsParams
from cutaway.tokenizer import Tokenizer, load_tokenizer
from cutaway.tokenizer.open_tokenizer import open_tokenizer

PIECES = ["▁", "a", "b", "▁a", "ab", "▁ab", "{", "}", '"', '":', "▁1", "1", "é", ",", '","', ":", "▁{", '{"']


def sentencepiece(*, adds_space: bool) -> Tokenizer:
    """A vocabulary in the manner of Llama 2: all bytes as tokens, spaces as ▁."""
    scores = {piece: -float(len(PIECES) - n) for n, piece in enumerate(PIECES)}
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, *scores]
    return load_tokenizer(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": np.array([0.0] * 259 + list(scores.values()), np.float32),
            "tokenizer.ggml.token_type": np.array([2, 3, 3] + [6] * 256 + [1] * len(scores), np.int32),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.add_space_prefix": adds_space,
        }
    )


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    with open_model(smollm2_path) as source:
        return open_tokenizer(source, None)


@pytest.fixture(scope="module")
def of_smollm2(smollm2: Tokenizer) -> Grammars:
    return Grammars(smollm2)


def given_tokens(grammar: Grammar, ids: list[int], end_ids: Any = ()) -> GrammarState:
    state = grammar.start(end_ids)
    for token_id in ids:
        state.advance(token_id)
    return state


def by_schema(grammars: Grammars, schema: Mapping[str, Any]) -> Grammar:
    return grammars.get(StructuredOutputsParams(json=schema))


def test_bytes_and_special_tokens_are_the_tokenizer_s(smollm2: Tokenizer) -> None:
    vocabulary = VocabularyBytes(smollm2)
    assert len(vocabulary.tokens) == smollm2.vocab_size + 1
    for token_id in range(0, smollm2.vocab_size, 997):
        assert vocabulary.tokens[token_id] == smollm2.token_bytes(token_id)
    special = {i for i in range(smollm2.vocab_size) if smollm2.is_special(i)}
    assert special > smollm2.eos_ids
    assert set(vocabulary.special_token_ids) == special | {smollm2.vocab_size}


def test_special_tokens_are_never_allowed_within_text(smollm2: Tokenizer, of_smollm2: Grammars) -> None:
    """Though each is spelled in characters that a string may have."""
    V = smollm2.vocab_size
    special = {i for i in range(V) if smollm2.is_special(i)}
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    grammar = by_schema(of_smollm2, schema)
    text = '{"a": "x <|im_end|> '
    for length in range(len(text) + 1):
        state = given_tokens(grammar, smollm2.encode(text[:length]), smollm2.eos_ids)
        assert not special & set(allowed_ids(state, V)), text[:length]
    ended = given_tokens(grammar, smollm2.encode('{"a": "<|im_end|>"}'), smollm2.eos_ids)
    assert ended.finished
    assert set(allowed_ids(ended, V)) == smollm2.eos_ids


@pytest.mark.parametrize(
    "value",
    [{"a": "日本語 é 😀"}, {"ключ": "значение", "日本": [1, None]}, {'q"\\\n': "\t\"\\/ e\u0301\u2028"}, {}, {"": ""}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("indent", [None, 2])
def test_what_python_writes_is_an_answer(
    smollm2: Tokenizer, of_smollm2: Grammars, value: Any, indent: int | None
) -> None:
    """Characters of several tokens, tokens that cross the borders of strings: however the tokenizer cuts it."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    grammar = of_smollm2.get(StructuredOutputsParams(json_object=True))
    ids = smollm2.encode(text)
    assert given_tokens(grammar, ids).finished
    constant = by_schema(of_smollm2, {"const": value})
    assert given_tokens(constant, ids).finished
    one_by_one = [each for character in text for each in smollm2.encode(character)]
    assert one_by_one != ids or len(text) < 4


def test_no_token_that_breaks_a_character_is_allowed(smollm2: Tokenizer, of_smollm2: Grammars) -> None:
    grammar = of_smollm2.get(StructuredOutputsParams(regex="(é|😀)+"))
    V = smollm2.vocab_size
    whole = "é😀é".encode()
    for token_id in allowed_ids(grammar.start(), V):
        piece = smollm2.token_bytes(token_id)
        assert any(text.startswith(piece) for text in ("é".encode(), "😀".encode(), whole, "éé".encode()))
    begun = given_tokens(grammar, smollm2.encode("😀")[:1])
    rest = "😀".encode()[len(smollm2.token_bytes(smollm2.encode("😀")[0])) :]
    assert rest
    for token_id in allowed_ids(begun, V):
        piece = smollm2.token_bytes(token_id)
        assert piece.startswith(rest) or rest.startswith(piece)


def test_where_one_text_can_follow_its_tokens_are_the_model_s_own(smollm2: Tokenizer, of_smollm2: Grammars) -> None:
    text = "The capital of France is Paris."
    grammar = of_smollm2.get(StructuredOutputsParams(regex="The capital of France is Paris\\.[0-9]"))
    ids = smollm2.encode(text)
    assert len(ids) > 5
    state = grammar.start()
    for token_id in ids[:-2]:
        assert allowed_ids(state, smollm2.vocab_size) == [token_id]
        state.advance(token_id)


@pytest.fixture(scope="module")
def bytes_of_smollm2(smollm2: Tokenizer) -> VocabularyBytes:
    return VocabularyBytes(smollm2)


@given(text=st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=40))
def test_a_text_without_choice_keeps_its_bytes(bytes_of_smollm2: VocabularyBytes, text: str) -> None:
    vocabulary, data = bytes_of_smollm2, text.encode()
    ids = vocabulary(data)
    assert b"".join(vocabulary.tokens[each] for each in ids) == data
    assert not set(ids) & set(vocabulary.special_token_ids)


@pytest.mark.parametrize("text", ["\U00040000", "ab\U00040000", '{"a": "\U00040000"}', "\U00040000" * 200])
@pytest.mark.parametrize("schema", [False, True])
def test_a_byte_that_the_vocabulary_lacks_is_told(of_smollm2: Grammars, text: str, schema: bool) -> None:
    """SmolLM2 has no token for 0xF1: an answer can't have the character, and nothing else breaks."""
    form = {"json": {"const": text}} if schema else {"choice": [text]}

    def walk() -> None:
        state = of_smollm2.get(StructuredOutputsParams(**form)).start()
        for _ in range(1000):
            state.advance(allowed_ids(state, state.allowed.size * 32)[0])

    with pytest.raises(InvalidRequestError, match="structured_outputs"):
        walk()
    other = of_smollm2.get(StructuredOutputsParams(choice=[text, "fine"])).start()
    assert other.allowed.any()


def test_a_long_text_without_choice_is_cut_where_it_matters(smollm2: Tokenizer, of_smollm2: Grammars) -> None:
    text = "all work and no play " * 40
    assert len(text) > 3 * LONGEST_CUT
    state = of_smollm2.get(StructuredOutputsParams(choice=[text])).start()
    for token_id in smollm2.encode(text)[:-2]:
        assert token_id in allowed_ids(state, smollm2.vocab_size)
        state.advance(token_id)


@pytest.mark.parametrize("adds_space", [False, True])
@pytest.mark.parametrize("text", ['{"a":1}', '{"ab": 1}', "é", "ü", "日本", "a b", " a", "{", '{" a":"é\u0300"}'])
def test_sentencepiece_with_bytes_and_spaces(adds_space: bool, text: str) -> None:
    """A token ▁a is " a", and <0xE6> is a byte, wherever they stand."""
    tokenizer = sentencepiece(adds_space=adds_space)
    vocabulary = VocabularyBytes(tokenizer)
    assert vocabulary.tokens[tokenizer.vocab_size - len(PIECES) + PIECES.index("▁ab")] == b" ab"
    assert vocabulary.tokens[3 + 0xE6] == b"\xe6"
    ids = vocabulary(text.encode())
    assert b"".join(vocabulary.tokens[each] for each in ids) == text.encode()
    grammar = Grammars(tokenizer).get(StructuredOutputsParams(choice=[text, text + "!"]))
    assert given_tokens(grammar, ids).accepts
    assert given_tokens(grammar, [3 + byte for byte in text.encode()[:1]]).allowed.any()


def test_sentencepiece_answers_walk_to_their_end() -> None:
    tokenizer = sentencepiece(adds_space=True)
    schema = {
        "type": "object",
        "properties": {"ab": {"enum": ["é", "日本", " a"]}},
        "required": ["ab"],
        "additionalProperties": False,
    }
    grammar = by_schema(Grammars(tokenizer), schema)
    found = set()
    for seed in range(40):
        rng, state, ids = np.random.default_rng(seed), grammar.start(tokenizer.eos_ids), list[int]()
        while not state.finished:
            ids.append(int(rng.choice(sorted(set(allowed_ids(state, tokenizer.vocab_size)) - tokenizer.eos_ids))))
            assert not tokenizer.is_special(ids[-1])
            state.advance(ids[-1])
        found.add(json.loads(b"".join(map(tokenizer.token_bytes, ids)))["ab"])
    assert found == {"é", "日本", " a"}
