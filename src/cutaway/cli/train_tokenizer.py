"""``cutaway train-tokenizer``: a vocabulary from text files, step by step: words, counts, merges or rounds, a file.

In: files of text. Out: a ``tokenizer.json``; on standard output what is learnt, as it is learnt. Nothing is written
before all is done.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cutaway.cli.console import error_console
from cutaway.errors import InvalidRequestError

if TYPE_CHECKING:
    from cutaway.tokenizer.training.bpe_trainer import Merge
    from cutaway.tokenizer.training.pair_counts import PairCounts
    from cutaway.tokenizer.training.unigram_trainer import Round

LARGEST_VOCABULARY = 1 << 21
EXPLAINED_MERGES = 3
EXPLAINED_PAIRS = 8
FIRST_SHOWN = 20  # merges, each on a line; then at 50, 100, 200, 500, …


def train_tokenizer(
    corpus: Annotated[list[Path], typer.Argument(help="Files of UTF-8 text.")],
    vocab_size: Annotated[int, typer.Option(help="Tokens of the vocabulary, control tokens included.")],
    kind: Annotated[
        str, typer.Option(help="bpe: merges of frequent pairs; unigram: pieces by their probabilities.")
    ] = "bpe",
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("tokenizer.json"),
    pre: Annotated[
        str, typer.Option(help="For bpe, how text is cut into words: a name, as gpt-2, llama-bpe or qwen2.")
    ] = "gpt-2",
    special: Annotated[
        list[str] | None, typer.Option(help="A control token, as <|endoftext|>; may be given several times.")
    ] = None,
    min_count: Annotated[int, typer.Option(help="For bpe, merge only pairs that stand so often in the corpus.")] = 2,
    explain: Annotated[
        bool, typer.Option("--explain", help="For bpe, show the counts of pairs before and after the first merges.")
    ] = False,
    processes: Annotated[int | None, typer.Option(help="That count words; default, one for each processor.")] = None,
) -> None:
    """Make a vocabulary from text, and show how."""
    if kind not in ("bpe", "unigram"):
        raise InvalidRequestError(f"--kind is {kind!r}; it must be bpe or unigram.", "kind")
    special = special or []
    _check(vocab_size, kind, special, explain, min_count, processes)
    if out.is_dir():
        raise InvalidRequestError(f"--out {str(out)!r} is a folder; give the name of a file.", "out")
    with _Stages() as stages:
        content = (
            _train_bpe(corpus, vocab_size, pre, special, min_count, explain, processes, stages)
            if kind == "bpe"
            else _train_unigram(corpus, vocab_size, special, processes, stages)
        )
    _finish(content, out)


def _check(
    vocab_size: int, kind: str, special: Sequence[str], explain: bool, min_count: int, processes: int | None
) -> None:
    overhead = (256 if kind == "bpe" else 257) + len(special)
    if not overhead <= vocab_size <= LARGEST_VOCABULARY:
        raise InvalidRequestError(
            f"--vocab-size is {vocab_size}; it must be {overhead} (bytes and control tokens) to {LARGEST_VOCABULARY}.",
            "vocab_size",
        )
    if min_count < 1:
        raise InvalidRequestError(f"--min-count is {min_count}; it must be 1 or more.", "min_count")
    if processes is not None and not 1 <= processes <= 1024:
        raise InvalidRequestError(f"--processes is {processes}; it must be 1 to 1024.", "processes")
    if kind == "unigram" and explain:
        raise InvalidRequestError(
            "--explain shows counts of pairs, which unigram doesn't have; leave it out.", "explain"
        )


def _count(
    corpus: Sequence[Path],
    patterns: tuple[str, ...],
    replacements: tuple[tuple[str, str], ...],
    processes: int | None,
    stages: "_Stages",
) -> Mapping[str, int]:
    from cutaway.tokenizer.training.corpus import spans_of
    from cutaway.tokenizer.training.word_counts import count_words

    spans = spans_of(corpus)
    usable = len(os.sched_getaffinity(0))
    words = count_words(spans, (patterns, replacements), processes or usable, stages.counting)
    total = sum(span.stop - span.start for span in spans)
    stages.say(f"{total:,} bytes: {sum(words.values()):,} words, {len(words):,} different ones")
    return words


def _train_bpe(
    corpus: Sequence[Path],
    vocab_size: int,
    pre: str,
    special: Sequence[str],
    min_count: int,
    explain: bool,
    processes: int | None,
    stages: "_Stages",
) -> dict[str, Any]:
    from cutaway.tokenizer.pretokenize import pre_tokenizer
    from cutaway.tokenizer.training.bpe_trainer import BYTES, learn_merges
    from cutaway.tokenizer.training.export import bpe_json

    patterns = pre_tokenizer(pre).patterns
    words = _count(corpus, patterns, (), processes, stages)
    size = vocab_size - len(special)
    learnt = 0

    def before(merge: "Merge", counts: "PairCounts", pieces: list[bytes]) -> None:
        if explain and learnt < EXPLAINED_MERGES:
            stages.say(_pairs(f"before merge {learnt + 1}", counts, pieces))

    def after(merge: "Merge", counts: "PairCounts", pieces: list[bytes]) -> None:
        nonlocal learnt
        learnt += 1
        if learnt <= FIRST_SHOWN or _is_round(learnt):
            stages.say(_line(merge, pieces, learnt))
        if explain and learnt <= EXPLAINED_MERGES:
            stages.say(_pairs(f"after merge {learnt}", counts, pieces))
        stages.merging(len(pieces) - BYTES, size - BYTES)

    vocabulary = learn_merges(words, size, min_count=min_count, before=before, after=after)
    if len(vocabulary.pieces) < size:
        stages.say(f"no pair stands {min_count} times any more: the vocabulary ends with {learnt} merges")
    return bpe_json(vocabulary, patterns, special)


def _train_unigram(
    corpus: Sequence[Path], vocab_size: int, special: Sequence[str], processes: int | None, stages: "_Stages"
) -> dict[str, Any]:
    from cutaway.tokenizer.sentencepiece_text import SPACE
    from cutaway.tokenizer.training.export import UNIGRAM_OVERHEAD, UNIGRAM_PATTERNS, unigram_json
    from cutaway.tokenizer.training.unigram_trainer import learn_pieces

    words = _count(corpus, UNIGRAM_PATTERNS, ((" ", SPACE),), processes, stages)

    def on_round(each: "Round") -> None:
        stages.say(f"{each.pieces:>9,} pieces: {each.bits_per_character:.4f} bits a character")

    size = vocab_size - UNIGRAM_OVERHEAD - len(special)
    vocabulary = learn_pieces(words, size, on_round)
    if len(vocabulary.pieces) < size:
        stages.say(f"the corpus has no more than {len(vocabulary.pieces)} pieces that are of use")
    return unigram_json(vocabulary, special)


def _finish(content: dict[str, Any], out: Path) -> None:
    from cutaway.tokenizer.training.export import write_json

    write_json(content, out)
    vocab = content["model"]["vocab"]
    pieces = set(vocab) if isinstance(vocab, dict) else {piece for piece, _ in vocab}
    size = len(pieces | {token["content"] for token in content["added_tokens"]})
    error_console().print(f"{size:,} tokens written to {out}", soft_wrap=True, markup=False)


def _line(merge: "Merge", pieces: list[bytes], number: int) -> str:
    left, right, product = (_shown(pieces[each]) for each in (*merge.pair, merge.product))
    return f"merge {number}: {left} + {right} → {product} = {merge.product}, {merge.frequency:,} times"


def _pairs(title: str, counts: "PairCounts", pieces: list[bytes]) -> str:
    listed = (f"{_shown(pieces[a])} {_shown(pieces[b])} {count:,}" for (a, b), count in counts.top(EXPLAINED_PAIRS))
    return f"pairs {title}: " + (" · ".join(listed) or "none")


def _shown(piece: bytes) -> str:
    from cutaway.tokenizer.detokenize import readable

    return f"'{readable(piece)}'"


def _is_round(number: int) -> bool:
    """1, 2 or 5 with zeros."""
    return str(number).rstrip("0") in ("1", "2", "5")


class _Stages:
    """What is said while a vocabulary is made: lines on standard output, and a bar on a terminal's last line."""

    def __init__(self) -> None:
        console = error_console()
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
        self._progress = Progress(
            *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
        )
        self._task: Any = None
        self._stage = ""

    def counting(self, done: int, total: int) -> None:
        self._show("counting words", done, total)

    def merging(self, done: int, total: int) -> None:
        self._show("merging pairs", done, total)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self._progress.live.is_started:
            self._progress.live.stop()
        typer.echo(line)
        if not self._progress.disable:
            self._progress.live.start()

    def _show(self, stage: str, done: int, total: int) -> None:
        if self._progress.disable:
            return
        if stage != self._stage:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(stage, total=total)
            self._stage = stage
            self._progress.start()
        self._progress.update(self._task, completed=done)

    def __enter__(self) -> "_Stages":
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()
