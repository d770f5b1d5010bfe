"""Spans of a corpus: their words are the words of the whole, however they are cut and whoever counts them."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_texts import texts

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer.pretokenize import PRE_TOKENIZERS
from cutaway.tokenizer.training.corpus import read_span, spans_of
from cutaway.tokenizer.training.export import UNIGRAM_PATTERNS
from cutaway.tokenizer.training.word_counts import count_words
from cutaway.tokenizer.words import cut_words, isolate

lines = st.lists(st.one_of(texts, st.sampled_from(["a\nb", "x\n\n y", "中\n文", "é\n\u3000x"])), max_size=8).map(
    "\n".join
)


@given(lines, st.integers(1, 40))
@pytest.mark.parametrize("pre", ["gpt-2", "qwen2", "deepseek-coder", "unigram"])
def test_the_words_of_spans_are_the_words_of_the_text(
    tmp_path_factory: pytest.TempPathFactory, pre: str, text: str, size: int
) -> None:
    patterns = UNIGRAM_PATTERNS if pre == "unigram" else PRE_TOKENIZERS[pre].patterns
    path = tmp_path_factory.mktemp("corpus") / "text"
    path.write_bytes(text.encode())
    if not text:
        with pytest.raises(InvalidRequestError, match="the corpus is empty"):
            spans_of([path], size)
        return
    spans = spans_of([path, path], size)
    assert "".join(map(read_span, spans)) == text * 2
    expected = Counter(cut_words(text, map(isolate, patterns)))
    assert count_words(spans, (patterns, ())) == expected + expected


def test_several_processes_count_the_same(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("".join(f"line {n % 97} of the corpus\n" for n in range(2_000)))
    spans = spans_of([path], 1_000)
    assert len(spans) > 20
    cut = (PRE_TOKENIZERS["gpt-2"].patterns, ((" ", "▁"),))
    seen: list[tuple[int, int]] = []
    words = count_words(spans, cut, 3, lambda done, total: seen.append((done, total)))
    assert words == count_words(spans, cut)
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_no_text_is_refused(tmp_path: Path, processes: int) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"abc\ndef\n" * 3 + b"x\xff\ny\n")
    with pytest.raises(InvalidRequestError, match="is not UTF-8 text: byte 25 is 0xff"):
        count_words(spans_of([path], 6), ((".",), ()), processes)
    with pytest.raises(InvalidRequestError, match="can't be read"):
        spans_of([tmp_path / "none"])
    with pytest.raises(InvalidRequestError, match="can't be read"):
        spans_of([tmp_path])
