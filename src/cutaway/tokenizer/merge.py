"""Merging neighbours by rank: what byte-pair encoding does, whatever the pieces are and where the ranks come from.

In: ids, and a rule that says which neighbours merge to what. Out: fewer ids.
Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016).
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TypeAlias

DEAD = -1

MergeRule: TypeAlias = Callable[[int, int], tuple[int, int] | None]
"""(left id, right id) → (rank, id of the merged piece), or None if they don't merge; a lower rank merges first."""


def merge_by_rank(ids: Sequence[int], rule: MergeRule) -> list[int]:
    """Merge the neighbour pair of lowest rank, the leftmost first, until no pair merges: O(n log n).

    The pieces form a doubly linked list over their first positions; a heap holds (rank, position) of
    candidate pairs. A candidate is stale if the pair at its position has another rank by now. If it has the
    same rank, it is a candidate as good as the old one.
    """
    n = len(ids)
    piece = list(ids)
    following = list(range(1, n + 1))
    preceding = list(range(-1, n - 1))
    merge_at = [rule(left, right) for left, right in pairwise(ids)]
    merge_at.append(None)  # the last piece has no right neighbour
    heap = [merge[0] * n + i for i, merge in enumerate(merge_at) if merge]  # one integer orders by (rank, position)
    heapify(heap)
    while heap:
        rank, i = divmod(heappop(heap), n)
        merge = merge_at[i]
        if merge is None or merge[0] != rank:
            continue
        j = following[i]
        k = following[j]
        piece[i] = merge[1]
        piece[j] = DEAD
        merge_at[i] = merge_at[j] = None
        following[i] = k
        if k < n:
            preceding[k] = i
            merge_at[i] = right = rule(piece[i], piece[k])
            if right:
                heappush(heap, right[0] * n + i)
        h = preceding[i]
        if h >= 0:
            merge_at[h] = left = rule(piece[h], piece[i])
            if left:
                heappush(heap, left[0] * n + h)
    return [token_id for token_id in piece if token_id != DEAD]
