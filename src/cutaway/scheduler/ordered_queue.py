"""A queue ordered by keys, from which any item can be taken.

In: items with unique keys. Out: the item with the smallest key. Taking one that is not first leaves its key behind,
which is dropped when it comes to the front, or when such keys are half of all: each call costs O(log n) on average.
"""

import heapq
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class OrderedQueue(Generic[Item]):
    """Invariant: every key of ``_items`` is in the heap ``_keys``; what else is there is of items that were taken."""

    def __init__(self) -> None:
        self._keys: list[Any] = []
        self._items: dict[Any, Item] = {}

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> list[Item]:
        """All items, in no order."""
        return list(self._items.values())

    def check(self) -> None:
        """Raise RuntimeError if the invariant does not hold: an item would never come to the front."""
        if not self._items.keys() <= set(self._keys):
            raise RuntimeError("an item of a queue is not in its order")

    def push(self, key: Any, item: Item) -> None:
        """Add an item, with a key that no other item has."""
        if key in self._items:
            raise ValueError(f"{key} is in the queue already")
        self._items[key] = item
        heapq.heappush(self._keys, key)

    def first(self) -> Item | None:
        """The item with the smallest key, which stays; None if there is none."""
        while self._keys and self._keys[0] not in self._items:
            heapq.heappop(self._keys)
        return self._items[self._keys[0]] if self._keys else None

    def take(self, key: Any) -> Item | None:
        """Remove the item of this key and return it; None if it isn't there."""
        item = self._items.pop(key, None)
        if len(self._keys) > 2 * len(self._items) + 16:
            self._keys = list(self._items)
            heapq.heapify(self._keys)
        return item
