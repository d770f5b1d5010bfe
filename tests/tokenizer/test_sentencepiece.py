"""SentencePiece's byte-pair encoding: equal to a slow merger of texts and to the `tokenizers` package; spaces, bytes,
special tokens; what a file may get wrong.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_cases import BYTE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED, spm_metadata, tiny_metadata
from tokenizer_texts import texts

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.tokenizer import Tokenizer, load_tokenizer
from cutaway.tokenizer.merge import merge_by_rank
from cutaway.tokenizer.sentencepiece import SentencePieceBPE
from cutaway.tokenizer.sentencepiece_text import SentencePieces
from cutaway.tokenizer.vocabulary import read_vocabulary


def merge_texts(text: str, scores: Mapping[str, float]) -> list[str]:
    """The definition: as long as two neighbours are a piece together, merge those of the highest score, the leftmost
    of several.
    """
    parts = list(text)
    while True:
        products = [(-scores[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not products:
            return parts
        _, i = min(products)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


# Few letters and few scores, so that pieces overlap and scores are equal; some pieces have no way to be made, and
# some have letters that are no pieces.
vocabularies = st.dictionaries(st.text("ab▁é", min_size=1, max_size=5), st.sampled_from([-3.0, -2.0, -1.0, 0.0]))


@given(vocabularies, st.lists(st.text("ab ▁éz", max_size=12), max_size=4).map("".join), st.booleans())
def test_equal_to_a_slow_merger_of_the_whole_text(scores: dict[str, float], text: str, add_space: bool) -> None:
    tokenizer = load_tokenizer(spm_metadata(scores, add_space_prefix=add_space))
    expected: list[int] = []
    id_of = {piece: i for i, piece in enumerate(tokenizer._pieces)}
    for part in merge_texts((" " * add_space * bool(text) + text).replace(" ", "▁"), scores):
        expected += [id_of[part]] if part in scores else [2 + byte for byte in part.encode()]
    assert tokenizer.encode(text) == expected


@pytest.mark.parametrize("pieces", [["ab", "ba"], ["ba", "ab"]])
def test_of_equal_scores_the_leftmost_merges_first(pieces: list[str]) -> None:
    tokenizer = load_tokenizer(spm_metadata(dict.fromkeys([*"ab", *pieces], 0.0), add_space_prefix=False))
    assert [tokenizer.piece(token_id) for token_id in tokenizer.encode("aba")] == ["ab", "a"]
    assert [tokenizer.piece(token_id) for token_id in tokenizer.encode("bab")] == ["ba", "b"]


@given(texts)
def test_same_ids_as_the_reference(llama: Tokenizer, llama_reference: tokenizers.Tokenizer, text: str) -> None:
    assert llama.encode(text, add_bos=False) == llama_reference.encode(text).ids


@pytest.mark.parametrize("text", ["a", "ab", "the ", "▁", "人工智能", "🦙"])
def test_twice_the_text_costs_twice_the_merges(llama_metadata: dict[str, Any], text: str) -> None:
    vocabulary = read_vocabulary(llama_metadata)
    model = SentencePieceBPE(vocabulary, SentencePieces(vocabulary), list(range(len(vocabulary.pieces))))

    def looks(n: int) -> int:
        count = 0

        def counted(left: int, right: int) -> tuple[int, int] | None:
            nonlocal count
            count += 1
            return model.merge(left, right)

        merge_by_rank(model.symbols(text * n), counted)
        return count

    once, twice = looks(1_000), looks(2_000)
    assert once >= 1_000 * len(text) - 1
    assert twice <= 2.01 * once + 10


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("\u2029 \ua3e4", [29871, 229, 131, 172, 29871, 237, 146, 167]),
        ("🦙", [29871, 243, 162, 169, 156]),
        (" leading", [29871, 8236]),
        ("  two", [259, 1023]),
    ],
)
def test_llama_ids(llama: Tokenizer, text: str, ids: list[int]) -> None:
    assert llama.encode(text, add_bos=False) == ids
    assert llama.decode(ids) == text


def test_a_word_after_a_special_token_keeps_its_space(llama: Tokenizer) -> None:
    assert llama.encode("<s>G", parse_special=True) == [1, 402]
    assert llama.encode("</s>G", parse_special=True, add_bos=False) == [2, 402]
    assert llama.encode("Hello<s>G</s>G", parse_special=True, add_bos=False) == [15043, 1, 402, 2, 402]
    assert llama.piece(402) == " G"
    assert llama.decode([1, 402]) == "G"
    assert llama.decode([1, 402], skip_special=False) == "<s> G"


def test_control_tokens_only_on_request(llama: Tokenizer) -> None:
    assert llama.encode("<s>Hello</s>", parse_special=True) == [1, 15043, 2]
    spelled_out = llama.encode("<s>Hello</s>", add_bos=False)
    assert not any(map(llama.is_special, spelled_out))
    assert llama.decode(spelled_out) == "<s>Hello</s>"


@given(st.lists(st.sampled_from(["<s>", "</s>", "<unk>", "<0x0A>", "<", "s>", " ", "▁", "a"])).map("".join))
def test_no_text_becomes_control(llama: Tokenizer, text: str) -> None:
    ids = llama.encode(text, add_bos=False)
    assert not any(map(llama.is_special, ids))
    assert llama.decode(ids) == text.replace("▁", " ")


def test_control_and_byte_pieces_are_never_made_of_text() -> None:
    """Though merges could make them: all their beginnings are pieces."""
    spelled = ["<s>", "<0x41>"]
    parts = {part[:n] for part in spelled for n in range(1, len(part))} | set("".join(spelled)) | {"▁"}
    tokenizer = load_tokenizer(spm_metadata(dict.fromkeys(sorted(parts), 0.0), add_space_prefix=False))
    for text in spelled:
        ids = tokenizer.encode(text)
        assert len(ids) > 1
        assert tokenizer.decode(ids) == text
    assert tokenizer.encode("<s>", parse_special=True) == [1]


def test_unused_pieces_are_never_made_of_text() -> None:
    special = {"<unk>": UNKNOWN, "ab": UNUSED}
    tokenizer = load_tokenizer(spm_metadata({"a": 0, "b": 0, "▁": 0}, special, add_space_prefix=False))
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"
    assert 1 not in tokenizer.encode("ab")


def test_user_defined_tokens_in_either_mode() -> None:
    special = {"<unk>": UNKNOWN, "<think>": USER_DEFINED, "  ": USER_DEFINED}
    tokenizer = load_tokenizer(spm_metadata({"a": -1, "▁": -2, "▁a": 0}, special))
    id_of = {piece: i for i, piece in enumerate(tokenizer._pieces)}
    for parse_special in (False, True):
        ids = tokenizer.encode("a<think>a  ", parse_special=parse_special)
        assert ids == [id_of["▁a"], id_of["<think>"], id_of["▁a"], id_of["  "]]
    assert tokenizer.decode([id_of["▁a"], id_of["<think>"]]) == "a<think>"


# -- spaces, streamed


def test_one_space_is_taken_away_once_at_the_beginning(llama: Tokenizer) -> None:
    space, leading, x = llama.encode(" leading x", add_bos=False)
    assert [llama.piece(i) for i in (space, leading, x)] == [" ", " leading", " x"]
    assert llama.decode([space, leading, x]) == " leading x"
    detokenizer = llama.detokenizer()
    assert [*map(detokenizer.push, (space, leading, x))] == ["", " leading", " x"]
    detokenizer = llama.detokenizer()
    assert [*map(detokenizer.push, (1, leading, x))] == ["", "leading", " x"]


def test_a_continuation_keeps_its_space(llama: Tokenizer) -> None:
    prompt = llama.encode("The capital")
    (of,) = llama.encode("of", add_bos=False)
    assert llama.detokenizer(prompt_ids=prompt).push(of) == " of"
    assert llama.detokenizer(prompt_ids=[1]).push(of) == "of"  # BOS is no text: the answer is the text's beginning
    assert llama.detokenizer(prompt_ids=[1], skip_special=False).push(of) == " of"
    assert llama.detokenizer(prompt_ids=[29871]).push(of) == " of"  # a space alone is taken away, and then no other


def test_pieces_of_bytes_join_to_characters(llama: Tokenizer) -> None:
    id_of = {piece: i for i, piece in enumerate(llama._pieces)}
    bytes_of_hug = [id_of[f"<0x{byte:02X}>"] for byte in "🤗".encode()]
    ids = [id_of["<0x0A>"], id_of["foo"], id_of["▁"], *bytes_of_hug, id_of["▁bar"]]
    assert llama.decode(ids) == "\nfoo 🤗 bar"
    detokenizer = llama.detokenizer()
    assert [*map(detokenizer.push, ids)] == ["\n", "foo", " ", "", "", "", "🤗", " bar"]
    assert llama.piece(id_of["<0xF0>"]) == "<0xF0>"


@given(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 31_999)), max_size=30), st.integers(0, 30), st.booleans())
def test_streamed_is_decoded(llama: Tokenizer, ids: list[int], cut: int, skip_special: bool) -> None:
    detokenizer = llama.detokenizer(skip_special=skip_special)
    assert "".join([*map(detokenizer.push, ids), detokenizer.flush()]) == llama.decode(ids, skip_special=skip_special)
    prompt, rest = ids[:cut], ids[cut:]
    before = llama.decode(prompt, skip_special=skip_special)
    if not before.endswith("\ufffd"):  # no character is divided
        detokenizer = llama.detokenizer(prompt_ids=prompt, skip_special=skip_special)
        shown = "".join([*map(detokenizer.push, rest), detokenizer.flush()])
        assert before + shown == llama.decode(ids, skip_special=skip_special)


# -- files


def test_a_file_without_merges_loads_if_it_has_scores() -> None:
    assert load_tokenizer(spm_metadata({"▁a": 0.0, "▁": 0, "a": 0})).encode("a") == [258]
    with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.merges is missing"):
        load_tokenizer(tiny_metadata(merges=None))


def test_without_bytes_a_character_is_unknown_or_refused() -> None:
    special = {"<unk>": UNKNOWN}
    scores = {"a": 0.0, "▁": 0.0}
    with_unknown = load_tokenizer(spm_metadata(scores, special, with_bytes=False, unknown_token_id=0))
    assert with_unknown.encode("aé") == [2, 1, 0]
    without = load_tokenizer(spm_metadata(scores, special, with_bytes=False))
    with pytest.raises(InvalidRequestError, match="'é', for which this vocabulary has no token") as caught:
        without.encode("aé")
    assert caught.value.field == "text"


def test_bos_and_space_where_the_file_says_nothing() -> None:
    quiet = spm_metadata({"▁a": 0.0, "▁": 0, "a": 0}, bos_token_id=1, add_bos_token=None)
    assert load_tokenizer(quiet).encode("a") == [1, 258]
    plain = load_tokenizer({**quiet, "tokenizer.ggml.add_space_prefix": False})
    assert plain.encode("a") == [1, 260]
    assert plain.decode([258]) == " a"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "tokenizer.ggml.scores is missing"),
        ({"scores": [0.0] * 258}, "258 entries for 259 tokens"),
        ({"scores": [0.0] * 258 + [float("nan")]}, r"scores\[258\] is no finite number"),
        ({"scores": np.full(259, -np.inf, np.float32)}, r"scores\[0\] is no finite number"),
        ({"scores": "abc"}, "must be an array of numbers"),
        ({"scores": [10**400] * 259}, "must be an array of numbers"),
        ({"add_space_prefix": 1}, "must be true or false"),
        (
            {
                "tokens": [*spm_metadata({"a": 0.0})["tokenizer.ggml.tokens"][:-1], "<0x0a>"],
                "token_type": [UNKNOWN, CONTROL] + [BYTE] * 257,
            },
            "tokens 12 and 258 .*, '<0x0A>' and '<0x0a>', are both byte 0x0A",
        ),
        ({"token_type": [UNKNOWN, CONTROL] + [BYTE] * 257}, "token 258 .* is 'a' and of the type of bytes"),
    ],
)
def test_bad_files_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        load_tokenizer(spm_metadata({"a": 0.0}, **changes))
