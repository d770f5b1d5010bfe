"""Bytes a token: of the whole corpus where it is small, else of parts of it."""

from pathlib import Path

import pytest

from cutaway.tokenizer.training import compression
from cutaway.tokenizer.training.compression import PARTS, Compression, measure
from cutaway.tokenizer.training.corpus import Span, spans_of


def test_of_the_whole_and_of_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "corpus.txt"
    text = "".join(f"中 line {n}\n" for n in range(400))
    path.write_text(text, "utf-8")
    assert measure(str.split, spans_of([path])) == Compression(len(text.encode()), len(text.split()), True)
    spans = spans_of([path], 100)
    assert len(spans) > 2 * PARTS
    read: list[str] = []
    part = measure(lambda text: read.append(text) or text.split(), spans)  # type: ignore[func-returns-value]
    assert not part.whole
    assert (part.bytes, part.tokens) == (
        sum(len(each.encode()) for each in read),
        sum(len(each.split()) for each in read),
    )
    assert len(set(read)) == PARTS
    assert text.index(read[-1]) > len(text) * (PARTS - 2) / PARTS  # from all over the corpus
    monkeypatch.setattr(compression, "CHARACTERS", 7)
    assert measure(lambda text: text, [Span(path, 0, 30)]) == Compression(9, 7, False)
