"""The waiting queue: sequences in the order of their rank, counted, and sorted into buckets where a policy wants it.

In: sequences. Out: the first of all, or of a bucket. No call costs more the more sequences wait, but for a logarithm.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from cutaway.scheduler.ordered_queue import OrderedQueue
from cutaway.scheduler.request import Request
from cutaway.scheduler.sequence import SequenceState


@dataclass
class Load:
    """How much waits."""

    num_choices: int = 0
    num_tokens: int = 0  # of each choice


class WaitingQueue:
    """All that wait. The number of buckets is small: it is a loop over them that finds the first of all."""

    def __init__(self, bucket_of: Callable[[Request], Hashable]) -> None:
        """bucket_of: the policy's sorting of requests."""
        self.bucket_of = bucket_of
        self._buckets: dict[Hashable, OrderedQueue[SequenceState]] = {}
        self._loads = {False: Load(), True: Load()}  # by whether the request is ``bulk``

    def load(self, *, bulk: bool) -> Load:
        """What waits of the requests that are ``bulk``, or of those that are not."""
        return self._loads[bulk]

    @property
    def num_choices(self) -> int:
        """Of all that wait."""
        return sum(load.num_choices for load in self._loads.values())

    def push(self, sequence: SequenceState) -> None:
        """It waits from now on."""
        self._buckets.setdefault(self.bucket_of(sequence.request), OrderedQueue()).push(sequence.rank, sequence)
        self._count(sequence, 1)

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
        self._count(sequence, -1)

    def check(self, sequences: Iterable[SequenceState]) -> None:
        """Raise RuntimeError unless these wait, each once and counted. For tests and the idle engine."""
        expected = list(sequences)
        if sorted(id(each) for queue in self._buckets.values() for each in queue.items()) != sorted(map(id, expected)):
            raise RuntimeError("the sequences of the queue are not those that wait")
        for queue in self._buckets.values():
            queue.check()
        for bulk, load in self._loads.items():
            mine = [each for each in expected if each.request.bulk is bulk]
            counted = Load(
                sum(len(each.choices) for each in mine), sum(len(each.choices) * len(each.ids) for each in mine)
            )
            if load != counted:
                raise RuntimeError(f"the queue counts {load}, and {counted} waits")

    def _count(self, sequence: SequenceState, sign: int) -> None:
        load, choices = self._loads[sequence.request.bulk], len(sequence.choices)
        load.num_choices += sign * choices
        load.num_tokens += sign * choices * len(sequence.ids)
