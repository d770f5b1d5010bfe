"""The file of a Unigram vocabulary: the same ids in the `tokenizers` package and in our reader where many ways to cut a
text are equally good, and spaces that stay spaces, whatever the corpus had.
"""

import json
import math

import pytest
import tokenizers

from cutaway.tokenizer import Tokenizer
from cutaway.tokenizer.huggingface import load_tokenizer_json
from cutaway.tokenizer.sentencepiece_text import SPACE
from cutaway.tokenizer.training.export import unigram_json
from cutaway.tokenizer.training.unigram_trainer import ALWAYS_KEPT, UnigramVocabulary, choose_alphabet, learn_pieces

LENGTHS = range(1, 201)
RUNS = [character * n for character in "-#=*_~. 0a中" for n in LENGTHS]
RUNS_OF_TWO = [(pair * n)[:n] for pair in ("-=", "a ", " .", "01", "th", "ab") for n in LENGTHS]
RUNS_OF_TWO += [a * n + b * (200 - n) for a, b in ("-=", "a ", "#.") for n in LENGTHS]


def readers(vocabulary: UnigramVocabulary) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    text = json.dumps(unigram_json(vocabulary, []))
    return load_tokenizer_json(text), tokenizers.Tokenizer.from_str(text)


def check(vocabulary: UnigramVocabulary, texts: list[str]) -> None:
    ours, theirs = readers(vocabulary)
    ids = [ours.encode(text) for text in texts]
    different = [text for text, mine in zip(texts, ids, strict=True) if theirs.encode(text).ids != mine]
    assert not different, f"{len(different)} of {len(texts)}: {different[:3]}"
    assert [ours.decode(each) for each in ids] == texts
    assert [theirs.decode(each) for each in ids] == texts


def runs(fixed: float, each: float) -> UnigramVocabulary:
    """Pieces of runs whose scores are a line: any two ways with as many pieces have the same sum, but for rounding."""
    texts = [(pair * 16)[:n] for pair in ("-", "#", "=", "▁", "a", "-=", "a▁", "▁.", "th") for n in range(1, 17)]
    scored = dict.fromkeys(sorted(ALWAYS_KEPT), fixed + each)
    scored |= {text: fixed + each * len(text) for text in texts}
    return UnigramVocabulary(list(scored.items()))


@pytest.mark.parametrize(("fixed", "each"), [(-5.1, -0.3), (-math.log(977), -math.log(1.7)), (-0.7, -1 / 3)])
def test_same_ids_of_runs_where_all_ways_are_equal(fixed: float, each: float) -> None:
    check(runs(fixed, each), RUNS + RUNS_OF_TWO)


def test_same_ids_of_runs_with_a_trained_vocabulary() -> None:
    counts = {run: 1 + 2_000 // len(run) for run in ("-" * n for n in range(1, 80))}
    counts |= {"▁" + "=" * n: 1 + 900 // n for n in range(1, 80)}
    counts |= {"▁" * n: 1 + 700 // n for n in range(1, 80)}
    counts |= {"▁the": 500, "▁" + "ab" * 12: 40, "#" * 67: 30, "01" * 12: 20}
    check(learn_pieces(counts, choose_alphabet(counts), 200), RUNS + RUNS_OF_TWO)


def test_scores_keep_their_order_and_their_worth() -> None:
    counts = {"▁the": 90, "▁them": 30, "▁then": 30, "▁cat": 20}
    vocabulary = learn_pieces(counts, choose_alphabet(counts), 103)
    written = unigram_json(vocabulary, [])["model"]["vocab"][257:]
    assert [text for text, _ in written] == [text for text, _ in vocabulary.pieces]
    assert all(abs(score - exact) <= 2**-11 for (_, score), (_, exact) in zip(written, vocabulary.pieces, strict=True))
    assert all((score * 1024).is_integer() for _, score in unigram_json(vocabulary, [])["model"]["vocab"])


CORPORA_THAT_LACK_SOMETHING = {
    "spaces": {"人之初性本善": 5, "性相近习相远": 3, "\n": 8},
    "spaces and line ends": {"人之初性本善": 5},
    "all but digits": {"0123": 4, "321": 2},
    "all but spaces": {"▁": 9, "▁▁": 3},
    "all but line ends": {"\n\n": 4},
    "all but bytes": {"🦙": 3},
}


@pytest.mark.parametrize("lacks", CORPORA_THAT_LACK_SOMETHING)
def test_any_text_comes_back_whatever_the_corpus_lacked(lacks: str) -> None:
    counts = CORPORA_THAT_LACK_SOMETHING[lacks]
    vocabulary = learn_pieces(counts, choose_alphabet(counts), 120)
    pieces = [text for text, _ in vocabulary.pieces]
    assert SPACE in pieces
    assert " " not in pieces  # text has none when it is cut
    check(
        vocabulary,
        [" ", "  ", "a b", " 人 之 初 ", "x  y\n z", "\t \r\n", "é 🦙", "", " <0x20> ", "1 000", "\u3000 \u00a0"],
    )
