"""Spans of a corpus: their words are the words of the whole, however they are cut and whoever counts them."""

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_texts import texts

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer.pretokenize import PRE_TOKENIZERS
from cutaway.tokenizer.training import corpus
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


@given(lines, st.integers(1, 9))
def test_spans_end_as_soon_as_they_may(tmp_path_factory: pytest.TempPathFactory, text: str, size: int) -> None:
    """Block by block, at the last end that all bytes read since the one before have."""
    data = text.encode()
    path = tmp_path_factory.mktemp("corpus") / "text"
    path.write_bytes(data or b"x")
    expected, start = [], 0
    for read in range(size, len(data) + size, size):
        if end := corpus._last_end(data[start:read]):
            expected.append((start, start + end))
            start += end
    expected += [(start, len(data))] if start < len(data) else []
    assert [(span.start, span.stop) for span in spans_of([path], size)] == (expected if data else [(0, 1)])


def test_text_without_ends_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paragraphs with empty lines between them are one span, however long, and no byte is looked at again and again."""
    searched = 0
    last_end = corpus._last_end

    def counting(data: bytes) -> int:
        nonlocal searched
        searched += len(data)
        return last_end(data)

    monkeypatch.setattr(corpus, "_last_end", counting)
    path = tmp_path / "text"
    path.write_bytes(b"a paragraph\n\n" * 1_000)
    assert len(spans_of([path], 100)) == 1
    assert path.stat().st_size <= searched <= 1.2 * path.stat().st_size


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
    with pytest.raises(InvalidRequestError, match="is a folder; give the files in it"):
        spans_of([tmp_path])


@pytest.mark.parametrize("line", [b"\n", b" x\n", b"a", "中".encode(), b"\t\n", "\u3000\n".encode(), b"x\n\x1c\n"])
def test_text_without_an_end_of_a_span_is_searched_once(
    tmp_path: Path, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the text is looked through twice as much, not four times, and never kept whole."""
    longest, searched = 0, [0, 0]

    def counting(data: bytes) -> int:
        nonlocal longest
        longest = max(longest, len(data))
        searched[run] += len(data)
        return last_end(data)

    last_end = corpus._last_end
    monkeypatch.setattr(corpus, "_last_end", counting)
    path = tmp_path / "text"
    for run in (0, 1):
        path.write_bytes(line * (run + 1) * (60_000 // len(line)))
        spans = spans_of([path], 1_000)
        assert sum(span.stop - span.start for span in spans) == path.stat().st_size
    assert searched[1] < 2.1 * searched[0]
    assert longest < 1_100


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_pipe_or_a_device_is_no_corpus(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "text"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(InvalidRequestError, match="is a pipe or device"):
        spans_of([path])


@pytest.mark.parametrize("processes", [1, 2])
def test_a_file_that_is_gone_meanwhile(tmp_path: Path, processes: int) -> None:
    path = tmp_path / "text"
    path.write_text("abc\ndef\n" * 10)
    spans = spans_of([path], 6)
    path.unlink()
    with pytest.raises(InvalidRequestError, match="can't be read"):
        count_words(spans, ((".",), ()), processes)
