"""Who watches an engine is told of everything once, in time, and changes nothing."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pytest
from core_rig import Answer, Rig
from prefix_runner import PrefixRunner

from cutaway.engine.generation import Generation
from cutaway.engine.observer import Observed
from cutaway.scheduler.step import Step


class Runner(PrefixRunner):
    """Has residual rows: the number of the step, and of the row."""

    def residuals(self, batch: Any) -> Any:
        rows = np.arange(len(batch.output_rows), dtype=np.float32)
        return np.stack([np.full_like(rows, self.num_steps), rows], axis=1)


class Watcher:
    """Writes down what it is told."""

    opens_steps = False

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Any]] = []

    def attach(self, llm: Any) -> None:
        raise AssertionError

    def admitted(self, generation: Generation) -> None:
        self.told.append(("admitted", generation.request_id, None))

    def looks(self, step: Step) -> list[Any]:
        return []

    def stepped(self, step: Step, observed: Sequence[Observed]) -> None:
        for each in observed:
            tokens = [sample.token_id for sample in each.samples]
            assert tokens == [delta.token_ids[0] for delta in each.deltas]
            assert (each.residual is not None) == bool(each.piece.choices)
            self.told.append(("stepped", each.generation.request_id, tokens))

    def ended(self, generation: Generation, reason: str) -> None:
        if ("ended", generation.request_id) not in [each[:2] for each in self.told]:
            self.told.append(("ended", generation.request_id, reason))

    def summary(self, generation: Generation) -> dict[str, Any]:
        return {"told": len(self.told)}

    def close(self) -> None:
        raise AssertionError

    def of(self, request_id: str) -> list[tuple[str, Any]]:
        """What it was told of one request."""
        return [(what, value) for what, whose, value in self.told if whose == request_id]


def watched(**options: Any) -> tuple[Rig, Watcher]:
    rig, watcher = Rig(Runner(), **options), Watcher()
    rig.core._observer = watcher
    return rig, watcher


def summaries_at_the_end(answer: Answer) -> list[Any]:
    """The request's summary each time that its sink is called."""
    seen: list[Any] = []
    sink = answer.generation.sink

    def look(arrival: Any) -> None:
        seen.append(answer.generation.summary)
        sink(arrival)

    answer.generation.sink = look
    return seen


def test_everything_is_told_once_and_before_whoever_asked() -> None:
    rig, watcher = watched()
    answers = [rig.ask([3, 1, 4, number], seed=number, max_tokens=3, n=1 + number % 2) for number in range(4)]
    seen = [summaries_at_the_end(each) for each in answers]
    rig.run()
    for number, answer in enumerate(answers):
        told = watcher.of(str(number))
        assert told[0] == ("admitted", None)
        assert told[-1] == ("ended", "end")
        tokens = [value for what, value in told if what == "stepped"]
        assert sum(map(len, tokens)) == 3 * (1 + number % 2)
        assert tokens[-1]
        assert sorted(chain(*tokens)) == sorted(chain(*(each.token_ids for each in answer.choices())))
        assert seen[number][:-1] == [None] * (len(seen[number]) - 1)
        assert seen[number][-1] is not None


@pytest.mark.parametrize("reason", ["abort", "deadline"])
def test_an_end_from_outside_is_told_before_whoever_asked(reason: str) -> None:
    rig, watcher = watched()
    answer = rig.ask(max_tokens=9, deadline=5.0)
    seen = summaries_at_the_end(answer)
    rig.core.step()
    assert seen == [None]
    if reason == "abort":
        rig.core.abort(answer.generation)
    rig.clock.now = 6.0
    rig.run()
    assert watcher.of("0")[-1] == ("ended", reason)
    assert len(seen) == 2
    assert seen[-1] is not None


def test_a_deadline_that_has_passed_on_the_way_is_told() -> None:
    rig, watcher = watched()
    rig.clock.now = 6.0
    rig.ask(max_tokens=9, deadline=5.0)
    assert watcher.of("0") == [("admitted", None), ("ended", "deadline")]


def test_an_error_is_told() -> None:
    """Of a step that fails: nothing of it counts; and of the engine, for all."""
    rig, watcher = watched()
    rig.ask(max_tokens=9)
    rig.core.step()
    told = len(watcher.told)
    rig.core.fail(RuntimeError("gone"))
    assert watcher.told[told:] == [("ended", "0", "error")]
