"""Learning merges: the most frequent pair of neighbours becomes a piece, again and again.

In: words and their counts. Out: a vocabulary: the 256 bytes, then the products of the merges, in order.
Source: Gage, "A New Algorithm for Data Compression" (1994); Sennrich et al., "Neural Machine Translation of Rare Words
with Subword Units" (2016).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from cutaway.tokenizer.training.pair_counts import Pair, PairCounts

BYTES = 256


class Merge(NamedTuple):
    """One merge as it is learnt: the pair, its product, and how often the pair stood in the corpus."""

    pair: Pair
    product: int
    frequency: int


class BPEVocabulary(NamedTuple):
    """``pieces``: the bytes of each id. ``merges``: pairs of ids, in the order in which they were learnt."""

    pieces: list[bytes]
    merges: list[Pair]


def learn_merges(
    word_counts: Mapping[str, int],
    size: int,
    *,
    min_count: int = 2,
    before: Callable[[Merge, PairCounts, list[bytes]], None] = lambda merge, counts, pieces: None,
    after: Callable[[Merge, PairCounts, list[bytes]], None] = lambda merge, counts, pieces: None,
) -> BPEVocabulary:
    """Learn merges until the vocabulary has ``size`` pieces, or no pair stands ``min_count`` times in the corpus.

    Two different pairs may be the same text ("ab" + "c" and "a" + "bc"); then the second merge's product is the piece
    that there is, and the vocabulary doesn't grow.

    Args:
        size: at least 256.
        before: told of each merge before it is done, with the counts as they are and the pieces so far.
        after: told of it when it is done.
    """
    pieces = [bytes([byte]) for byte in range(BYTES)]
    id_of = {piece: token_id for token_id, piece in enumerate(pieces)}
    counts = PairCounts((word.encode("utf-8"), count) for word, count in word_counts.items())
    merges: list[Pair] = []
    while len(pieces) < size:
        found = counts.most_frequent()
        if found is None or found[1] < min_count:
            break
        pair, count = found
        text = pieces[pair[0]] + pieces[pair[1]]
        merge = Merge(pair, id_of.setdefault(text, len(pieces)), count)
        before(merge, counts, pieces)
        if merge.product == len(pieces):
            pieces.append(text)
        counts.merge(pair, merge.product)
        merges.append(pair)
        after(merge, counts, pieces)
    return BPEVocabulary(pieces, merges)
