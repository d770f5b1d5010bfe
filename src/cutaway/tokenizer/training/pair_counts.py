"""The counts of neighbouring pairs in all words, kept up to date as pairs are merged.

In: words as ids, each with its count; then pairs to merge. Out: the most frequent pair. All words lie one behind the
other in arrays of places, each place linked to its neighbours; each pair knows the places where it may begin. So a
merge costs what it changes, not what the corpus has.

A pair's count is the number of places where it stands, overlapping ones too ("aaa" has "aa" twice), times the counts of
their words. Of equal counts, the pair with the lowest left id comes first, then the one with the lowest right id.
"""

from array import array
from collections.abc import Iterable
from heapq import heapify, heappop, heappush, nsmallest
from typing import TypeAlias

Pair: TypeAlias = tuple[int, int]

GONE = -1  # the id of a place that was merged into the one before, and the link where a word ends


class PairCounts:
    """The words of a corpus and their pairs.

    Args:
        words: (ids, count) of each word, the ids below 2³¹.
    """

    def __init__(self, words: Iterable[tuple[Iterable[int], int]]) -> None:
        self._ids = array("i")
        self._following = array("i")
        self._preceding = array("i")
        self._weights = array("q")
        self._counts: dict[Pair, int] = {}
        self._places: dict[Pair, array[int]] = {}  # may have places where the pair stands no more
        for ids, count in words:
            self._add_word(ids, count)
        # Each pair has an entry with its count or a higher one: entries are pushed when counts rise, and corrected when
        # they are popped.
        self._heap = [(-count, *pair) for pair, count in self._counts.items()]
        heapify(self._heap)

    def _add_word(self, ids: Iterable[int], count: int) -> None:
        first = len(self._ids)
        self._ids.extend(ids)
        end = len(self._ids)
        if end == first:
            return
        self._weights.extend([count] * (end - first))
        self._preceding.append(GONE)
        self._preceding.extend(range(first, end - 1))
        self._following.extend(range(first + 1, end))
        self._following.append(GONE)
        for place in range(first, end - 1):
            pair = (self._ids[place], self._ids[place + 1])
            self._raise(pair, count, place)

    def _raise(self, pair: Pair, count: int, place: int) -> None:
        places = self._places.get(pair)
        if places is None:
            self._counts[pair] = count
            self._places[pair] = array("i", (place,))
        else:
            self._counts[pair] += count
            places.append(place)

    def count(self, pair: Pair) -> int:
        """How often the pair occurs."""
        return self._counts.get(pair, 0)

    def most_frequent(self) -> tuple[Pair, int] | None:
        """The first pair and its count; None where no pair is left."""
        while self._heap:
            negative, left, right = self._heap[0]
            count = self._counts.get((left, right), 0)
            if count == -negative:
                return (left, right), count
            heappop(self._heap)
            if count:
                heappush(self._heap, (-count, left, right))
        return None

    def top(self, n: int) -> list[tuple[Pair, int]]:
        """The first n pairs with their counts, in order; looks at all pairs."""
        ordered = nsmallest(n, ((-count, pair) for pair, count in self._counts.items() if count))
        return [(pair, -negative) for negative, pair in ordered]

    def snapshot(self) -> dict[Pair, int]:
        """The counts of all pairs as they are now: a copy."""
        return dict(self._counts)

    def merge(self, pair: Pair, product: int) -> None:
        """Replace the pair by its product wherever it stands, from left to right.

        Args:
            product: its id; neither of the pair's.
        """
        left, right = pair
        ids, following, preceding = self._ids, self._following, self._preceding
        raised: set[Pair] = set()
        for place in sorted(self._places.pop(pair, ())):
            other = following[place]
            if ids[place] != left or other == GONE or ids[other] != right:
                continue
            weight = self._weights[place]
            before, behind = preceding[place], following[other]
            if before != GONE:
                self._lower((ids[before], left), weight)
                self._raise((ids[before], product), weight, before)
                raised.add((ids[before], product))
            if behind != GONE:
                self._lower((right, ids[behind]), weight)
                self._raise((product, ids[behind]), weight, place)
                raised.add((product, ids[behind]))
                preceding[behind] = place
            ids[place] = product
            ids[other] = GONE
            following[place] = behind
        self._counts.pop(pair, None)
        for each in raised:
            count = self._counts.get(each, 0)
            if count:
                heappush(self._heap, (-count, *each))

    def _lower(self, pair: Pair, count: int) -> None:
        rest = self._counts[pair] - count
        if rest:
            self._counts[pair] = rest
        else:
            del self._counts[pair]
            self._places.pop(pair, None)
