"""llama.cpp with slots that are filled anew, as its server has them: the peer of continuous batching.

In: prompts, and for each how many tokens its answer has. Out: the answers. Each slot holds a sequence with a
context of its own. A step takes one token of each slot that answers, then prompts as far as it has room; a slot that
ends takes the next request at once, and keeps what its prompt shares with the one before.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peers.contract import LlamaCpp

STEP_TOKENS = 512  # llama.cpp's own default


@dataclass
class Slot:
    """Who lives in a sequence of the context."""

    sequence: int
    kept: list[int] = field(default_factory=list)  # ids whose keys and values are there
    prompt: Sequence[int] = ()
    answers: int = 0  # tokens that are still to come
    answer: list[int] = field(default_factory=list)
    next: list[int] = field(default_factory=list)  # the last token, once there is one

    def take(self, prompt: Sequence[int], answers: int, answer: list[int]) -> int:
        """Begin a request; how many of its tokens are there already (never all: the last one's logits are wanted)."""
        shared = 0
        for ours, theirs in zip(self.kept, prompt[:-1], strict=False):
            if ours != theirs:
                break
            shared += 1
        self.kept, self.prompt, self.answers = list(prompt[:shared]), prompt, answers
        self.answer, self.next = answer, []
        return shared


class LlamaCppSlots(LlamaCpp):  # type: ignore[misc]  # it comes by its file's path
    """``slots`` sequences of ``positions`` each."""

    def __init__(self, model: Path, threads: int, slots: int, positions: int, flash_attention: bool = False) -> None:
        super().__init__(model, threads, flash_attention)
        self._slots, self._positions = slots, positions

    def run(self, prompts: Sequence[Sequence[int]], answers: Sequence[int]) -> tuple[list[list[int]], float]:
        """All requests: the tokens of each answer; the seconds that they took."""
        self.forget()
        begin = time.perf_counter()
        found: list[list[int]] = [[] for _ in prompts]
        waiting = deque(zip(prompts, answers, found, strict=True))
        context = self._context(self._slots, self._positions)
        memory = self._api.llama_get_memory(context)
        slots = [Slot(sequence) for sequence in range(self._slots)]
        while waiting or any(slot.answers for slot in slots):
            for slot in slots:
                if not slot.answers and waiting:
                    shared = slot.take(*waiting.popleft())
                    self._api.llama_memory_seq_rm(memory, slot.sequence, shared, -1)
            entries, wanted = _entries(slots)
            for slot, token in zip(wanted, self._step(context, entries), strict=True):
                slot.next = [token]
                slot.answer.append(token)
                slot.answers -= 1
        return found, time.perf_counter() - begin


def _entries(slots: Sequence[Slot]) -> tuple[list[tuple[int, int, int, bool]], list[Slot]]:
    """The next step's tokens (id, position, sequence, whether the next one is wanted); whose tokens come of it."""
    entries: list[tuple[int, int, int, bool]] = []
    wanted: list[Slot] = []
    running = [slot for slot in slots if slot.answers]
    for slot in running:
        if slot.next:
            entries.append((slot.next[0], len(slot.kept), slot.sequence, True))
            slot.kept += slot.next
            wanted.append(slot)
    for slot in running:
        begin, last = len(slot.kept), len(slot.prompt) - 1
        count = min(last + 1 - begin, STEP_TOKENS - len(entries))
        if slot.next or count <= 0:
            continue
        places = range(begin, begin + count)
        entries += [(slot.prompt[place], place, slot.sequence, place == last) for place in places]
        slot.kept += slot.prompt[begin : begin + count]
        if begin + count > last:
            wanted.append(slot)
    return entries, wanted
