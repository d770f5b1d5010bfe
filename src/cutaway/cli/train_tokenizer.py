"""``cutaway train-tokenizer``: a vocabulary from text files, step by step: words, counts, merges or rounds, a file.

In: files of text. Out: a ``tokenizer.json``; on standard output what is learnt, as it is learnt. Nothing is written
before all is done.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence, Set
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cutaway.cli.console import error_console
from cutaway.cli.files import check_can_be_written
from cutaway.errors import InvalidRequestError, counted

if TYPE_CHECKING:
    from cutaway.tokenizer.training.bpe_trainer import Merge
    from cutaway.tokenizer.training.compression import Compression
    from cutaway.tokenizer.training.pair_counts import Pair, PairCounts
    from cutaway.tokenizer.training.unigram_trainer import Round

PRE, MIN_COUNT = "gpt-2", 2  # where the options are left out
LARGEST_VOCABULARY = 1 << 21
EXPLAINED_MERGES = 3
EXPLAINED_PAIRS = 8
EXPLAINED_CHANGES = 4
ALWAYS_A_PIECE = "every vocabulary of this kind has it as a piece of text"
FIRST_SHOWN = 20  # merges, each on a line; then at 50, 100, 200, 500, …


def train_tokenizer(
    corpus: Annotated[list[Path], typer.Argument(help="Files of UTF-8 text; - is standard input.")],
    vocab_size: Annotated[int, typer.Option(help="Tokens of the vocabulary, control tokens included.")],
    kind: Annotated[
        str, typer.Option(help="bpe: merges of frequent pairs; unigram: pieces by their probabilities.")
    ] = "bpe",
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("tokenizer.json"),
    pre: Annotated[
        str | None,
        typer.Option(help="For bpe, how text is cut into words: a name, as llama-bpe or qwen2; default, gpt-2."),
    ] = None,
    special: Annotated[
        list[str] | None, typer.Option(help="A control token, as <|endoftext|>; may be given several times.")
    ] = None,
    min_count: Annotated[
        int | None, typer.Option(help="For bpe, merge only pairs that stand so often in the corpus; default, 2.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="For bpe, show the counts of pairs before and after the first merges.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(help="That count words, and threads of unigram; default, one for each processor.")
    ] = None,
) -> None:
    """Make a vocabulary from text, and show how."""
    if kind not in ("bpe", "unigram"):
        raise InvalidRequestError(f"--kind is {kind!r}; it must be bpe or unigram.", "kind")
    special = special or []
    _check_counts(min_count, processes)
    if kind == "unigram":
        _check_unigram(vocab_size, special)
        _refuse_for_unigram(pre, min_count, explain)
    else:
        _check_bpe(vocab_size, special, pre)
    check_can_be_written(out, "--out")
    from cutaway.tokenizer.training.standard_input import spooled

    with spooled(corpus, sys.stdin) as paths, _Stages() as stages:
        content = (
            _train_bpe(paths, vocab_size, pre or PRE, special, min_count or MIN_COUNT, explain, processes, stages)
            if kind == "bpe"
            else _train_unigram(paths, vocab_size, special, processes, stages)
        )
        compression = _compression(content, paths, stages)
    _finish(content, compression, out)


def _check_bpe(vocab_size: int, special: Sequence[str], pre: str | None) -> None:
    from cutaway.tokenizer.byte_alphabet import BYTE_TO_CHARACTER
    from cutaway.tokenizer.pretokenize import PRE_TOKENIZERS
    from cutaway.tokenizer.training.export import check_control, check_not_learnt

    _check_size(vocab_size, {"256 bytes": 256, **_control(special)})
    check_control(special)
    check_not_learnt(special, frozenset(BYTE_TO_CHARACTER), ALWAYS_A_PIECE)
    if pre is not None and pre not in PRE_TOKENIZERS:
        raise InvalidRequestError(f"--pre is {pre!r:.80}; known: {', '.join(sorted(PRE_TOKENIZERS))}.", "pre")


def _check_unigram(vocab_size: int, special: Sequence[str]) -> None:
    from cutaway.tokenizer.training.export import BYTE_SPELLINGS, UNKNOWN, check_control, check_not_learnt
    from cutaway.tokenizer.training.unigram_trainer import ALWAYS_KEPT

    _check_alphabet(vocab_size, special, ALWAYS_KEPT)
    check_control([UNKNOWN, *special])
    check_not_learnt(special, ALWAYS_KEPT.union(BYTE_SPELLINGS), ALWAYS_A_PIECE)


def _check_alphabet(vocab_size: int, special: Sequence[str], alphabet: Set[str]) -> None:
    """The size suffices for all tokens that a Unigram vocabulary with this alphabet has."""
    from cutaway.tokenizer.training.unigram_trainer import ALWAYS_KEPT

    others = len(alphabet - ALWAYS_KEPT)
    parts = {"256 bytes": 256, "<unk>": 1, **_control(special)}
    parts[f"{len(ALWAYS_KEPT)} characters of printable ASCII, which are always kept"] = len(ALWAYS_KEPT)
    if others:
        parts[f"{others:,} other {'character' if others == 1 else 'characters'} of the corpus"] = others
    _check_size(vocab_size, parts)


def _control(special: Sequence[str]) -> dict[str, int]:
    return {counted(len(special), "control token"): len(special)} if special else {}


def _check_size(vocab_size: int, parts: Mapping[str, int]) -> None:
    """``parts``: what every such vocabulary has, and how many tokens that are."""
    smallest = sum(parts.values())
    if not smallest <= vocab_size <= LARGEST_VOCABULARY:
        raise InvalidRequestError(
            f"--vocab-size is {vocab_size:,}; it must be from {smallest:,} ({' + '.join(parts)}) to "
            f"{LARGEST_VOCABULARY:,}.",
            "vocab_size",
        )


def _check_counts(min_count: int | None, processes: int | None) -> None:
    if min_count is not None and min_count < 1:
        raise InvalidRequestError(f"--min-count is {min_count:,}; it must be 1 or more.", "min_count")
    if processes is not None and not 1 <= processes <= 1024:
        raise InvalidRequestError(f"--processes is {processes:,}; it must be from 1 to 1,024.", "processes")


def _refuse_for_unigram(pre: str | None, min_count: int | None, explain: bool) -> None:
    """Options about words and pairs, which mean nothing there."""
    if explain:
        raise InvalidRequestError(
            "--explain shows counts of pairs, which unigram doesn't have; leave it out.", "explain"
        )
    if pre is not None:
        raise InvalidRequestError(
            f"--pre is {pre!r}; unigram cuts text at its spaces and line ends, whatever it is. Leave it out.", "pre"
        )
    if min_count is not None:
        raise InvalidRequestError(
            f"--min-count is {min_count}; it is about pairs, which unigram doesn't have. Leave it out.", "min_count"
        )


def _count(
    corpus: Sequence[Path],
    patterns: tuple[str, ...],
    replacements: tuple[tuple[str, str], ...],
    processes: int | None,
    stages: "_Stages",
) -> Mapping[str, int]:
    """Words of the corpus → how often each occurs. patterns: cut the text; replacements: are made in it before."""
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
    """The content of tokenizer.json, of merges learnt from the corpus, each told as it is learnt."""
    from cutaway.tokenizer.pretokenize import pre_tokenizer
    from cutaway.tokenizer.training.bpe_trainer import BYTES, learn_merges
    from cutaway.tokenizer.training.export import bpe_json, check_not_learnt, spell

    patterns = pre_tokenizer(pre).patterns
    words = _count(corpus, patterns, (), processes, stages)
    size = vocab_size - len(special)
    learnt = 0
    earlier: dict[Pair, int] = {}

    def before(merge: "Merge", counts: "PairCounts", pieces: list[bytes]) -> None:
        nonlocal earlier
        if explain and learnt < EXPLAINED_MERGES:
            earlier = counts.snapshot()
            if not learnt:
                stages.say(_pairs("before merge 1", counts, pieces, earlier))

    def after(merge: "Merge", counts: "PairCounts", pieces: list[bytes]) -> None:
        nonlocal learnt
        learnt += 1
        check_not_learnt(special, {spell(pieces[merge.product])})
        if learnt <= FIRST_SHOWN or _is_round(learnt):
            stages.say(_line(merge, pieces, learnt))
        if explain and learnt <= EXPLAINED_MERGES:
            earlier.pop(merge.pair, None)  # gone, as the line above says
            stages.say(_pairs(f"after merge {learnt}", counts, pieces, earlier))
        stages.merging(len(pieces) - BYTES, size - BYTES)

    vocabulary = learn_merges(words, size, min_count=min_count, before=before, after=after)
    if len(vocabulary.pieces) < size:
        stages.say(f"no pair stands {min_count} times any more: the vocabulary ends with {learnt} merges")
    return bpe_json(vocabulary, patterns, special)


def _train_unigram(
    corpus: Sequence[Path], vocab_size: int, special: Sequence[str], processes: int | None, stages: "_Stages"
) -> dict[str, Any]:
    """The content of tokenizer.json, of pieces chosen from the corpus in rounds."""
    from cutaway.tokenizer.sentencepiece_text import SPACE
    from cutaway.tokenizer.training.export import UNIGRAM_OVERHEAD, UNIGRAM_PATTERNS, check_not_learnt, unigram_json
    from cutaway.tokenizer.training.unigram_trainer import choose_alphabet, learn_pieces

    words = _count(corpus, UNIGRAM_PATTERNS, ((" ", SPACE),), processes, stages)
    alphabet = choose_alphabet(words)
    _check_alphabet(vocab_size, special, alphabet)
    check_not_learnt(special, alphabet)

    def on_round(each: "Round") -> None:
        stages.say(f"{each.pieces:>9,} pieces: {each.bits_per_character:.4f} bits a character")

    size = vocab_size - UNIGRAM_OVERHEAD - len(special)
    vocabulary = learn_pieces(words, alphabet, size, on_round, processes or len(os.sched_getaffinity(0)), stages.show)
    if len(vocabulary.pieces) < size:
        stages.say(f"the corpus has no more than {len(vocabulary.pieces)} pieces that are of use")
    return unigram_json(vocabulary, special)


def _compression(content: dict[str, Any], corpus: Sequence[Path], stages: "_Stages") -> "Compression":
    from cutaway.tokenizer.huggingface import load_tokenizer_json
    from cutaway.tokenizer.training.compression import measure
    from cutaway.tokenizer.training.corpus import spans_of

    tokenizer = load_tokenizer_json(json.dumps(content))
    return measure(tokenizer.encode, spans_of(corpus), lambda done, total: stages.show("measuring", done, total))


def _finish(content: dict[str, Any], compression: "Compression", out: Path) -> None:
    """Write the file, and say what it has and how well it compresses."""
    from cutaway.tokenizer.training.export import write_json

    write_json(content, out)
    vocab = content["model"]["vocab"]
    pieces = set(vocab) if isinstance(vocab, dict) else {piece for piece, _ in vocab}
    size = len(pieces | {token["content"] for token in content["added_tokens"]})
    control = len(content["added_tokens"])
    parts = f"{counted(size - 256 - control, 'piece')} + 256 bytes + {counted(control, 'control token')}"
    where = "the corpus" if compression.whole else f"{compression.bytes:,} bytes of the corpus"
    rate = f"{compression.bytes / compression.tokens:.2f} bytes a token on {where}"
    error_console().print(f"{size:,} tokens ({parts}) written to {out}; {rate}", soft_wrap=True, markup=False)


def _line(merge: "Merge", pieces: list[bytes], number: int) -> str:
    left, right, product = (_shown(pieces[each]) for each in (*merge.pair, merge.product))
    return f"merge {number}: {left} + {right} → {product} = {merge.product}, {merge.frequency:,} times"


def _pairs(title: str, counts: "PairCounts", pieces: list[bytes], earlier: "Mapping[Pair, int]") -> str:
    """The first pairs, and what the last merge changed: marked among them, then what changed most of the others.

    Args:
        earlier: the counts before the merge.
    """

    def written(pair: "Pair", count: int) -> str:
        was = earlier.get(pair)
        change = "" if was == count else " (new)" if was is None else f" (was {was:,})"
        return f"{_shown(pieces[pair[0]])}+{_shown(pieces[pair[1]])}: {count:,}{change}"

    first = counts.top(EXPLAINED_PAIRS)
    now = counts.snapshot()
    changes = ((-abs(now.get(pair, 0) - earlier.get(pair, 0)), pair) for pair in now.keys() | earlier.keys())
    shown = {pair for pair, _ in first}
    others = nsmallest(EXPLAINED_CHANGES, ((change, pair) for change, pair in changes if change and pair not in shown))
    line = f"pairs {title}: " + (" · ".join(written(*each) for each in first) or "none")
    rest = " · ".join(written(pair, now.get(pair, 0)) for _, pair in others)
    return f"{line}; also changed: {rest}" if rest else line


def _shown(piece: bytes) -> str:
    from cutaway.tokenizer.detokenize import readable

    return f"'{readable(piece)}'"


def _is_round(number: int) -> bool:
    """1, 2 or 5 with zeros."""
    return str(number).rstrip("0") in ("1", "2", "5")


class _Stages:
    """What is said while a vocabulary is made: lines on standard output, and a bar on a terminal's last line; where
    standard error is no terminal, a line for each stage there.
    """

    def __init__(self) -> None:
        console = error_console()
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
        self._progress = Progress(
            *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
        )
        self._task: Any = None
        self._stage = ""

    def counting(self, done: int, total: int) -> None:
        self.show("counting words", done, total)

    def merging(self, done: int, total: int) -> None:
        self.show("merging pairs", done, total)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self._progress.live.is_started:
            self._progress.live.stop()
        typer.echo(line)
        if not self._progress.disable:
            self._progress.live.start()

    def show(self, stage: str, done: int, total: int) -> None:
        if self._progress.disable:
            if stage != self._stage:
                self._progress.console.print(f"{stage} …", soft_wrap=True)
                self._stage = stage
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
