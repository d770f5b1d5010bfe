"""Rounds: in each the streaming limit, then every workload on every engine; the engine that begins rotates.

In: engines, workloads, a probe. Out: rates round by round, and for each workload the engines that can't do it, with the
reason. Before the first round each engine does every workload once, unrecorded.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cutaway.audit.limits import Rate
from cutaway.audit.llama_cpp_process import Arrivals, CannotRunError, Prompts
from cutaway.audit.speed import Workload

SETTLE_SECONDS = 0.1  # an engine's threads may spin for a moment after their last step; let them fall asleep


class Measured(Protocol):
    """The asking end of an engine's process."""

    def measure(self, prompts: Prompts, new_tokens: int) -> Arrivals:
        """Raises CannotRunError."""


@dataclass
class Results:
    """What was measured."""

    streaming: list[Rate] = field(default_factory=list)  # a round each
    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # workload → engine → tokens a second
    cannot: dict[str, dict[str, str]] = field(default_factory=dict)  # workload → engine → why


def run_rounds(
    engines: Mapping[str, Measured],
    works: Mapping[str, Workload],
    prompts: Callable[[Workload, int], Prompts],
    probe: Callable[[], Rate],
    rounds: int,
    progress: Callable[[str], None] = lambda text: None,
) -> Results:
    """prompts: of a workload, for the run's request of a number; all engines get the same."""
    results = Results()
    names = list(engines)
    for row in works:
        results.rates[row] = {name: [] for name in names}
        results.cannot[row] = {}
    for number in range(-1, rounds):
        rate = probe()
        if number >= 0:
            results.streaming.append(rate)
        turn = max(number, 0) % max(len(names), 1)
        for place, (row, work) in enumerate(works.items()):
            asked = prompts(work, (number + 1) * len(works) + place)
            for name in names[turn:] + names[:turn]:
                if name in results.cannot[row]:
                    continue
                progress(f"{'warming up' if number < 0 else f'round {number + 1} of {rounds}'}: {work.name}, {name}")
                time.sleep(SETTLE_SECONDS)
                try:
                    found = work.rate(engines[name].measure(asked, work.new_tokens))
                except CannotRunError as reason:
                    results.cannot[row][name] = str(reason)
                    del results.rates[row][name]
                    continue
                if number >= 0:
                    results.rates[row][name].append(found)
    return results
