"""The waiting queue: sequences in the order of their rank, counted, and sorted into buckets where a policy wants it.

In: sequences. Out: the first of all, or of a bucket. No call costs more the more sequences wait, but for a logarithm.
"""

from collections.abc import Callable, Hashable

from cutaway.scheduler.ordered_queue import OrderedQueue
from cutaway.scheduler.request import Request
from cutaway.scheduler.sequence import SequenceState


class WaitingQueue:
    """All that wait. The number of buckets is small: it is a loop over them that finds the first of all."""

    def __init__(self, bucket_of: Callable[[Request], Hashable]) -> None:
        """bucket_of: the policy's sorting of requests."""
        self.bucket_of = bucket_of
        self._buckets: dict[Hashable, OrderedQueue[SequenceState]] = {}
        self.num_choices = 0
        self.num_tokens = 0

    def push(self, sequence: SequenceState) -> None:
        """It waits from now on."""
        self._buckets.setdefault(self.bucket_of(sequence.request), OrderedQueue()).push(sequence.rank, sequence)
        self.num_choices += len(sequence.choices)
        self.num_tokens += len(sequence.choices) * len(sequence.ids)

    def first(self) -> SequenceState | None:
        """The first of all, which stays."""
        firsts = [first for queue in self._buckets.values() if (first := queue.first()) is not None]
        return min(firsts, key=lambda sequence: sequence.rank, default=None)

    def first_like(self, request: Request) -> SequenceState | None:
        """The first in the bucket of this request, which stays."""
        queue = self._buckets.get(self.bucket_of(request))
        return None if queue is None else queue.first()

    def take(self, sequence: SequenceState) -> None:
        """It waits no longer."""
        bucket = self.bucket_of(sequence.request)
        queue = self._buckets[bucket]
        if queue.take(sequence.rank) is None:
            raise ValueError(f"{sequence.name} does not wait")
        if not queue:
            del self._buckets[bucket]
        self.num_choices -= len(sequence.choices)
        self.num_tokens -= len(sequence.choices) * len(sequence.ids)
